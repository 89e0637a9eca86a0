"""The whole of `tftrt build`: check, build in a child, look at each declared shape, write the passport, put it in place. No TensorFlow
here."""

import contextlib
import dataclasses
import pathlib
import platform
import time

from tftrt_tools import child, errors
from tftrt_tools.calibration import file
from tftrt_tools.conversion import layer_log, pass_log
from tftrt_tools.conversion import settings as settings_module
from tftrt_tools.conversion.result import SignatureResult, Unbuilt
from tftrt_tools.conversion.settings import Settings
from tftrt_tools.execution import coverage, run
from tftrt_tools.savedmodel import describe, files, passport, staging


@dataclasses.dataclass(frozen=True)
class Options:
    """shapes: text of --shapes, "" to take the engines away. strategy, max_workspace_size_bytes, allow_build_at_runtime: None keeps what
    the conversion chose."""

    shapes: str
    strategy: str | None = None
    max_workspace_size_bytes: int | None = None
    allow_build_at_runtime: bool | None = None
    tags: tuple = ()


@dataclasses.dataclass(frozen=True)
class Build:
    """A finished build. model_digest: of the model before; strategy: None in implicit batch mode; shapes_served: what coverage.check saw;
    cache_problem: why the engine cache did not work, or ""; seconds: wall time; layers: what the log says of the engines, where it was
    asked."""

    model: str
    output: str
    model_digest: str
    shapes: str
    strategy: str | None
    signatures: tuple
    versions: dict
    gpu: dict | None
    shapes_served: tuple
    cache_problem: str
    seconds: float
    layers: layer_log.Found = layer_log.Found()
    stamp: dict = dataclasses.field(default_factory=passport.stamp)

    @property
    def built(self):
        """All BuiltEngines."""
        return [engine for signature in self.signatures for engine in signature.built]

    @property
    def unbuilt(self) -> list[Unbuilt]:
        """Engine ops that were left without an engine."""
        return [one for signature in self.signatures for one in signature.unbuilt]

    def to_dict(self):
        return {"kind": "build", **self.stamp, "model": self.model, "output": self.output, "model_digest": self.model_digest,
                "shapes": self.shapes, "dynamic_shape_profile_strategy": self.strategy,
                "versions": self.versions, "gpu": self.gpu, "signatures": [one.to_dict() for one in self.signatures],
                "shapes_served": list(self.shapes_served), "cache_problem": self.cache_problem, "seconds": round(self.seconds, 2),
                **self.layers.to_dict()}


def build(model, output, options, overwrite=False, cache=None, log_file=None, layers=False, build_minutes=None):
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
    manifest = passport.read(model, passport.MANIFEST)
    settings = _settings(model, manifest, options)
    calibration = file.read(model) if (passport.folder(model) / passport.CALIBRATION).is_file() else None
    in_place = output is None
    target = staging.check_target(model if in_place else output, in_place or overwrite, [] if in_place else [model])
    digest = files.digest(model)
    with contextlib.ExitStack() as stack:
        stage = stack.enter_context(staging.staged(target))
        checker = stack.enter_context(run.worker()) if options.shapes else None
        request = {"source": str(model), "output": str(stage), "settings": settings.to_dict(),
                   "signatures": (manifest or {}).get("signatures", []), "cache": cache, "build_minutes": build_minutes,
                   "calibration": calibration.to_dict() if calibration else None}
        env = layer_log.ENV if layers else pass_log.ENV
        outcome = child.run("tftrt_tools.conversion.completion:job", request, env=env, log_file=log_file)
        answer = outcome.result
        signatures = tuple(map(SignatureResult.from_dict, answer["signatures"]))
        versions = {**answer["versions"], "python": platform.python_version()}
        tables = tuple(map(file.EngineTable.from_dict, answer["tables"]))
        done = Build(str(pathlib.Path(model).absolute()), str(target), digest, options.shapes, settings.strategy, signatures, versions,
                     answer["gpu"] if options.shapes else None, (), answer["cache_problem"], 0.0,
                     layer_log.Found.of(outcome.log, signatures, tables) if layers else layer_log.Found())
        if calibration:
            dataclasses.replace(calibration, engines=tables).write(_made(passport.folder(stage) / passport.CALIBRATION))
        if options.shapes:
            _write_passport(stage, model, manifest, settings, done)
            served = coverage.check(stage, {one.name: one for one in signatures if one.calls}, checker)
            done = dataclasses.replace(done, shapes_served=served)
        done = dataclasses.replace(done, seconds=time.monotonic() - start)
        _write_passport(stage, model, manifest, settings, done)
    return done


def _settings(model, manifest, options):
    """The conversion's settings with what the options change. Without a manifest the engine ops say what is needed."""
    fields = {field.name for field in dataclasses.fields(Settings)}
    known = {name: value for name, value in ((manifest or {}).get("settings") or {}).items() if name in fields}
    engines = describe.describe(model)[0].engines
    if not engines:
        raise errors.UsageError(f"{model} holds no engine ops", "convert it first: `tftrt convert`")
    modes = {engine.implicit_batch for engine in engines}
    if len(modes) > 1:
        raise errors.TftrtError(f"{model} holds engine ops of both batch modes", "convert it again, with or without --use_dynamic_shape")
    base = Settings.from_dict(known)
    changes = {"shapes": options.shapes, "use_dynamic_shape": not modes.pop(), "save_engines": True, "tags": options.tags or base.tags,
               "dynamic_shape_profile_strategy": options.strategy, "max_workspace_size_bytes": options.max_workspace_size_bytes
               or base.max_workspace_size_bytes}
    if options.allow_build_at_runtime is not None:
        changes["allow_build_at_runtime"] = options.allow_build_at_runtime
    elif not manifest:
        changes["allow_build_at_runtime"] = all(engine.allow_build_at_runtime for engine in engines)
    return settings_module.checked(dataclasses.replace(base, **changes))


def _write_passport(stage, model, manifest, settings, done):
    """The manifest of the conversion goes on to speak of the model; what the build did stands beside it."""
    said = done.to_dict()
    document = {**(manifest or {"kind": "conversion", **passport.stamp(), "source": "", "source_digest": ""}),
                "settings": settings.to_dict(), "use_dynamic_shape": settings.dynamic,
                "dynamic_shape_profile_strategy": settings.strategy,
                "versions": done.versions, "gpu": done.gpu, "engine_count": sum(len(one.engines) for one in done.signatures),
                "signatures": said["signatures"], "shapes_served": said["shapes_served"], **done.layers.to_dict(),
                "build": {name: said[name] for name in ("tool", "created", "model_digest", "shapes", "seconds")}}
    passport.write(stage, passport.MANIFEST, document)
    before = passport.folder(model) / passport.FLAGS
    if before.is_file():
        passport.write(stage, passport.FLAGS, before.read_text())


def _made(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
