"""usage: tftrt build MODEL --shapes=SHAPES [--flags]
       tftrt build MODEL --strip [--flags]
       tftrt build PLAN [--shapes=SHAPES] [--flags]

Builds the TensorRT engines of all signatures of a converted model, on the GPU that will serve it, and checks each declared shape in a
fresh process. The model is replaced in one step, or stays as it was. With --output the result is written there instead. `build` ignores
the engines that the model already carries, so engines of another TensorRT or GPU do no harm. It takes engines from the engine cache if
they are there.

--repeat=N builds everything N times and keeps the fastest build: TensorRT chooses kernels by timing them, so builds differ. The engine
cache and TensorRT's timing cache are not used, because they would repeat the first build. The builds are timed in turns at each
declared shape.

--strip removes the engines instead. The stripped model runs on any GPU, and each server builds its own engines. This needs no GPU.

--on builds for other kinds of GPU. The model is sent to a machine that has such a GPU, and comes back with its engines: --output gets a
folder for each kind of GPU. The same command again takes over the complete ones that are there, if they were built from the same model
with the same flags and versions. This needs Ray (the extra `fleet`). Exit codes: 0 every kind of GPU has its model; 3 at least one has not
(--json and --junit say which, and why); 1 the fleet does not answer, or a file could not be written; 2 wrong usage.

A plan directory (`tftrt convert --backend=tensorrt`) is built again for this machine's GPU and TensorRT, from the model.onnx and the
settings that it keeps, or comes from the engine cache. --shapes changes its profiles. The old plan is not read.

examples:
  tftrt build resnet_fp16 --shapes='image:1x224x224x3,8x224x224x3'
  tftrt build encoder_fp16 --shapes='ids:min=1x128,opt=8x128,max=32x128;mask:min=1x128,opt=8x128,max=32x128'
  tftrt build resnet_fp16 --shapes='image:1x224x224x3,32x224x224x3' --repeat=3
  tftrt build resnet_fp16 --strip --output=resnet_portable
  tftrt build resnet_fp16 --shapes='image:1x224x224x3' --on=ray://head:10001 --gpu_types=T4,L4 --output=built
  tftrt build resnet_fp16 --shapes='image:1x224x224x3' --on=ray://head:10001 --output=built --json=b.json --junit=b.xml
  tftrt build resnet_plan --shapes='image:1x224x224x3|image:min=2x224x224x3,opt=8x224x224x3,max=64x224x224x3'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from absl import flags

from tftrt_tools.base import errors, terminal
from tftrt_tools.base.files import whole_file
from tftrt_tools.base.process import progress
from tftrt_tools.command_line.commands import (
    _backend_flags,
    _building,
    _calling,
    _flags,
    _fleet,
    _made,
    _next,
    _output,
    _source_flags,
    convert,
)
from tftrt_tools.fleet.place import FORMS
from tftrt_tools.models.backends.protocol import Changes, Made, Work
from tftrt_tools.models.kinds import table
from tftrt_tools.models.savedmodel import shapes as shape_grammar
from tftrt_tools.models.sources.source import Source
from tftrt_tools.studies import backends
from tftrt_tools.tftrt.conversion.signature_result import refused_lines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console
    from typing_extensions import TypeIs

    from tftrt_tools.studies.fleet_builds.building import FleetBuild
    from tftrt_tools.studies.tuning.repeats import Repeated, Repeats
    from tftrt_tools.tftrt.conversion.build import Build


URLS = ("on",)
OUTPUTS = ("junit",)
# {flag: field of the back end's options}.
_OPTIONS = {
    "dynamic_shape_profile_strategy": "strategy",
    "allow_build_at_runtime": "allow_build_at_runtime",
    "leave_refused_nodes": "leave_refused_nodes",
    "tags": "tags",
}
# {flag that --on refuses: why}.
_HERE_ALONE = {
    "strip": "a model without engines is the same for every GPU",
    "repeat": "it compares builds on this machine",
    "layer_precisions": "it reads the log of this machine",
    "log_file": "the log is on the machine that builds",
    "engine_cache_dir": "each machine has its own disk",
    "op_library": "it is a file of this machine",
}
# All builds are in GPU memory when they are timed.
MOST_BUILDS = 16


def define(values: flags.FlagValues) -> None:
    """Define the command's flags on FlagValues `values`."""
    text = dict(flag_values=values)
    flags.DEFINE_string(
        "shapes",
        "",
        "shapes to build engines for: a list 'x:1x224x224x3,8x224x224x3', or a range "
        "'x:min=1x224x224x3,opt=8x224x224x3,max=32x224x224x3'; as in `tftrt convert`. Of a plan directory: by default "
        "those that it has",
        **text,
    )
    _source_flags.define_op_library(values)
    flags.DEFINE_boolean("strip", False, "remove the engines", **text)
    flags.DEFINE_string("output", None, "directory to make; by default the model itself is replaced", **text)
    flags.DEFINE_boolean("overwrite", False, "replace a SavedModel or plan directory that is at --output", **text)
    flags.DEFINE_string(
        "dynamic_shape_profile_strategy",
        None,
        "Range, Optimal, Range+Optimal or ImplicitBatchModeCompatible; by default "
        "what fits --shapes: Optimal for a list, Range or Range+Optimal for a range",
        **text,
    )
    flags.DEFINE_integer(
        "max_workspace_size_bytes",
        None,
        "scratch GPU memory of an engine; by default what the conversion chose",
        **text,
    )
    flags.DEFINE_boolean(
        "allow_build_at_runtime",
        None,
        "let a request whose shape has no engine build one; by default what the conversion chose",
        **text,
    )
    flags.DEFINE_boolean(
        "leave_refused_nodes",
        None,
        "leave a node that TensorRT refuses by name to TensorFlow, and build the rest; by default what the conversion chose",
        **text,
    )
    flags.DEFINE_list("tags", [], "tags of the MetaGraph, by default the only one or 'serve'", **text)
    flags.DEFINE_integer(
        "repeat",
        1,
        "number of builds, of which the fastest is kept (by the geometric mean of the median times at the declared shapes)",
        lower_bound=1,
        upper_bound=MOST_BUILDS,
        **text,
    )
    _building.define(values)
    _fleet.define(values)
    flags.DEFINE_string(
        "junit", None, "with --on: write a test case for each kind of GPU as JUnit XML to this file", **text
    )
    convert.define_cache(values)
    convert.define_layers(values)
    flags.DEFINE_string("log_file", None, "keep what TensorFlow and TensorRT log in this file", **text)


def result(values: flags.FlagValues, positional: list[str]) -> Made | Repeated | FleetBuild:
    """Build; with --repeat several times, with --on elsewhere."""
    place = _fleet.read(values)
    model = _flags.one_argument("build", positional, "MODEL")
    made_by = backends.of_made(model)
    if made_by is None and table.kind(model).onnx(model) == model:
        raise errors.UsageError(
            f"build takes what `tftrt convert` made, and {model} is {table.noun(model)}",
            f"`tftrt convert --backend=tensorrt {model}` builds a plan of it",
        )
    backend = made_by or backends.default()
    _backend_flags.check_rebuilt(values, backend, model)
    options = {flag: values[name].value for name, flag in _OPTIONS.items() if name in backend.build_flags}
    if "tags" in options:
        options["tags"] = tuple(filter(None, options["tags"]))
    if "strip" in backend.build_flags:
        _check_shapes(values)
    several = _several(values)
    if place is not None:
        _check_elsewhere(values)
    elif values.junit:
        raise errors.UsageError(
            "--junit has a test case for each kind of GPU, and --on is missing", f"add --on: {FORMS}"
        )
    cache = None if convert.read_layers(values) or several else convert.read_cache(values)
    minutes = _building.minutes(values, always=backend.always_builds)
    changes = Changes(shapes=values.shapes, max_workspace_size_bytes=values.max_workspace_size_bytes, options=options)
    if several:
        return _fastest(model, changes, values)
    if place is not None:
        from tftrt_tools.studies.fleet_builds import building
        from tftrt_tools.tftrt.conversion import build

        if made_by is None:
            # Each machine would say it, once it has the model.
            build.engine_ops(model)
        with _fleet.live() as changed:
            return building.everywhere(
                model,
                values.output,
                building.asked(backend.name, changes, minutes, cache["max_bytes"] if cache else None),
                place,
                values.gpu_types,
                overwrite=values.overwrite,
                changed=changed,
                place_seconds=values.wait_seconds,
            )
    work = Work(
        source=Source(path=model),
        output=values.output,
        settings=backend.settings(),
        overwrite=values.overwrite,
        cache=cache,
        log_file=values.log_file,
        layers=values.layer_precisions,
        build_minutes=minutes,
    )
    with _building.resumable(values, cache if backend.resumes else None), progress.on_terminal():
        return backend.rebuild(model, changes, work)


def show(done: Made | Repeated | FleetBuild, values: flags.FlagValues) -> None:
    """Print what was built."""
    console = _output.console(values.json)
    if _of_fleet(done):
        _print_kinds(console, done)
    elif _of_several(done):
        _print_builds(console, done.repeats)
        _made.show(done.build, console, None)
    else:
        _made.show(done, console, None if values.layer_precisions else convert.read_cache(values))


def write(done: Made | Repeated | FleetBuild, values: flags.FlagValues) -> None:
    """Write --json and --junit."""
    _output.write_json(done, values.json)
    if values.junit and _of_fleet(done):
        from tftrt_tools.studies.fleet_builds import junit

        whole_file.write_text(values.junit, junit.text(done))


def failure(done: Made | Repeated | FleetBuild, values: flags.FlagValues) -> errors.TftrtError | None:
    """As _made.failure; of several kinds of GPU, the first that is not there."""
    if _of_fleet(done):
        missing = next((one for one in done.kinds if not one.complete), None)
        if missing is None:
            return None
        cause, mend = (
            missing.cause or "not all engines are there",
            missing.mend or "its lines above name those that are not",
        )
        return errors.CheckFailed(f"{missing.gpu_type}: {cause}", mend)
    return _made.failure(done.build if _of_several(done) else done)


def _of_several(done: Made | Repeated | FleetBuild) -> TypeIs[Repeated]:
    return getattr(done, "document", "") == "repeated build"


def _of_fleet(done: Made | Repeated | FleetBuild) -> TypeIs[FleetBuild]:
    return getattr(done, "document", "") == "fleet build"


def run(values: flags.FlagValues, positional: list[str]) -> int:
    """Build. Returns: the exit code."""
    done = result(values, positional)
    show(done, values)
    write(done, values)
    made = values.output or positional[0]
    if not _of_fleet(done) and (original := _next.original(made)):
        _next.show_verify(values, original, made)
    return _calling.exit_code(failure(done, values))


def _check_shapes(values: flags.FlagValues) -> None:
    if bool(values.shapes) == values.strip:
        raise errors.UsageError(
            "--shapes and --strip exclude each other" if values.strip else "--shapes is missing",
            "give --shapes to build engines, or --strip to take them away",
        )
    if values.shapes:
        shape_grammar.parse(values.shapes)


def _several(values: flags.FlagValues) -> bool:
    """Whether the engines are built more than once. Raises: UsageError where that makes no sense."""
    if values.repeat == 1:
        return False
    if values.strip:
        raise errors.UsageError("--repeat builds engines, and --strip takes them away", "leave one of them out")
    for name in ("engine_cache", "engine_cache_dir", "engine_cache_max_bytes"):
        if values[name].present and values[name].value:
            raise errors.UsageError(
                f"--{name} has no effect with --repeat: from a cache every build would be the first one", "leave it out"
            )
    return True


def _check_elsewhere(values: flags.FlagValues) -> None:
    """Raise UsageError for flags that make no sense with --on."""
    if not values.output:
        raise errors.UsageError(
            "--on makes a model for each kind of GPU, and --output is missing",
            "name the folder for them: each kind gets a folder in it",
        )
    for name, why in _HERE_ALONE.items():
        if values[name].present and values[name].value:
            raise errors.UsageError(f"--{name} has no effect with --on: {why}", "leave one of them out")


def _fastest(model: str, changes: Changes, values: flags.FlagValues) -> Repeated:
    """Build several times, and keep the fastest."""
    from tftrt_tools.studies.tuning import repeats
    from tftrt_tools.tftrt.conversion import build

    with progress.on_terminal():
        return repeats.fastest(
            model,
            values.output,
            build.Options(
                shapes=changes.shapes, max_workspace_size_bytes=changes.max_workspace_size_bytes, **changes.options
            ),
            values.repeat,
            overwrite=values.overwrite,
            log_file=values.log_file,
            layers=values.layer_precisions,
            build_minutes=_building.minutes(values),
        )


def _print_builds(console: Console, found: Repeats) -> None:
    rows = [
        (
            one.number,
            *(f"{one.ms[call]:.3f}" if one.ms else "" for call in found.calls),
            "" if one.mean_ms is None else f"{one.mean_ms:.3f}",
            "kept" if one.number == found.kept else one.kept_is.text("it") if one.kept_is else "not whole",
            "other answers" if one.unlike else "",
            f"{one.build_seconds:.1f} s",
        )
        for one in found.builds
    ]
    columns = [">build", *(f">{call}, ms" for call in found.calls), ">mean ms", "the kept one is", "", ">built in"]
    console.print(_output.table("Builds, timed in turns", columns, rows))
    console.print(found.text(), soft_wrap=True)


def _print_kinds(console: Console, done: FleetBuild) -> None:
    rows = [
        (one.gpu_type, one.state, one.where.text() if one.where else "", one.tries, f"{one.seconds:.1f} s", one.output)
        for one in done.kinds
    ]
    columns = ["kind of GPU", "", "where", ">tries", ">took", "written"]
    console.print(_output.table("Engines for each kind of GPU", columns, rows))
    for one in done.kinds:
        if one.cause:
            console.print(f"  {one.gpu_type}: {one.cause}", soft_wrap=True)
            console.print(f"    {one.mend}", soft_wrap=True)
        for line in one.built.text if one.built and not one.built.complete else ():
            console.print(f"  {one.gpu_type}: {line}", soft_wrap=True)
    for line in done.of_before():
        console.print(f"  {line}", soft_wrap=True)
    console.print(done.summary(), soft_wrap=True)


@_made.table("build")
def _build(done: Build, console: Console, cache: Mapping[str, Any] | None) -> None:
    if done.built:
        _print_engines(console, done)
        convert.print_layers(console, done)
    else:
        ops = sum(len(one.engines) for one in done.signatures)
        console.print(f"{terminal.counted(ops, 'engine op')}, no engines: each target builds its own")
    for line in refused_lines(done.signatures):
        console.print(f"  {line}", soft_wrap=True)
    _building.print_unbuilt(console, done, cache)
    if done.cache_problem:
        console.print(f"the engine cache was not used: {done.cache_problem}", soft_wrap=True)
    console.print(f"written: {done.output} ({done.seconds:.1f} s)", soft_wrap=True)


def _print_engines(console: Console, done: Build) -> None:
    rows = []
    for signature in done.signatures:
        for one in signature.built:
            shapes = "; ".join("x".join(map(str, shape or ())) for shape in one.shapes)
            memory = "" if one.peak_memory_bytes is None else f"{one.peak_memory_bytes / 1e6:.0f} MB"
            seconds = "cache" if one.cached else f"{one.seconds:.1f} s"
            rows.append((one.name, signature.label, shapes, f"{one.bytes / 1e6:.2f} MB", seconds, memory))
    columns = ["engine", "signature", "inputs", ">size", ">built in", ">peak GPU memory"]
    console.print(_output.table("Engines", columns, rows))
    how = (
        f"profiles: {done.strategy}"
        if done.strategy
        else "implicit batch: an engine serves its batch size and all smaller ones"
    )
    gpu = done.gpu or {}
    console.print(
        f"{how}; {terminal.counted(len(done.shapes_served), 'declared shape')} served by saved engines; TensorRT "
        f"{done.versions['tensorrt']}, {gpu.get('name')}, compute capability {gpu.get('compute_capability')}"
    )
