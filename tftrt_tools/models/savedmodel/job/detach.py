"""A copy of a SavedModel without its engines: it can be loaded where those engines would end the process."""

from __future__ import annotations

import os
import pathlib
from typing import TYPE_CHECKING

from tftrt_tools.base.files import plain_file
from tftrt_tools.models.savedmodel.job import protos

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2, node_def_pb2
    from tensorflow.core.protobuf import saved_model_pb2, saved_object_graph_pb2

# The attribute of the root object that makes a SavedModel carry engines; TF-TRT's own name.
RESOURCES = "trt_engine_resources"
_CREATE, _INITIALIZE = "CreateTRTResourceHandle", "InitializeTRTResource"


def write(proto: saved_model_pb2.SavedModel, model: str | os.PathLike[str], folder: str | os.PathLike[str]) -> None:
    """Write a copy of SavedModel `model` with its engine resources turned into plain objects; variables and assets are linked.

    Args: proto: its SavedModel proto (protos.read), which is changed. model: its directory. folder: to make.
    """
    model, folder = pathlib.Path(model).absolute(), pathlib.Path(folder)
    for meta in proto.meta_graphs:
        _detach(meta.object_graph_def)
        _leave_out(meta.graph_def)
    folder.mkdir(parents=True, exist_ok=True)
    plain_file.write_bytes(folder / protos.FILE, proto.SerializeToString())
    for child in ("variables", "assets"):
        if (model / child).is_dir():
            os.symlink(model / child, folder / child)


def _detach(objects: saved_object_graph_pb2.SavedObjectGraph) -> None:
    """Turn engine resources into plain objects: loading would call their creator, which has only a GPU kernel."""
    nodes = objects.nodes
    if not nodes:
        return
    holders = [child.node_id for child in nodes[0].children if child.local_name == RESOURCES]
    for holder in holders:
        for child in nodes[holder].children:
            resource = nodes[child.node_id]
            if resource.WhichOneof("kind") == "resource":
                resource.Clear()
                resource.user_object.identifier = "_generic_user_object"
                resource.user_object.version.producer = resource.user_object.version.min_consumer = 1


def _leave_out(graph_def: graph_pb2.GraphDef) -> None:
    """Disable the initializer, which makes the resource and reads the engines into it: the session loader ignores objects and runs it."""
    for function in graph_def.library.function:
        if any(node.op == _INITIALIZE for node in function.node_def):
            for node in function.node_def:
                if node.op in (_CREATE, _INITIALIZE):
                    _empty(node)
    for node in graph_def.node:
        if (
            node.op == _CREATE
        ):  # nothing reads it, but TensorFlow places each node on a device, and without a GPU it has none
            _empty(node)


def _empty(node: node_def_pb2.NodeDef) -> None:
    """Make `node` do nothing."""
    kept = [name for name in node.input if name.startswith("^")]
    name = node.name
    node.Clear()
    node.name, node.op = name, "NoOp"
    node.input.extend(kept)
