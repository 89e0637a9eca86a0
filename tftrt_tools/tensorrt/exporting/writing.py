"""The jobs that write a precision into an exported graph. No runtime is imported here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from tftrt_tools.base import records
from tftrt_tools.base.choices import CalibrationMethod
from tftrt_tools.base.process import jobs
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.tensorrt.exporting.as_plan import AsPlan
from tftrt_tools.tensorrt.exporting.onnx_graph import Node
from tftrt_tools.tensorrt.exporting.precision import Written
from tftrt_tools.tftrt.calibration.record import DataRecord


@dataclasses.dataclass(frozen=True, kw_only=True)
class Files(records.Record):
    """The file in FP32; the file to write; the name of the one beside each for its weights, or ""."""

    onnx: str
    output: str
    weights: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToFp16(records.Record):
    """FP16. fp32_nodes: regular expressions of nodes that stay."""

    files: Files
    fp32_nodes: tuple[str, ...]
    # .npz files of inputs, on which tensors are looked at.
    calls: tuple[str, ...]
    # Another file to write, which computes in FP32 and rounds to FP16.
    judged: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToInt8(records.Record):
    """INT8. fp32_nodes: regular expressions of nodes that stay."""

    files: Files
    fp32_nodes: tuple[str, ...]
    # As precise.Exported has them.
    signature: str
    twins: tuple[str, ...]
    inputs: Mapping[str, tuple[InputSpec, ...]]
    asked: tuple[str, ...]
    # The calibration data, and how ranges come from it; or {tensor: scale} of a table.
    data: DataOptions | None
    method: CalibrationMethod
    percentile: float
    table: Mapping[str, float]
    # Whether all tensors are measured.
    every_tensor: bool
    # Only nodes that a plan computes in INT8; None for all.
    as_plan: AsPlan | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer(records.Record):
    """The file that was written. Of INT8: scales: {tensor: scale} of all that were measured; data: None without data."""

    written: Written
    nodes: tuple[Node, ...]
    scales: Mapping[str, float] = dataclasses.field(default_factory=dict)
    data: DataRecord | None = None


@jobs.job
def fp16() -> Callable[[ToFp16], Answer]:
    """Write casts, and weights in FP16. Raises: UsageError, TftrtError."""
    from tftrt_tools.tensorrt.exporting import fp16_job

    return fp16_job.job


@jobs.job
def int8() -> Callable[[ToInt8], Answer]:
    """Write QuantizeLinear and DequantizeLinear nodes. Raises: UsageError, TftrtError."""
    from tftrt_tools.tensorrt.exporting import quantize_job

    return quantize_job.job
