"""The commands as functions. Each has the often used flags as arguments, and takes every other flag by its name.

A value of None is the command's own default. What a function raises is what its command would have ended with: UsageError (exit code 2),
CheckFailed (3), Unsure (4), and TftrtError, their base (1); `error.result` is the result where there is one. docs/python.md has more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from tftrt_tools.api import calling
from tftrt_tools.api.given import Data, Path

if TYPE_CHECKING:
    from tftrt_tools.accuracy.verify import Verification
    from tftrt_tools.models.backends.protocol import Made
    from tftrt_tools.models.kinds.model import Overview
    from tftrt_tools.models.savedmodel.inspection import Inspection
    from tftrt_tools.servers.serving.publishing.publish import Publication
    from tftrt_tools.servers.serving.publishing.several import Publications
    from tftrt_tools.servers.serving.triton.publish import Publication as TritonPublication
    from tftrt_tools.studies.batching.tuned import Tuned
    from tftrt_tools.studies.bench.measurements import Bench
    from tftrt_tools.studies.fleet_builds.building import FleetBuild
    from tftrt_tools.studies.optimizing.story import Story
    from tftrt_tools.studies.regression.comparison import Regression
    from tftrt_tools.studies.regression.several import Regressions
    from tftrt_tools.studies.side_by_side.measured import SideBySide
    from tftrt_tools.studies.tuning.repeats import Repeated
    from tftrt_tools.studies.tuning.tried import Tuning
    from tftrt_tools.tensorrt.exporting.result import Exported
    from tftrt_tools.tensorrt.plans.result import Built
    from tftrt_tools.tensorrt.plans.tensors import Tensors
    from tftrt_tools.tftrt.conversion.build import Build
    from tftrt_tools.tftrt.conversion.pipeline import CalibrationRun, Conversion
    from tftrt_tools.tftrt.conversion.plan import Plan

# One text, or several.
Texts = str | Sequence[str]


def inspect(
    model: Path,
    *,
    precision: str | None = None,
    shapes: str | None = None,
    signature_keys: Texts | None = None,
    minimum_segment_size: int | None = None,
    use_dynamic_shape: bool | None = None,
    check: bool | None = None,
    **flags: object,
) -> Plan | Inspection | Overview:
    """What TF-TRT would do with a model, or what it did: `tftrt inspect`.

    Args:
      model: path of a SavedModel, a Keras file, or a model that TF-TRT does not convert, such as an ONNX file.
      precision: FP32 [default], FP16 or INT8. shapes: sizes for which FLOPs are counted, such as "image:8x224x224x3".
      signature_keys: of the signatures, all by default. minimum_segment_size: nodes that an engine needs. use_dynamic_shape: explicit
      batch mode. check: raise CheckFailed where something disagrees, or where nothing would run in TensorRT.
      flags: the others of `tftrt inspect --help`.

    Returns: Plan of a model before its conversion: `signatures`, each with `coverage`, `segments` and `left_out`. Inspection of a converted
    one: `engines`, `findings`. Overview of one that is not converted: `signatures`, `ops`.
    """
    arguments = {
        "precision": precision,
        "shapes": shapes,
        "signature_keys": signature_keys,
        "minimum_segment_size": minimum_segment_size,
        "use_dynamic_shape": use_dynamic_shape,
        "check": check,
    }
    found: Plan | Inspection | Overview = calling.result("inspect", [model], arguments, flags)
    return found


def calibrate(
    model: Path,
    *,
    calibration_data: Data | None = None,
    output: Path | None = None,
    shapes: str | None = None,
    calibration_method: str | None = None,
    calibration_batch_size: int | None = None,
    num_calibration_batches: int | None = None,
    compare_methods: bool | None = None,
    overwrite: bool | None = None,
    **flags: object,
) -> CalibrationRun:
    """The INT8 ranges of a model, found without a GPU: `tftrt calibrate`.

    Args:
      model: path of a SavedModel, a Keras file, or a converted model.
      calibration_data: representative inputs: a path or module:function, {input: array}, or an iterable of batches, of which no more is
      read than num_calibration_batches need, by default all. output: the file to write. shapes: the conversion's.
      calibration_method: auto [default], entropy, percentile, mse or max. calibration_batch_size, num_calibration_batches: what is used
      of the data. compare_methods: measure every method, in `calibration.comparison`. overwrite: replace the file. flags: the others of
      `tftrt calibrate --help`.

    Returns: CalibrationRun: `output`, and `calibration` with the ranges.
    """
    arguments = {
        "calibration_data": calibration_data,
        "output": output,
        "shapes": shapes,
        "calibration_method": calibration_method,
        "calibration_batch_size": calibration_batch_size,
        "num_calibration_batches": num_calibration_batches,
        "compare_methods": compare_methods,
        "overwrite": overwrite,
    }
    done: CalibrationRun = calling.result("calibrate", [model], arguments, flags)
    return done


def convert(
    model: Path,
    output: Path | None = None,
    *,
    precision: str | None = None,
    shapes: str | None = None,
    calibration_data: Data | None = None,
    calibration_table: Path | None = None,
    calibration_method: str | None = None,
    use_dynamic_shape: bool | None = None,
    minimum_segment_size: int | None = None,
    signature_keys: Texts | None = None,
    freeze: str | None = None,
    backend: str | None = None,
    overwrite: bool | None = None,
    dry_run: bool | None = None,
    **flags: object,
) -> Conversion | Built | Made:
    """A model to a TF-TRT SavedModel, or to a plan: `tftrt convert`.

    Args:
      model: path of a SavedModel, a Keras file, or, for a plan, an ONNX file. output: the directory to make; it may be left out with
      dry_run, which writes nothing. precision: FP32 [default], FP16 or INT8. shapes: to build engines for, on a GPU, such as
      "image:1x224x224x3,8x224x224x3". calibration_data: for INT8: a path or module:function, {input: array}, or an iterable of batches;
      or calibration_table, of `calibrate`. calibration_method: auto [default], entropy, percentile, mse or max. use_dynamic_shape:
      explicit batch mode. minimum_segment_size: nodes that an engine needs. signature_keys: all by default. freeze: inputs that get
      one value for good. backend: "tftrt" [default] or "tensorrt". overwrite: replace a model that is at the output.
      flags: the others of `tftrt convert --help`.

    Returns: Conversion: `coverage`, `engines`, `signatures`; of a plan Built.
    Raises: CheckFailed where no engine came out, or where one was refused; that conversion is then its `result`, and it is written.
    """
    arguments = {
        "precision": precision,
        "shapes": shapes,
        "calibration_data": calibration_data,
        "calibration_table": calibration_table,
        "calibration_method": calibration_method,
        "use_dynamic_shape": use_dynamic_shape,
        "minimum_segment_size": minimum_segment_size,
        "signature_keys": signature_keys,
        "freeze": freeze,
        "backend": backend,
        "overwrite": overwrite,
        "dry_run": dry_run,
    }
    places = [model] if output is None else [model, output]
    done: Conversion | Built | Made = calling.result("convert", places, arguments, flags)
    return done


def build(
    model: Path,
    *,
    shapes: str | None = None,
    output: Path | None = None,
    strip: bool | None = None,
    repeat: int | None = None,
    overwrite: bool | None = None,
    **flags: object,
) -> Build | Built | Repeated | FleetBuild | Made:
    """The engines of a converted model, on this machine's GPU, or a plan anew: `tftrt build`.

    Args:
      model: path of what `convert` made. shapes: to build engines for; of a plan by default its own. output: by default the
      model itself is replaced. strip: remove the engines instead. repeat: builds, of which the fastest is kept. overwrite: replace what
      is at the output. flags: the others of `tftrt build --help`.

    Returns: Build: `built`, `unbuilt`; Built of a plan; Repeated with repeat; FleetBuild with on. Raises: CheckFailed where an
    engine was refused.
    """
    arguments = {"shapes": shapes, "output": output, "strip": strip, "repeat": repeat, "overwrite": overwrite}
    done: Build | Built | Repeated | FleetBuild | Made = calling.result("build", [model], arguments, flags)
    return done


@overload
def verify(
    original: Path,
    converted: Path,
    *,
    data: Data | None = None,
    labels: Data | None = None,
    shapes: str | None = None,
    thresholds: str | None = None,
    batch_size: int | None = None,
    signature_keys: Texts | None = None,
    allow_builds: bool | None = None,
    tensors: None = None,
    write: bool | None = None,
    **flags: object,
) -> Verification: ...


@overload
def verify(
    original: Path,
    converted: Path,
    *,
    data: Data | None = None,
    labels: Data | None = None,
    shapes: str | None = None,
    thresholds: str | None = None,
    batch_size: int | None = None,
    signature_keys: Texts | None = None,
    allow_builds: bool | None = None,
    tensors: Texts,
    write: bool | None = None,
    **flags: object,
) -> Tensors: ...


def verify(
    original: Path,
    converted: Path,
    *,
    data: Data | None = None,
    labels: Data | None = None,
    shapes: str | None = None,
    thresholds: str | None = None,
    batch_size: int | None = None,
    signature_keys: Texts | None = None,
    allow_builds: bool | None = None,
    tensors: Texts | None = None,
    write: bool | None = None,
    **flags: object,
) -> Verification | Tensors:
    """Does the converted model answer like the original, and did its engines run: `tftrt verify`.

    Args:
      original, converted: paths of two models, of any kinds. data: inputs: a path or module:function, {input: array}, or an iterable of
      batches; by default they are drawn. labels: the right answers: a path, or an array. shapes: of drawn inputs. thresholds: bounds, such
      as "snr_db>=40". batch_size: rows of a call. signature_keys: all by default. allow_builds: accept engines that are built in a call.
      tensors: compare inner tensors instead, by their names, or "all". write: keep the result in the converted model [True].
      flags: the others of `tftrt verify --help`.

    Returns: Verification: `verdict`, `comparisons`, `warnings`, `accuracy`; Tensors with `tensors`.
    Raises: CheckFailed where they do not answer alike, with the Verification as its `result`.
    """
    arguments = {
        "data": data,
        "labels": labels,
        "shapes": shapes,
        "thresholds": thresholds,
        "batch_size": batch_size,
        "signature_keys": signature_keys,
        "allow_builds": allow_builds,
        "tensors": tensors,
        "write": write,
    }
    done: Verification | Tensors = calling.result("verify", [original, converted], arguments, flags)
    return done


def export(
    model: Path,
    *,
    output: Path | None = None,
    target: str | None = None,
    precision: str | None = None,
    data: Data | None = None,
    calibration_data: Data | None = None,
    signature_keys: Texts | None = None,
    thresholds: str | None = None,
    **flags: object,
) -> Exported:
    """ONNX files of a model, run against it and held against what TensorRT's parser takes: `tftrt export`.

    Args:
      model: path of a model of TensorFlow, Keras or PyTorch, or an ONNX file that others made. output: the file to write, FILE.onnx.
      target: who will read it: "8.5" [default], "10", "11" or "onnxruntime". precision: written into the graph: FP32 [default], FP16
      or INT8. data: inputs to compare on, as of `verify`. calibration_data: for INT8. signature_keys: all by default. thresholds: bounds on
      the difference. flags: the others of `tftrt export --help`.

    Returns: Exported: `files`, each with `path`, `verification`, `refused`.
    Raises: CheckFailed where the answers differ or the parser refuses a node; nothing is written then, and the Exported is its `result`.
    """
    arguments = {
        "output": output,
        "target": target,
        "precision": precision,
        "data": data,
        "calibration_data": calibration_data,
        "signature_keys": signature_keys,
        "thresholds": thresholds,
    }
    done: Exported = calling.result("export", [model], arguments, flags)
    return done


def publish(
    model: Path,
    *,
    model_name: str | None = None,
    base_path: Path | None = None,
    model_version: int | None = None,
    server: str | None = None,
    server_image: str | None = None,
    unverified: bool | None = None,
    warmup_data: Data | None = None,
    warmup_shapes: str | None = None,
    **flags: object,
) -> Publication | Publications | TritonPublication:
    """A model as the next version of a server's base path, checked and with its warm-up: `tftrt publish`.

    Args:
      model: path of the model. model_name: as requests call it. base_path: the version goes to base_path/model_name/model_version, by
      default the number after the largest. server: "tensorflow" [default] or "triton". server_image: what will serve it, "local" [default]
      or an image. unverified: publish without a valid verification. warmup_data, warmup_shapes: what to warm up with.
      flags: the others of `tftrt publish --help`.

    Returns: Publication: `path`, `version`, `notes`. Of a folder with a model for each kind of GPU, Publications; for Triton one
      Publication, with `kinds`. Raises: CheckFailed where the model must not be served; nothing of it is published then.
    """
    arguments = {
        "model_name": model_name,
        "base_path": base_path,
        "model_version": model_version,
        "server": server,
        "server_image": server_image,
        "unverified": unverified,
        "warmup_data": warmup_data,
        "warmup_shapes": warmup_shapes,
    }
    done: Publication | Publications | TritonPublication = calling.result("publish", [model], arguments, flags)
    return done


def bench(
    *models: Path,
    shapes: str | None = None,
    data: Data | None = None,
    batch_size: int | Sequence[int] | None = None,
    concurrency: int | Sequence[int] | None = None,
    rounds: int | None = None,
    max_rounds: int | None = None,
    model_name: str | None = None,
    slo: str | None = None,
    tune_batching: Path | None = None,
    **flags: object,
) -> SideBySide | Bench | Tuned:
    """How fast models answer here, or how fast a server does: `tftrt bench`.

    Args:
      models: paths of models of any kinds, which are measured in one process and in turns, each against the first; or the address of a
      server, with model_name. shapes: of the requests, such as "image:8x224x224x3"; data: their values. batch_size: rows of a request;
      concurrency: requests under way; of a server, lists are swept. rounds, max_rounds: of models. slo: a promise, such as "p99<20ms".
      tune_batching: a model for whose server the batching parameters are searched. flags: the others of `tftrt bench --help`.

    Returns: SideBySide of models: `rows`, each with `figures` (p50, p90, p99 in seconds, and answers a second) and `against_first`;
    `sentences`. Bench of a server: `rows`. Tuned with tune_batching.
    """
    arguments = {
        "shapes": shapes,
        "data": data,
        "batch_size": batch_size,
        "concurrency": concurrency,
        "rounds": rounds,
        "max_rounds": max_rounds,
        "model_name": model_name,
        "slo": slo,
        "tune_batching": tune_batching,
    }
    done: SideBySide | Bench | Tuned = calling.result("bench", models, arguments, flags)
    return done


def regress(
    native: Path,
    candidate: Path,
    *,
    data: Data | None = None,
    shapes: str | None = None,
    rounds: int | None = None,
    max_rounds: int | None = None,
    min_effect: float | None = None,
    accuracy: str | None = None,
    labels: Data | None = None,
    speed_up_at_least: float | None = None,
    allow_worse: bool | None = None,
    **flags: object,
) -> Regression | Regressions:
    """Is the candidate slower than the native model, faster, the same, or can nobody tell: `tftrt regress`.

    Args:
      native, candidate: paths of two models; with address= their names there. data, shapes: of the requests. rounds, max_rounds: how long
      it measures. min_effect: the smallest difference that counts, as a fraction [0.03]. accuracy: goals on the answers, judged against
      labels where they need some. speed_up_at_least: a goal. allow_worse: accept a slower candidate.
      flags: the others of `tftrt regress --help`.

    Returns: Regression: `headline`, `verdict`, `checks`, `answers`; of several batch sizes (batch_size=[1, 8]) Regressions: `headline`, and
    `parts` with a Regression each. Raises: CheckFailed where something does not hold, Unsure where nobody
    can tell, both with that as their `result`.
    """
    arguments = {
        "data": data,
        "shapes": shapes,
        "rounds": rounds,
        "max_rounds": max_rounds,
        "min_effect": min_effect,
        "accuracy": accuracy,
        "labels": labels,
        "speed_up_at_least": speed_up_at_least,
        "allow_worse": allow_worse,
    }
    done: Regression | Regressions = calling.result("regress", [native, candidate], arguments, flags)
    return done


def tune(
    model: Path,
    *,
    data: Path | None = None,
    accuracy: str | None = None,
    shapes: str | None = None,
    labels: Path | None = None,
    calibration_data: Path | None = None,
    precision: Texts | None = None,
    backend: Texts | None = None,
    max_trials: int | None = None,
    max_minutes: float | None = None,
    work_dir: Path | None = None,
    output: Path | None = None,
    **flags: object,
) -> Tuning:
    """The fastest conversion that keeps an accuracy goal, found on this machine's GPU: `tftrt tune`.

    Args:
      model: path of the model. data: rows to score; labels: their right answers; calibration_data: for INT8. All are paths, because the
      commands that make the winner again name them. accuracy: the goal, such as "top1:max-degradation=0.01". shapes: whose speed counts.
      precision, backend: to try. max_trials, max_minutes: the budget. work_dir: where the trials are kept, from which the same call goes
      on. output: make the winner there. flags: the others of `tftrt tune --help`.

    Returns: Tuning: `winner`, `trials`, `recipe`. Raises: CheckFailed where no trial keeps the goal, with the Tuning as its `result`.
    """
    arguments = {
        "data": data,
        "accuracy": accuracy,
        "shapes": shapes,
        "labels": labels,
        "calibration_data": calibration_data,
        "precision": precision,
        "backend": backend,
        "max_trials": max_trials,
        "max_minutes": max_minutes,
        "work_dir": work_dir,
        "output": output,
    }
    done: Tuning = calling.result("tune", [model], arguments, flags)
    return done


def optimize(
    model: Path,
    *,
    data: Path | None = None,
    accuracy: str | None = None,
    output: Path | None = None,
    labels: Path | None = None,
    calibration_data: Path | None = None,
    batch_size: int | Sequence[int] | None = None,
    shapes: str | None = None,
    precision: Texts | None = None,
    slo: str | None = None,
    max_minutes: float | None = None,
    work_dir: Path | None = None,
    **flags: object,
) -> Story:
    """The whole way in one call: `tftrt optimize`. It runs the other commands, each within its time, so only the main thread can call it.

    Args:
      model: path of the model. data: rows to score; labels: their right answers; calibration_data: for INT8. All are paths, because the
      steps and the commands that they are name them. accuracy: such as "top1:max-degradation=0.01". output: the directory to
      make. batch_size, or shapes: what has to be fast. precision: to choose from. slo: of the service. max_minutes: the budget.
      work_dir: where the results are kept, from which the same call goes on. flags: the others of `tftrt optimize --help`.

    Returns: Story: `outcome` ("kept" or "open"), `verdict`, `steps`, `left`.
    Raises: CheckFailed where the goal is not kept, Unsure where nobody can tell, both with the Story as their `result`.
    """
    arguments = {
        "data": data,
        "accuracy": accuracy,
        "output": output,
        "labels": labels,
        "calibration_data": calibration_data,
        "batch_size": batch_size,
        "shapes": shapes,
        "precision": precision,
        "slo": slo,
        "max_minutes": max_minutes,
        "work_dir": work_dir,
    }
    with calling.with_alarm():
        done: Story = calling.result("optimize", [model], arguments, flags)
        return done
