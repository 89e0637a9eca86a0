"""The jobs that export a signature as a checked ONNX file, one for each kind of model. No runtime is imported here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from tftrt_tools.base import records
from tftrt_tools.base.choices import Precision
from tftrt_tools.base.process import jobs
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.tensorrt.exporting.onnx_graph import Node


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request(records.Record):
    """What to export."""

    # A SavedModel, a program of PyTorch, or an ONNX file.
    model: str
    signature: str
    # The file to write, and the name of the one beside it for its weights, or "".
    output: str
    weights: str = ""
    # Where the source's graph with constants is kept, or the program that PyTorch's exporter wrote; an ONNX file has none.
    frozen: str = ""
    opset: int
    # {name: text} for the file.
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Text of --freeze.
    freeze: str = ""
    # Outputs that are kept, () for all.
    outputs: tuple[str, ...] = ()
    # Names of those that are made while tf2onnx converts.
    rewrites: tuple[str, ...] = ()
    # What will be written.
    precision: Precision = "FP32"
    # .npz files that tell ranks and sizes which the model does not say.
    calls: tuple[str, ...] = ()
    # Of an ONNX file: {input: the shape that it gets for good}; the newest opset that the target reads, 0 where the user asked for `opset`;
    # the oldest opset that will do, 0 for any.
    fixed: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    newest: int = 0
    least: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer(records.Record):
    """The file that was written."""

    # "tf2onnx 1.17.0" and the like.
    exporter: str
    inputs: tuple[InputSpec, ...]
    outputs: tuple[InputSpec, ...]
    # {name of an open dimension: where it occurs}.
    dimensions: Mapping[str, tuple[str, ...]]
    # {tensor of the source: its name in the file}, in the source's order: of a SavedModel's ends, of a program's outputs.
    renamed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    nodes: tuple[Node, ...]
    # What to know, a line each.
    notes: tuple[str, ...] = ()
    # {rewrite: nodes}.
    rewritten: Mapping[str, int] = dataclasses.field(default_factory=dict)
    # Of the file.
    opset: int


@jobs.job
def saved_model() -> Callable[[Request], Answer]:
    """Export a SavedModel's signature. Raises: TftrtError."""
    from tftrt_tools.tensorrt.exporting import export_job

    return export_job.job


@jobs.job
def program() -> Callable[[Request], Answer]:
    """Export a program of PyTorch. Raises: TftrtError."""
    from tftrt_tools.tensorrt.exporting import torch_job

    return torch_job.job


@jobs.job
def onnx_file() -> Callable[[Request], Answer]:
    """Export an ONNX file that others made. Raises: UsageError, TftrtError."""
    from tftrt_tools.tensorrt.exporting import onnx_job

    return onnx_job.job
