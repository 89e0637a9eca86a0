"""Max pooling in calibration tables: TensorRT gives its output the scale of its input, not one of its own (seen in tables of 8.5.3)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorflow.core.framework import function_pb2

    from tftrt_tools.tftrt.calibration.job.tensor_names import NamedTensor

_OPS = ("MaxPool", "MaxPool3D")


def measured(named: Sequence[NamedTensor], function: function_pb2.FunctionDef) -> list[NamedTensor]:
    """The same names; those of max poolings stand for the pooled tensors. Args: named: [tensor_names.NamedTensor]; function: FunctionDef
    of the segment. Returns: [NamedTensor]."""
    inputs = {f"{node.name}:0": _tensor(node.input[0]) for node in function.node_def if node.op in _OPS}
    return [dataclasses.replace(one, tensor=_pooled(one.tensor, inputs)) for one in named]


def _pooled(tensor: str | None, inputs: dict[str, str]) -> str | None:
    while tensor in inputs:
        tensor = inputs[tensor]
    return tensor


def _tensor(source: str) -> str:
    """ "node:output:index" or "argument" of a function as "node:index"; every op before a max pooling has one output argument."""
    return source.partition(":")[0] + ":" + (source.rpartition(":")[2] if ":" in source else "0")
