"""`tftrt sensitivity` of an ONNX file, or of the one in a plan directory: which nodes lose the most in INT8 or FP16 as `tftrt export`
writes them. No runtime is imported here."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence

from tftrt_tools.accuracy import harm, sensitivity
from tftrt_tools.accuracy.sensitivity import Options
from tftrt_tools.base import errors, records
from tftrt_tools.base.choices import CalibrationMethod, Precision
from tftrt_tools.base.files import scratch
from tftrt_tools.base.process import jobs
from tftrt_tools.models.backends.recipe import Recipe
from tftrt_tools.models.execution import run
from tftrt_tools.models.inputs import calls as inputs
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.kinds import opening, table
from tftrt_tools.models.kinds.onnx import file as onnx_file
from tftrt_tools.models.kinds.plan import document
from tftrt_tools.models.savedmodel.signatures import DEFAULT
from tftrt_tools.tensorrt.exporting import precise
from tftrt_tools.tftrt.calibration import file as calibration_file
from tftrt_tools.tftrt.calibration.methods import AUTO, PERCENTILE

_ENV = {"TF_CPP_MIN_LOG_LEVEL": "1", "CUDA_VISIBLE_DEVICES": "-1"}
EVIDENCE = "simulated in ONNX Runtime on the CPU"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked(records.Record):
    """The precision that is studied, by the flags of `tftrt export`."""

    precision: Precision
    # Regular expressions of nodes that stay in FP32 in any case.
    fp32_nodes: tuple[str, ...] = ()
    # INT8: a calibration file with the ranges, or ""; else the method, and the percentile of |x| for "percentile".
    table: str = ""
    method: CalibrationMethod = AUTO
    percentile: float = PERCENTILE

    @classmethod
    def of(cls, recipe: Recipe) -> Asked:
        """What a recipe says of it."""
        return cls(
            precision=recipe.precision_mode,
            fp32_nodes=tuple(filter(None, (recipe.fp32_nodes,))),
            table=recipe.calibration_table if recipe.precision_mode == "INT8" else "",
            method=recipe.calibration_method,
            percentile=recipe.calibration_percentile,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request(records.Record):
    """What is rounded, and on what."""

    # The file in FP32; its signature's name in the answer, and its further names.
    onnx: str
    signature: str
    twins: tuple[str, ...]
    precision: Precision
    # Regular expressions of nodes that stay in FP32 in any case.
    fp32_nodes: tuple[str, ...]
    # Regular expression of the nodes to round alone, "" for all, None for none.
    nodes: str | None
    # .npz files of the inputs to score.
    calls: tuple[str, ...]
    # As Asked has them; table: {tensor: scale}, or {}.
    method: CalibrationMethod
    percentile: float
    table: Mapping[str, float]
    # Of the calibration, None for the inputs to score.
    data: DataOptions | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer(records.Record):
    """What each node costs. method: the calibration method in force, or ""."""

    signature: harm.SignatureHarm
    method: str


@jobs.job
def simulate() -> Callable[[Request], Answer]:
    """Round nodes in ONNX Runtime on the CPU. Raises: UsageError, TftrtError."""
    from tftrt_tools.tensorrt.exporting import sensitivity_job

    return sensitivity_job.job


def takes(path: str | os.PathLike[str]) -> bool:
    """Whether a path names an ONNX file or a plan directory."""
    return bool(table.kind(os.fspath(path)).onnx(os.fspath(path)))


def study(path: str | os.PathLike[str], asked: Asked, options: Options) -> harm.Sensitivity:
    """Find the harm of each node.

    Args: path: an ONNX file in FP32, or a plan directory that was built from one. options: its calibration and measure count, too.
    Returns: harm.Sensitivity. Raises: UsageError, TftrtError.
    """
    start = time.monotonic()
    sensitivity.check_asked(asked.precision, options)
    if options.measure == "gpu":
        raise errors.UsageError(
            "--measure=gpu builds engines of TF-TRT, and an ONNX file has none",
            "leave it out; `tftrt verify ONNX PLAN --tensors=all` compares a plan that is built, tensor by tensor",
        )
    kind = table.kind(os.fspath(path))
    if kind.alone:
        document.read(path)
    path = kind.onnx(os.fspath(path))
    with opening.opened(path, log_file=options.log_file) as (model,), scratch.folder("sensitivity") as folder:
        made = sensitivity.calls_of(inputs.Takes.of(model.inputs), options, folder)
        if not made.get(DEFAULT):
            raise errors.UsageError(
                f"--data={options.data} gives no whole call of {path}",
                "it takes " + ", ".join(f"{spec.name} {spec.text()}" for spec in model.inputs[DEFAULT]),
            )
        saved = run.save_calls(made[DEFAULT], f"{folder}/in")
        found, method = simulated(
            path, asked, [one for _, one in saved], options.calibration, options.nodes, log_file=options.log_file
        )
        digest = model.digest()
    return harm.Sensitivity(
        model=str(pathlib.Path(path).absolute()),
        model_digest=digest,
        precision=asked.precision,
        settings=asked.to_dict(),
        data=options.data,
        ranges=sensitivity.ranges(asked.precision, asked.table, options, method),
        signatures=(found,),
        gpu=None,
        seconds=time.monotonic() - start,
        measured_problem=EVIDENCE,
        of_onnx=True,
    )


def simulated(
    path: str | os.PathLike[str],
    asked: Asked,
    calls: Sequence[str],
    calibration: DataOptions | None,
    nodes: str | None = "",
    *,
    names: Sequence[str] = (DEFAULT,),
    log_file: str | None = None,
) -> tuple[harm.SignatureHarm, str]:
    """Round the nodes of an ONNX file in FP32.

    Args: calls: .npz files of the inputs to score. calibration: of INT8; None for those inputs. nodes: regular expression of the nodes to
      round alone, "" for all, None for none. names: of the signature, as the calibration data may name it.
    Returns: (SignatureHarm, the calibration method in force or ""). Raises: UsageError, TftrtError.
    """
    first, *twins = names
    request = Request(
        onnx=str(path),
        signature=first,
        twins=tuple(twins),
        precision=asked.precision,
        fp32_nodes=asked.fp32_nodes,
        nodes=nodes,
        calls=tuple(calls),
        method=asked.method,
        percentile=asked.percentile,
        table=_table(asked.table, onnx_file.overview(str(path)).facts) if asked.table else {},
        data=calibration,
    )
    answer = simulate.run(request, env=_ENV, log_file=log_file).result
    return answer.signature, answer.method


def source(path: str | os.PathLike[str]) -> str:
    """What `tftrt export` takes to repeat it: the model that an ONNX file or a plan was exported from; the file itself where that is not
    known or not there."""
    folder, kind = pathlib.Path(path), table.kind(os.fspath(path))
    file, plan = pathlib.Path(kind.onnx(os.fspath(path))), kind.alone
    made = opening.document(os.fspath(path), "manifest.json") if plan else None
    named = str((made or {}).get("source", "")) or onnx_file.overview(str(file)).facts.get("tftrt.source", "")
    found = (place for place in (pathlib.Path(named), folder.parent / named) if named and place.exists())
    return os.path.relpath(next((place for place in found if not table.kind(os.fspath(place)).alone), file))


def _table(path: str, facts: Mapping[str, str]) -> dict[str, float]:
    """{tensor: scale} of a calibration file for the file's signature."""
    read = calibration_file.read(path)
    named = precise.Exported(
        path=pathlib.Path(), weights="", signature=facts.get("tftrt.signature", DEFAULT), twins=(DEFAULT,)
    )
    return precise.scales(read, named, path)
