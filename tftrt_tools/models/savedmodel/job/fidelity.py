"""Compares a saved model with its source: signatures, declarations, objects and files. No TensorFlow here.

Parts that TensorFlow cannot save are not compared: collections that name nodes (variables, queues, a training op), the signature of a
training op, aliases of functions, and the class and settings of a Keras model.
"""

from __future__ import annotations

import filecmp
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tftrt_tools.base import errors
from tftrt_tools.models.savedmodel import engine_assets, files, shapes, signatures
from tftrt_tools.models.savedmodel.job import declarations, detach, graph

if TYPE_CHECKING:
    from tensorflow.core.protobuf import meta_graph_pb2, saved_object_graph_pb2

# Names of the root's children that are not compared here: signatures are compared on their own, and engines come and go.
_NOT_COMPARED = frozenset({"signatures", detach.RESOURCES})


def check(
    source: str | os.PathLike[str],
    source_meta: meta_graph_pb2.MetaGraphDef,
    output: str | os.PathLike[str],
    output_meta: meta_graph_pb2.MetaGraphDef,
) -> None:
    """Raise TftrtError where a model that was just saved lost something. Args: as of `differences`."""
    lost = differences(source, source_meta, output, output_meta)
    if lost:
        more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
        raise errors.TftrtError(
            f"saving the model would lose something: {lost[0]}{more}",
            "nothing was written; please report this with the output of `tftrt inspect`",
        )


def differences(
    source: str | os.PathLike[str],
    source_meta: meta_graph_pb2.MetaGraphDef,
    output: str | os.PathLike[str],
    output_meta: meta_graph_pb2.MetaGraphDef,
    folders: Sequence[str] = ("assets", files.EXTRAS),
) -> tuple[str, ...]:
    """The parts that a converted model lacks, or has differently from its source.

    Args: source, output: SavedModel directories. source_meta, output_meta: their MetaGraphDefs. folders: those whose files are compared.
    Returns: a sentence for each, () if there is no difference.
    """
    return (
        *_signatures(source_meta, output_meta),
        *_declared(source_meta, output_meta),
        *_objects(source_meta, output_meta),
        *_files(pathlib.Path(source), pathlib.Path(output), folders),
    )


def _signatures(before: meta_graph_pb2.MetaGraphDef, after: meta_graph_pb2.MetaGraphDef) -> Iterator[str]:
    """Compare each signature's method, and its inputs and outputs with their default values."""
    old, new = signatures.definitions(before), signatures.definitions(after)
    for name in old.keys() - new.keys():
        yield f"signature {name!r} is gone"
    for name in new.keys() - old.keys():
        yield f"signature {name!r} is new"
    for name in sorted(old.keys() & new.keys()):
        yield from _signature(name, old[name], new[name])
        was, now = (declarations.defaults(meta, name) for meta in (before, after))
        for tensor in sorted(was.keys() | now.keys()):
            if was.get(tensor) != now.get(tensor) or old[name].defaults.get(tensor) != new[name].defaults.get(tensor):
                yield f"input {tensor!r} of signature {name!r} has another default value, or none"


def _signature(name: str, before: meta_graph_pb2.SignatureDef, after: meta_graph_pb2.SignatureDef) -> Iterator[str]:
    if after.method_name != before.method_name:
        yield f"the method of signature {name!r} is {after.method_name}, it was {before.method_name}"
    for kind in ("input", "output"):
        old, new = (getattr(signature, kind + "s") for signature in (before, after))
        for tensor in sorted(old.keys() - new.keys()):
            yield f"signature {name!r} lost its {kind} {tensor!r}"
        for tensor in sorted(new.keys() - old.keys()):
            yield f"signature {name!r} has a new {kind} {tensor!r}"
        for tensor in sorted(old.keys() & new.keys()):
            was, now = _text(old[tensor]), _text(new[tensor])
            if was != now:
                yield f"{kind} {tensor!r} of signature {name!r} is {now}, it was {was}"


def _text(info: meta_graph_pb2.TensorInfo) -> str:
    kind = {"coo_sparse": "sparse ", "composite_tensor": "composite "}.get(info.WhichOneof("encoding"), "")
    return f"{kind}{graph.dtype_name(info.dtype)}[{shapes.text(graph.shape_of(info.tensor_shape))}]"


def _declared(before: meta_graph_pb2.MetaGraphDef, after: meta_graph_pb2.MetaGraphDef) -> Iterator[str]:
    was, now = list(before.meta_info_def.tags), list(after.meta_info_def.tags)
    if was != now:
        yield f"its tags are {','.join(now) or 'none'}, they were {','.join(was) or 'none'}"
    for field in ("meta_graph_version", "any_info"):
        if getattr(before.meta_info_def, field) != getattr(after.meta_info_def, field):
            yield f"the {field} of its MetaGraph is another"
    for name in declarations.collections(before):
        if after.collection_def.get(name) != before.collection_def[name]:
            yield f"its collection {name!r} is gone"
    for name in sorted(
        {asset.filename for asset in before.asset_file_def} - {asset.filename for asset in after.asset_file_def}
    ):
        if not name.startswith(engine_assets.PREFIX):
            yield f"its asset file {name!r} is declared no more"


def _objects(before: meta_graph_pb2.MetaGraphDef, after: meta_graph_pb2.MetaGraphDef) -> Iterator[str]:
    """Variables, functions, tables and other objects that a caller of tf.saved_model.load reaches from the root by name."""
    old_nodes, new_nodes = before.object_graph_def.nodes, after.object_graph_def.nodes
    if not old_nodes or not new_nodes:
        return
    waiting, met = [("", 0, 0)], set()
    while waiting:
        path, old, new = waiting.pop()
        if old in met:
            continue
        met.add(old)
        was, now = _object(old_nodes[old]), _object(new_nodes[new])
        if was != now:
            yield f"{path.lstrip('.') or 'the root'} is {now}, it was {was}"
        children = {child.local_name: child.node_id for child in new_nodes[new].children}
        for child in old_nodes[old].children:
            if not path and child.local_name in _NOT_COMPARED:
                continue
            name = f"{path}.{child.local_name}"
            if child.local_name in children:
                waiting.append((name, child.node_id, children[child.local_name]))
            else:
                yield f"{name.lstrip('.')} ({_object(old_nodes[child.node_id])}) is gone"


def _object(node: saved_object_graph_pb2.SavedObject) -> str:
    kind = node.WhichOneof("kind")
    if kind == "variable":
        variable = node.variable
        return f"a variable {graph.dtype_name(variable.dtype)}[{shapes.text(graph.shape_of(variable.shape))}]"
    return {"user_object": "an object", "bare_concrete_function": "a function", None: "an object"}.get(
        kind, f"a {kind}"
    )


def _files(before: pathlib.Path, after: pathlib.Path, folders: Sequence[str]) -> Iterator[str]:
    for path in sorted(path for folder in folders for path in (before / folder).rglob("*") if path.is_file()):
        name = path.relative_to(before)
        if path.name.startswith(engine_assets.PREFIX) or pathlib.Path(files.PASSPORT) in name.parents:
            continue
        if not (after / name).is_file():
            yield f"its file {name} is gone"
        elif not filecmp.cmp(path, after / name, shallow=False):
            yield f"its file {name} is another"
