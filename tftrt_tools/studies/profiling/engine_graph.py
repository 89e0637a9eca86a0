"""What an engine was made from, as data: nodes with the sizes that they have in a call. Of TF-TRT's engines it is the native segment, of a
plan the ONNX file. `job/plan_graph.py` and `job/plan_onnx.py` make it in a child."""

from __future__ import annotations

import dataclasses
import functools
import math

from tftrt_tools.base import records

_BYTES = {
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "int64": 8,
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "float64": 8,
}


@dataclasses.dataclass(frozen=True)
class Tensor(records.Record):
    """type: NumPy's name. shape: None for an unknown rank, with None for open sizes."""

    type: str
    shape: tuple[int | None, ...] | None

    @property
    def elements(self) -> int | None:
        """The number of values; None where a size is open."""
        if self.shape is None:
            return None
        sizes = [size for size in self.shape if size is not None]
        return math.prod(sizes) if len(sizes) == len(self.shape) else None

    def bytes(self, each: int | None = None) -> int | None:
        """Its size in memory. Args: each: of a value; by its type where not given."""
        return None if self.elements is None else self.elements * (each or _BYTES.get(self.type, 4))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node(records.Record):
    """A node."""

    name: str
    op: str
    # Names of the nodes that it reads, in order, without control inputs.
    inputs: tuple[str, ...]
    outputs: tuple[Tensor, ...]
    # Operations of a convolution or matrix product, two for a multiplication with its addition; 0 for other ops, None where a size is open.
    flops: int | None = 0


@dataclasses.dataclass(frozen=True)
class Graph(records.Record):
    """A segment or an ONNX file. engine: the name of its engine. nodes: inputs before their readers. tensors: of an ONNX file, {tensor: the
    node that computes it}; a segment's tensors have the names of their nodes."""

    engine: str
    nodes: tuple[Node, ...]
    tensors: dict[str, str] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def by_name(self) -> dict[str, Node]:
        """{name: Node}."""
        return {node.name: node for node in self.nodes}

    @functools.cached_property
    def readers(self) -> dict[str, tuple[str, ...]]:
        """{node: names of the nodes that read it}."""
        readers_of: dict[str, list[str]] = {node.name: [] for node in self.nodes}
        for node in self.nodes:
            for source in dict.fromkeys(node.inputs):
                readers_of[source].append(node.name)
        return {name: tuple(listed) for name, listed in readers_of.items()}

    @property
    def flops(self) -> int:
        """The FLOPs of all nodes whose sizes are known."""
        return sum(node.flops or 0 for node in self.nodes)
