"""The whole of `tftrt build`: check, build in a child, look at each declared shape, write the passport, put it in place. No TensorFlow
here."""

import contextlib
import dataclasses
import os
import pathlib
import platform
import shlex
import time
import typing
from collections.abc import Callable, Mapping
from typing import Any

from tftrt_tools.base import errors, records, results, terminal
from tftrt_tools.base import stack as stack_room
from tftrt_tools.base.choices import Strategy
from tftrt_tools.base.process import jobs
from tftrt_tools.models.engine_cache.store import Place
from tftrt_tools.models.execution import coverage, run
from tftrt_tools.models.kinds.savedmodel import kind as saved_model
from tftrt_tools.models.savedmodel import describe, files, passport, staging
from tftrt_tools.models.savedmodel.engine_op import EngineOp
from tftrt_tools.tftrt.calibration import file
from tftrt_tools.tftrt.conversion import layer_log, layer_table, pass_apart
from tftrt_tools.tftrt.conversion import settings as settings_module
from tftrt_tools.tftrt.conversion.settings import Settings
from tftrt_tools.tftrt.conversion.signature_result import BuiltEngine, SignatureResult, Unbuilt, refused_lines


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What to build, and which of the conversion's settings to change; None keeps the conversion's."""

    # Text of --shapes, "" to remove the engines.
    shapes: str
    strategy: Strategy | None = None
    # Scratch GPU memory that an engine may use.
    max_workspace_size_bytes: int | None = None
    allow_build_at_runtime: bool | None = None
    leave_refused_nodes: bool | None = None
    # Tags of the MetaGraph; () for the only one, or "serve".
    tags: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuildRequest(records.Record):
    """What the child builds."""

    # The converted SavedModel directory, and the empty directory to fill.
    source: str
    output: str
    settings: Settings
    # The manifest's signatures.
    signatures: tuple[SignatureResult, ...] = ()
    # The calibration of the model, None if it has none.
    calibration: file.Calibration | None = None
    # The engine cache, None for none.
    cache: Place | None = None
    # For all engines together, None for no bound.
    build_minutes: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Built(records.Record):
    """What the child has built."""

    signatures: tuple[SignatureResult, ...]
    # Versions of TensorFlow, TensorRT (linked and loaded), CUDA and cuDNN.
    versions: dict[str, str]
    # The GPU, by execution.job.gpu.seen; None if none is visible.
    gpu: dict[str, str] | None
    # The tables of the model's calibration, under the names of its engines now.
    tables: tuple[file.EngineTable, ...]
    # Why the engine cache did not work, or "".
    cache_problem: str


@jobs.job
def build_engines() -> Callable[[BuildRequest], Built]:
    """Build the engines of a converted model, or take them away."""
    from tftrt_tools.tftrt.conversion import build_job

    return build_job.job


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Build(passport.Stamped, results.Result):
    """A finished build."""

    # Absolute paths.
    model: str
    output: str
    # Digest of the model before, "sha256:…".
    model_digest: str
    # Text of --shapes.
    shapes: str
    # None in implicit batch mode.
    strategy: Strategy | None = records.field(key="dynamic_shape_profile_strategy")
    # Versions of TensorFlow, TensorRT (linked and loaded), CUDA, cuDNN and Python.
    versions: dict[str, str]
    # The GPU, by execution.job.gpu.seen; None if engines were removed.
    gpu: dict[str, str] | None
    signatures: tuple[SignatureResult, ...]
    # The result of coverage.check for each declared shape.
    shapes_served: tuple[dict[str, Any], ...] = ()
    # Why the engine cache did not work, or "".
    cache_problem: str
    # Wall time of the build, in seconds.
    seconds: float = records.field(digits=2)
    # What the log says of the engines, if requested.
    layers: layer_log.Found = layer_log.Found()

    document: typing.ClassVar = "build"

    def summary(self) -> str:
        """As Result.summary."""
        return f"{self.output}: {len(self.built)} engines built, {len(self.unbuilt)} engine ops without one"

    @property
    def built(self) -> list[BuiltEngine]:
        """The BuiltEngines of all signatures."""
        return [engine for signature in self.signatures for engine in signature.built]

    @property
    def unbuilt(self) -> list[Unbuilt]:
        """Engine ops that were left without an engine."""
        return [one for signature in self.signatures for one in signature.unbuilt]

    @property
    def complete(self) -> bool:
        """Whether all engines that were asked for are there, as Conversion.complete."""
        return not any(one.refused for one in self.unbuilt)

    def text(self) -> tuple[str, ...]:
        """Lines for people."""
        ops, count = sum(len(signature.engines) for signature in self.signatures), len(self.built)
        return (
            f"{terminal.counted(ops, 'engine op')}, {terminal.counted(count, 'engine')} built",
            *refused_lines(self.signatures),
            *(f"{engine.name} has no engine and runs in TensorFlow: {engine.reason}" for engine in self.unbuilt),
            f"written: {self.output} ({self.seconds:.1f} s)",
        )

    def to_dict(self) -> dict[str, Any]:
        """The log's facts about the engines stand beside the fields, as in a manifest."""
        written = super().to_dict()
        result: dict[str, Any] = written | written.pop("layers")
        return result


def build(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str] | None,
    options: Options,
    *,
    overwrite: bool = False,
    cache: Mapping[str, Any] | None = None,
    log_file: str | os.PathLike[str] | None = None,
    layers: bool = False,
    build_minutes: float | None = None,
) -> Build:
    """Build the engines of a converted model, or take them away.

    Args:
      model: converted SavedModel directory. output: directory to make; None replaces the model's by the result, in one step.
      options: Options. overwrite: replace a SavedModel at `output`.
      cache: {"folder", "max_bytes"} of the engine cache, or None for none. log_file: where to keep the log. layers, build_minutes:
        as in pipeline.convert.

    Returns: Build. Raises: UsageError, TftrtError; CheckFailed where a declared shape has no engine. The target is then as it was.
    """
    start = time.monotonic()
    files.check(model)
    files.check_links(model, files.ASSETS, files.EXTRAS)
    manifest = passport.read(model, passport.MANIFEST)
    added = passport.added_signatures(manifest)
    if added:
        raise errors.UsageError(
            f"{model} got signatures after its conversion ({', '.join(added)}), and their calls of its engines would "
            "be lost",
            "build the engines of the converted model, then wrap that: all signatures share them",
        )
    settings, recorded = _settings(model, manifest, options)
    calibration = file.read(model) if (passport.folder(model) / passport.CALIBRATION).is_file() else None
    target = staging.check_target(model, True) if output is None else staging.check_target(output, overwrite, [model])
    digest = files.digest(model)
    with contextlib.ExitStack() as stack:
        stage = stack.enter_context(staging.staged(target, overwrite or output is None))
        checker = stack.enter_context(run.worker(saved_model.RUNTIME)) if options.shapes else None
        request = BuildRequest(
            source=str(model),
            output=str(stage),
            settings=settings,
            signatures=recorded,
            cache=Place.from_dict(cache) if cache else None,
            build_minutes=build_minutes,
            calibration=calibration,
        )
        env = layer_log.env(layers, bool(log_file))
        outcome = pass_apart.run(build_engines, request, env=env, log_file=log_file)
        answer = outcome.result
        signatures, tables = answer.signatures, answer.tables
        versions = {**answer.versions, "python": platform.python_version()}
        done = Build(
            model=str(pathlib.Path(model).absolute()),
            output=str(target),
            model_digest=digest,
            shapes=options.shapes,
            strategy=settings.strategy,
            signatures=signatures,
            versions=versions,
            gpu=answer.gpu if options.shapes else None,
            cache_problem=answer.cache_problem,
            seconds=0.0,
            layers=layer_log.Found.of(outcome.log, signatures, tables) if layers else layer_log.Found(),
        )
        if calibration:
            dataclasses.replace(calibration, engines=tables).write(_made(passport.folder(stage) / passport.CALIBRATION))
        if options.shapes:
            layer_table.keep(stage, outcome.log, [engine.name for engine in done.built])
            _write_passport(stage, model, manifest, settings, done)
            served = coverage.check(
                saved_model.at(stage),
                {signature.name: signature for signature in signatures if signature.calls},
                checker,
            )
            done = dataclasses.replace(done, shapes_served=served)
        done = dataclasses.replace(done, seconds=time.monotonic() - start)
        _write_passport(stage, model, manifest, settings, done)
    return done


def engine_ops(model: str | os.PathLike[str]) -> tuple[EngineOp, ...]:
    """Those of a SavedModel directory. Raises: UsageError where there are none; TftrtError where it cannot be read."""
    engines = describe.describe(files.check(model))[0].engines
    if not engines:
        raise errors.UsageError(f"{model} holds no engine ops", "convert it first: `tftrt convert`")
    return engines


def _settings(
    model: str | os.PathLike[str], manifest: Mapping[str, Any] | None, options: Options
) -> tuple[Settings, tuple[SignatureResult, ...]]:
    """(the conversion's settings with the changes of the options, the manifest's signatures). Without a manifest the settings come from
    the engine ops."""
    with passport.understood(model, passport.MANIFEST):
        base = Settings.from_dict((manifest or {}).get("settings") or {})
        recorded = tuple(map(SignatureResult.from_dict, (manifest or {}).get("signatures", ())))
    engines = engine_ops(model)
    modes = {engine.implicit_batch for engine in engines}
    if len(modes) > 1:
        raise errors.TftrtError(
            f"{model} holds engine ops of both batch modes", "convert it again, with or without --use_dynamic_shape"
        )
    implicit = modes.pop()
    if implicit and options.shapes and not stack_room.has_implicit_batch():
        raise errors.UsageError(
            f"the engine ops of {model} have an implicit batch, which TensorRT {stack_room.tensorrt_major()} does not have",
            f"convert the original model again here, with --shapes={shlex.quote(options.shapes)}",
        )
    changes: dict[str, Any] = {
        "shapes": options.shapes,
        "use_dynamic_shape": not implicit,
        "save_engines": True,
        "tags": options.tags or base.tags,
        "dynamic_shape_profile_strategy": options.strategy,
        "max_workspace_size_bytes": options.max_workspace_size_bytes or base.max_workspace_size_bytes,
    }
    if options.leave_refused_nodes is not None:
        changes["leave_refused_nodes"] = options.leave_refused_nodes
    if options.allow_build_at_runtime is not None:
        changes["allow_build_at_runtime"] = options.allow_build_at_runtime
    elif not manifest:
        changes["allow_build_at_runtime"] = all(engine.allow_build_at_runtime for engine in engines)
    return settings_module.valid(dataclasses.replace(base, **changes)), recorded


def _write_passport(
    stage: pathlib.Path, model: str | os.PathLike[str], manifest: dict[str, Any] | None, settings: Settings, done: Build
) -> None:
    """Keep the conversion's manifest, and add the facts about the build."""
    facts = done.to_dict()
    document = {
        **(manifest or {"kind": "conversion", **passport.stamp(), "source": "", "source_digest": ""}),
        "settings": settings.to_dict(),
        "use_dynamic_shape": settings.dynamic,
        "dynamic_shape_profile_strategy": settings.strategy,
        "versions": done.versions,
        "gpu": done.gpu,
        "engine_count": sum(len(signature.engines) for signature in done.signatures),
        "signatures": facts["signatures"],
        "shapes_served": facts["shapes_served"],
        **done.layers.to_dict(),
        "build": {name: facts[name] for name in ("tool", "created", "model_digest", "shapes", "seconds")},
    }
    passport.write(stage, passport.MANIFEST, document)
    before = passport.folder(model) / passport.FLAGS
    if before.is_file():
        passport.write(stage, passport.FLAGS, before.read_text())


def _made(path: pathlib.Path) -> pathlib.Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
