"""A copy of a converted SavedModel that TensorFlow runs without TensorRT: each engine op becomes a call of its native segment.

It shows how the graph rewrite changes the answers, not how FP16 arithmetic does.
"""

from __future__ import annotations

import os

from tftrt_tools.base import errors
from tftrt_tools.models.savedmodel.job import detach, graph, protos


def write(model: str | os.PathLike[str], folder: str | os.PathLike[str]) -> list[str]:
    """Write the copy of SavedModel `model` to `folder`; variables and assets are linked. Returns: names of the engines replaced.

    Raises: TftrtError where a native segment was removed from the model.
    """
    proto = protos.read(model)
    replaced: list[str] = []
    for meta in proto.meta_graphs:
        try:
            replaced += graph.native(meta.graph_def)
        except KeyError as error:
            raise errors.TftrtError(
                f"engine {error.args[0]} has no native segment any more: the model runs on a GPU only",
                "run this on a machine with a GPU, or convert again with native segments",
            ) from None
    detach.write(proto, model, folder)
    return replaced
