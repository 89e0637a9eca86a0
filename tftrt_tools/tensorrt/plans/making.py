"""What becomes of a directory that holds model.onnx: the build in a child, a first call of each profile in another, plan.json and the
passport. No runtime is imported here."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import pathlib
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.base.files import plain_file
from tftrt_tools.base.process import child, progress
from tftrt_tools.models.engine_cache.store import Place
from tftrt_tools.models.execution import coverage, run
from tftrt_tools.models.kinds.onnx import file as onnx_file
from tftrt_tools.models.kinds.plan import document
from tftrt_tools.models.kinds.plan import kind as plan_kind
from tftrt_tools.models.kinds.plan.document import PlanFile, Plugin, Tensor
from tftrt_tools.models.kinds.plan.profiles import Profile
from tftrt_tools.models.savedmodel import files, passport
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.models.savedmodel.signatures import DEFAULT
from tftrt_tools.tensorrt.exporting import targets
from tftrt_tools.tensorrt.plans import building, shaping
from tftrt_tools.tensorrt.plans.building import Answer, Request
from tftrt_tools.tensorrt.plans.result import Built
from tftrt_tools.tensorrt.plans.settings import Settings

# Seconds that a bounded build has for what is not TensorRT's.
_BESIDE = 120.0
# What TensorRT's engines cannot take or give.
_UNTAKEN = ("string", "complex64", "complex128")
_WITHOUT_TF32 = "TF32 is off, for the logarithm of a spectrum is among the nodes: it would cover the quiet frequencies"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """A plan to make."""

    # The model as the user named it, for messages; its absolute path and digest.
    name: str
    source: str
    source_digest: str
    # Digest of the plan directory that is built anew; "" where the plan is the first.
    before: str = ""
    # Where the directory goes; None for a dry run.
    output: pathlib.Path | None
    settings: Settings
    # {tensor: the largest |x| to keep}, of a calibration table.
    ranges: Mapping[str, float]
    # What to know, a line each.
    notes: tuple[str, ...]
    # Text that repeats it.
    flag_file: str
    # As convert.convert takes them.
    log_file: str | None
    cache: Mapping[str, Any] | None
    build_minutes: float | None
    # When it began, by time.monotonic.
    start: float


def made(stage: pathlib.Path, task: Task) -> Built:
    """Build the plan of a directory with model.onnx, and write everything else into it. Raises: UsageError, TftrtError."""
    settings = task.settings
    ends = onnx_file.overview(str(stage / document.ONNX)).signatures[DEFAULT]
    _check_ends(task.name, ends.inputs, ends.outputs)
    profiles = shaping.profiles(settings.shapes, ends.inputs, settings.signature or DEFAULT)
    answer = _build(stage, task, profiles)
    plan = _plan(stage, settings, profiles, ends.inputs, ends.outputs, answer)
    plain_file.write_text(stage / document.DOCUMENT, _json(plan))
    passport.write(stage, document.LAYER_INFORMATION, dict(answer.layers))
    if task.ranges:
        passport.write(stage, document.RANGES, {"ranges": dict(task.ranges)})
    _check_calls(stage, ends.inputs, profiles, task.log_file, answer.cached)
    done = Built(
        source=task.source,
        source_digest=task.source_digest,
        before=task.before,
        output=str(task.output) if task.output else None,
        settings=settings,
        gpu=answer.gpu.to_dict(),
        plan=plan,
        notes=(*task.notes, *[_WITHOUT_TF32] * (settings.tf32 and "TF32" not in answer.flags)),
        versions={"tensorrt": answer.tensorrt, "python": platform.python_version()},
        seconds=time.monotonic() - task.start,
        parse_seconds=answer.seconds.parse,
        build_seconds=answer.seconds.build,
        cached=answer.cached,
        known_timings=answer.known_timings,
        ranged=answer.ranged,
        held=answer.held,
        narrowed=answer.narrowed,
        misread=answer.misread,
        cache_problem=answer.cache_problem,
    )
    passport.write(stage, passport.MANIFEST, done.to_dict())
    passport.write(stage, passport.FLAGS, task.flag_file)
    return done


def _check_ends(source: str, taken: Sequence[InputSpec], given: Sequence[InputSpec]) -> None:
    for what, specs in (("input", taken), ("output", given)):
        twice = [name for name, count in collections.Counter(one.name for one in specs).items() if count > 1]
        if twice:
            raise errors.TftrtError(
                f"{source} has two {what}s of one name, {twice[0]!r}", "export it again with names that differ"
            )
        for one in specs:
            if (
                one.dtype in _UNTAKEN
                or "[" in one.dtype
                or one.dtype in ("sequence", "map", "opaque", "optional", "sparse tensor")
            ):
                raise errors.TftrtError(
                    f"{what} {one.name!r} of {source} is {one.dtype}, which TensorRT does not have",
                    "leave that part out of the model: export from the tensors behind it",
                )


def _build(stage: pathlib.Path, task: Task, profiles: tuple[Profile, ...]) -> Answer:
    """Build it in a child. Raises: TftrtError, child.ChildDied."""
    (stage / files.PASSPORT).mkdir(parents=True)
    settings, minutes = task.settings, task.build_minutes
    libraries = _kept_plugins(stage, settings)
    request = Request(
        onnx=str(stage / document.ONNX),
        plan=str(stage / document.PLAN),
        timing_cache=str(passport.folder(stage) / document.TIMING_CACHE),
        profiles=profiles,
        settings=dataclasses.replace(settings, plugins=tuple(libraries)),
        ranges=task.ranges,
        cache=Place.from_dict(task.cache) if task.cache else None,
        origin=task.source,
        verbose=bool(task.log_file),
        minutes=minutes,
    )
    # The child keeps to the bound. It reads the file, looks into the cache and waits for its turn besides.
    seconds = minutes * 60 + _BESIDE if minutes else None
    start = time.monotonic()
    try:
        return building.build.run(request, log_file=task.log_file, timeout=seconds).result
    except child.ChildDied as death:
        if minutes and seconds and time.monotonic() - start >= seconds:
            raise building.late(minutes) from None
        raise errors.TftrtError(
            f"the build of the plan ended: {death.cause}", f"{_newer(stage, task)}{death.mend}"
        ) from None


def _newer(stage: pathlib.Path, task: Task) -> str:
    """What to do with a file of a newer opset than the installed TensorRT surely reads, or "": 8.5's parser ends the process on some."""
    target = targets.here()
    opset, newest = (
        onnx_file.overview(str(stage / document.ONNX)).opsets.get("ai.onnx", 0),
        targets.TARGETS[target].newest,
    )
    if opset <= newest:
        return ""
    return (
        f"the file has opset {opset}, and {newest} is what `tftrt export {task.name} --target={target}` makes of it; "
    )


def _kept_plugins(stage: pathlib.Path, settings: Settings) -> list[str]:
    """Copies of the libraries of plugins in the directory. Raises: UsageError for two of one name."""
    made = []
    for path in settings.plugins:
        place = stage / document.PLUGINS / pathlib.Path(path).name
        if place.exists():
            raise errors.UsageError(f"--plugins: two libraries are named {place.name}", "give each a name of its own")
        place.parent.mkdir(exist_ok=True)
        plain_file.copy(path, place)
        made.append(str(place))
    return made


def _plan(
    stage: pathlib.Path,
    settings: Settings,
    profiles: tuple[Profile, ...],
    taken: Sequence[InputSpec],
    given: Sequence[InputSpec],
    answer: Answer,
) -> PlanFile:
    """What plan.json says. Raises: TftrtError where the plan has other inputs or outputs than the file."""
    sides = []
    for what, specs, dtypes in (("inputs", taken, answer.inputs), ("outputs", given, answer.outputs)):
        if set(dtypes) != {one.name for one in specs}:
            lost = [one.name for one in specs if one.name not in dtypes]
            raise errors.TftrtError(
                f"the plan lost the {what} {', '.join(lost)}, which nothing needs",
                "export the model without them: a plan has to take and give what its model does",
            )
        sides.append(tuple(Tensor(one.name, one.dtype, one.shape, dtypes[one.name]) for one in specs))
    kept = sorted((stage / document.PLUGINS).glob("*")) if settings.plugins else []
    order = {
        pathlib.Path(path).name: creators for path, creators in zip(settings.plugins, answer.creators, strict=True)
    }
    return PlanFile(
        tensorrt=answer.tensorrt,
        compute_capability=answer.gpu.compute_capability,
        gpu=answer.gpu.name,
        precision=settings.precision_mode,
        strongly_typed=settings.strongly_typed,
        inputs=sides[0],
        outputs=sides[1],
        profiles=profiles,
        plugins=tuple(Plugin(f"{document.PLUGINS}/{one.name}", files.digest(one), order[one.name]) for one in kept),
        builder_flags=answer.flags,
        version_compatible=settings.version_compatible,
        refittable=settings.refit,
        bytes=(stage / document.PLAN).stat().st_size,
        digest=files.digest(stage / document.PLAN),
    )


def _json(plan: PlanFile) -> str:
    return json.dumps({"schema_version": passport.SCHEMA_VERSION, **plan.to_dict()}, indent=2) + "\n"


@dataclasses.dataclass(frozen=True)
class _Declared:
    """What execution.coverage.check wants to know of a signature."""

    inputs: tuple[InputSpec, ...]
    calls: tuple[Mapping[str, tuple[int, ...]], ...]
    unbuilt: tuple[Any, ...] = ()


def _check_calls(
    stage: pathlib.Path, taken: Sequence[InputSpec], profiles: Sequence[Profile], log_file: str | None, cached: bool
) -> None:
    """Make a call of each profile in a process that has not built the plan. Raises: TftrtError."""
    progress.say("calling the plan with each of its profiles")
    with _died(cached), run.worker(plan_kind.RUNTIME, log_file=f"{log_file}.check" if log_file else None) as worker:
        coverage.check(
            plan_kind.at(str(stage)), {DEFAULT: _Declared(tuple(taken), tuple(one.opt for one in profiles))}, worker
        )


@contextlib.contextmanager
def _died(cached: bool) -> Iterator[None]:
    """Say what a death inside the block means. Args: cached: whether the plan came from the engine cache, and would come again."""
    try:
        yield
    except child.ChildDied as death:
        came, mend = (
            ("came from the engine cache", "build it without: --noengine_cache")
            if cached
            else ("was built", death.mend)
        )
        raise errors.TftrtError(f"the plan {came}, and a call of it ends the process: {death.cause}", mend) from None
