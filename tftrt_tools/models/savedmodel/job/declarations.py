"""Keeps the declarations of a MetaGraph besides its graph, and writes them into the saved model, because TensorFlow's save drops them.

TensorFlow saves every model with the tag "serve", every signature with the method "predict", newly inferred shapes (for lookups and
loops it knows less than the export did), no default values and no collections. No TensorFlow here.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tftrt_tools.base.files import plain_file
from tftrt_tools.models.savedmodel import signatures
from tftrt_tools.models.savedmodel.job import protos
from tftrt_tools.models.savedmodel.job.protos import meta_graph_pb2

if TYPE_CHECKING:
    from tensorflow.core.framework import tensor_pb2

_WITH_DEFAULT = "PlaceholderWithDefault"
# Collections of TensorFlow's own: they name nodes and variables of the graph that they came with.
_OWN_COLLECTIONS = frozenset(
    {
        "activations",
        "asset_filepaths",
        "biases",
        "concatenated_variables",
        "cond_context",
        "eval_step",
        "global_step",
        "init_op",
        "legacy_init_op",
        "local_init_op",
        "local_resources",
        "local_variables",
        "losses",
        "metric_variables",
        "model_variables",
        "moving_average_variables",
        "queue_runners",
        "ready_for_local_init_op",
        "ready_op",
        "regularization_losses",
        "resources",
        "saveable_objects",
        "saved_model_assets",
        "saved_model_initializers",
        "saved_model_main_op",
        "saved_model_train_op",
        "savers",
        "streaming_model_ports",
        "summaries",
        "summary_op",
        "table_initializer",
        "train_op",
        "trainable_resource_variables",
        "trainable_variables",
        "update_ops",
        "variables",
        "weights",
        "while_context",
    }
)


def of(meta_graph: meta_graph_pb2.MetaGraphDef) -> meta_graph_pb2.MetaGraphDef:
    """A MetaGraphDef with the declarations of `meta_graph`. From its graph it has only the inputs' default values, from its objects
    nothing."""
    declared = meta_graph_pb2.MetaGraphDef()
    declared.meta_info_def.CopyFrom(meta_graph.meta_info_def)
    for name, signature in meta_graph.signature_def.items():
        declared.signature_def[name].CopyFrom(signature)
    for name in collections(meta_graph):
        declared.collection_def[name].CopyFrom(meta_graph.collection_def[name])
    used = {node.input[0] for node in meta_graph.graph_def.node if node.op == _WITH_DEFAULT}
    declared.graph_def.node.extend(
        node
        for node in meta_graph.graph_def.node
        if node.op == _WITH_DEFAULT or node.op == "Const" and node.name in used
    )
    return declared


def collections(meta_graph: meta_graph_pb2.MetaGraphDef) -> list[str]:
    """Names of the collections that hold the user's values. Collections with names of nodes are left out, because these mean nothing in
    another graph."""
    return sorted(
        name
        for name, collection in meta_graph.collection_def.items()
        if name not in _OWN_COLLECTIONS and collection.WhichOneof("kind") not in (None, "node_list")
    )


def defaults(meta_graph: meta_graph_pb2.MetaGraphDef, signature: str) -> dict[str, tensor_pb2.TensorProto]:
    """The values of a signature's optional inputs. Returns: {input: TensorProto}."""
    nodes = {node.name: node for node in meta_graph.graph_def.node if node.op in (_WITH_DEFAULT, "Const")}
    declared = {}
    for name, info in meta_graph.signature_def[signature].inputs.items():
        node = nodes.get(info.name.removesuffix(":0"))
        if node is not None and node.op == _WITH_DEFAULT and node.input[0] in nodes:
            declared[name] = nodes[node.input[0]].attr["value"].tensor
    return declared


def restore(
    path: str | os.PathLike[str],
    declared: meta_graph_pb2.MetaGraphDef,
    renamed: Mapping[str, Mapping[str, str]] | None = None,
) -> meta_graph_pb2.MetaGraphDef:
    """Write the missing parts of `declared`, a MetaGraphDef of `of`, into the SavedModel `path`.

    Args: renamed: {signature: {name with which an input was saved: its name}} for inputs that TensorFlow had to save under another name.
    Returns: its MetaGraphDef.
    """
    proto = protos.read(path)
    meta = proto.meta_graphs[0]
    before = of(meta).SerializeToString(deterministic=True)
    info = meta.meta_info_def
    del info.tags[:]
    info.tags.extend(declared.meta_info_def.tags)
    info.meta_graph_version = declared.meta_info_def.meta_graph_version
    if declared.meta_info_def.HasField("any_info"):
        info.any_info.CopyFrom(declared.meta_info_def.any_info)
    for name in collections(declared):
        meta.collection_def[name].CopyFrom(declared.collection_def[name])
    for name, names in (renamed or {}).items():
        _rename(meta, name, names)
    for name in declared.signature_def.keys() & signatures.definitions(meta).keys():
        _restore_signature(meta.signature_def[name], declared.signature_def[name])
        for placeholder, value in defaults(declared, name).items():
            _give_default(meta, name, placeholder, value)
    if of(meta).SerializeToString(deterministic=True) != before:
        plain_file.write_bytes(pathlib.Path(path) / protos.FILE, proto.SerializeToString(deterministic=True))
    return meta


def _rename(meta: meta_graph_pb2.MetaGraphDef, signature: str, names: Mapping[str, str]) -> None:
    """Give the inputs of a signature their names, in its SignatureDef and in the object that tf.saved_model.load makes a function of."""
    inputs = meta.signature_def[signature].inputs
    infos = {
        name: meta_graph_pb2.TensorInfo.FromString(inputs[saved].SerializeToString()) for saved, name in names.items()
    }
    inputs.clear()
    for name, info in infos.items():
        inputs[name].CopyFrom(info)
    holder, nodes = meta.object_graph_def.nodes[0], meta.object_graph_def.nodes
    for step in ("signatures", signature):
        holder = next(nodes[child.node_id] for child in holder.children if child.local_name == step)
    keywords = holder.bare_concrete_function.argument_keywords
    keywords[:] = [names[saved] for saved in keywords]


def _restore_signature(signature: meta_graph_pb2.SignatureDef, declared: meta_graph_pb2.SignatureDef) -> None:
    signature.method_name = declared.method_name
    for name, info in declared.inputs.items():
        if info.WhichOneof("encoding") == "coo_sparse":
            _join(signature, name, info)
    for kind in ("inputs", "outputs"):
        tensors = getattr(signature, kind)
        for name, info in getattr(declared, kind).items():
            if name in tensors and tensors[name].dtype == info.dtype:
                tensors[name].tensor_shape.CopyFrom(info.tensor_shape)
    for name in declared.defaults.keys() & signature.inputs.keys():
        signature.defaults[name].CopyFrom(declared.defaults[name])


def _join(signature: meta_graph_pb2.SignatureDef, name: str, declared: meta_graph_pb2.TensorInfo) -> None:
    """Join the three inputs that TensorFlow made of one sparse input."""
    parts = {part: f"{name}_{part}" for part in ("values", "indices", "dense_shape")}
    if not all(part in signature.inputs for part in parts.values()):
        return
    info = meta_graph_pb2.TensorInfo()
    info.CopyFrom(declared)
    for part, whole in parts.items():
        setattr(info.coo_sparse, f"{part}_tensor_name", signature.inputs[whole].name)
        del signature.inputs[whole]
    signature.inputs[name].CopyFrom(info)


def _give_default(meta: meta_graph_pb2.MetaGraphDef, signature: str, name: str, value: tensor_pb2.TensorProto) -> None:
    """Make an input optional."""
    tensor = meta.signature_def[signature].inputs[name].name if name in meta.signature_def[signature].inputs else ""
    for node in meta.graph_def.node:
        if f"{node.name}:0" == tensor and node.op == "Placeholder":
            constant = meta.graph_def.node.add(name=node.name + "/default", op="Const")
            constant.attr["dtype"].type = value.dtype
            constant.attr["value"].tensor.CopyFrom(value)
            node.op = _WITH_DEFAULT
            node.input.append(constant.name)
            return
