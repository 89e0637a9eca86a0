"""Loads a SavedModel in TensorFlow with clear errors; reads its signatures' inputs; puts back what saving drops."""

from __future__ import annotations

import dataclasses
import importlib
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tftrt_tools.base import errors, op_libraries, tf_private
from tftrt_tools.base.files import plain_file
from tftrt_tools.models.savedmodel import engine_assets, files, tensor_kinds
from tftrt_tools.models.savedmodel.job import declarations, graph, input_facts, protos, session_load, twins, unnamed
from tftrt_tools.models.savedmodel.shapes import InputSpec

if TYPE_CHECKING:
    import numpy.typing as npt
    from tensorflow.core.protobuf import meta_graph_pb2

    from tftrt_tools.models.savedmodel.inspection import Finding


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """A loaded SavedModel. Keep it as long as its functions are used, because its engines and tables go with it."""

    # The result of tf.saved_model.load.
    root: Any
    # The tags of its MetaGraph.
    tags: tuple[str, ...]
    # The MetaGraphDef of declarations.of.
    declared: meta_graph_pb2.MetaGraphDef
    # {signature: the one that stands for it} of twins.find.
    same: dict[str, str]
    # The tags of further MetaGraphs in the SavedModel, "serve,gpu" for one with both.
    other_tags: tuple[str, ...]
    # {signature: the InputSpecs of input_facts.specs}.
    inputs: dict[str, tuple[InputSpec, ...]] = dataclasses.field(default_factory=dict)
    # Variables of session_load.lost.
    lost: tuple[str, ...] = ()

    def specs(self, name: str) -> list[InputSpec]:
        """As `input_specs` of a signature; with the limits of their values, and their places."""
        spec_of = {spec.name: spec for spec in self.inputs.get(name, ())}
        return [
            dataclasses.replace(spec, known=spec_of[spec.name].known) if spec.name in spec_of else spec
            for spec in input_specs(self.root.signatures[name])
        ]


def load(path: str | os.PathLike[str], tags: Sequence[str] = ()) -> Model:
    """Load the SavedModel `path`. Returns: Model. Raises: TftrtError or UsageError with the cause in one line."""
    proto = protos.read(path)
    meta = protos.meta_graph(proto, tags)
    chosen = tuple(meta.meta_info_def.tags)
    others = tuple(
        ",".join(meta_graph.meta_info_def.tags) for meta_graph in proto.meta_graphs if meta_graph is not meta
    )
    _check_assets(path, meta)
    op_libraries.load()
    _register_optimizers(meta)
    try:
        root = tf.saved_model.load(str(path), tags=list(chosen))
        return Model(
            root=root,
            tags=chosen,
            declared=declarations.of(meta),
            same=twins.find(meta),
            other_tags=others,
            inputs=input_facts.specs(meta),
            lost=session_load.lost(meta),
        )
    except (
        Exception
    ) as error:  # a damaged model can make TensorFlow raise nearly anything, such as an IndexError for a short file
        if is_out_of_gpu_memory(error):
            raise errors.TftrtError(
                f"out of GPU memory while loading {path}: {first_line(error)}", GPU_MEMORY_MEND
            ) from None
        raise errors.TftrtError(f"TensorFlow cannot load {path}: {first_line(error)}", _mend(error)) from None


def _check_assets(path: str | os.PathLike[str], meta: meta_graph_pb2.MetaGraphDef) -> None:
    """Refuse a graph that names a file outside the model as an asset: TensorFlow reads it, and saves a copy of it. Raises: TftrtError."""
    old = (
        meta.collection_def["saved_model_assets"].any_list.value if "saved_model_assets" in meta.collection_def else ()
    )
    kept = (protos.meta_graph_pb2.AssetFileDef.FromString(packed.value) for packed in old)
    for name in (asset.filename for asset in (*meta.asset_file_def, *kept)):
        place = pathlib.PurePosixPath(name)
        if place.is_absolute() or ".." in place.parts:
            raise errors.TftrtError(
                f"{path} names the asset {name!r}, which lies outside the model",
                "the model is damaged, or made to read such files",
            )


def _register_optimizers(meta: meta_graph_pb2.MetaGraphDef) -> None:
    """Import Keras, which lean_import left out, where the model has an optimizer: loaded as a plain object, it would be saved as one."""
    if any("ptimizer" in node.user_object.identifier for node in meta.object_graph_def.nodes):
        importlib.import_module("keras.optimizers")


def findings(model: Model, signature: str) -> tuple[Finding, ...]:
    """Findings on inputs and outputs that are no dense tensors."""
    declared = model.declared.signature_def[signature]
    return tuple(tensor_kinds.findings(signature, graph.specs(declared.inputs), graph.specs(declared.outputs)))


def answers(
    function: tf.types.experimental.ConcreteFunction, feed: Mapping[str, tf.Tensor]
) -> dict[str, npt.NDArray[Any]]:
    """Call a signature. Args: function: of a loaded model; feed: {input: tensor}. Returns: {output: np.ndarray}, on the host."""
    return {name: array(name, tensor) for name, tensor in tf_private.call(function, feed).items()}


def array(name: str, tensor: tf.Tensor | tf.SparseTensor | tf.RaggedTensor) -> npt.NDArray[Any]:
    """An output as an array. Raises: TftrtError for one that is no dense tensor."""
    if isinstance(tensor, tf.Tensor) and tensor.dtype not in (tf.variant, tf.resource):
        value: npt.NDArray[Any] = tensor.numpy()
        return value
    kind = (
        tensor.dtype.name
        if isinstance(tensor, tf.Tensor)
        else tensor_kinds.of_class(type(tf.type_spec_from_value(tensor)).__name__)
    )
    raise tensor_kinds.no_array(name, kind)


GPU_MEMORY_MEND = "free the GPU's memory (`nvidia-smi` names who holds it), or use another GPU (CUDA_VISIBLE_DEVICES)"


def is_out_of_gpu_memory(error: BaseException) -> bool:
    """Whether an exception of TensorFlow means too little GPU memory: a failed allocation, or no memory for a context."""
    text = str(error)
    return isinstance(error, tf.errors.ResourceExhaustedError) or any(
        sign in text for sign in ("CUDA_ERROR_OUT_OF_MEMORY", "failed initializing StreamExecutor", "ran out of memory")
    )


def first_line(error: BaseException) -> str:
    """The first line of an exception's text that says what is wrong, without graph locations."""
    return errors.first_line(getattr(error, "message", None) or str(error)) or type(error).__name__


def unreadable(path: str | os.PathLike[str], error: BaseException) -> errors.TftrtError:
    """The TftrtError for an exception of TensorFlow while it imports the graph of `path`."""
    return errors.TftrtError(f"TensorFlow cannot read the graph of {path}: {first_line(error)}", _mend(error))


def _mend(error: BaseException) -> str:
    text = str(error)
    missing = re.search(r"Op type not registered '([^']+)'", text)
    if missing:
        return f"{missing[1]} is no op of this TensorFlow: name the library that has it with --op_library=FILE.so"
    if "No OpKernel" in text:
        return "the model needs an op that this TensorFlow build or machine lacks; a library that has it is named by --op_library=FILE.so"
    if any(sign in text.lower() for sign in ("variables", "checkpoint", "data loss", "data_loss", "read less bytes")):
        return "its variables are missing or damaged: copy the whole SavedModel again"
    return "check that TensorFlow's own tf.saved_model.load accepts it"


def input_specs(function: tf.types.experimental.ConcreteFunction) -> list[InputSpec]:
    """[InputSpec] of a signature's ConcreteFunction, under the names of its SignatureDef, in the order of its arguments."""
    names = tf_private.argument_names(function)
    return [
        InputSpec(name, tensor.dtype.name, None if tensor.shape.rank is None else tuple(tensor.shape.as_list()))
        for name, tensor in zip(names, function.inputs[: len(names)], strict=True)
    ]


def freezable(function: tf.types.experimental.ConcreteFunction) -> list[InputSpec]:
    """[InputSpec] of what --freeze may name: a signature's inputs, and placeholders with a default that it does not name."""
    named = [tensor.name for tensor in function.inputs]
    return [*input_specs(function), *unnamed.specs(function.graph.as_graph_def(), named)]


def copy_extras(source: str | os.PathLike[str], output: str | os.PathLike[str]) -> None:
    """Copy assets.extra (warm-up requests and the like) without the passport, which is about the source; and assets that the graph does
    not name."""
    source, output = pathlib.Path(source), pathlib.Path(output)
    files.check_links(source, files.ASSETS, files.EXTRAS)
    if (source / files.EXTRAS).is_dir():
        (output / files.EXTRAS).mkdir(exist_ok=True)
        files.copy(source / files.EXTRAS, output / files.EXTRAS, {files.PASSPORT.name})
    for path in (source / files.ASSETS).rglob("*"):
        target = output / path.relative_to(source)
        if path.is_file() and not target.exists() and not path.name.startswith(engine_assets.PREFIX):
            target.parent.mkdir(parents=True, exist_ok=True)
            plain_file.copy(path, target)
