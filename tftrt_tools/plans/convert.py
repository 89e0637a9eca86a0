"""The whole of `tftrt convert --backend=tensorrt`: ONNX if the model is none, the build in a child, a first call of each profile in
another, and the directory put in place. No runtime is imported here."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import os
import pathlib
import platform
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tftrt_tools import child, errors, progress, scratch
from tftrt_tools.accuracy import verify
from tftrt_tools.calibration import file as calibration_file
from tftrt_tools.calibration import table as calibration_table
from tftrt_tools.execution import coverage, run
from tftrt_tools.exporting import export, parser
from tftrt_tools.exporting.result import Exported
from tftrt_tools.inputs import calls as inputs
from tftrt_tools.models import opening, table
from tftrt_tools.models.onnx import file as onnx_file
from tftrt_tools.models.onnx.kind import ONNX as ONNX_KIND
from tftrt_tools.models.plan import document
from tftrt_tools.models.plan import kind as plan_kind
from tftrt_tools.models.plan.document import PlanFile, Plugin, Tensor
from tftrt_tools.models.plan.profiles import Profile
from tftrt_tools.plans import shaping
from tftrt_tools.plans.result import Built
from tftrt_tools.plans.settings import Settings
from tftrt_tools.savedmodel import describe, files, passport, signatures, staging
from tftrt_tools.savedmodel.shapes import InputSpec
from tftrt_tools.savedmodel.signatures import DEFAULT
from tftrt_tools.sources import opened
from tftrt_tools.sources.source import Source, of

_BUILD = "tftrt_tools.plans.build_job:job"
# What TensorRT's engines cannot take or give.
_UNTAKEN = ("string", "complex64", "complex128")
_TARGETS = {"8": "8.5", "9": "10", "10": "10", "11": "11"}


def convert(source: str | os.PathLike[str] | Source, output: str | os.PathLike[str] | None, settings: Settings, *, overwrite: bool = False,
            flag_file: str = "", log_file: str | None = None, cache: Mapping[str, Any] | None = None,
            build_minutes: float | None = None) -> Built:
    """Build a plan directory.

    Args:
      source: an ONNX file, or what `tftrt export` takes.
      output: directory to make; None writes nothing.
      settings: as `settings.checked` returned them.
      overwrite: replace a plan directory or SavedModel that is there.
      flag_file: text that repeats it, kept as convert.flags.
      log_file: where to keep what TensorRT logs, with everything that it says of tactics.
      cache: {"folder", "max_bytes"} of the engine cache, where the times of kernels are kept from build to build; None for none.
      build_minutes: the build is ended after them; None for no bound.

    Returns: Built. Raises: UsageError, TftrtError, CheckFailed; then the output is as it was.
    """
    start = time.monotonic()
    source = _checked(source, settings)
    target = staging.check_target(output, overwrite, [source.path]) if output else None
    with contextlib.ExitStack() as stack:
        stage = stack.enter_context(staging.staged(target)) if target else pathlib.Path(stack.enter_context(scratch.folder("plan")))
        signature, notes = _place_onnx(source, stage, settings, log_file)
        settings = dataclasses.replace(settings, signature=signature)
        ends = onnx_file.overview(str(stage / document.ONNX)).signatures[DEFAULT]
        _check_ends(source, ends.inputs, ends.outputs)
        profiles = shaping.profiles(settings.shapes, ends.inputs, settings.signature or DEFAULT)
        answer = _build(stage, settings, profiles, log_file, cache, build_minutes)
        plan = _plan(stage, settings, profiles, ends.inputs, ends.outputs, answer)
        (stage / document.DOCUMENT).write_text(_json(plan))
        passport.write(stage, document.LAYER_INFORMATION, answer["layers"])
        _check_calls(stage, ends.inputs, profiles, log_file)
        seconds = answer["seconds"]
        done = Built(source=str(pathlib.Path(source.path).absolute()), source_digest=table.kind(source.path).digest(source.path),
                     output=str(target) if target else None, settings=settings, gpu=answer["gpu"], plan=plan, notes=notes,
                     versions={"tensorrt": answer["tensorrt"], "python": platform.python_version()}, seconds=time.monotonic() - start,
                     parse_seconds=seconds["parse"], build_seconds=seconds["build"], known_timings=answer["known_timings"],
                     ranged=answer["ranged"])
        passport.write(stage, passport.MANIFEST, done.to_dict())
        passport.write(stage, passport.FLAGS, flag_file)
    return done


def _checked(source: str | os.PathLike[str] | Source, settings: Settings) -> Source:
    """Its Source. Raises: UsageError, TftrtError, before any work."""
    if importlib.util.find_spec("tensorrt") is None:
        raise errors.TftrtError("TensorRT is not installed", "pip install 'tftrt-tools[tftrt]', or the tensorrt of your GPU's driver")
    shaping.groups(settings.shapes)
    for path in settings.plugins:
        if not pathlib.Path(path).is_file():
            raise errors.UsageError(f"--plugins={path}: no such file", "name the library (.so) that has the plugins")
    named = of(source)
    if table.kind(named.path) is plan_kind.PLAN:
        raise errors.UsageError(f"{named} is a plan directory already", f"give the file that it was built from: {named}/{document.ONNX}")
    if _is_onnx(named):
        if not pathlib.Path(named.path).is_file():
            raise errors.UsageError(f"no such file: {named}", "check the path of the ONNX file")
        if settings.signature:
            raise errors.UsageError(f"--signature_keys has no effect: {named} is an ONNX file, which has no signatures", "leave it out")
        return named
    return opening.check(named)


def _is_onnx(source: Source) -> bool:
    return table.kind(source.path) is ONNX_KIND


def _place_onnx(source: Source, stage: pathlib.Path, settings: Settings, log_file: str | None) -> tuple[str, tuple[str, ...]]:
    """Put model.onnx, and the files beside it, into the directory. Returns: (the signature that it is, "" for a source without any; what to
    know). Raises: as `convert`."""
    if _is_onnx(source):
        beside = onnx_file.outside(source.path)
        shutil.copyfile(source.path, stage / document.ONNX)
        for path in beside:
            place = stage / os.path.relpath(path, os.path.dirname(source.path) or ".")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
        return "", ()
    # An export takes longer than to see whether it can be of use.
    child.run("tftrt_tools.plans.build_job:check", None)
    with opened.opened(source, log_file) as saved:
        name = _signature(source, saved, settings.signature)
        asked = inputs.Asked(shapes=shaping.first_call(settings.shapes))
        options = export.Options(target=target_here(), signature_keys=(name,), comparison=verify.Options(asked=asked), log_file=log_file)
        done = export.export(source, stage / document.ONNX, options)
    if not done.passed:
        raise failed(source, done)
    return name, tuple(note for one in done.files for note in (*one.notes, *parser.lines(one.doubts)))


def _signature(source: Source, saved: str, asked: str) -> str:
    """The signature that becomes the plan. Raises: UsageError."""
    found = describe.describe(saved)[0]
    names = list(found.inputs)
    if asked:
        return str(signatures.chosen(names, (asked,))[0])
    walked = signatures.Once.of(names, found.same).names
    if len(walked) > 1 and DEFAULT not in walked:
        raise errors.UsageError(f"which signature of {source}? A plan has one, and here are {', '.join(walked)}",
                                f"--signature_keys={walked[0]} names one")
    return DEFAULT if DEFAULT in walked else str(walked[0])


def target_here() -> str:
    """The --target of `tftrt export` for the TensorRT that is installed."""
    try:
        return _TARGETS.get(importlib.metadata.version("tensorrt").partition(".")[0], "11")
    except importlib.metadata.PackageNotFoundError:
        return "8.5"


def failed(source: Source, done: Exported) -> errors.CheckFailed:
    """The error of a model whose export did not pass."""
    one = done.files[0]
    if one.refused and not done.refused_allowed:
        return errors.CheckFailed(f"{source} becomes no plan, because TensorRT's parser refuses {'; '.join(parser.lines(one.refused))}",
                                  "leave that part out of the model; or export it with `tftrt export --allow_refused`, and give the file "
                                  "with --plugins")
    return errors.CheckFailed(f"the ONNX file of {source} answers otherwise than it: {one.verification.problems[0]}",
                              "`tftrt export` tells more, with the first tensor that departs")


def _check_ends(source: Source, taken: Sequence[InputSpec], given: Sequence[InputSpec]) -> None:
    for what, specs in (("input", taken), ("output", given)):
        twice = [name for name, count in collections.Counter(one.name for one in specs).items() if count > 1]
        if twice:
            raise errors.TftrtError(f"{source} has two {what}s of one name, {twice[0]!r}", "export it again with names that differ")
        for one in specs:
            if one.dtype in _UNTAKEN or "[" in one.dtype or one.dtype in ("sequence", "map", "opaque", "optional", "sparse tensor"):
                raise errors.TftrtError(f"{what} {one.name!r} of {source} is {one.dtype}, which TensorRT does not have",
                                        "leave that part out of the model: export from the tensors behind it")


def _build(stage: pathlib.Path, settings: Settings, profiles: Sequence[Profile], log_file: str | None, cache: Mapping[str, Any] | None,
           minutes: float | None) -> dict[str, Any]:
    """What build_job.job answers. Raises: TftrtError, child.ChildDied."""
    (stage / files.PASSPORT).mkdir(parents=True)
    libraries = _kept_plugins(stage, settings)
    request = {"onnx": str(stage / document.ONNX), "plan": str(stage / document.PLAN),
               "timing_cache": str(passport.folder(stage) / document.TIMING_CACHE), "profiles": [one.to_dict() for one in profiles],
               "settings": dataclasses.replace(settings, plugins=tuple(libraries)).to_dict(), "ranges": _ranges(settings.calibration_table),
               "timings": cache["folder"] if cache and cache["max_bytes"] else None, "verbose": bool(log_file)}
    seconds = minutes * 60 if minutes else None
    start = time.monotonic()
    try:
        answer: dict[str, Any] = child.run(_BUILD, request, log_file=log_file, timeout=seconds).result
    except child.ChildDied as death:
        if seconds and time.monotonic() - start >= seconds:
            raise errors.TftrtError(f"the plan was not ready when --max_build_minutes={minutes:g} were over",
                                    "give more; what kernels took was not kept") from None
        raise errors.TftrtError(f"the build of the plan ended: {death.cause}", death.mend) from None
    return answer


def _kept_plugins(stage: pathlib.Path, settings: Settings) -> list[str]:
    """Copies of the libraries of plugins in the directory. Raises: UsageError for two of one name."""
    made = []
    for path in settings.plugins:
        place = stage / document.PLUGINS / pathlib.Path(path).name
        if place.exists():
            raise errors.UsageError(f"--plugins: two libraries are named {place.name}", "give each a name of its own")
        place.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, place)
        made.append(str(place))
    return made


def _ranges(path: str) -> dict[str, float]:
    """{tensor: the largest |x| to keep} of a calibration table: TensorRT's text, or a calibration file. Raises: UsageError, TftrtError."""
    if not path:
        return {}
    if not pathlib.Path(path).is_file():
        raise errors.UsageError(f"--calibration_table={path}: no such file", "give a table of TensorRT, or a calibration file")
    if pathlib.Path(path).read_bytes()[:4] == b"TRT-":
        tables = [calibration_table.parse(pathlib.Path(path).read_text(), path)]
    else:
        tables = [one.table for one in calibration_file.read(path).engines]
    return {name: one.range(name) for one in tables for name in one.scales}


def _plan(stage: pathlib.Path, settings: Settings, profiles: tuple[Profile, ...], taken: Sequence[InputSpec], given: Sequence[InputSpec],
          answer: Mapping[str, Any]) -> PlanFile:
    """What plan.json says. Raises: TftrtError where the plan has other inputs or outputs than the file."""
    sides = []
    for what, specs in (("inputs", taken), ("outputs", given)):
        dtypes = dict(answer[what])
        if set(dtypes) != {one.name for one in specs}:
            lost = [one.name for one in specs if one.name not in dtypes]
            raise errors.TftrtError(f"the plan lost the {what} {', '.join(lost)}, which nothing needs",
                                    "export the model without them: a plan has to take and give what its model does")
        sides.append(tuple(Tensor(one.name, one.dtype, one.shape, dtypes[one.name]) for one in specs))
    kept = sorted((stage / document.PLUGINS).glob("*")) if settings.plugins else []
    order = {pathlib.Path(path).name: creators for path, creators in zip(settings.plugins, answer["creators"], strict=True)}
    return PlanFile(
        tensorrt=answer["tensorrt"], compute_capability=answer["gpu"]["compute_capability"], gpu=answer["gpu"]["name"],
        precision=settings.precision_mode, strongly_typed=settings.strongly_typed, inputs=sides[0], outputs=sides[1], profiles=profiles,
        plugins=tuple(Plugin(f"{document.PLUGINS}/{one.name}", files.digest(one), tuple(order[one.name])) for one in kept),
        builder_flags=tuple(answer["flags"]), version_compatible=settings.version_compatible, refittable=settings.refit,
        bytes=(stage / document.PLAN).stat().st_size, digest=files.digest(stage / document.PLAN))


def _json(plan: PlanFile) -> str:
    import json

    return json.dumps({"schema_version": passport.SCHEMA_VERSION, **plan.to_dict()}, indent=2) + "\n"


@dataclasses.dataclass(frozen=True)
class _Declared:
    """What execution.coverage.check wants to know of a signature."""

    inputs: tuple[InputSpec, ...]
    calls: tuple[Mapping[str, tuple[int, ...]], ...]
    unbuilt: tuple[Any, ...] = ()


def _check_calls(stage: pathlib.Path, taken: Sequence[InputSpec], profiles: Sequence[Profile], log_file: str | None) -> None:
    """Make a call of each profile in a process that has not built the plan. Raises: TftrtError."""
    progress.say("calling the plan with each of its profiles")
    with _died(stage), run.worker(plan_kind.RUNTIME, log_file=f"{log_file}.check" if log_file else None) as worker:
        coverage.check(plan_kind.at(str(stage)), {DEFAULT: _Declared(tuple(taken), tuple(one.opt for one in profiles))}, worker)


@contextlib.contextmanager
def _died(stage: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except child.ChildDied as death:
        raise errors.TftrtError(f"the plan was built, and a call of it ends the process: {death.cause}", death.mend) from None
