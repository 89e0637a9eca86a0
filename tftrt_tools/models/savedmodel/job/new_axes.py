"""Slices that add an axis (x[:, None], x[..., tf.newaxis]), written as a slice without it and an ExpandDims: TF-TRT takes no new axis in
a StridedSlice. Of a bool it takes neither; where that is computed by a comparison, the operands get the axis."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tftrt_tools.models.savedmodel.job import added_nodes, control_flow, inferred, slices, wider

if TYPE_CHECKING:
    import numpy.typing as npt
    from tensorflow.core.framework import graph_pb2, node_def_pb2

REASON = (
    "TF-TRT takes no new axis in a slice; it becomes ExpandDims where the bounds are constants, and none counts from an end that is open "
    "(in implicit batch mode, behind the batch)"
)
_BOUNDS = ("begin", "end", "steps")
_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "shrink_axis_mask")


def rewrite(graph_def: graph_pb2.GraphDef, kept: Container[str] = frozenset(), first: bool = True) -> tuple[str, ...]:
    """Write them in place; those of computed bounds, those that count from an end which is open, and those in functions and loops, stay.

    Args: graph_def: frozen. kept: names of nodes to leave as they are. first: write those, too, whose new axis comes before all others; in
      implicit batch mode that is the batch. Returns: the names of those that were written.
    """
    sites = [node for node in graph_def.node if node.name not in kept and _adds(node)]
    if not sites:
        return ()
    shapes, loops, written = inferred.shapes(graph_def), control_flow.in_loops(graph_def), []
    nodes = {node.name: node for node in graph_def.node}
    writer = _Writer(added_nodes.Writer(graph_def, nodes), nodes, kept)
    for node in sites:
        op = shapes.get_operation_by_name(node.name)
        spec = None if node.name in loops else _spec(op)
        if spec is not None and (first or spec.places[0] > 0) and writer.write(node, spec, op):
            written.append(node.name)
    return tuple(written)


def _adds(node: node_def_pb2.NodeDef) -> bool:
    """Whether a node adds axes as TF-TRT does not take it."""
    if node.op == wider.OP:
        return bool(node.attr["T"].type == tf.bool.as_datatype_enum)
    return bool(node.op == slices.OP and node.attr["new_axis_mask"].i)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Spec:
    """A slice that adds axes."""

    # The new axes of the result, upwards.
    places: Sequence[int]
    # The positions of its constants that are about axes which are there, its constants and its masks, as bits.
    others: Sequence[int]
    bounds: Sequence[npt.NDArray[Any]]
    masks: dict[str, int]

    def holds(self, mask: str, position: int) -> bool:
        """Whether a mask holds a position."""
        return bool(self.masks[mask] >> position & 1)

    @property
    def whole(self) -> bool:
        """Whether it takes all of every axis."""
        return all(
            self.holds("ellipsis_mask", one)
            or self.holds("begin_mask", one)
            and self.holds("end_mask", one)
            and self.bounds[2][one] == 1
            and not self.holds("shrink_axis_mask", one)
            for one in self.others
        )


def _spec(op: tf.Operation) -> _Spec | None:
    rank, bounds = op.inputs[0].shape.rank, [tf.get_static_value(bound) for bound in op.inputs[1:]]
    if op.type == wider.OP:
        return _of_expansion(rank, bounds[0])
    masks, new = {mask: op.get_attr(mask) for mask in _MASKS}, op.get_attr("new_axis_mask")
    if not rank or any(bound is None for bound in bounds) or new & masks["ellipsis_mask"]:
        return None
    if slices.begins_from_open_end(op) or slices.ends_from_open_end(op):
        return None
    count = len(bounds[0])
    others = [position for position in range(count) if not new >> position & 1]
    places, axis = [], 0
    for position in range(count):
        if new >> position & 1:
            places.append(axis)
        if masks["ellipsis_mask"] >> position & 1:
            axis += rank - len(others) + 1
        elif new >> position & 1 or not masks["shrink_axis_mask"] >> position & 1:
            axis += 1
    if not places:
        return None
    return _Spec(places=places, others=others, bounds=bounds, masks=masks)


def _of_expansion(rank: int | None, axis: npt.NDArray[Any] | None) -> _Spec | None:
    """The _Spec of an ExpandDims."""
    if not rank or axis is None or axis.size != 1:
        return None
    return _Spec(places=[int(axis.item()) % (rank + 1)], others=(), bounds=(), masks={})


class _Writer:
    """Writes the nodes of one graph; the result of each keeps its name."""

    def __init__(
        self, writer: added_nodes.Writer, nodes: dict[str, node_def_pb2.NodeDef], kept: Container[str]
    ) -> None:
        self._writer, self._wider = writer, wider.Wider(writer, nodes, kept)

    def write(self, node: node_def_pb2.NodeDef, spec: _Spec, op: tf.Operation) -> bool:
        """Write one. Args: op: it in a graph of inferred shapes. Returns: whether it can be written."""
        name, source, data = node.name, node.input[0], op.inputs[0]
        if data.dtype == tf.bool and spec.whole and self._wider.compares(data):
            if wider.negated(data, op.outputs[0]):
                return False
            node.input[:] = [one for one in node.input if one.startswith("^")]
            self._wider.compare(node, name, source, data, spec.places)
            return True
        if data.dtype not in wider.TYPES:
            return False
        if not spec.whole:
            source = self._part(node, spec)
        *others, last = spec.places
        source = self._wider.add(name, source, data, others)
        added_nodes.become(node, wider.OP, [source, self._wider.place(name, last)], **wider.types(data))
        return True

    def _part(self, node: node_def_pb2.NodeDef, spec: _Spec) -> str:
        """The slice without new axes."""
        numbers = [
            self._writer.constant(f"{node.name}/{what}", bound[list(spec.others)])
            for what, bound in zip(_BOUNDS, spec.bounds, strict=True)
        ]
        types = {name: node.attr[name].type for name in ("T", "Index")}
        part = self._writer.add(slices.OP, f"{node.name}/part", [node.input[0], *numbers], **types)
        for mask in _MASKS:
            part.attr[mask].i = sum(spec.holds(mask, position) << at for at, position in enumerate(spec.others))
        part.attr["new_axis_mask"].i = 0
        result: str = part.name
        return result
