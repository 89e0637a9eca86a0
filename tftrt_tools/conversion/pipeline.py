"""The whole of `tftrt convert` and of `tftrt calibrate`: check, work in a child, write the passport or the table, put the result in place.
No TensorFlow here."""

import contextlib
import dataclasses
import pathlib
import platform
import threading
import time

from tftrt_tools import child, errors, op_libraries
from tftrt_tools import stack as stack_room
from tftrt_tools.calibration import file as calibration_file
from tftrt_tools.calibration import merge
from tftrt_tools.calibration.comparison import Comparison
from tftrt_tools.calibration.file import Calibration, EngineTable
from tftrt_tools.conversion import layer_log, pass_log
from tftrt_tools.conversion import settings as settings_module
from tftrt_tools.conversion.result import SignatureResult, Unbuilt, coverage
from tftrt_tools.execution import run
from tftrt_tools.execution.coverage import check as check_shapes
from tftrt_tools.savedmodel import files, flops, passport, staging
from tftrt_tools.sources.opened import check, opened

# Share of the ops in TensorRT below which the other batch mode, or a look at the reasons, may be worth it.
LITTLE = 0.9


@dataclasses.dataclass(frozen=True)
class Conversion:
    """A finished conversion. output: None for a dry run; source_digest: of the input as given; shapes_served: what
    coverage.check saw, for each declared shape; calibration: file.Calibration of an INT8 model, or None; cache_problem: why the engine
    cache did not work, or ""; seconds: wall time; layers: what the log says of the engines, where it was
    asked; left_behind: tags of the source's MetaGraphs that are not in the output."""

    source: str
    output: str | None
    source_digest: str
    settings: settings_module.Settings
    signatures: tuple
    versions: dict
    gpu: dict | None
    shapes_served: tuple
    seconds: float
    calibration: Calibration | None = None
    cache_problem: str = ""
    layers: layer_log.Found = layer_log.Found()
    left_behind: tuple[str, ...] = ()
    stamp: dict = dataclasses.field(default_factory=passport.stamp)

    @property
    def engines(self):
        """All engine ops of all signatures."""
        return [engine for signature in self.signatures for engine in signature.engines]

    @property
    def unbuilt(self) -> list[Unbuilt]:
        """Engine ops that were left without an engine though --shapes asked for them."""
        return [one for signature in self.signatures for one in signature.unbuilt]

    @property
    def coverage(self):
        """Share of the computing ops of the converted signatures that run in TensorRT, 0 to 1."""
        return coverage(self.signatures)

    @property
    def flops(self) -> flops.Flops | None:
        """Computation of the converted signatures, in engines and in all; None where it was not counted."""
        return flops.together([signature.flops for signature in self.signatures])

    def to_dict(self):
        return {"kind": "conversion", **self.stamp, "source": self.source,
                "source_digest": self.source_digest,
                "op_libraries": op_libraries.named(), "output": self.output, "settings": self.settings.to_dict(),
                "use_dynamic_shape": self.settings.dynamic, "dynamic_shape_profile_strategy": self.settings.strategy,
                "left_behind": list(self.left_behind), "versions": {**self.versions, "python": platform.python_version()}, "gpu": self.gpu,
                "coverage": round(self.coverage, 4), "flops": self.flops.to_dict() if self.flops else None,
                "engine_count": len(self.engines), "seconds": round(self.seconds, 2),
                "signatures": [signature.to_dict() for signature in self.signatures],
                "shapes_served": list(self.shapes_served), "calibration": _summary(self.calibration),
                **self.layers.to_dict()}


def _summary(calibration):
    """What the manifest says of a calibration; the tables and the hashes of the data's rows are in calibration.json."""
    if calibration is None:
        return None
    data = {name: value for name, value in calibration.data.items() if name != "rows"}
    return {"calibrator": calibration.calibrator, "method": calibration.method, "tensors": sum(len(one.table.scales) for one in
            calibration.engines), "left_out": sum(len(one.left_out) for one in calibration.engines), "data": data,
            "reused": bool(calibration.provenance) and calibration.provenance[-1].get("step") == "reused",
            "comparison": calibration.comparison.to_dict() if calibration.comparison else None}


def convert(source, output, settings, overwrite=False, dry_run=False, flag_file="", log_file=None, data=None, cache=None, layers=False,
            build_minutes=None):
    """Convert what the user named.

    Args:
      source: path of a SavedModel or Keras file, or its source.Source.
      output: directory to make; None only for a dry run.
      settings: Settings, as `settings.checked` returned them.
      overwrite: replace a SavedModel that is there.
      dry_run: run everything but the saving.
      flag_file: text that repeats the conversion, kept as convert.flags.
      log_file: where to keep what TensorFlow and TensorRT log.
      data: inputs.options.DataOptions for INT8, or None.
      cache: {"folder", "max_bytes"} of the engine cache, or None for none.
      layers: find out in what the engines' layers compute, from TensorRT's verbose log; engines of a cache were built without one.
      build_minutes: bound of all builds together; None for none. What is not ready then stays native.

    Returns: Conversion.

    Raises: UsageError, TftrtError; CheckFailed where no segment is worth an engine or a declared shape has none.
      The output is then as it was.
    """
    start = time.monotonic()
    source = _checked(source)
    given = calibration_file.read(settings.calibration_table) if settings.calibration_table else None
    target = None if dry_run else staging.check_target(output, overwrite, [source.path])
    with contextlib.ExitStack() as stack:
        stage = None if dry_run else stack.enter_context(staging.staged(target))
        model = stack.enter_context(opened(source, log_file))
        checker = stack.enter_context(run.worker()) if stage and settings.shapes and settings.save_engines else None
        digest = _Digest(source.path)
        request = {"source": model, "output": str(stage) if stage else None, "settings": settings.to_dict(),
                   "int8": {"options": data.to_dict() if data else None, "given": given.to_dict() if given else None}, "cache": cache,
                   "build_minutes": build_minutes, "compare_modes": LITTLE}
        outcome = child.run("tftrt_tools.conversion.convert:job", request, env=layer_log.ENV if layers else pass_log.ENV, log_file=log_file)
        answer = outcome.result
        signatures = tuple(map(SignatureResult.from_dict, answer["signatures"]))
        done = Conversion(_absolute(source), str(target) if target else None, digest.value(), settings, signatures,
                          answer["versions"], answer["gpu"], (), 0.0, cache_problem=answer["cache_problem"],
                          left_behind=tuple(answer["other_tags"]))
        done = dataclasses.replace(done, calibration=_calibration(answer, done, given))
        if layers:
            tables = done.calibration.engines if done.calibration else ()
            done = dataclasses.replace(done, layers=layer_log.Found.of(outcome.log, signatures, tables))
        _check_engines(done)
        if checker:
            called = {signature.name: signature for signature in done.signatures if signature.calls}
            done = dataclasses.replace(done, shapes_served=check_shapes(stage, called, checker))
        done = dataclasses.replace(done, seconds=time.monotonic() - start)
        if stage:
            passport.write(stage, passport.MANIFEST, done.to_dict())
            passport.write(stage, passport.FLAGS, flag_file)
            if done.calibration:
                done.calibration.write(passport.folder(stage) / passport.CALIBRATION)
    return done


def _calibration(answer, done, given):
    """The Calibration that the model carries, or None where no engine has a table."""
    tables = tuple(map(EngineTable.from_dict, answer["tables"]))
    if not tables:
        return None
    if given:
        step = {"step": "reused", **passport.stamp(), "source": done.settings.calibration_table}
        return dataclasses.replace(given, engines=tables, provenance=(*given.provenance, step))
    return _new_calibration(answer, tables, done.settings, done.source, done.source_digest)


def _new_calibration(answer, tables, settings, model, digest):
    """The Calibration of a child's answer {"versions", "data", …} and its EngineTables."""
    records, compared = answer["data"], answer["comparison"]
    return Calibration(**passport.stamp(), calibrator=settings.calibrator, method=answer["method"],
                       tensorrt=answer["versions"]["tensorrt"], tensorflow=answer["versions"]["tensorflow"], model=model,
                       model_digest=digest, data=records[0] if len(records) == 1 else merge.combined(records), engines=tables,
                       comparison=Comparison.from_dict(compared) if compared else None)


@dataclasses.dataclass(frozen=True)
class CalibrationRun:
    """A finished calibration. output: the file that holds it, or None; calibration: file.Calibration; seconds: wall time."""

    output: str | None
    calibration: Calibration
    seconds: float

    def to_dict(self):
        return {**self.calibration.to_dict(), "output": self.output, "seconds": round(self.seconds, 2)}


def calibrate(source, output, settings, data, overwrite=False, log_file=None, compare=False):
    """Make the INT8 tables of a SavedModel, of a Keras file, or of a converted model's engines, and write them to a file.

    Args: source: as in `convert`. output: file to write, whole or not at all; None to write none. settings: Settings of the conversion
      that the tables are for. data: inputs.options.DataOptions. overwrite: replace a file that is there. log_file: as in `convert`.
      compare: compare the methods even where the settings name one.

    Returns: CalibrationRun. Raises: UsageError, TftrtError, OSError; CheckFailed where no engine takes a table.
    """
    start = time.monotonic()
    target = _check_file(output, overwrite) if output else None
    source = _checked(source)
    with opened(source, log_file) as model:
        digest = _Digest(source.path)
        tables_from = {"options": data.to_dict(), "given": None, "compare": compare}
        request = {"source": model, "settings": settings.to_dict(), "int8": tables_from}
        answer = _ask("tftrt_tools.conversion.calibrate:job", request, log_file)
    tables = tuple(map(EngineTable.from_dict, answer["tables"]))
    calibration = _new_calibration(answer, tables, settings, _absolute(source), digest.value())
    if target:
        calibration.write(target)
    return CalibrationRun(str(target) if target else None, calibration, time.monotonic() - start)


def _check_file(output, overwrite):
    """The absolute path of a file that may be written. Raises: UsageError."""
    target = pathlib.Path(output).absolute()
    if target.is_dir():
        raise errors.UsageError(f"the output {target} is a directory", "name the file to write")
    if target.exists() and not overwrite:
        raise errors.UsageError(f"the output file exists: {target}", "add --overwrite to replace it, or choose another")
    if not target.parent.is_dir():
        raise errors.UsageError(f"no such directory: {target.parent}", "make it, or choose another")
    return target


def _checked(source):
    """Its Source. Raises: TftrtError where nothing can be converted here, UsageError where it is no model."""
    stack_room.check_can_convert()
    return check(source)


def _absolute(source):
    return str(pathlib.Path(source.path).absolute())


def _ask(job, request, log_file):
    return child.run(job, request, env=pass_log.ENV, log_file=log_file).result


class _Digest:
    """The digest of a path, computed while the child loads TensorFlow."""

    def __init__(self, path):
        self._path, self._value, self._error = path, None, None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            self._value = files.digest(self._path)
        except OSError as error:
            self._error = error

    def value(self):
        self._thread.join()
        if self._error:
            raise self._error
        return self._value


def _check_engines(done):
    if done.engines or done.settings.allow_no_engines:
        return
    left = sum(len(signature.left_out) for signature in done.signatures)
    raise errors.CheckFailed(f"no segment is worth an engine: all {left} computing ops would stay in TensorFlow",
                             "`tftrt inspect` names each op and the reason; try --use_dynamic_shape or a lower "
                             "--minimum_segment_size, or accept with --allow_no_engines")
