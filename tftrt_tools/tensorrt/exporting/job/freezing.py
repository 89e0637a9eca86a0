"""Inputs that get one value for good: the notes of all exports, and the change of an ONNX graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt
import onnx
from onnx import numpy_helper

from tftrt_tools.tensorrt.exporting.job.graph_facts import all_nodes, is_open
from tftrt_tools.tensorrt.exporting.job.rewrites import slim

_VALUE = "/frozen"


def notes(values: Mapping[str, npt.NDArray[Any]]) -> list[str]:
    """What to know about the inputs, a line each. Args: values: {input: its value}."""
    return [
        f"input {name} is {str(value.item()).lower()} for good (--freeze): callers still give it, and the file no longer reads it"
        for name, value in values.items()
    ]


def freeze(model: onnx.ModelProto, values: Mapping[str, npt.NDArray[Any]]) -> None:
    """Let nodes read constants in place of inputs, and compute what these decide, with the conditionals that go away by that. The inputs
    stay. Raises: whatever onnxslim's parts raise."""
    for name, value in values.items():
        model.graph.initializer.append(numpy_helper.from_array(value, name + _VALUE))
        for node in all_nodes(model.graph):
            for index, read in enumerate(node.input):
                if read == name:
                    node.input[index] = name + _VALUE
    decide(model)


def fix(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> list[str]:
    """Give open dimensions of inputs their sizes, and compute what these decide, with the conditionals that go away by that. Args: shapes:
    {input: its shape}. Returns: what to know, a line each. Raises: as `freeze`."""
    fixed = []
    for value in model.graph.input:
        given = zip(value.type.tensor_type.shape.dim, shapes.get(value.name, ()), strict=False)
        opened = [(dim, size) for dim, size in given if is_open(dim)]
        for dim, size in opened:
            dim.dim_value = size
        fixed += [value.name] * bool(opened)
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    decide(model)
    return [f"the sizes of {', '.join(fixed)} are those of --shapes for good (--fix_shapes)"] if fixed else []


def decide(model: onnx.ModelProto) -> None:
    """Compute what constants decide, conditionals, too. Raises: as `freeze`."""
    slim.rewrite("constant_folding")(model, "")
