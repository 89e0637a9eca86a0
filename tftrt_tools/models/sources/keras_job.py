"""Exporting a Keras file to a SavedModel, in a child process (`job`)."""

from __future__ import annotations

import pathlib
import zipfile
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tftrt_tools.base import errors, op_libraries
from tftrt_tools.base.process import interpreter, progress
from tftrt_tools.base.stack import installed
from tftrt_tools.models.sources.job import keras_code, keras_file
from tftrt_tools.models.sources.opened import KerasExported, KerasRequest

if TYPE_CHECKING:
    import tensorflow as tf

_NAMED = 8
_OWN_LAYERS = "name your own layers with --custom_objects=module:dict"


def job(request: KerasRequest) -> KerasExported:
    """The job opened.export_keras."""
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
    if (installed.version_of("keras") or "").startswith("2."):
        tf.saved_model.save(model, request.output)
    else:
        _save(
            model, _signature(model) if getattr(model, "inputs", None) else _of_subclass(source, model), request.output
        )
    return KerasExported(class_name=type(model).__name__, parameters=int(model.count_params()))


def _check_names(source: pathlib.Path, facts: keras_file.Facts, own: set[str]) -> None:
    """Refuse what is neither on the list nor the user's own. Raises: UsageError, which names it; TftrtError for names of another Keras."""
    told = keras_code.found(facts.config, own)
    if told:
        other = keras_file.of_another(source, facts.keras)
        if other and all(problem.of_keras for problem in told):
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

    specs = {spec.name: tf.TensorSpec(spec.shape, spec.dtype, name=spec.name) for spec in model.inputs}

    def serve(feed: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        tensors = [feed[spec.name] for spec in model.inputs]
        outputs = model(tensors[0] if len(tensors) == 1 else tensors, training=False)
        return (
            outputs
            if isinstance(outputs, dict)
            else dict(zip(_output_names(model), tf.nest.flatten(outputs), strict=True))
        )

    return tf.function(serve).get_concrete_function(specs)


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


def _output_names(model: tf.keras.Model) -> list[str]:
    """As Keras 2 calls them: after the layers that give them. A Sequential of Keras 3 does not say."""
    names = getattr(model, "output_names", [model.layers[-1].name])
    return [name if names.count(name) == 1 else f"{name}_{place}" for place, name in enumerate(names)]


def _mend(text: str) -> str:
    if "Unknown" in text or "Could not locate class" in text or "custom_objects" in text or "registered" in text:
        return _OWN_LAYERS
    return f"check that keras.models.load_model accepts it (Keras {installed.version_of('keras')})"


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
