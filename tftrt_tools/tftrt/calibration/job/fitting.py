"""Fits a table to another build of its engine: batch mode and shapes decide how many layers TensorRT numbers, and so the names.

Names of nodes stay; names with a layer's number ("(Unnamed Layer* 12) [Shuffle]_output") are worked out anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from tftrt_tools.base import choices
from tftrt_tools.tftrt.calibration.file import NO_RANGE, NOT_MEASURED, EngineTable
from tftrt_tools.tftrt.calibration.job import scales as methods
from tftrt_tools.tftrt.calibration.job import tensor_names
from tftrt_tools.tftrt.calibration.job.histogram import Histogram
from tftrt_tools.tftrt.calibration.table import Table, is_numbered

if TYPE_CHECKING:
    from tensorflow.core.framework import function_pb2, tensor_pb2

    from tftrt_tools.models.savedmodel.engine_op import Shape
    from tftrt_tools.tftrt.calibration.job.tensor_names import NamedTensor

# Transpositions that TF-TRT's layout optimizer adds; they too depend on the build.
_ADDED = "LayoutOptimizer"
NOT_IN_TABLE = "the table has no entry for it"


def fitted(
    made: EngineTable,
    function: function_pb2.FunctionDef,
    dynamic: bool,
    shapes: Sequence[Shape],
    method: choices.Method = "entropy",
) -> EngineTable:
    """The table for one build.

    If the numbered names are already those of this build, all entries stay. Otherwise a numbered name takes the scale of the entry that
    is named after the node and holds the same values; a constant's scale comes from its values; any other numbered name has no scale. In
    both cases the numbered names of a left-out tensor are left out too.

    Args: made: file.EngineTable. function: FunctionDef of the segment; dynamic, shapes: of the build, as tensor_names.names takes them.
      method: how constants get a scale (one of methods.METHODS).

    Returns: file.EngineTable, in the order of TensorRT's layers.
    """
    named = tensor_names.names(function, dynamic, shapes)
    build = _Build(made, named, constants(function), method)
    scales: dict[str, float] = {}
    left_out: dict[str, str] = {}
    for tensor in named:
        scale, reason = build.entry(tensor)
        if scale is None:
            left_out[tensor.name] = reason
        else:
            scales[tensor.name] = scale
    for name, scale in made.table.scales.items():
        if name not in left_out and (build.same or not is_numbered(name)):
            scales.setdefault(name, scale)
    for name, reason in made.left_out:
        if name not in scales:
            left_out.setdefault(name, reason)
    return EngineTable(
        segment=made.segment,
        signature=made.signature,
        engine=made.engine,
        table=Table(made.table.header, scales),
        left_out=tuple(left_out.items()),
        ranges=made.ranges,
    )


def knows(table: Table, function: function_pb2.FunctionDef, dynamic: bool, shapes: Sequence[Shape]) -> bool:
    """Whether a table of unknown origin has any of this engine's nodes. Args: table: table.Table; the others as in `fitted`."""
    names = {name.name for name in tensor_names.names(function, dynamic, shapes)}
    own = {
        name
        for name in names
        if not is_numbered(name) and not name.startswith(("TensorRTInputPH_", "TensorRTOutputPH_"))
    }
    return not own or bool(own & table.scales.keys())


class _Build:
    """Which scale a tensor of this build gets. same: the table's numbered names are of such a build."""

    def __init__(
        self,
        made: EngineTable,
        named: Sequence[NamedTensor],
        constants: dict[str, tensor_pb2.TensorProto],
        method: choices.Method,
    ) -> None:
        self._scales, self._reasons = made.table.scales, dict(made.left_out)
        self._constants, self._method = constants, method
        numbered = {tensor.name for tensor in named if is_numbered(tensor.name)}
        numbers = set(filter(is_numbered, (*self._scales, *self._reasons)))
        # Beyond an op of unknown layers the prediction gives no numbers, and the table may.
        self.same = numbered <= numbers and (numbers <= numbered or not all(tensor.sure for tensor in named))
        by_node = [tensor for tensor in named if tensor.tensor and not is_numbered(tensor.name)]
        self._of_tensor = {
            tensor.tensor: self._scales[tensor.name] for tensor in reversed(by_node) if tensor.name in self._scales
        }
        self._gone = {
            tensor.tensor: self._reasons[tensor.name]
            for tensor in reversed(by_node)
            if tensor.name in self._reasons and tensor.tensor not in self._of_tensor
        }

    def entry(self, tensor: NamedTensor) -> tuple[float | None, str]:
        """(scale, "") or (None, reason) of a tensor_names.NamedTensor."""
        own = self.same or not is_numbered(tensor.name)
        if own and tensor.name in self._reasons:
            # Earlier versions did not know of every constant which one it is.
            if self._reasons[tensor.name] == NOT_MEASURED and tensor.tensor in self._constants:
                return self._derived(tensor)
            return None, self._reasons[tensor.name]
        if is_numbered(tensor.name) and tensor.tensor in self._gone:
            return None, self._gone[tensor.tensor]
        if own and tensor.name in self._scales:
            return self._scales[tensor.name], ""
        if own and not tensor.name.endswith(_ADDED):
            return None, NOT_IN_TABLE
        return self._derived(tensor)

    def _derived(self, tensor: NamedTensor) -> tuple[float | None, str]:
        if tensor.tensor in self._of_tensor:
            return self._of_tensor[tensor.tensor], ""
        if tensor.tensor in self._gone:
            return None, self._gone[tensor.tensor]
        if tensor.tensor not in self._constants:
            return None, NOT_MEASURED
        scale = constant_scale(self._constants[tensor.tensor], self._method)
        return scale, "" if scale else NO_RANGE


def constant_scale(proto: tensor_pb2.TensorProto, method: choices.Method) -> float | None:
    """The scale of a constant (TensorProto), None for one that is all zero."""
    histogram = Histogram()
    histogram.add(tf.make_ndarray(proto))
    return methods.scale(histogram, method)


def constants(function: function_pb2.FunctionDef) -> dict[str, tensor_pb2.TensorProto]:
    """{tensor: TensorProto} of the segment's constants."""
    return {f"{node.name}:0": node.attr["value"].tensor for node in function.node_def if node.op == "Const"}
