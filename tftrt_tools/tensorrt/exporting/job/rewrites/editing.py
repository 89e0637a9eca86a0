"""Changes of an ONNX graph: nodes in the place of others, and what nothing reads any more taken out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from tftrt_tools.tensorrt.exporting.job.graph_facts import free, name_of, node_names, read_inside, tensor_names

# In front of a new tensor's name until `replace` has given it one that is free: no tensor of a file has it.
_NEW = "\0"


class Writer:
    """Writes nodes that stand in the place of one node. nodes: those written, in their order; constants: those that they read."""

    def __init__(self, place: onnx.NodeProto, named: onnx.NodeProto | None = None) -> None:
        """Args: named: the node, which goes, whose name the written one gets; by default that of the place."""
        self._place, self._name = place, name_of(named if named is not None else place)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, values: npt.ArrayLike, dtype: type = np.float32) -> str:
        """A constant's tensor. Args: name: what it is, in a word."""
        tensor = f"{_NEW}{self._place.output[0]}/{name}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, dtype), tensor))
        return tensor

    def node(
        self,
        op: str,
        inputs: Sequence[str],
        name: str,
        last: bool = False,
        named: bool | None = None,
        **attributes: object,
    ) -> str:
        """A node's output.

        Args: name: what it computes, in a word. last: it gives the tensor that the replaced node gave. named: it has the name of the node
          that goes, by which people choose its precision; by default the last one has it.
        """
        output = self._place.output[0] if last else f"{_NEW}{self._place.output[0]}/{name}"
        mine = last if named is None else named
        self.nodes.append(
            helper.make_node(op, inputs, [output], name=self._name if mine else f"{self._name}/{name}", **attributes)
        )
        return str(output)

    def rename(self, tensors: Collection[str], nodes: Collection[str]) -> None:
        """Let what is new have no name that the graph has already. Args: the names in the graph."""
        names = [one.name for one in self.constants] + [name for node in self.nodes for name in node.output]
        given = {name: free(name.removeprefix(_NEW), tensors) for name in names if name not in self._place.output}
        for one in self.constants:
            one.name = given[one.name]
        for node in self.nodes:
            node.input[:] = [given.get(name, name) for name in node.input]
            node.output[:] = [given.get(name, name) for name in node.output]
            if node.name != self._name:
                node.name = free(node.name, nodes)


def replace(model: onnx.ModelProto, written: Iterable[tuple[onnx.NodeProto, Writer]]) -> None:
    """Put nodes in the places of others, and take out what only these read."""
    graph = model.graph
    there = {_key(node): writer for node, writer in written}
    idle = _idle(graph)
    tensors, nodes = tensor_names(graph), node_names(graph)
    for written_one in there.values():
        written_one.rename(tensors, nodes)
    listed = []
    for node in graph.node:
        writer = there.get(_key(node))
        listed += writer.nodes if writer else [node]
        if writer:
            graph.initializer.extend(writer.constants)
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in listed]
    del graph.node[:]
    graph.node.extend(copies)
    # What stands for a node that nothing needed is needed as little, and stays as that did.
    standing = (writer for key, writer in there.items() if key in idle)
    idle |= {name for writer in standing for name in (*map(_key, writer.nodes), *(c.name for c in writer.constants))}
    _remove(graph, _idle(graph) - idle)


def keep_outputs(model: onnx.ModelProto, names: Collection[str]) -> None:
    """Let a model have no other outputs than these, and take out what only the others need. Its inputs stay."""
    idle = _idle(model.graph)
    kept = [value for value in model.graph.output if value.name in names]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    _remove(model.graph, _idle(model.graph) - idle)


def _idle(graph: onnx.GraphProto) -> set[str]:
    """First outputs of the nodes, and names of the constants, that no output of the graph needs."""
    makers: Mapping[str, onnx.NodeProto] = {output: node for node in graph.node for output in node.output if output}
    needed: set[str] = set()
    waiting = [value.name for value in graph.output]
    while waiting:
        name = waiting.pop()
        if name in needed:
            continue
        needed.add(name)
        node = makers.get(name)
        if node is not None:
            needed.update(node.output)
            waiting += [*filter(None, node.input), *read_inside(node)]
    return {*map(_key, graph.node), *(one.name for one in graph.initializer)} - needed


def _key(node: onnx.NodeProto) -> str:
    return str(next(filter(None, node.output), ""))


def _remove(graph: onnx.GraphProto, names: Collection[str]) -> None:
    nodes = [node for node in graph.node if _key(node) not in names]
    constants = [one for one in graph.initializer if one.name not in names]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    tensors = [onnx.TensorProto.FromString(one.SerializeToString()) for one in constants]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(copies)
    graph.initializer.extend(tensors)
