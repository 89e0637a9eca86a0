"""usage: tftrt convert MODEL OUTPUT [--flags]

Converts a SavedModel, or a Keras file (.keras, .h5), to a TF-TRT SavedModel. Keeps every signature with its input and output names,
lookup tables, assets and functions. It works without a GPU: then the first requests on the server build the engines. On a machine with a
GPU, --shapes builds, checks and saves the engines now.

--backend=tensorrt builds a plan of TensorRT itself instead: a directory that runs without TensorFlow. MODEL may then be an ONNX file,
too. This needs a GPU, and --shapes with a profile for each shape, or for each range min=…,opt=…,max=…; ranges are separated by '|'.
With --precision=INT8 and --calibration_data the model (also an ONNX file) is first exported with INT8 written into it, as by `tftrt
export`.

OUTPUT contains assets.extra/tftrt/manifest.json (what convert did) and convert.flags, which repeats the conversion:
  tftrt convert --flagfile=OUTPUT/assets.extra/tftrt/convert.flags --overwrite

examples:
  tftrt convert resnet resnet_fp16 --precision=FP16
  tftrt convert resnet resnet_fp16 --precision=FP16 \\
      --shapes='image:1x224x224x3,8x224x224x3'
  tftrt convert --backend=tensorrt resnet.onnx resnet_plan --precision=FP16 \\
      --shapes='image:1x224x224x3|image:min=2x224x224x3,opt=32x224x224x3,max=64x224x224x3'
"""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Any

from absl import flags

from tftrt_tools.base import errors, terminal
from tftrt_tools.base.process import environment, progress
from tftrt_tools.base.stack import local_gpus
from tftrt_tools.command_line.commands import (
    _backend_flags,
    _building,
    _calibration_flags,
    _calling,
    _comparison,
    _engine_cache,
    _flags,
    _fleet,
    _made,
    _next,
    _output,
    _record_flags,
    _source_flags,
    _worth,
)
from tftrt_tools.models.backends import recipe
from tftrt_tools.models.backends.protocol import Work
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.studies import backends
from tftrt_tools.tftrt.calibration import file
from tftrt_tools.tftrt.conversion import pass_log
from tftrt_tools.tftrt.conversion import settings as settings_module

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from tftrt_tools.models.backends.protocol import AnyBackend, Made
    from tftrt_tools.models.backends.recipe import Recipe
    from tftrt_tools.models.inputs.options import DataOptions
    from tftrt_tools.tftrt.calibration.file import Calibration
    from tftrt_tools.tftrt.conversion.build import Build
    from tftrt_tools.tftrt.conversion.pipeline import Conversion

ARGUMENTS = ("model", "output")
URLS = ("on",)
# Flags that have no effect with a calibration table.
CALIBRATOR = ("calibrator", "calibration_method", "calibration_percentile")
_MAKES_TABLES = {*CALIBRATOR, "high_precision_nodes"}
# Settings of the conversion that a look at the graph pass does not have.
_AFTER_THE_PASS = {
    "shapes",
    "save_engines",
    "leave_refused_nodes",
    "allow_no_engines",
    "calibration_table",
    "allow_quantization_changes",
}
# Flags of one run, such as where it writes. They do not decide the conversion, so convert.flags leaves them out.
_NOT_REPEATED = (
    "overwrite",
    "dry_run",
    "log_file",
    "layer_precisions",
    "max_build_minutes",
    "on",
    "engine_cache",
    "engine_cache_dir",
    "engine_cache_max_bytes",
)


def define(values: flags.FlagValues) -> None:
    """Define the command's flags on FlagValues `values`."""
    text = dict(flag_values=values)
    flags.DEFINE_string(
        "model",
        None,
        "a SavedModel directory, a Keras file (.keras, .h5), a frozen graph (.pb) or a TF1 checkpoint; "
        "with --backend=tensorrt also an ONNX file",
        **text,
    )
    flags.DEFINE_string("output", None, "directory to make", **text)
    _backend_flags.define(values)
    _calibration_flags.define(values)
    _source_flags.define(values)
    _building.define(values)
    _fleet.define_local(values)
    define_cache(values)
    define_layers(values)
    flags.DEFINE_boolean("overwrite", False, "replace a SavedModel that is at the output", **text)
    flags.DEFINE_boolean("dry_run", False, "convert, report, and write nothing", **text)
    flags.DEFINE_string("log_file", None, "keep what TensorFlow and TensorRT log in this file", **text)


def define_settings(values: flags.FlagValues) -> None:
    """The flags that decide the graph pass; `inspect` has them too."""
    _record_flags.define(
        values,
        settings_module.Settings,
        set(_record_flags.names(settings_module.Settings)) - _MAKES_TABLES - _AFTER_THE_PASS,
    )


def define_calibrator(values: flags.FlagValues) -> None:
    """The flags that say how INT8 tables are made; `calibrate` has them too."""
    _record_flags.define(values, settings_module.Settings, _MAKES_TABLES)


def define_cache(values: flags.FlagValues) -> None:
    """The flags of the engine cache; every command that builds engines has them."""
    flags.DEFINE_boolean(
        "engine_cache", True, "take engines from the engine cache, and keep new ones there", flag_values=values
    )
    _engine_cache.define(values)


def read_cache(values: flags.FlagValues) -> dict[str, Any] | None:
    """{"folder", "max_bytes"} of the engine cache, or None if it is switched off. Raises: UsageError."""
    if not values.engine_cache:
        return None
    store = _engine_cache.store(values)
    return {"folder": str(store.folder) if store.folder else None, "max_bytes": store.max_bytes}


def define_layers(values: flags.FlagValues) -> None:
    """The flag that asks for the precision of each layer."""
    flags.DEFINE_boolean(
        "layer_precisions",
        False,
        "show the precision of each convolution and matrix product in the built engines, and which lack a range for "
        "INT8; builds without the engine cache, and makes the log long",
        flag_values=values,
    )


def read_layers(values: flags.FlagValues) -> bool:
    """Whether the precision of layers is requested. Raises: UsageError if no engine is built."""
    if values.layer_precisions and not values.shapes:
        raise errors.UsageError(
            "--layer_precisions speaks of engines that are built, and none is without --shapes",
            "give --shapes, on a GPU",
        )
    result: bool = values.layer_precisions
    return result


def print_layers(console: Console, done: Conversion | Build) -> None:
    """Print what the log says of the engines of a Conversion or Build; nothing if not requested."""
    for line in done.layers.text(done.signatures):
        console.print(line, soft_wrap=True)


def read_settings(values: flags.FlagValues) -> settings_module.Settings:
    """Settings from the flags; fields without a flag keep their default."""
    return settings_module.checked(_record_flags.read(values, settings_module.Settings))


def result(values: flags.FlagValues, positional: list[str]) -> Made:
    """Convert."""
    if positional:
        raise errors.UsageError(f"unexpected argument {positional[0]!r}", "usage: tftrt convert MODEL OUTPUT [--flags]")
    if not values.model:
        raise errors.UsageError("MODEL is missing", "usage: tftrt convert MODEL OUTPUT [--flags]")
    if not values.output and not values.dry_run:
        raise errors.UsageError("OUTPUT is missing", "name the directory to make, or give --dry_run")
    backend = _backend_flags.chosen(values)
    asked = _backend_flags.read(values, backend)
    data = read_data(values, recipe.checked(asked))
    settings = backend.check(asked, _backend_flags.given(values, data))
    cache = None if read_layers(values) else read_cache(values)
    work = Work(
        source=_source_flags.read(values, values.model),
        output=None if values.dry_run else values.output,
        settings=settings,
        data=data,
        overwrite=values.overwrite,
        flag_file=_flag_file(values, backend),
        log_file=values.log_file,
        cache=cache,
        layers=values.layer_precisions,
        build_minutes=_building.minutes(values, always=backend.always_builds),
    )
    with (
        environment.variables(_helpers(values, backend)),
        _building.resumable(values, cache if backend.resumes else None),
        progress.on_terminal(),
    ):
        return backend.make(work)


def _helpers(values: flags.FlagValues, backend: AnyBackend) -> dict[str, str]:
    """Environment variables of --on: the GPU of the conversion, and those of its helpers. Raises: UsageError."""
    if _fleet.read_local(values, "convert", through_ray=False) is None:
        return {}
    if not backend.has_segments:
        raise errors.UsageError(
            f"--on has no effect with --backend={backend.name}: a {backend.title} is one engine", "leave it out"
        )
    if not values.shapes:
        raise errors.UsageError(
            "--on builds engines side by side, and nothing is built without --shapes", "give --shapes, or leave it out"
        )
    found = _fleet.side_by_side()
    return {**local_gpus.variables(found[:1]), local_gpus.HELPERS: ",".join(found[1:])} if found else {}


def show(done: Made, values: flags.FlagValues) -> None:
    """Print what was made."""
    _made.show(done, _output.console(values.json), None if values.layer_precisions else read_cache(values))


def write(done: Made, values: flags.FlagValues) -> None:
    """Write --json."""
    _output.write_json(done, values.json)


def failure(done: Made, values: flags.FlagValues) -> errors.TftrtError | None:
    """As _made.failure."""
    return _made.failure(done)


def run(values: flags.FlagValues, positional: list[str]) -> int:
    """Convert. Returns: the exit code."""
    done = result(values, positional)
    show(done, values)
    write(done, values)
    if done.output:
        _next.show_verify(values, values.model, values.output)
    return _calling.exit_code(failure(done, values))


def read_data(values: flags.FlagValues, settings: Recipe, compares: bool = False) -> DataOptions | None:
    """DataOptions of an INT8 conversion, or None if nothing is to be calibrated. Args: compares: as for _calibration_flags.given.

    Raises: UsageError.
    """
    if settings.precision_mode != "INT8":
        for name in _calibration_flags.given(values, compares):
            raise errors.UsageError(
                f"--{name} has no effect with --precision={settings.precision_mode}",
                "use --precision=INT8, or leave it out",
            )
        return None
    given = bool(values.calibration_data or values.calibrate_on_random_data)
    if settings.calibration_table and given:
        raise errors.UsageError("--calibration_table and calibration data exclude each other", "give one of them")
    return _calibration_flags.read(values, compares) if given else None


def _calibrates(values: flags.FlagValues, backend: AnyBackend) -> bool:
    """Whether the toolkit's calibration method has an effect. convert.flags then always names it, because its default has changed once."""
    if backend is not backends.default() and not (values.calibration_data or values.calibrate_on_random_data):
        return False
    return values.precision.upper() == "INT8" and values.calibrator == "toolkit" and not values.calibration_table


def older_flags(argv: list[str]) -> list[str]:
    """`argv` with the calibration method of an older convert.flags: it names none, and `entropy` was the default then."""
    for number, flag in enumerate(argv):
        name, _, given = flag.lstrip("-").partition("=")
        path = pathlib.Path(given or (argv[number + 1] if name == "flagfile" and number + 1 < len(argv) else ""))
        if name != "flagfile" or path.name != passport.FLAGS or not path.is_file():
            continue
        known = dict(
            line.strip().lstrip("-").partition("=")[::2] for line in path.read_text(errors="replace").splitlines()
        )
        said = {"backend", "calibration_method", "calibrator", "calibration_table"} & set(known)
        precision = known.get("precision", known.get("precision_mode", ""))
        if precision.upper() == "INT8" and not said:
            return ["--calibration_method=entropy", *argv]
    return argv


def _flag_file(values: flags.FlagValues, backend: AnyBackend) -> str:
    """The flags that differ from their defaults, one a line."""
    import os

    lines = []
    for name in sorted(values):
        flag = values[name]
        default = flag.value == flag.default and not (name == "calibration_method" and _calibrates(values, backend))
        if name != flag.name or name in _NOT_REPEATED or name in ("help", "json") or default:
            continue
        value = flag.value
        if isinstance(value, str) and value in _calling.TEMPORARY:
            lines.append(f"# --{name}: arrays that a program gave")
            continue
        if isinstance(flag, flags.MultiFlag):
            value = [os.path.abspath(one) for one in value]
        elif name in ARGUMENTS or name in ("calibration_data", "calibration_table") and os.path.exists(value):
            value = os.path.abspath(value)
        lines += _flags.words(flag, value)
    return "\n".join(lines) + "\n"


@_made.table("conversion")
def _conversion(done: Conversion, console: Console, cache: Mapping[str, Any] | None) -> None:
    rows = [
        (
            one.label,
            "yes" if one.converted else "kept as it was",
            len(one.engines),
            "{} of {}".format(*one.compute_ops),
            f"{one.coverage:.0%}",
            _output.flops_cell(one.flops),
            len(one.built) or "",
        )
        for one in done.signatures
    ]
    columns = ["signature", "converted", ">engines", ">ops in TensorRT", ">share", ">share of FLOPs", ">built"]
    console.print(_output.table("Signatures", columns, rows))
    for one in done.signatures:
        if note := _output.flops_note(one.flops, done.settings.shapes):
            console.print(f"  {one.name}: {note}", soft_wrap=True)
        if one.left_out:
            top = ", ".join(
                f"{count} {op}" for op, count in sorted(one.native_ops.items(), key=lambda item: -item[1])[:6]
            )
            console.print(f"  {one.name}: stays in TensorFlow: {top}")
        for failing in pass_log.failing(one.left_out):
            text = f"{failing.node} ({failing.op}) stays in TensorFlow: {failing.reason}"
            console.print(f"  {one.name}: {text}", soft_wrap=True)
        if fixed := sorted({name for engine in one.built for name in engine.slices}):
            text = "counted from the beginning in the engines: all their shapes have one size there"
            console.print(f"  {one.name}: {terminal.counted(len(fixed), 'slice')} {text}", soft_wrap=True)
        for reason in _output.prepared(one.preparation):
            console.print(f"  {one.name}: {reason}", soft_wrap=True)
    _print_worth(console, done)
    for finding in (finding for one in done.signatures for finding in one.findings):
        console.print(f"  warning: {finding.about}: {finding.text}\n    {finding.mend}", soft_wrap=True)
    where = f"on {done.gpu['name']}" if done.gpu else "without a GPU"
    precisions = sorted({engine.precision for engine in done.engines}) or [done.settings.precision_mode]
    count = terminal.counted(len(done.engines), "engine op")
    console.print(
        f"{' and '.join(precisions)}, {count}, {done.coverage:.1%} of the computing ops; converted "
        f"{where}, TensorRT {done.versions['tensorrt']}; {_saved(done)}"
    )
    print_calibration(console, done.calibration)
    if done.calibration_unused:
        console.print(
            "  warning: the calibration was not used: no INT8 engine of this model takes a table", soft_wrap=True
        )
    reused = sum(engine.cached for one in done.signatures for engine in one.built)
    if reused:
        console.print(f"{terminal.counted(reused, 'engine')} came from the engine cache")
    _building.print_unbuilt(console, done, cache)
    if done.cache_problem:
        console.print(f"the engine cache was not used: {done.cache_problem}", soft_wrap=True)
    print_layers(console, done)
    for tags in done.left_behind:
        console.print(
            f"  left behind: the source's MetaGraph tagged {tags}; a conversion has one, and --tags chooses it",
            soft_wrap=True,
        )
    if done.output:
        console.print(f"written: {done.output} ({done.seconds:.1f} s)", soft_wrap=True)
    else:
        console.print("dry run: nothing was written")


def _saved(done: Conversion) -> str:
    """What became of the engines."""
    if not done.engines:
        return "nothing runs in TensorRT"
    if any(one.built for one in done.signatures) and done.settings.save_engines:
        return "engines built and saved"
    if not done.settings.allow_build_at_runtime:
        return "no engines saved, and none is built at run time (--noallow_build_at_runtime): all runs in TensorFlow"
    return "no engines saved: the target builds them on its first requests"


def _print_worth(console: Console, done: Conversion) -> None:
    """Remarks on a small share in TensorRT, and the accepted changes of a quantization."""
    from tftrt_tools.tftrt.conversion import advice, pipeline

    for one in done.signatures:
        accepted = _worth.accepted(one) if done.settings.allow_quantization_changes else ()
        told = (
            _worth.other_mode(one),
            advice.limited_by_number(len(one.engines), done.settings),
            advice.loops(one.left_out),
            advice.of_open_sizes(one.left_out, one.preparation.open_sizes),
        )
        for text in (*told, *accepted):
            if text:
                console.print(f"  {one.name}: {text}", soft_wrap=True)
    if done.coverage < pipeline.LITTLE:
        if text := _worth.little(done.signatures, done.coverage):
            console.print(f"  {text}", soft_wrap=True)
        console.print("  `tftrt inspect` says why so much of it stays there")


def print_calibration(console: Console, calibration: Calibration | None, most: int | None = _comparison.FEW) -> None:
    """Print a line on a file.Calibration, its warnings, and the comparison of methods; nothing for None. Args: most: outputs to list
    there."""
    if calibration is None:
        return
    data = calibration.data
    samples = f" on {data['samples']} {'random ' if data.get('random') else ''}samples" if data.get("samples") else ""
    tensors = terminal.counted(sum(len(one.table.scales) for one in calibration.engines), "tensor")
    left = sum(len(one.left_out) for one in calibration.engines)
    console.print(
        f"calibrated by {calibration.calibrator} ({calibration.method}){samples}: {tensors} with a range"
        + (f", {left} left out" if left else "")
    )
    zero = [name for one in calibration.engines for name, reason in one.left_out if reason == file.NO_RANGE]
    if zero:
        console.print(
            f"  warning: {file.NO_RANGE}, so that the layers around them stay out of INT8: "
            + ", ".join(zero[:3])
            + (f", and {len(zero) - 3} more" if len(zero) > 3 else ""),
            soft_wrap=True,
        )
    for warning in data.get("warnings") or ():
        console.print(f"  warning: calibration data: {warning}", soft_wrap=True)
    _comparison.show(console, calibration.comparison, most)
