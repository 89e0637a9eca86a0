"""Exporting a Keras file to a SavedModel, in a child process (`job`)."""

from __future__ import annotations

import contextlib
import pathlib
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tftrt_tools.base import errors, op_libraries
from tftrt_tools.base.process import interpreter, progress
from tftrt_tools.models.sources import tensors
from tftrt_tools.models.sources.job import keras_code, keras_file
from tftrt_tools.models.sources.opened import KerasExported, KerasRequest

if TYPE_CHECKING:
    import tensorflow as tf

_NAMED = 8
# What was raised in a layer; before and behind it Keras says in which.
_IN_BOLD = re.compile(r"\x1b\[1m(.*?)\x1b\[0m", re.DOTALL)
_OWN_LAYERS = "name your own layers with --custom_objects=module:dict"


def job(request: KerasRequest) -> KerasExported:
    """The job opened.export_keras."""
    _check_legacy()
    source = pathlib.Path(request.source)
    facts = keras_file.read(source)
    # The user's own code may run before the file is looked at: it says which names are the user's.
    custom = _custom_objects(request.custom_objects)
    if not request.unsafe:
        _check_names(source, facts, _own_names(custom))
    progress.say("loading the Keras model")
    import tensorflow as tf

    op_libraries.load()
    try:
        model = tf.keras.models.load_model(
            str(source), compile=False, safe_mode=not request.unsafe, custom_objects=custom
        )
    except (ValueError, TypeError, OSError, KeyError, AttributeError, zipfile.BadZipFile) as error:
        text = " ".join(str(error).split())
        told = errors.TftrtError(f"Keras cannot load {source}: {text[:300]}", _mend(text))
        raise keras_file.of_another(source, facts.keras) or told from None
    progress.say("exporting the Keras model")
    with _told(source):
        if keras_file.ours().startswith("2."):
            tf.saved_model.save(model, request.output)
        else:
            signature = _signature(model) if getattr(model, "inputs", None) else _of_subclass(source, model)
            _save(model, signature, request.output)
    return KerasExported(class_name=type(model).__name__, parameters=int(model.count_params()))


@contextlib.contextmanager
def _told(source: pathlib.Path) -> Iterator[None]:
    """Raise TftrtError where a model cannot be traced and saved: the layers' own code runs then."""
    import tensorflow as tf

    try:
        yield
    except (errors.TftrtError, OSError):
        raise
    except tf.errors.OpError as error:
        raise errors.TftrtError(
            f"{source} was not written as a SavedModel: {errors.first_line(error.message)}",
            "free space for temporary files, or name another place with TMPDIR",
        ) from None
    except Exception as error:
        said = _IN_BOLD.findall(str(error)) or [str(error)]
        raise errors.TftrtError(
            f"Keras cannot write {source} as a SavedModel: {' '.join(said[-1].split())[:300]}",
            "a call has to give tensors, or a flat list or dict of them; layers and inputs need plain names that differ; "
            "model.export('DIR') says whether Keras alone can write it: if so, give DIR",
        ) from None


def _check_legacy() -> None:
    """Refuse TF_USE_LEGACY_KERAS without tf_keras: each use of tf.keras would end with an ImportError. Raises: TftrtError."""
    if keras_file.legacy() and not keras_file.ours():
        raise errors.TftrtError(
            "TF_USE_LEGACY_KERAS is set: TensorFlow asks for tf_keras, which is not installed",
            "unset it: Keras 3 reads the .h5 files of Keras 2, too",
        )


def _check_names(source: pathlib.Path, facts: keras_file.Facts, own: set[str]) -> None:
    """Refuse what is neither on the list nor the user's own. Raises: UsageError, which names it; TftrtError for names of another Keras."""
    told = keras_code.found(facts.config, own)
    if told:
        other = keras_file.of_another(source, facts.keras)
        # What another major version wrote is not read here, whatever is allowed.
        if other and (all(problem.of_keras for problem in told) or keras_file.of_another_major(source, facts.keras)):
            raise other
        texts = ", ".join(problem.text for problem in told[:_NAMED]) + (
            f" and {len(told) - _NAMED} more" if len(told) > _NAMED else ""
        )
        if all(problem.unknown for problem in told):
            raise errors.TftrtError(f"Keras cannot load {source}: it knows no {texts}", _OWN_LAYERS)
        raise errors.UsageError(
            f"{source} has layers that run code when loaded, or may: {texts}",
            f"if you trust the file, add --allow_unsafe_deserialization; {_OWN_LAYERS}",
        )


def _own_names(custom: dict[str, object] | None) -> set[str]:
    """The names of the user's classes and functions, and of those that the user's module has registered with Keras."""
    if custom is None:
        return set()
    from tensorflow.keras import utils

    own = {
        name
        for name, registered in utils.get_custom_objects().items()
        if not getattr(registered, "__module__", "keras").startswith("keras.")
    }
    return own | set(custom)


def _save(model: tf.keras.Model, signature: tf.types.experimental.ConcreteFunction, output: str) -> None:
    """Save a model of Keras 3.

    Saved with it would be copies of its variables; a session, which is how TensorFlow Serving loads, does not find the values of those that
    the signature reads. So these themselves are saved.
    """
    import tensorflow as tf

    root = tf.Module()
    root.read = list(signature.variables)
    resource = tf.saved_model.experimental.TrackableResource
    root.tables = [one for one in tf.train.TrackableView(model).descendants() if isinstance(one, resource)]
    tf.saved_model.save(root, output, signatures={"serving_default": signature})


def _signature(model: tf.keras.Model) -> tf.types.experimental.ConcreteFunction:
    """The signature of a model of Keras 3 with its names, which Keras 3 does not give to TensorFlow."""
    import tensorflow as tf
    from keras import tree

    # A Sequential does not have the first of these.
    given = model.input if hasattr(model, "_inputs_struct") else model.inputs[0]
    inputs = tree.flatten(given)
    specs = {spec.name: tf.TensorSpec(spec.shape, spec.dtype, name=spec.name) for spec in inputs}

    named: Callable[[Any, Any], dict[str, Any]] = tf.autograph.experimental.do_not_convert(_named)

    def serve(feed: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        packed = tree.pack_sequence_as(given, [feed[spec.name] for spec in inputs])
        return named(model, model(packed, training=False))

    return tf.function(serve).get_concrete_function(specs)


def _named(model: tf.keras.Model, outputs: Any) -> dict[str, tf.Tensor]:
    """The outputs of a model of Keras 3, flat and with names that differ. Those of a dict are called after the keys on their way, joined by
    "_"; a slash would separate a signature from its output."""
    from keras import tree

    if isinstance(outputs, dict):
        placed = tree.flatten_with_path(outputs)
        names = ["_".join(map(str, path)).replace("/", "_") for path, _ in placed]
        return dict(zip(tensors.unique(names), (tensor for _, tensor in placed), strict=True))
    flat = tree.flatten(outputs)
    return dict(zip(_output_names(model, len(flat)), flat, strict=True))


def _of_subclass(source: pathlib.Path, model: tf.keras.Model) -> tf.types.experimental.ConcreteFunction:
    """The signature that tf.saved_model.save gives a subclass of Keras 3: it has no inputs of its own, but the shapes of its first call.
    Raises: TftrtError where Keras has none, as for several arguments."""
    try:
        return model._default_save_signature.get_concrete_function()
    except (AttributeError, TypeError, ValueError) as error:
        raise errors.TftrtError(
            f"Keras does not say what {type(model).__name__} of {source} takes: {' '.join(str(error).split())[:300]}",
            "save it with model.export('DIR', input_signature=[…]), and give that directory",
        ) from None


def _output_names(model: tf.keras.Model, outputs: int) -> list[str]:
    """After the layers that give them; a layer that gives several gets numbers (dense_0), where Keras 2 counts on (dense, dense_1). A
    Sequential of Keras 3 does not say."""
    return tensors.unique(getattr(model, "output_names", [model.layers[-1].name] * outputs))


def _mend(text: str) -> str:
    if "Unknown" in text or "Could not locate class" in text or "custom_objects" in text or "registered" in text:
        return _OWN_LAYERS
    return f"check that keras.models.load_model accepts it (Keras {keras_file.ours()})"


def _custom_objects(reference: str) -> dict[str, object] | None:
    if not reference:
        return None
    module_name, colon, attribute = reference.partition(":")
    if not colon:
        raise errors.UsageError(
            f"--custom_objects={reference} is not of the form module:dict", "e.g. --custom_objects=my_layers:CUSTOM"
        )
    try:
        objects = getattr(interpreter.own_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise errors.UsageError(
            f"--custom_objects={reference}: {error}", "the module must be importable from here"
        ) from None
    if not isinstance(objects, dict):
        raise errors.UsageError(f"--custom_objects={reference} is no dict", "map each class name to its class")
    return objects
