"""A SavedModel without the engines that it carries: it loads where those engines would end the process."""

import os
import pathlib

from tftrt_tools.savedmodel import protos

# The attribute of the root object that makes a SavedModel carry engines; TF-TRT's own name.
RESOURCES = "trt_engine_resources"


def write(proto, model, folder):
    """Write a copy of SavedModel `model` with its engine resources turned into plain objects; variables and assets are linked.

    Args: proto: its SavedModel proto (protos.read), which is changed. model: its directory. folder: to make.
    """
    model, folder = pathlib.Path(model).absolute(), pathlib.Path(folder)
    for meta in proto.meta_graphs:
        _detach(meta.object_graph_def)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / protos.FILE).write_bytes(proto.SerializeToString())
    for child in ("variables", "assets"):
        if (model / child).is_dir():
            os.symlink(model / child, folder / child)


def _detach(objects):
    """Their creator has a GPU kernel only, and loading would call it."""
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
