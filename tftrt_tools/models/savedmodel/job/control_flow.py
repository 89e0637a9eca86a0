"""Finds loops and conditionals in a GraphDef, which TensorFlow lowered to Switch, Merge, Enter and Exit. Works on protos alone."""

import collections
from collections.abc import Collection

from tensorflow.core.framework import graph_pb2

_ENTER, _EXIT = ("Enter", "RefEnter"), ("Exit", "RefExit")
_SWITCH = ("Switch", "RefSwitch", "_SwitchN")
_MERGE = ("Merge", "RefMerge")


def in_loops(graph_def: graph_pb2.GraphDef) -> frozenset[str]:
    """Names of the main graph's nodes that run once an iteration of a loop."""
    return _between(graph_def, _ENTER, _EXIT)


def in_branches(graph_def: graph_pb2.GraphDef) -> frozenset[str]:
    """Names of the main graph's nodes that run only if a conditional, or the condition of a loop, decides so."""
    return _between(graph_def, _SWITCH, (*_MERGE, *_EXIT))


def _between(graph_def: graph_pb2.GraphDef, opening: Collection[str], closing: Collection[str]) -> frozenset[str]:
    """Names of the nodes behind an op of `opening` that no op of `closing` has ended, and of the former."""
    readers, depths = _readers(graph_def), {node.name: 0 for node in graph_def.node}
    change = {node.name: (node.op in opening) - (node.op in closing) for node in graph_def.node}
    waiting = [name for name, by in change.items() if by > 0]
    depths.update(dict.fromkeys(waiting, 1))
    while waiting:
        name = waiting.pop()
        for reader in readers[name]:
            # Nodes on the way round a loop do not change the depth, so it does not grow for ever.
            depth = depths[name] + change[reader]
            if depth > depths[reader]:
                depths[reader] = depth
                waiting.append(reader)
    return frozenset(name for name, depth in depths.items() if depth > 0)


def uncertain(graph_def: graph_pb2.GraphDef) -> frozenset[str]:
    """Names of the main graph's nodes that may not run, or run many times, or run on sizes that a loop or a conditional decides."""
    readers, inside = _readers(graph_def), set()
    waiting = [node.name for node in graph_def.node if node.op in (*_ENTER, *_SWITCH)]
    while waiting:
        name = waiting.pop()
        if name not in inside:
            inside.add(name)
            waiting += readers[name]
    return frozenset(inside)


def _readers(graph_def: graph_pb2.GraphDef) -> dict[str, list[str]]:
    """{node: names of the nodes that read it or wait for it}."""
    readers = collections.defaultdict(list)
    for node in graph_def.node:
        for source in node.input:
            readers[source.removeprefix("^").split(":")[0]].append(node.name)
    return readers
