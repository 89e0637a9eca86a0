"""Removes conditionals that a constant decides from a frozen graph, and keeps the branch that runs. Nothing is run.

In a frozen graph a conditional consists of Switch and Merge nodes; TF-TRT forms a segment for each stretch between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tftrt_tools.models.savedmodel.job import added_nodes, folding

if TYPE_CHECKING:
    import numpy.typing as npt
    from tensorflow.core.framework import node_def_pb2

# Ops that compute conditions.
_CONDITION = frozenset(
    {
        "Identity",
        "LogicalNot",
        "LogicalAnd",
        "LogicalOr",
        "Cast",
        "Equal",
        "NotEqual",
        "Greater",
        "GreaterEqual",
        "Less",
        "LessEqual",
        "Squeeze",
        "Reshape",
    }
)
# Ops that may stand between an input and the conditionals that read it.
_CONTROL = frozenset({"Switch", "Merge", "If", "StatelessIf"})


def freeze(graph_def: graph_pb2.GraphDef, values: Mapping[str, npt.NDArray[Any]]) -> None:
    """Replace placeholders by constants, in place, and remove the conditionals that these decide. Args: as of `replace`."""
    replace(graph_def, values)
    decide(graph_def)


def replace(graph_def: graph_pb2.GraphDef, values: Mapping[str, npt.NDArray[Any]]) -> None:
    """Replace placeholders by constants, in place. Args: values: {placeholder: array}; the placeholders stay, and nothing reads them."""
    nodes = {node.name: node for node in graph_def.node}
    for name, value in values.items():
        constant = graph_def.node.add(name=added_nodes.free(f"{name}/frozen", nodes), op="Const")
        constant.attr["dtype"].CopyFrom(nodes[name].attr["dtype"])
        constant.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
        nodes[constant.name] = constant
        for node in graph_def.node:
            node.input[:] = [constant.name if source in (name, f"{name}:0") else source for source in node.input]


def decide(graph_def: graph_pb2.GraphDef) -> None:
    """Remove the branches that cannot run, in place. Results of the graph are never among them."""
    # A condition inside a branch may be known only when the conditional around it is gone.
    while _decided(graph_def):
        pass


def _decided(graph_def: graph_pb2.GraphDef) -> bool:
    """One round of `decide`. Returns: whether it removed anything."""
    nodes = {node.name: node for node in graph_def.node}
    taken = {}
    for node in graph_def.node:
        if node.op == "Switch":
            condition = folding.value(node.input[1], nodes, _CONDITION)
            if condition is not None and condition.shape == ():
                taken[node.name] = int(condition)
    if not taken:
        return False
    never = {f"{name}:{1 - port}" for name, port in taken.items()}
    dead = _dead(graph_def, nodes, never)
    for node in graph_def.node:
        if node.name in taken:
            _pass_on(node, node.input[0])
        elif node.op == "Merge":
            _merge(node, dead, never, graph_def)
    # A Switch that passes its data on has one output.
    ports = {f"{name}:1" for name, port in taken.items() if port}
    alive = [node for node in graph_def.node if node.name not in dead]
    for node in alive:
        node.input[:] = [
            source.split(":")[0] if source in ports else source
            for source in node.input
            if not (source.startswith("^") and source[1:] in dead)
        ]
        node.attr.pop("_class", None)  # a colocation with nodes that may be gone
    kept = graph_pb2.GraphDef()
    kept.node.extend(alive)
    del graph_def.node[:]
    graph_def.node.extend(kept.node)
    return True


def deciding(graph_def: graph_pb2.GraphDef, placeholder: str) -> bool:
    """Whether conditionals, and nothing else, read a placeholder."""
    waiting, merged = [placeholder], False
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        for node in graph_def.node:
            if node.name in seen or name not in (
                folding.name_of(source) for source in node.input if not source.startswith("^")
            ):
                continue
            seen.add(node.name)
            if node.op in _CONTROL:
                merged = True
            elif node.op in _CONDITION:
                waiting.append(node.name)
            else:
                return False
    return merged


def _dead(
    graph_def: graph_pb2.GraphDef, nodes: Mapping[str, node_def_pb2.NodeDef], never: AbstractSet[str]
) -> set[str]:
    """{names of the nodes that never run}."""
    dead: set[str] = set()
    before = -1
    while before != len(dead):
        before = len(dead)
        for node in graph_def.node:
            if node.name not in dead and _never_runs(node, nodes, dead, never):
                dead.add(node.name)
    return dead


def _never_runs(
    node: node_def_pb2.NodeDef,
    nodes: Mapping[str, node_def_pb2.NodeDef],
    dead: AbstractSet[str],
    never: AbstractSet[str],
) -> bool:
    data = [_is_dead(source, dead, never) for source in node.input if not source.startswith("^")]
    waits = any(source[1:] in dead for source in node.input if source.startswith("^"))
    if node.op != "Merge":
        return waits or any(data)
    # A loop that is never entered does not run again either.
    return all(data) or any(
        flag and nodes[folding.name_of(source)].op == "Enter" for flag, source in zip(data, node.input, strict=False)
    )


def _is_dead(source: str, dead: AbstractSet[str], never: AbstractSet[str]) -> bool:
    return folding.name_of(source) in dead or (source if ":" in source else f"{source}:0") in never


def _merge(
    node: node_def_pb2.NodeDef, dead: AbstractSet[str], never: AbstractSet[str], graph_def: graph_pb2.GraphDef
) -> None:
    """Let a Merge with one remaining input pass this input on."""
    data = [source for source in node.input if not source.startswith("^")]
    left = [source for source in data if not _is_dead(source, dead, never)]
    if len(left) == len(data) or node.name in dead:
        return
    if len(left) > 1:
        node.input[:] = [*left, *(source for source in node.input if source.startswith("^"))]
        node.attr["N"].i = len(left)
        return
    which = data.index(left[0])
    readers = [reader for reader in graph_def.node if f"{node.name}:1" in reader.input]
    _pass_on(node, left[0])
    if readers:
        constant = graph_def.node.add(name=f"{node.name}/which", op="Const")
        constant.attr["dtype"].type = tf.int32.as_datatype_enum
        constant.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(which, tf.int32))
        for reader in readers:
            reader.input[:] = [constant.name if source == f"{node.name}:1" else source for source in reader.input]


def _pass_on(node: node_def_pb2.NodeDef, source: str) -> None:
    dtype = node.attr["T"].type
    controls = [control for control in node.input if control.startswith("^")]
    node.op, node.input[:] = "Identity", [source, *controls]
    node.attr.clear()
    node.attr["T"].type = dtype
