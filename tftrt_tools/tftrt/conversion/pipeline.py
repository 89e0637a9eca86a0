"""The whole of `tftrt convert` and of `tftrt calibrate`: check, work in a child, write the passport or the table, put the result in place.
No TensorFlow here."""

import contextlib
import dataclasses
import os
import pathlib
import platform
import time
import typing
from collections.abc import Mapping
from typing import Any

from tftrt_tools.base import errors, op_libraries, records, results, terminal
from tftrt_tools.base import stack as stack_room
from tftrt_tools.base.choices import Strategy
from tftrt_tools.base.process import background
from tftrt_tools.models.engine_cache.store import Place
from tftrt_tools.models.execution import run
from tftrt_tools.models.execution.coverage import check as check_shapes
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.kinds.savedmodel import kind as saved_model
from tftrt_tools.models.savedmodel import describe, files, flops, passport, staging
from tftrt_tools.models.savedmodel.engine_op import EngineOp
from tftrt_tools.models.sources.opened import check, opened
from tftrt_tools.models.sources.source import Source
from tftrt_tools.tftrt.calibration import file as calibration_file
from tftrt_tools.tftrt.calibration.file import Calibration
from tftrt_tools.tftrt.conversion import advice, converting, layer_log, layer_table, pass_apart, pass_log
from tftrt_tools.tftrt.conversion import settings as settings_module
from tftrt_tools.tftrt.conversion.converting import CalibrateRequest, Converted, ConvertRequest, TablesFrom
from tftrt_tools.tftrt.conversion.signature_result import SignatureResult, Unbuilt, coverage, refused_lines

# If a smaller share of the ops is in TensorRT, the other batch mode is tried, and a line tells the user where to look.
LITTLE = 0.9


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Conversion(passport.Stamped, results.Result):
    """A finished conversion, which is what the manifest says."""

    # Absolute path of the input as given.
    source: str
    # Digest of the input as given, "sha256:…".
    source_digest: str
    # Absolute path, None for a dry run.
    output: str | None
    settings: settings_module.Settings
    # Tags of the source's MetaGraphs that are not in the output.
    left_behind: tuple[str, ...] = ()
    # Versions of TensorFlow, TensorRT (linked and loaded), CUDA, cuDNN and Python.
    versions: dict[str, str]
    # The GPU, by execution.job.gpu.seen; None if no GPU was visible.
    gpu: dict[str, str] | None
    # Wall time.
    seconds: float = records.field(digits=2)
    signatures: tuple[SignatureResult, ...]
    # The result of coverage.check for each declared shape.
    shapes_served: tuple[dict[str, Any], ...] = ()
    # The calibration of an INT8 model.
    calibration: Calibration | None = None
    # Why the engine cache did not work, or "".
    cache_problem: str = ""
    # What the log says of the engines, if requested.
    layers: layer_log.Found = layer_log.Found()
    # Whether calibration was asked for, and no INT8 engine takes a table.
    calibration_unused: bool = False

    document: typing.ClassVar = "conversion"
    written_too: typing.ClassVar = (
        "op_libraries",
        "use_dynamic_shape",
        "dynamic_shape_profile_strategy",
        "flops",
        "engine_count",
    )
    written_digits: typing.ClassVar = {"coverage": 4}

    def summary(self) -> str:
        """As Result.summary."""
        where = self.output or "a dry run"
        built = sum(len(one.built) for one in self.signatures)
        return f"{where}: {self.settings.precision_mode}, {self.engine_count} engine ops with {self.coverage:.0%} of the ops, {built} built"

    @property
    def engines(self) -> list[EngineOp]:
        """All engine ops of all signatures."""
        return [engine for signature in self.signatures for engine in signature.engines]

    @property
    def unbuilt(self) -> list[Unbuilt]:
        """Engine ops that were left without an engine though --shapes asked for them."""
        return [one for signature in self.signatures for one in signature.unbuilt]

    @property
    def complete(self) -> bool:
        """Whether TensorRT refused no engine; one that was not ready in time is no fault of the model."""
        return not any(one.refused for one in self.unbuilt)

    def text(self) -> tuple[str, ...]:
        """Lines for people."""
        precisions = sorted({engine.precision for engine in self.engines}) or [self.settings.precision_mode]
        count = len(self.engines)
        return (
            f"{' and '.join(precisions)}, {terminal.counted(count, 'engine op')}, {self.coverage:.1%} of the computing ops",
            *refused_lines(self.signatures),
            *(f"{engine.name} has no engine and runs in TensorFlow: {engine.reason}" for engine in self.unbuilt),
            f"written: {self.output} ({self.seconds:.1f} s)" if self.output else "dry run: nothing was written",
        )

    @property
    def coverage(self) -> float:
        """Share of the computing ops of the converted signatures that run in TensorRT, 0 to 1."""
        return coverage(self.signatures)

    @property
    def flops(self) -> flops.Flops | None:
        """Computation of the converted signatures, in engines and in all; None where it was not counted."""
        return flops.together([signature.flops for signature in self.signatures])

    @property
    def engine_count(self) -> int:
        """Engine ops of all signatures."""
        return len(self.engines)

    @property
    def op_libraries(self) -> list[str]:
        """Libraries of custom ops that the model needs."""
        return op_libraries.named()

    @property
    def use_dynamic_shape(self) -> bool:
        """Whether engines have optimization profiles."""
        return self.settings.dynamic

    @property
    def dynamic_shape_profile_strategy(self) -> Strategy | None:
        """How the profiles are made, None in implicit batch mode."""
        return self.settings.strategy

    def to_dict(self) -> dict[str, Any]:
        """The manifest. It has a summary of the calibration, which has a file of its own, and nothing of the cache, which is not the
        model's."""
        written = super().to_dict()
        del written["cache_problem"], written["calibration_unused"]
        layers = written.pop("layers")
        result: dict[str, Any] = written | {"calibration": _summary(self.calibration)} | layers
        return result


def _summary(calibration: Calibration | None) -> dict[str, Any] | None:
    """The manifest's summary of a calibration; the tables and the hashes of the data's rows are in calibration.json."""
    if calibration is None:
        return None
    data = {name: value for name, value in calibration.data.items() if name != "rows"}
    return {
        "calibrator": calibration.calibrator,
        "method": calibration.method,
        "tensors": sum(len(engine.table.scales) for engine in calibration.engines),
        "left_out": sum(len(engine.left_out) for engine in calibration.engines),
        "data": data,
        "reused": bool(calibration.provenance) and calibration.provenance[-1].get("step") == "reused",
        "comparison": calibration.comparison.to_dict() if calibration.comparison else None,
    }


def convert(
    source: str | os.PathLike[str] | Source,
    output: str | os.PathLike[str] | None,
    settings: settings_module.Settings,
    *,
    overwrite: bool = False,
    dry_run: bool = False,
    flag_file: str = "",
    log_file: str | os.PathLike[str] | None = None,
    data: DataOptions | None = None,
    cache: Mapping[str, Any] | None = None,
    layers: bool = False,
    build_minutes: float | None = None,
) -> Conversion:
    """Convert what the user named.

    Args:
      source: path of a SavedModel or Keras file, or its source.Source.
      output: directory to make; None only for a dry run.
      settings: Settings, as `settings.checked` returned them.
      overwrite: replace a SavedModel that is there.
      dry_run: run everything but the saving.
      flag_file: text that repeats the conversion, kept as convert.flags.
      log_file: where to keep what TensorFlow and TensorRT log.
      data: what INT8 is calibrated on, or None.
      cache: {"folder", "max_bytes"} of the engine cache, or None for none.
      layers: read the precisions of the engines' layers from TensorRT's verbose log; engines of a cache have none.
      build_minutes: bound of all builds together; None for none. Engines that are not ready then stay native.

    Returns: Conversion.

    Raises: UsageError, TftrtError; CheckFailed where no segment is worth an engine or a declared shape has none.
      The output is then as it was.
    """
    start = time.monotonic()
    source = _checked(source)
    given = calibration_file.read(settings.calibration_table) if settings.calibration_table else None
    target = None if dry_run or output is None else staging.check_target(output, overwrite, [source.path])
    with contextlib.ExitStack() as stack:
        stage = stack.enter_context(staging.staged(target, overwrite)) if target else None
        model = stack.enter_context(opened(source, os.fspath(log_file) if log_file else None))
        if stage:
            files.check_links(model, files.ASSETS, files.EXTRAS)
        checker = (
            stack.enter_context(run.worker(saved_model.RUNTIME))
            if stage and settings.shapes and settings.save_engines
            else None
        )
        digest = background.start(lambda: files.digest(source.path))  # while the child loads TensorFlow
        request = ConvertRequest(
            source=model,
            output=str(stage) if stage else None,
            settings=settings,
            int8=TablesFrom(options=data, given=given),
            cache=Place.from_dict(cache) if cache else None,
            build_minutes=build_minutes,
            compare_modes=LITTLE,
        )
        env = layer_log.env(layers, bool(log_file))
        outcome = pass_apart.run(converting.convert, request, env=env, log_file=log_file)
        answer = outcome.result
        signatures = answer.signatures
        done = Conversion(
            source=_absolute(source),
            output=str(target) if target else None,
            source_digest=digest.result(),
            settings=settings,
            signatures=signatures,
            versions={**answer.versions, "python": platform.python_version()},
            gpu=answer.gpu,
            seconds=0.0,
            cache_problem=answer.cache_problem,
            left_behind=answer.other_tags,
        )
        calibration = _calibration(answer, done, given)
        done = dataclasses.replace(
            done, calibration=calibration, calibration_unused=calibration is None and bool(data or given)
        )
        if layers:
            tables = done.calibration.engines if done.calibration else ()
            done = dataclasses.replace(done, layers=layer_log.Found.of(outcome.log, signatures, tables))
        _check_engines(done)
        if stage and checker:
            called = {signature.name: signature for signature in done.signatures if signature.calls}
            done = dataclasses.replace(done, shapes_served=check_shapes(saved_model.at(stage), called, checker))
        done = dataclasses.replace(done, seconds=time.monotonic() - start)
        if stage:
            passport.write(stage, passport.MANIFEST, done.to_dict())
            passport.write(stage, passport.FLAGS, flag_file)
            layer_table.keep(
                stage, outcome.log, [engine.name for signature in signatures for engine in signature.built]
            )
            if done.calibration:
                done.calibration.write(passport.folder(stage) / passport.CALIBRATION)
    return done


def _calibration(answer: Converted, done: Conversion, given: Calibration | None) -> Calibration | None:
    """The Calibration that the model carries, or None where no engine has a table."""
    if not answer.tables:
        return None
    if given:
        step = {"step": "reused", **passport.stamp(), "source": done.settings.calibration_table}
        return dataclasses.replace(given, engines=answer.tables, provenance=(*given.provenance, step))
    return answer.calibration(done.settings.calibrator, done.source, done.source_digest)


@dataclasses.dataclass(frozen=True, repr=False)
class CalibrationRun(results.Result):
    """A finished calibration. output: the file that holds it, or None; calibration: file.Calibration; seconds: wall time."""

    output: str | None
    calibration: Calibration
    seconds: float

    def summary(self) -> str:
        """As Result.summary."""
        tensors = sum(len(one.table.scales) for one in self.calibration.engines)
        return f"{self.output or 'no file'}: {tensors} tensors with a range, method {self.calibration.method}"

    def to_dict(self) -> dict[str, Any]:
        """The calibration's document, with what this run adds to it."""
        return {**self.calibration.to_dict(), "output": self.output, "seconds": round(self.seconds, 2)}


def calibrate(
    source: str | os.PathLike[str] | Source,
    output: str | os.PathLike[str] | None,
    settings: settings_module.Settings,
    data: DataOptions,
    *,
    overwrite: bool = False,
    log_file: str | os.PathLike[str] | None = None,
    compare: bool = False,
) -> CalibrationRun:
    """Make the INT8 tables of a SavedModel, of a Keras file, or of a converted model's engines, and write them to a file.

    Args: source: as in `convert`. output: file to write, whole or not at all; None to write none. settings: Settings of the conversion
      that the tables are for. data: what to calibrate on. overwrite: replace a file that is there. log_file: as in `convert`.
      compare: compare the methods even where the settings name one.

    Returns: CalibrationRun. Raises: UsageError, TftrtError, OSError; CheckFailed where no engine takes a table.
    """
    start = time.monotonic()
    target = _check_file(output, overwrite) if output else None
    source = _checked(source)
    with opened(source, os.fspath(log_file) if log_file else None) as model:
        digest = background.start(lambda: files.digest(source.path))  # while the child loads TensorFlow
        if settings.calibrator == "tensorrt" and not stack_room.has_implicit_batch():
            _refuse_implicit_batch(model)
        request = CalibrateRequest(source=model, settings=settings, int8=TablesFrom(options=data, compare=compare))
        answer = pass_apart.run(converting.calibrate, request, env=pass_log.ENV, log_file=log_file).result
    calibration = answer.calibration(settings.calibrator, _absolute(source), digest.result())
    if target:
        calibration.write(target, overwrite)
    return CalibrationRun(str(target) if target else None, calibration, time.monotonic() - start)


def _refuse_implicit_batch(model: str) -> None:
    """TensorRT calibrates engines that it builds, and this one builds none with an implicit batch."""
    if any(engine.implicit_batch for engine in describe.describe(model)[0].engines):
        raise errors.UsageError(
            f"the engine ops of {model} have an implicit batch, which TensorRT {stack_room.tensorrt_major()} does not have, so it cannot "
            "calibrate them",
            "convert the original model again here, or leave out --calibrator=tensorrt: the toolkit's needs no engine",
        )


def _check_file(output: str | os.PathLike[str], overwrite: bool) -> pathlib.Path:
    """The absolute path of a file that may be written. Raises: UsageError."""
    target = pathlib.Path(output).absolute()
    if target.is_dir():
        raise errors.UsageError(f"the output {target} is a directory", "name the file to write")
    if target.exists() and not overwrite:
        raise errors.UsageError(f"the output file exists: {target}", "add --overwrite to replace it, or choose another")
    if not target.parent.is_dir():
        raise errors.UsageError(f"no such directory: {target.parent}", "make it, or choose another")
    return target


def _checked(source: str | os.PathLike[str] | Source) -> Source:
    """Its Source. Raises: TftrtError if this machine cannot convert, UsageError if it is not a model."""
    stack_room.check_can_convert()
    return check(source)


def _absolute(source: Source) -> str:
    return str(pathlib.Path(source.path).absolute())


def _check_engines(done: Conversion) -> None:
    if done.engines or done.settings.allow_no_engines:
        return
    left = [node for signature in done.signatures for node in signature.left_out]
    if refused := refused_lines(done.signatures):
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        smaller = (
            "a lower --minimum_segment_size may take the parts around it; or "
            if done.settings.minimum_segment_size > 1
            else ""
        )
        raise errors.CheckFailed(
            f"no segment is worth an engine without what TensorRT refuses: {refused[0]}{more}",
            f"{smaller}accept with --allow_no_engines",
        )
    tried = "" if done.settings.dynamic else "--use_dynamic_shape or "
    mend = (
        advice.missing_type(left)
        or f"`tftrt inspect` names each op and the reason; try {tried}a lower --minimum_segment_size"
    )
    raise errors.CheckFailed(
        f"no segment is worth an engine: all {len(left)} computing ops would stay in TensorFlow",
        "; ".join(filter(None, (f"{mend}, or accept with --allow_no_engines", advice.loops(left).rstrip(".")))),
    )
