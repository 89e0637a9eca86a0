"""Puts rounding into a graph that can be switched on and off node by node. Works on protos alone.

  INT8, activations  q(x) = clip(round(x / s), -128, 127) s, one s for the tensor (round: to nearest, halves up)
  INT8, weights      q(w) = round(w / s) s, s = max |w| / 127 of the output channel, so that nothing is clipped
  FP16               q(x) = float(half(x)); of weights beyond FP16's largest number that number, as TensorRT's builder makes them

Each node has a gate, a bool: q(x) where it is true, x itself, bit for bit, where it is false. INT8's scales of activations are fed with the
gates, so that one graph serves many tables.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, types_pb2

if TYPE_CHECKING:
    from tensorflow.core.framework import node_def_pb2

    from tftrt_tools.models.savedmodel.job.rounding_sites import Site, Weight

LEVELS = 127
# FP16's largest number.
HALF_MAX = float(np.finfo(np.float16).max)
GATES = "rounding_gates"


@dataclasses.dataclass(frozen=True)
class Rounded:
    """A graph with rounding put in. gates: its tensor of a bool for each site; scales: its tensor of a float32 scale, above 0, for each of
    `tensors` (INT8's activations); "" where there are none."""

    graph_def: graph_pb2.GraphDef
    gates: str
    scales: str
    tensors: tuple[str, ...]


def add_int8(graph_def: graph_pb2.GraphDef, sites: Sequence[Site]) -> Rounded:
    """Put INT8 rounding at `sites`. Args: graph_def: left as it is; sites: (rounding_sites.Site, …). Returns: Rounded."""
    tensors = {
        tensor: number
        for number, tensor in enumerate(dict.fromkeys(tensor for site in sites for tensor in site.tensors))
    }
    graph = _Gated(graph_def, len(sites), len(tensors))
    for number, site in enumerate(sites):
        gate = graph.gate(number, site.node)
        for index, tensor in site.activations:
            low, high = graph.bounds(tensors[tensor], site.node)
            rounded = graph.once(
                ("int8", tensor), functools.partial(graph.add_int8_rounding, tensor=tensor, low=low, high=high)
            )
            graph.switch_input(site.node, index, gate, rounded)
        for weight in site.weights:
            rounded = graph.once(
                ("weight", weight.constant, weight.channels),
                functools.partial(graph.add_weight_rounding, weight=weight),
            )
            graph.switch_input(site.node, weight.index, gate, rounded)
    return Rounded(graph.result, graph.gates, graph.scales, tuple(tensors))


def add_fp16(graph_def: graph_pb2.GraphDef, sites: Sequence[Site]) -> Rounded:
    """Put FP16 rounding at the inputs, weights and outputs of `sites`. Arguments and result as of `add_int8`."""
    graph = _Gated(graph_def, len(sites))
    readers = graph.readers()
    outputs = []
    for number, site in enumerate(sites):
        gate = graph.gate(number, site.node)
        for weight in site.weights:
            constant = f"{weight.constant}:0"
            rounded = graph.once(("fp16", constant), functools.partial(graph.add_fp16_weight, constant=weight.constant))
            graph.switch_input(site.node, weight.index, gate, rounded)
        for index, tensor in site.activations:
            rounded = graph.once(("fp16", tensor), functools.partial(graph.add_fp16_rounding, tensor=tensor))
            graph.switch_input(site.node, index, gate, rounded)
        outputs += [
            (site, tensor, gate) for tensor in (f"{site.node}:{port}" for port in site.outputs) if tensor in readers
        ]
    # Last, because the added nodes read the outputs too, and have to read the unrounded ones.
    for site, tensor, gate in outputs:
        rounded = graph.once(("fp16", tensor), functools.partial(graph.add_fp16_rounding, tensor=tensor))
        graph.switch_output(site.node, tensor, gate, rounded, readers)
    return Rounded(graph.result, graph.gates, graph.scales, ())


class _Gated:
    """A copy of a graph, with rounding."""

    def __init__(self, graph_def: graph_pb2.GraphDef, count: int, scales: int = 0) -> None:
        self.result = graph_pb2.GraphDef()
        self.result.CopyFrom(graph_def)
        self._nodes = {node.name: node for node in self.result.node}
        self._frames = _frames(self.result)
        self._scope = GATES
        while any(name == self._scope or name.startswith(f"{self._scope}/") for name in self._nodes):
            self._scope += "_"
        self._made: dict[tuple[Any, ...], str] = {}
        self._number = 0
        self.gates = self._fed(self._scope, types_pb2.DT_BOOL, count)
        self._unpack("each", self.gates, types_pb2.DT_BOOL, count)
        self.scales = self._fed(f"{self._scope}/scales", types_pb2.DT_FLOAT, scales) if scales else ""
        for part, levels in (("low", -LEVELS - 1), ("high", LEVELS)) if scales else ():
            constant = self._add(f"{self._scope}/{part}/levels", "Const", [], dtype=types_pb2.DT_FLOAT)
            constant.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(np.float32(levels)))
            bound = self._add(f"{self._scope}/{part}", "Mul", [self.scales, constant.name], T=types_pb2.DT_FLOAT)
            self._unpack(f"{part}/each", bound.name, types_pb2.DT_FLOAT, scales)

    def _fed(self, name: str, kind: int, count: int) -> str:
        """A vector that is fed."""
        placeholder = self._add(name, "Placeholder", [], dtype=kind)
        placeholder.attr["shape"].shape.dim.add(size=count)
        return f"{name}:0"

    def _unpack(self, part: str, vector: str, kind: int, count: int) -> None:
        if count:
            self._add(f"{self._scope}/{part}", "Unpack", [vector], T=kind).attr["num"].i = count

    def _add(self, name: str, op: str, inputs: Sequence[str], **types: int) -> node_def_pb2.NodeDef:
        node = self.result.node.add(name=name, op=op, input=inputs)
        for key, value in types.items():
            node.attr[key].type = value
        self._nodes[name] = node
        return node

    def _new(self, what: str) -> str:
        self._number += 1
        return f"{self._scope}/{what}_{self._number}"

    def once(self, key: tuple[Any, ...], make: Callable[[str], str]) -> str:
        """The tensor that `make` adds under a new name; the same for the same key."""
        if key not in self._made:
            self._made[key] = make(self._new(key[0]))
        return self._made[key]

    def gate(self, number: int, node: str) -> str:
        """The gate's tensor, where `node` can read it."""
        return self._entered(f"{self._scope}/each:{number}", types_pb2.DT_BOOL, node)

    def bounds(self, number: int, node: str) -> tuple[str, str]:
        """The least and the largest value of a tensor, where `node` can read them."""
        low, high = (
            self._entered(f"{self._scope}/{part}/each:{number}", types_pb2.DT_FLOAT, node) for part in ("low", "high")
        )
        return low, high

    def _entered(self, tensor: str, kind: int, node: str) -> str:
        """The value inside the loops of a node: it has to enter each of them."""
        source = tensor
        entered: tuple[bytes, ...] = ()
        for enter in self._frames.get(node, ()):
            entered = (*entered, enter.attr["frame_name"].s)
            tensor = self.once(
                ("enter", source, entered), functools.partial(self._enter, enter=enter, tensor=tensor, kind=kind)
            )
        return tensor

    def _enter(self, name: str, enter: node_def_pb2.NodeDef, tensor: str, kind: int) -> str:
        node = self._add(name, "Enter", [tensor], T=kind)
        node.attr["frame_name"].s = enter.attr["frame_name"].s
        node.attr["is_constant"].b = True
        node.attr["parallel_iterations"].i = enter.attr["parallel_iterations"].i or 10
        return f"{name}:0"

    def add_int8_rounding(self, name: str, tensor: str, low: str, high: str) -> str:
        self._add(name, "FakeQuantWithMinMaxVars", [tensor, low, high]).attr["num_bits"].i = 8
        return f"{name}:0"

    def add_weight_rounding(self, name: str, weight: Weight) -> str:
        constant = self._nodes[weight.constant]
        value = np.abs(tf.make_ndarray(constant.attr["value"].tensor))
        axes = tuple(axis for axis in range(value.ndim) if axis not in weight.channels)
        scale = value.max(axis=axes, keepdims=True, initial=0.0).astype(np.float32) / np.float32(LEVELS)
        scale[scale == 0] = 1.0  # a channel of zeros stays zero
        # A constant belongs to the loop of its control input.
        node = self._add(f"{name}/scale", "Const", [f"^{weight.constant}"], dtype=types_pb2.DT_FLOAT)
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(scale))
        for part, op, inputs in (
            ("divided", "RealDiv", [weight.constant, f"{name}/scale"]),
            ("rounded", "Round", [f"{name}/divided"]),
            ("value", "Mul", [f"{name}/rounded", f"{name}/scale"]),
        ):
            self._add(f"{name}/{part}", op, inputs, T=types_pb2.DT_FLOAT)
        return f"{name}/value:0"

    def add_fp16_rounding(self, name: str, tensor: str) -> str:
        self._add(f"{name}/half", "Cast", [tensor], SrcT=types_pb2.DT_FLOAT, DstT=types_pb2.DT_HALF)
        self._add(name, "Cast", [f"{name}/half"], SrcT=types_pb2.DT_HALF, DstT=types_pb2.DT_FLOAT)
        return f"{name}:0"

    def add_fp16_weight(self, name: str, constant: str) -> str:
        value = tf.make_ndarray(self._nodes[constant].attr["value"].tensor)
        beyond = np.isfinite(value) & (np.abs(value) > HALF_MAX)
        if not beyond.any():
            return self.add_fp16_rounding(name, f"{constant}:0")
        # A constant belongs to the loop of its control input.
        node = self._add(f"{name}/clipped", "Const", [f"^{constant}"], dtype=types_pb2.DT_FLOAT)
        clipped = np.where(beyond, np.clip(value, -HALF_MAX, HALF_MAX), value)
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(clipped.astype(np.float32)))
        return self.add_fp16_rounding(name, f"{name}/clipped:0")

    def _switch(self, gate: str, rounded: str, plain: str) -> str:
        name = self._new("switch")
        self._add(name, "Select", [gate, rounded, plain], T=types_pb2.DT_FLOAT)
        return f"{name}:0"

    def switch_input(self, node: str, index: int, gate: str, rounded: str) -> None:
        """Let input `index` of `node` be `rounded` where the gate is true."""
        reader = self._nodes[node]
        reader.input[index] = self._switch(gate, rounded, reader.input[index])

    def readers(self) -> dict[str, list[tuple[node_def_pb2.NodeDef, int]]]:
        """{tensor "node:port": [(node, input index)]} of the data inputs."""
        readers_of: dict[str, list[tuple[node_def_pb2.NodeDef, int]]] = {}
        for node in self.result.node:
            for index, source in enumerate(node.input):
                if not source.startswith("^"):
                    readers_of.setdefault(source if ":" in source else f"{source}:0", []).append((node, index))
        return readers_of

    def switch_output(
        self,
        node: str,
        tensor: str,
        gate: str,
        rounded: str,
        readers: Mapping[str, list[tuple[node_def_pb2.NodeDef, int]]],
    ) -> None:
        """Let the original readers of `tensor`, and the switches at their inputs, read `rounded` where the gate is true."""
        switched = self._switch(gate, rounded, tensor)
        for reader, index in readers.get(tensor, ()):
            source = self._nodes[reader.input[index].partition(":")[0]]
            if source.name == node:
                reader.input[index] = switched
            else:  # the reader is a site itself: its switch has q(x) and x, and q(q(x)) is q(x)
                source.input[2] = switched


def _frames(graph_def: graph_pb2.GraphDef) -> dict[str, tuple[node_def_pb2.NodeDef, ...]]:
    """{node: Enter nodes of the loops that it is in, outermost first}; nodes outside of loops are left out.

    Loops are Enter, Merge, Switch, NextIteration and Exit nodes. A node is in the loop of what it reads.
    """
    nodes = {node.name: node for node in graph_def.node}
    if not any(node.op in ("Enter", "RefEnter") for node in graph_def.node):
        return {}
    readers: dict[str, list[str]] = {}
    for node in graph_def.node:
        for source in node.input:
            readers.setdefault(source.lstrip("^").partition(":")[0], []).append(node.name)
    sources: dict[str, tuple[node_def_pb2.NodeDef, ...]] = {node.name: () for node in graph_def.node if not node.input}
    waiting = list(sources)
    while waiting:
        source = waiting.pop()
        for name in readers.get(source, ()):
            if name not in sources:
                sources[name] = _frame(nodes[name], nodes[source], sources[source])
                waiting.append(name)
    return {name: enters for name, enters in sources.items() if enters}


def _frame(
    node: node_def_pb2.NodeDef, source: node_def_pb2.NodeDef, frames: tuple[node_def_pb2.NodeDef, ...]
) -> tuple[node_def_pb2.NodeDef, ...]:
    if source.op in ("Exit", "RefExit"):
        frames = frames[:-1]
    return (*frames, node) if node.op in ("Enter", "RefEnter") else frames
