"""The child's side of `wrap`: traces what goes around a signature, and writes the SavedModel with it. Nothing of the model is loaded or
run, so its engines may be of another machine."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

import tensorflow as tf

from tftrt_tools.base.files import plain_file
from tftrt_tools.models.savedmodel import files, passport, signatures
from tftrt_tools.models.savedmodel.job import protos
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.tftrt.wrapping import added as added_module
from tftrt_tools.tftrt.wrapping.added import Added
from tftrt_tools.tftrt.wrapping.job import before, behind, functions, main_graph, objects
from tftrt_tools.tftrt.wrapping.wrap import WriteRequest, Written

if TYPE_CHECKING:
    from tensorflow.core.protobuf import meta_graph_pb2

# Of the passport: what is about these very files.
_OUTDATED = (passport.VERIFY, passport.PUBLISH)


def job(request: WriteRequest) -> Written:
    """Write a model with added signatures. Raises: TftrtError."""
    source, output = pathlib.Path(request.source), pathlib.Path(request.output)
    proto = protos.read(source)
    meta = protos.meta_graph(proto)
    if request.default_was:
        objects.rename(meta, signatures.DEFAULT, request.default_was)
    for signature in request.added:
        _add(meta, signature)
    plain_file.write_bytes(output / protos.FILE, proto.SerializeToString(deterministic=True))
    warmup = source / files.WARMUP
    left = bool(request.default_was) and warmup.is_file()

    outdated = {(files.PASSPORT / name).as_posix() for name in _OUTDATED}
    files.copy(source, output, {protos.FILE, added_module.FILE, *outdated, *([files.WARMUP] if left else [])})
    if request.classes:
        _keep_classes(pathlib.Path(request.classes), output / "assets")
    return Written(warmup_left=left)


def _add(meta: meta_graph_pb2.MetaGraphDef, added: Added) -> None:
    name = objects.unused_name(meta, f"__inference_wrapped_{added.name}")
    takes = added.takes()
    first = functions.traced(lambda inputs: before.before(added, inputs), takes, f"{name}_before")
    spec_of = {spec.name: spec for spec in added.outputs}
    used = [spec_of[key] for key in (*added.answers.kept, *filter(None, [added.answers.scores]))]
    marks = [InputSpec(before.MARK, "bool", (None,))] if added.marks else []

    def after(tensors: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return behind.behind(added, tensors, tensors.get(before.MARK))

    last = functions.traced(after, (*used, *marks), f"{name}_behind")
    dtypes = {spec.name: tf.as_dtype(spec.dtype).as_datatype_enum for spec in takes}
    meta.graph_def.library.function.extend([*first.definitions, *last.definitions])
    main_graph.add(meta, added, first, last, dtypes, objects.add(meta, added, first, last, dtypes, f"{name}_0"))


def _keep_classes(file: pathlib.Path, assets: pathlib.Path) -> None:
    """Put the file of class names among the assets, for people: the graph has the names."""
    assets.mkdir(exist_ok=True)
    target = assets / file.name
    while target.exists() and target.read_bytes() != file.read_bytes():
        target = target.with_name(f"classes_{target.name}")
    plain_file.copy(file, target)
