"""Reads SavedModel protos in a tenth of a second, because it does not import TensorFlow itself.

TensorFlow's generated proto modules need protobuf alone, but `import tensorflow.core…` runs the whole package first, which takes seconds.
If nobody has imported TensorFlow yet, an empty package with its name and path replaces it while the modules are imported.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pathlib
import sys
import types
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tftrt_tools.base import errors

if TYPE_CHECKING:
    from tensorflow.core.protobuf import saved_model_pb2

FILE = "saved_model.pb"


@contextlib.contextmanager
def _stand_in() -> Iterator[None]:
    if "tensorflow" in sys.modules:
        yield
        return
    spec = importlib.util.find_spec("tensorflow")
    if spec is None:
        raise ModuleNotFoundError("No module named 'tensorflow'", name="tensorflow")
    package = types.ModuleType("tensorflow")
    package.__path__ = list(spec.submodule_search_locations or ())
    sys.modules["tensorflow"] = package
    try:
        yield
    finally:
        # A later import of TensorFlow gets the real one, which finds the proto modules loaded.
        del sys.modules["tensorflow"]


with _stand_in():
    # `as`: for graph and declarations, which import them from here.
    from tensorflow.core.framework import attr_value_pb2 as attr_value_pb2
    from tensorflow.core.framework import types_pb2 as types_pb2
    from tensorflow.core.protobuf import meta_graph_pb2 as meta_graph_pb2
    from tensorflow.core.protobuf import saved_model_pb2


def read(path: str | os.PathLike[str]) -> saved_model_pb2.SavedModel:
    """The SavedModel proto of directory `path`. Raises: TftrtError if it is truncated or not a SavedModel."""
    proto = saved_model_pb2.SavedModel()
    file = pathlib.Path(path) / FILE
    if not file.is_file():
        raise errors.TftrtError(
            f"{path} holds a text-form saved_model.pbtxt only", "save it in binary form (saved_model.pb)"
        )
    try:
        proto.ParseFromString(file.read_bytes())
    except Exception as error:  # protobuf's DecodeError class differs between its implementations
        text = " ".join(str(error).split())
        raise errors.TftrtError(f"{file} is truncated or damaged ({text})", "export or copy the model again") from None
    if not proto.meta_graphs:
        raise errors.TftrtError(
            f"{file} is truncated or damaged (no MetaGraph in it)", "export or copy the model again"
        )
    return proto


def meta_graph(proto: saved_model_pb2.SavedModel, tags: Sequence[str] = ()) -> meta_graph_pb2.MetaGraphDef:
    """The MetaGraphDef with `tags`; without tags the only one, else the one tagged "serve". Raises: UsageError."""
    tag_sets = [tuple(meta.meta_info_def.tags) for meta in proto.meta_graphs]
    for meta in proto.meta_graphs:
        if tags and set(meta.meta_info_def.tags) == set(tags):
            return meta
    if not tags:
        if len(tag_sets) == 1:
            return proto.meta_graphs[0]
        for meta in proto.meta_graphs:
            if list(meta.meta_info_def.tags) == ["serve"]:
                return meta
    raise errors.UsageError(
        f"no MetaGraph with tags {','.join(tags) or 'serve'}",
        "here: " + "; ".join(",".join(tag_set) for tag_set in tag_sets),
    )
