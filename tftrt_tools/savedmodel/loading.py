"""A SavedModel in TensorFlow: loaded with clear errors, its signatures' inputs, and what saving drops put back."""

import dataclasses
import pathlib
import shutil

import tensorflow as tf

from tftrt_tools import errors
from tftrt_tools.savedmodel import files, graph, protos
from tftrt_tools.savedmodel.shapes import InputSpec


@dataclasses.dataclass(frozen=True)
class Model:
    """A loaded SavedModel. Keep it as long as its functions are used: its engines and tables die with it.

    output_shapes: {signature: {output: shape, as in graph.shape_of}}, as declared.
    """

    root: object
    tags: tuple
    output_shapes: dict


def load(path, tags=()):
    """Load the SavedModel `path`. Returns: Model. Raises: TftrtError or UsageError with the cause in one line."""
    meta = protos.meta_graph(protos.read(path), tags)
    chosen = tuple(meta.meta_info_def.tags)
    shapes = {name: {output: graph.shape_of(info.tensor_shape) for output, info in signature.outputs.items()}
              for name, signature in meta.signature_def.items()}
    try:
        return Model(tf.saved_model.load(str(path), tags=list(chosen)), chosen, shapes)
    except Exception as error:  # a damaged model makes TensorFlow raise nearly anything, an IndexError for a short file included
        if is_out_of_gpu_memory(error):
            raise errors.TftrtError(f"out of GPU memory while loading {path}: {first_line(error)}", GPU_MEMORY_MEND) from None
        raise errors.TftrtError(f"TensorFlow cannot load {path}: {first_line(error)}", _mend(error)) from None


def answers(function, feed):
    """Call a signature. Args: function: of a loaded model; feed: {input: tensor}. Returns: {output: np.ndarray}, on the host."""
    return {name: tensor.numpy() for name, tensor in function(**feed).items()}


GPU_MEMORY_MEND = "free the GPU's memory (`nvidia-smi` names who holds it), or use another GPU (CUDA_VISIBLE_DEVICES)"


def is_out_of_gpu_memory(error):
    """Whether an exception of TensorFlow says so: an allocation that failed, or a GPU without the memory for a context."""
    text = str(error)
    return isinstance(error, tf.errors.ResourceExhaustedError) or any(sign in text for sign in (
        "CUDA_ERROR_OUT_OF_MEMORY", "failed initializing StreamExecutor", "ran out of memory"))


def first_line(error):
    """The first line of an exception's text that says what is wrong, graph locations cut."""
    return errors.first_line(getattr(error, "message", None) or str(error)) or type(error).__name__


def _mend(error):
    text = str(error)
    if "Op type not registered" in text or "No OpKernel" in text:
        return "the model needs an op that this TensorFlow build or machine lacks"
    if any(sign in text.lower() for sign in ("variables", "checkpoint", "data loss", "data_loss", "read less bytes")):
        return "its variables are missing or damaged: copy the whole SavedModel again"
    return "check that TensorFlow's own tf.saved_model.load accepts it"


def input_specs(function):
    """[InputSpec] of a signature's ConcreteFunction, in the order of its keyword arguments."""
    _, keywords = function.structured_input_signature
    return [InputSpec(name, spec.dtype.name, None if spec.shape.rank is None else tuple(spec.shape.as_list()))
            for name, spec in keywords.items()]


def restore_declarations(path, model):
    """Give the SavedModel `path` the tags and the signatures' output shapes of `model`.

    TensorFlow's save knows the tag "serve" only, and infers shapes anew: of lookups and loops it knows less than the export did.
    """
    proto = protos.read(path)
    meta = proto.meta_graphs[0]
    before = meta.meta_info_def.SerializeToString(), {name: one.SerializeToString() for name, one in meta.signature_def.items()}
    del meta.meta_info_def.tags[:]
    meta.meta_info_def.tags.extend(model.tags)
    for name, shapes in model.output_shapes.items():
        for output, shape in shapes.items():
            if name in meta.signature_def and output in meta.signature_def[name].outputs and shape is not None:
                info = meta.signature_def[name].outputs[output].tensor_shape
                info.Clear()
                for dim in shape:
                    info.dim.add(size=-1 if dim is None else dim)
    after = meta.meta_info_def.SerializeToString(), {name: one.SerializeToString() for name, one in meta.signature_def.items()}
    if after != before:
        (pathlib.Path(path) / protos.FILE).write_bytes(proto.SerializeToString(deterministic=True))


def copy_extras(source, output):
    """Copy assets.extra (warm-up requests and the like), less the passport, which speaks of the source."""
    extras = pathlib.Path(source) / "assets.extra"
    if extras.is_dir():
        shutil.copytree(extras, pathlib.Path(output) / "assets.extra", dirs_exist_ok=True, ignore=_is_passport)


def _is_passport(folder, names):
    return [name for name in names if name == files.PASSPORT.name and pathlib.Path(folder).name == files.PASSPORT.parent.name]
