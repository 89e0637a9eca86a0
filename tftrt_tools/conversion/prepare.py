"""A frozen signature made ready for TF-TRT, so that more of it goes into engines. Its answers stay the same."""

import re

from tftrt_tools.savedmodel import graph, grouped, inline
from tftrt_tools.savedmodel.preparation import Preparation


def prepare(graph_def, most_bytes, kept=frozenset()):
    """Open the calls that XLA compiles, and write grouped convolutions as TensorRT can build them.

    Args: graph_def: a frozen signature; it may be changed. most_bytes: that its weights may grow. kept: names of nodes to leave alone.

    Returns: (GraphDef, Preparation).
    """
    before = {node.name for node in graph_def.node}
    calls = tuple(name for name in inline.compiled_calls(graph_def) if name not in kept)
    while True:
        result = inline.inline_compiled(graph_def, calls)
        convolutions = grouped.rewrite(result, most_bytes, kept)
        # Inside its call XLA computes such a convolution; outside it TF-TRT would take it, and no GPU builds that engine.
        left = [one.name for one in convolutions if not one.written and one.name not in before]
        closed = {call for call in calls if any(_inside(call, name) for name in left)}
        if not closed:
            return result, Preparation(calls, convolutions)
        calls = tuple(call for call in calls if call not in closed)


def in_vain(after, done):
    """Names of opened calls that brought nothing: no op of theirs is in an engine, or a convolution written with zeros is not.

    Args: after: what TF-TRT made of a prepared graph. done: its Preparation.
    """
    native = {node.name for node in after.node}
    zeros = [one.name for one in done.convolutions if one.written == "Conv2D" and one.name in native]
    inner = [node for one in graph.native_segments(after).values() for node in one.function.node_def]
    taken = {node.name for node in inner if node.op not in graph.PASSIVE_OPS}
    return tuple(call for call in done.opened if any(_inside(call, name) for name in zeros)
                 or not any(_inside(call, name) for name in taken))


def _inside(call, name):
    return re.match(f"{re.escape(call)}_*/", name)
