"""How much a layer computes and moves, and what bounds it: the GPU's arithmetic, its memory, or the launch of so short a kernel.

S. Williams, A. Waterman, D. Patterson: Roofline: an insightful visual performance model for multicore architectures. CACM 52 (2009) 4.
A layer can be no faster than its operations at the peak of their arithmetic, and no faster than its bytes at the memory's bandwidth; the
larger of the two times is its roof. Bytes are counted once for each tensor that the layer reads or writes, so values that the caches keep
from the layer before can make a layer faster than the memory's bandwidth.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Literal

from tftrt_tools.base import records
from tftrt_tools.studies.profiling.engine_graph import Graph
from tftrt_tools.studies.profiling.layers import Layer
from tftrt_tools.studies.profiling.peaks import Peaks
from tftrt_tools.tftrt.conversion import layer_table

# neither: the layer is far from both roofs, and not because it is short; often it has too few blocks for all multiprocessors.
Bound = Literal["compute", "memory", "launch", "neither"]
# A layer whose roof is a smaller share of its time is not bound by it.
_NEAR = 0.25
# If it is shorter than this as well, launching it is what it costs: an empty kernel takes about 2 µs.
_SHORT = 6e-6
_BYTES = {"Float": 4, "Half": 2, "Int8": 1, "Int32": 4, "Bool": 1, "BFloat16": 2, "FP8": 1, "Int64": 8}
_OF_PRECISION = {"FP32": 4, "TF32": 4, "FP16": 2, "BF16": 2, "INT8": 1}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work(records.Record):
    """The work of a layer in one call; None where a size is not known."""

    # Operations of its convolutions and matrix products, two for a multiplication with its addition.
    flops: int | None
    # Bytes that it reads and writes: activations and weights.
    activation_bytes: int | None
    weight_bytes: int | None

    @property
    def bytes(self) -> int | None:
        """Read and written together."""
        return (
            None
            if self.activation_bytes is None or self.weight_bytes is None
            else self.activation_bytes + self.weight_bytes
        )


def work(layer: Layer, graph: Graph, owned: AbstractSet[str], row: layer_table.Row | None, precision: str) -> Work:
    """The Work of a layer.

    Args:
      owned: the nodes that this layer computes; a node can have helpers in other layers, which count no operations of it.
      row: what the log of the build says of the layer, for the types and formats of its activations. Without it they are those of the
        graph, floats as wide as `precision`.
      precision: in which it computes, "FP32", "TF32", "FP16" or "INT8".
    """
    each = _OF_PRECISION.get(precision, 4)
    nodes = [graph.by_name[name] for name in layer.nodes if name in owned]
    flops = [node.flops for node in nodes]
    flops_known = [flop for flop in flops if flop is not None]
    weights = {source for node in nodes for source in node.inputs if graph.by_name[source].op == "Const"}
    sizes = [
        tensor.bytes(each if tensor.type == "float32" else None)
        for name in weights
        for tensor in graph.by_name[name].outputs
    ]
    moved = _by_row(row) if row else None
    return Work(
        flops=sum(flops_known) if len(flops_known) == len(flops) else None,
        weight_bytes=_sum(sizes),
        activation_bytes=moved if moved is not None else _by_graph(layer, graph, each),
    )


def _by_row(row: layer_table.Row) -> int | None:
    return _sum([tensor_bytes(tensor) for tensor in (*row.inputs, *row.outputs)])


def tensor_bytes(tensor: layer_table.Tensor) -> int | None:
    """The size in memory of a tensor of the log; None where a size is open or the type is new."""
    if any(size < 0 for size in tensor.sizes) or tensor.type not in _BYTES:
        return None
    sizes = list(tensor.sizes)
    if tensor.packed > 1 and len(sizes) > 2:
        # A packed format fills up the channels.
        axis = len(sizes) - 3
        sizes[axis] = -(-sizes[axis] // tensor.packed) * tensor.packed
    return math.prod(sizes) * _BYTES[tensor.type]


def _by_graph(layer: Layer, graph: Graph, each: int) -> int | None:
    """The bytes of tensors that cross the border of the layer's nodes."""
    inside = set(layer.nodes)
    reads = {
        source
        for name in inside
        for source in graph.by_name[name].inputs
        if source not in inside and graph.by_name[source].op != "Const"
    }
    writes = {name for name in inside if set(graph.readers[name]) - inside}
    return (
        _sum(
            [
                tensor.bytes(each if tensor.type == "float32" else None)
                for name in (*reads, *writes)
                for tensor in graph.by_name[name].outputs
            ]
        )
        if inside
        else None
    )


def _sum(sizes: Iterable[int | None]) -> int | None:
    listed = list(sizes)
    known = [size for size in listed if size is not None]
    return sum(known) if len(known) == len(listed) else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Roof(records.Record):
    """A layer against the peaks."""

    tflops: float | None
    gb_per_s: float | None
    bound: Bound | None
    # The time that the peaks allow, as a share of the layer's; None where neither operations nor bytes are known.
    share: float | None


def roof(done: Work, seconds: float, arithmetic: str, peaks: Peaks | None) -> Roof:
    """Compare a layer's work in `seconds` with the peaks. Args: arithmetic: in which it multiplies."""
    if seconds <= 0:
        return Roof(tflops=None, gb_per_s=None, bound=None, share=None)
    rate = peaks.of(arithmetic) if peaks else None
    computing = done.flops / rate if done.flops and rate else 0.0
    moving = done.bytes / peaks.bytes_per_s if done.bytes and peaks and peaks.bytes_per_s else 0.0
    least = max(computing, moving)
    bound: Bound | None = None
    if least >= _NEAR * seconds:
        bound = "compute" if computing >= moving else "memory"
    elif least:
        bound = "launch" if seconds < _SHORT else "neither"
    return Roof(
        tflops=done.flops / seconds / 1e12 if done.flops else None,
        gb_per_s=done.bytes / seconds / 1e9 if done.bytes else None,
        bound=bound,
        share=least / seconds if least else None,
    )


def owners(layers: Sequence[Layer], helpers: AbstractSet[str]) -> dict[str, str]:
    """{node: name of the layer that computes it}: of several, the first that does not only move values. helpers: roles that only do."""
    bound_of: dict[str, str] = {}
    for layer in sorted(layers, key=lambda layer: layer.role in helpers):
        for node in layer.nodes:
            bound_of.setdefault(node, layer.name)
    return bound_of
