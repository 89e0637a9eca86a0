"""A copy of a converted SavedModel that TensorFlow runs without TensorRT: each engine op becomes a call of its native segment.

It shows what the graph rewrite did to the answers, not what FP16 arithmetic does.
"""

import os
import pathlib

from tftrt_tools import errors
from tftrt_tools.savedmodel import graph, loading

_RESOURCES = "trt_engine_resources"


def write(model, folder):
    """Write the copy of SavedModel `model` to `folder`; variables and assets are linked. Returns: names of the engines replaced.

    Raises: TftrtError where a native segment was removed from the model.
    """
    model, folder = pathlib.Path(model).absolute(), pathlib.Path(folder)
    proto = loading.read_proto(model)
    replaced = []
    for meta in proto.meta_graphs:
        try:
            replaced += graph.native(meta.graph_def)
        except KeyError as error:
            raise errors.TftrtError(f"engine {error.args[0]} has no native segment any more: the model runs on a GPU only",
                                    "run this on a machine with a GPU, or convert again with native segments") from None
        _detach_engines(meta.object_graph_def)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "saved_model.pb").write_bytes(proto.SerializeToString())
    for child in ("variables", "assets"):
        if (model / child).is_dir():
            os.symlink(model / child, folder / child)
    return replaced


def _detach_engines(objects):
    """Turn engine resources into plain objects: their creator has a GPU kernel only, and loading would call it."""
    nodes = objects.nodes
    if not nodes:
        return
    holders = [child.node_id for child in nodes[0].children if child.local_name == _RESOURCES]
    for holder in holders:
        for child in nodes[holder].children:
            resource = nodes[child.node_id]
            if resource.WhichOneof("kind") == "resource":
                resource.Clear()
                resource.user_object.identifier = "_generic_user_object"
                resource.user_object.version.producer = resource.user_object.version.min_consumer = 1
