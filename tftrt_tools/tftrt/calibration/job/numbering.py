"""Finds numbered names of a table that mean another tensor in another build of an engine.

TF-TRT's layout optimizer gives the nodes of a network with parallel branches another order each time it runs (seen: TensorFlow 2.14.1,
two processes on one machine, and two calls in one process). So "(Unnamed Layer* 41) [Constant]_output" can be the bias of one branch in
one build and of the other in the next, and the table of one build is read in another. Names of nodes do not change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from tftrt_tools.base import choices
from tftrt_tools.tftrt.calibration.file import NO_RANGE, NOT_MEASURED
from tftrt_tools.tftrt.calibration.job import fitting, tensor_names
from tftrt_tools.tftrt.calibration.table import Table, is_numbered

if TYPE_CHECKING:
    from tensorflow.core.framework import function_pb2

    from tftrt_tools.models.savedmodel.engine_op import Shape
    from tftrt_tools.tftrt.calibration.file import EngineTable
    from tftrt_tools.tftrt.calibration.job.tensor_names import NamedTensor

VARIES = "its number stands for another tensor in other builds"
# Reasons that nobody chose.
_OF_ITSELF = frozenset({VARIES, NOT_MEASURED, NO_RANGE, fitting.NOT_IN_TABLE})
# Enough to meet each of two orders of two nodes.
_ORDERS = 24
_MARK = "LayoutOptimizer"
# Up to this factor the largest of the ranges serves all; at most two bits of precision are lost.
_LARGEST_RATIO = 4.0


def varying(function: function_pb2.FunctionDef, dynamic: bool, shapes: Sequence[Shape]) -> dict[str, set[str | None]]:
    """Numbered names whose tensor depends on the order of the nodes, which TF-TRT's optimizer may change in the next build.

    Args: as tensor_names.names takes them. Returns: {name: {tensor, or None where no tensor holds its values}}.
    """
    return _varying(tensor_names.names(function, dynamic, shapes), function, dynamic, shapes)


def _varying(
    named: Sequence[NamedTensor], function: function_pb2.FunctionDef, dynamic: bool, shapes: Sequence[Shape]
) -> dict[str, set[str | None]]:
    # If the layout optimizer has nothing to do, it keeps the order. Otherwise the order may vary, but so seldom that a few runs do not
    # show it.
    if not any(is_numbered(line.name) for line in named) or not any(line.name.endswith(_MARK) for line in named):
        return {}
    builds = [
        {line.name: line.tensor for line in named if is_numbered(line.name)}
        for named in tensor_names.in_other_orders(function, dynamic, shapes, _ORDERS)
    ]
    seen: dict[str, set[str | None]] = {}
    for numbered in builds:
        for name, tensor in numbered.items():
            seen.setdefault(name, set()).add(tensor)
    return {
        name: tensors
        for name, tensors in seen.items()
        if len(tensors) > 1 or any(name not in build for build in builds)
    }


def settled(
    made: EngineTable,
    function: function_pb2.FunctionDef,
    dynamic: bool,
    shapes: Sequence[Shape],
    method: choices.Method = "entropy",
    kept_out: Collection[str] = (),
) -> EngineTable:
    """A table whose numbered names fit every build.

    A name that may mean one of several tensors gets the largest of their scales. If the scales differ by more than a factor of 4, or one
    is not known, the name gets none, and its layers stay out of INT8. What was left out on purpose stays so.

    Args: made: file.EngineTable; method: how constants get a scale (one of methods.METHODS); the others as in `varying`. kept_out: names
      that the user keeps out, in this order of the nodes: a name that may mean one of their tensors in another order is left out, too.
    Returns: file.EngineTable.
    """
    named = tensor_names.names(function, dynamic, shapes)
    tensors_of = _varying(named, function, dynamic, shapes)
    if not tensors_of:
        return made
    scales, left_out = dict(made.table.scales), dict(made.left_out)
    scale_of = {
        tensor.tensor: scales[tensor.name] for tensor in named if tensor.name in scales and not is_numbered(tensor.name)
    }
    constants = fitting.constants(function)
    reason_of = {
        line.tensor: left_out[line.name]
        for line in named
        if line.tensor and line.name in kept_out and line.name in left_out
    }
    for name, tensors in tensors_of.items():
        if left_out.get(name, VARIES) not in _OF_ITSELF:
            continue
        candidates: list[float | Any] = [
            scale_of.get(tensor) or _constant(tensor, constants, method) for tensor in tensors
        ]
        scales.pop(name, None)
        if on_purpose := reason_of.keys() & tensors:
            left_out[name] = reason_of[min(on_purpose)]
        elif None in candidates or max(candidates) > _LARGEST_RATIO * min(candidates):
            left_out.setdefault(name, VARIES)
        else:
            left_out.pop(name, None)
            scales[name] = max(candidates)
    return dataclasses.replace(made, table=Table(made.table.header, scales), left_out=tuple(left_out.items()))


def _constant(tensor: str | None, constants: dict[str, Any], method: choices.Method) -> float | None:
    return fitting.constant_scale(constants[tensor], method) if tensor in constants else None
