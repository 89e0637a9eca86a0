"""Replaces engine ops by their native segments, and calls by their functions' nodes, so that a tensor inside can be fetched. Works on
protos alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from tensorflow.core.framework import graph_pb2

from tftrt_tools.base import tf_private
from tftrt_tools.models.savedmodel.engine_op import ENGINE_OP
from tftrt_tools.models.savedmodel.job import control_flow, graph

if TYPE_CHECKING:
    from tensorflow.core.framework import attr_value_pb2, function_pb2, node_def_pb2

CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})


def inline_segments(
    graph_def: graph_pb2.GraphDef, only: Collection[str] | None = None, own_names: bool = False
) -> tuple[graph_pb2.GraphDef, dict[str, dict[str, str]]]:
    """Replace each engine op of the main graph by the nodes of its native segment.

    The op's own node stays, as an IdentityN of the segment's results: nodes that read the engine's outputs need no change. Engine ops
    inside functions become calls of their segments (graph.native); their inner tensors cannot be fetched.

    Args: graph_def: converted GraphDef; it is left as it is. only: names of the engines to replace; then all others stay engine ops.
      own_names: let the nodes keep the names that they have in the segment, those of the graph before the pass, where these are free. A
      constant that stands in the graph as well is the graph's then.

    Returns: (GraphDef that runs without TensorRT unless `only` is given, {engine name: {tensor of the segment: tensor of the graph}}). Both
      are written "node:port", as in a GraphDef; the segment's arguments and results are among its tensors, by their names
      ("tensorrtinputph_0:0").

    Raises: KeyError(engine name) for one whose segment was removed.
    """
    functions = graph.library(graph_def)
    result = graph_pb2.GraphDef(versions=graph_def.versions)
    taken = {node.name for node in graph_def.node}
    looped = control_flow.in_loops(graph_def)
    tensors: dict[str, dict[str, str]] = {}
    inlined: set[str] = set()
    constants = {node.name: node for node in graph_def.node if node.op == "Const"} if own_names else {}
    for node in graph_def.node:
        name = graph.engine_name(node.name)
        if node.op != ENGINE_OP or not (only is None or name in only):
            result.node.add().CopyFrom(node)
            continue
        segment = node.attr["segment_func"].func.name
        if segment not in functions:
            raise KeyError(name)
        inlined.add(segment)
        prefix = _prefix(node.name, taken)
        names = {inner.name: prefix + inner.name for inner in functions[segment].node_def}
        # A node of a loop reads outside values through Enter alone.
        shared = set() if node.name in looped else _copies(functions[segment], constants)
        if own_names:
            free = {inner.name: inner for inner in functions[segment].node_def if inner.name not in taken}
            names |= {inner: inner for inner in (*free, *shared)}
            taken.update(free)
            constants.update((inner, copied) for inner, copied in free.items() if copied.op == "Const")
        tensors[name] = _inline(node, functions, functions[segment], prefix, names, node.attr["OutT"], result, shared)
        if node.name in looped:
            _into_the_loop(node, set(names.values()) - shared, result)
    kept = [
        function for name, function in functions.items() if name not in inlined or _called_elsewhere(name, graph_def)
    ]
    result.library.function.extend(kept)
    result.library.gradient.extend(graph_def.library.gradient)
    if only is None:
        graph.native(result)
    return result, tensors


def inline_calls(graph_def: graph_pb2.GraphDef) -> graph_pb2.GraphDef:
    """Replace calls of functions that hold engine ops by the functions' nodes, until no such call is left in the main graph.

    A converted signature is saved as a function, and stays one after freezing if it has loops or lookup tables. Functions that nothing
    calls any more are removed.

    Args: graph_def: left as it is. Returns: GraphDef.
    """
    functions = graph.library(graph_def)
    holders = _holding_engines(functions)
    while any(_is_call(node, holders) for node in graph_def.node):
        result = graph_pb2.GraphDef(versions=graph_def.versions)
        taken = {node.name for node in graph_def.node}
        for node in graph_def.node:
            if _is_call(node, holders):
                body, prefix = functions[node.attr["f"].func.name], _prefix(node.name, taken)
                names = {inner.name: prefix + inner.name for inner in body.node_def}
                _inline(node, functions, body, prefix, names, node.attr["Tout"], result)
            else:
                result.node.add().CopyFrom(node)
        result.library.function.extend(functions[name] for name in reached(result.node, functions))
        result.library.gradient.extend(graph_def.library.gradient)
        graph_def = result
    return graph_def


def reached(
    nodes: Iterable[node_def_pb2.NodeDef], functions: Mapping[str, function_pb2.FunctionDef]
) -> dict[str, bool]:
    """Names of the functions that `nodes` call, directly or through other functions."""
    reads: dict[str, bool] = {}
    waiting = [nodes]
    while waiting:
        for node in waiting.pop():
            called = [
                node.op,
                *(value.func.name for value in node.attr.values()),
                *(function.name for value in node.attr.values() for function in value.list.func),
            ]
            for name in called:
                if name in functions and name not in reads:
                    reads[name] = True
                    waiting.append(functions[name].node_def)
    return reads


def _is_call(node: node_def_pb2.NodeDef, holders: AbstractSet[str]) -> bool:
    return node.op in CALLS and node.attr["f"].func.name in holders


def _holding_engines(functions: Mapping[str, function_pb2.FunctionDef]) -> set[str]:
    """Names of the functions that hold an engine op, or call one that does."""
    names: set[str] = set()
    before: set[str] | None = None
    while names != before:
        before = set(names)
        names |= {
            name
            for name, function in functions.items()
            if any(node.op == ENGINE_OP or _is_call(node, names) for node in function.node_def)
        }
    return names


def _prefix(name: str, taken: set[str]) -> str:
    """A scope that no node of the graph is in."""
    while any(other.startswith(f"{name}/") for other in taken):
        name += "_"
    taken.add(f"{name}/")
    return f"{name}/"


def _copies(segment: function_pb2.FunctionDef, constants: Mapping[str, node_def_pb2.NodeDef]) -> set[str]:
    """Names of the segment's nodes that are copies of `constants`: TF-TRT copies those that several segments read."""
    return {
        node.name
        for node in segment.node_def
        if node.name in constants and node.op == "Const" and node.attr["value"] == constants[node.name].attr["value"]
    }


def _called_elsewhere(segment: str, graph_def: graph_pb2.GraphDef) -> bool:
    """Whether a library function holds an engine op with this segment: it stays a call."""
    return any(
        node.op == ENGINE_OP and node.attr["segment_func"].func.name == segment
        for function in graph_def.library.function
        for node in function.node_def
    )


def _inline(
    call: node_def_pb2.NodeDef,
    functions: Mapping[str, function_pb2.FunctionDef],
    segment: function_pb2.FunctionDef,
    prefix: str,
    names: Mapping[str, str],
    types: attr_value_pb2.AttrValue,
    result: graph_pb2.GraphDef,
    shared: AbstractSet[str] = frozenset(),
) -> dict[str, str]:
    """Add the segment's nodes to GraphDef `result`. Args: prefix: a scope of its own. names: {node of the segment: its name there}. types:
    AttrValue of the results' types. shared: nodes that are in the graph already. Returns: {tensor of the segment: tensor of the graph}."""
    sources = [_with_port(source) for source in call.input if not source.startswith("^")]
    # In a FunctionDef a reference is an argument's name or "node:output argument:index"; in a GraphDef it is "node:port".
    arguments = {arg.name: source for arg, source in zip(segment.signature.input_arg, sources, strict=True)}
    references, tensors = dict(arguments), {f"{name}:0": source for name, source in arguments.items()}
    for node in segment.node_def:
        for port, reference in enumerate(_outputs(node, functions)):
            references[f"{node.name}:{reference}"] = f"{names[node.name]}:{port}"
            tensors[f"{node.name}:{port}"] = f"{names[node.name]}:{port}"
    for node in segment.node_def:
        if node.name in shared:
            continue
        copy = result.node.add()
        copy.CopyFrom(node)
        copy.name, copy.device = names[node.name], ""
        if "frame_name" in copy.attr:  # two loops of one frame would be one loop
            copy.attr["frame_name"].s = prefix.encode() + copy.attr["frame_name"].s
        if "_class" in copy.attr:  # colocation, by names that do not hold here
            del copy.attr["_class"]
        del copy.input[:]
        copy.input.extend(
            _control(source[1:], arguments, names) if source.startswith("^") else references[source]
            for source in node.input
        )
    returned = {arg.name: references[segment.ret[arg.name]] for arg in segment.signature.output_arg}
    tensors.update({f"{name}:0": source for name, source in returned.items()})
    outputs = result.node.add(name=call.name, op="IdentityN", input=returned.values())
    # The outputs still wait for the engine op's control inputs; the segment's own ops have no side effects.
    outputs.input.extend(source for source in call.input if source.startswith("^"))
    outputs.attr["T"].CopyFrom(types)
    return tensors


def _into_the_loop(call: node_def_pb2.NodeDef, names: AbstractSet[str], result: graph_pb2.GraphDef) -> None:
    """Tie constants to the loop: a node without an input belongs to no loop, and a node of a loop takes outside values only through
    Enter. Args: names: of the nodes that came in place of `call`."""
    source = next(source for source in call.input if not source.startswith("^"))
    for node in result.node:
        if node.name in names and not node.input:
            node.input.append("^" + source.split(":")[0])


def _control(name: str, arguments: Mapping[str, str], names: Mapping[str, str]) -> str:
    return "^" + (arguments[name].split(":")[0] if name in arguments else names[name])


def _with_port(source: str) -> str:
    return source if ":" in source else f"{source}:0"


def _outputs(node: node_def_pb2.NodeDef, functions: Mapping[str, function_pb2.FunctionDef]) -> Iterator[str]:
    """The node's outputs as a FunctionDef refers to them, "output argument:index", by port."""
    op = functions[node.op].signature if node.op in functions else tf_private.op_def(node.op)
    defaults = {attr.name: attr.default_value for attr in op.attr}
    for arg in op.output_arg:
        count = 1
        if arg.number_attr:
            count = node.attr[arg.number_attr].i if arg.number_attr in node.attr else defaults[arg.number_attr].i
        elif arg.type_list_attr:
            types = node.attr[arg.type_list_attr] if arg.type_list_attr in node.attr else defaults[arg.type_list_attr]
            count = len(types.list.type)
        for index in range(count):
            yield f"{arg.name}:{index}"
