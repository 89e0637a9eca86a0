"""Adds a signature to the main graph, from which a server runs a model. Works on protos alone.

In a model of TensorFlow 2 a signature is one call of its function, and so is the added one. In a TF1 export the nodes that compute the
wrapped signature's outputs are copied behind the new inputs; variables, tables and constants are shared.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tensorflow.core.framework import function_pb2, node_def_pb2, tensor_shape_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from tftrt_tools.base import errors
from tftrt_tools.tftrt.wrapping.job import functions

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tftrt_tools.models.savedmodel.shapes import InputSpec
    from tftrt_tools.tftrt.wrapping.added import Added
    from tftrt_tools.tftrt.wrapping.job.functions import Traced


@dataclasses.dataclass(frozen=True)
class Whole:
    """The function of an added signature. function: its FunctionDef; inner: name of the wrapped signature's function; arguments: how many
    inputs that has, before its captures."""

    function: function_pb2.FunctionDef
    inner: str
    arguments: int


_METHOD = "tensorflow/serving/predict"


def add(
    meta: meta_graph_pb2.MetaGraphDef,
    added: Added,
    first: Traced,
    last: Traced,
    dtypes: Mapping[str, int],
    whole: Whole | None,
) -> None:
    """Add the signature, in place. Args: first, last: what is done before and behind the wrapped signature; their functions are in the
    library. dtypes: {input: DataType number}. whole: of objects.add. Raises: UsageError for inputs that are not tensors."""
    wrapped = meta.signature_def[added.of]
    _check_dense(added.of, wrapped)
    scope = _free(meta, added.name)
    placeholders = {
        spec.name: _placeholder(f"{scope}/input_{number}", spec, dtypes[spec.name])
        for number, spec in enumerate(added.takes())
    }
    inner = _call(meta, wrapped, whole) if whole else None
    if whole and inner is not None:
        captured = [source for source in inner.input if not source.startswith("^")][whole.arguments :]
        answer = functions.call(
            f"{scope}/call",
            whole.function.signature.name,
            [*(node.name for node in placeholders.values()), *captured],
            [argument.type for argument in whole.function.signature.input_arg],
            last.dtypes,
        )
        created = [answer]
    else:
        created = _nodes(meta, added, first, last, dtypes, scope)
        answer = created[-1]
    meta.graph_def.node.extend([*placeholders.values(), *created])
    signature = meta.signature_def[added.name]
    signature.method_name = _METHOD
    for spec in added.takes():
        _tell(signature.inputs[spec.name], f"{placeholders[spec.name].name}:0", dtypes[spec.name], spec)
    for spec in added.gives():
        place = last.outputs.index(spec.name)
        _tell(signature.outputs[spec.name], f"{answer.name}:{place}", last.dtypes[place], spec)


def _call(
    meta: meta_graph_pb2.MetaGraphDef, wrapped: meta_graph_pb2.SignatureDef, whole: Whole
) -> node_def_pb2.NodeDef | None:
    """The call that is the wrapped signature, None where it is not one call."""
    names = {_tensor(info.name)[0] for info in wrapped.outputs.values()}
    nodes = [node for node in meta.graph_def.node if node.name in names]
    return nodes[0] if len(nodes) == len(names) == 1 and nodes[0].attr["f"].func.name == whole.inner else None


def _nodes(
    meta: meta_graph_pb2.MetaGraphDef, added: Added, first: Traced, last: Traced, dtypes: Mapping[str, int], scope: str
) -> list[node_def_pb2.NodeDef]:
    """Copies of the wrapped signature's nodes between calls of `first` and `last`; the last node has the answers."""
    wrapped = meta.signature_def[added.of]
    nodes = {node.name: node for node in meta.graph_def.node}
    before = functions.call(
        f"{scope}/before",
        first.name,
        [f"{scope}/input_{number}" for number in range(len(dtypes))],
        list(dtypes.values()),
        first.dtypes,
    )
    fed = {_tensor(info.name): f"{before.name}:{first.outputs.index(name)}" for name, info in wrapped.inputs.items()}
    names = [*added.answers.kept, *filter(None, [added.answers.scores])]
    tensors = [_tensor(wrapped.outputs[name].name) for name in names]
    copies, moved = _copied(nodes, tensors, fed, f"{scope}/wrapped/")
    beside = [place for place, name in enumerate(first.outputs) if name not in wrapped.inputs]
    sources = [*(moved[tensor] for tensor in tensors), *(f"{before.name}:{place}" for place in beside)]
    kinds = [*(wrapped.outputs[name].dtype for name in names), *(first.dtypes[place] for place in beside)]
    return [before, *copies, functions.call(f"{scope}/behind", last.name, sources, kinds, last.dtypes)]


def _check_dense(name: str, signature: meta_graph_pb2.SignatureDef) -> None:
    for info in (*signature.inputs.values(), *signature.outputs.values()):
        if info.WhichOneof("encoding") != "name":
            raise errors.UsageError(
                f"signature {name!r} takes or gives a sparse or composite tensor, which is not wrapped",
                "name another in --signature_keys",
            )


def _free(meta: meta_graph_pb2.MetaGraphDef, name: str) -> str:
    """A scope that no node is in."""
    taken = {node.name.split("/")[0] for node in meta.graph_def.node}
    scope = name if name[0].isalnum() else f"wrapped{name}"
    while scope in taken:
        scope += "_"
    return scope


def shape(spec: InputSpec) -> tensor_shape_pb2.TensorShapeProto:
    """The shape of an input or output as a proto."""
    proto = tensor_shape_pb2.TensorShapeProto(unknown_rank=spec.shape is None)
    for side in spec.shape or ():
        proto.dim.add(size=-1 if side is None else side)
    return proto


def _placeholder(name: str, spec: InputSpec, dtype: int) -> node_def_pb2.NodeDef:
    node = node_def_pb2.NodeDef(name=name, op="Placeholder")
    node.attr["dtype"].type = dtype
    node.attr["shape"].shape.CopyFrom(shape(spec))
    return node


def _tell(info: meta_graph_pb2.TensorInfo, name: str, dtype: int, spec: InputSpec) -> None:
    info.name, info.dtype = name, dtype
    info.tensor_shape.CopyFrom(shape(spec))


def _tensor(name: str) -> tuple[str, int]:
    """("node", port) of "node", "node:1" or "^node"."""
    node, _, port = name.removeprefix("^").partition(":")
    return node, int(port or 0)


def _copied(
    nodes: Mapping[str, node_def_pb2.NodeDef],
    wanted: Sequence[tuple[str, int]],
    fed: Mapping[tuple[str, int], str],
    prefix: str,
) -> tuple[list[node_def_pb2.NodeDef], dict[tuple[str, int], str]]:
    """(copies of the nodes that `wanted` needs, {tensor of `wanted`: the same of the copies}). Args: fed: {tensor: its replacement}."""
    needed = _needed(nodes, (node for node, _ in wanted), {node for node, _ in fed})
    replaced = {node: source.split(":")[0] for (node, _), source in fed.items()}

    def moved(source: str) -> str:
        node, port = _tensor(source)
        if source.startswith("^"):
            return f"^{replaced.get(node) or (prefix + node if node in needed else node)}"
        return fed.get((node, port)) or (f"{prefix}{node}:{port}" if node in needed else source)

    copies = []
    for name, node in nodes.items():
        if name not in needed:
            continue
        copy = node_def_pb2.NodeDef()
        copy.CopyFrom(node)
        copy.name = prefix + name
        copy.input[:] = map(moved, node.input)
        if "frame_name" in copy.attr:  # two loops of one frame would be one loop
            copy.attr["frame_name"].s = prefix.encode() + copy.attr["frame_name"].s
        if "_class" in copy.attr:  # colocation, by names that do not hold here
            del copy.attr["_class"]
        copies.append(copy)
    return copies, {(node, port): moved(f"{node}:{port}") for node, port in wanted}


def _needed(nodes: Mapping[str, node_def_pb2.NodeDef], wanted: Iterable[str], fed: set[str]) -> set[str]:
    """Names of the nodes to copy: nodes without an input (variables, tables, constants) are shared."""
    needed: set[str] = set()
    waiting = list(wanted)
    while waiting:
        name = waiting.pop()
        if name in needed or name in fed or not nodes[name].input:
            continue
        needed.add(name)
        waiting += [_tensor(source)[0] for source in nodes[name].input]
    return needed
