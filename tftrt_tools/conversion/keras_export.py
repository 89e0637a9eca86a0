"""Exporting a Keras file to a SavedModel, in a child process (`job`)."""

import importlib
import json
import pathlib
import sys
import zipfile

from tftrt_tools import errors, progress

SUFFIXES = (".keras", ".h5", ".hdf5")


def is_keras_file(path):
    """Whether `path` is a file with a Keras suffix."""
    path = pathlib.Path(path)
    return path.is_file() and path.suffix.lower() in SUFFIXES


def job(request):
    """Export a Keras file.

    Args: request: {"source": file, "output": directory to write, "unsafe": bool, "custom_objects": "module:dict" or ""}.
    Returns: {"class": the model's class, "parameters": count}.
    Raises: TftrtError, UsageError.
    """
    source = pathlib.Path(request["source"])
    lambdas = _code_layers(source)
    if lambdas and not request["unsafe"]:
        raise errors.UsageError(f"{source} has layers that run code when loaded ({', '.join(lambdas)})",
                                "if you trust the file, add --allow_unsafe_deserialization")
    progress.say("loading the Keras model")
    import tensorflow as tf

    custom = _custom_objects(request["custom_objects"])
    try:
        model = tf.keras.models.load_model(str(source), compile=False, safe_mode=not request["unsafe"], custom_objects=custom)
    except (ValueError, TypeError, OSError, KeyError, AttributeError, zipfile.BadZipFile) as error:
        text = " ".join(str(error).split())
        raise errors.TftrtError(f"Keras cannot load {source}: {text[:300]}", _mend(text)) from None
    progress.say("exporting the Keras model")
    tf.saved_model.save(model, request["output"])
    return {"class": type(model).__name__, "parameters": int(model.count_params())}


def _mend(text):
    if "Unknown" in text or "Could not locate class" in text or "custom_objects" in text or "registered" in text:
        return "name your own layers with --custom_objects=module:dict"
    return "check that tf.keras.models.load_model accepts it (Keras 2.14)"


def _code_layers(path):
    """Names of layers in the file's configuration that carry code. A file without a readable configuration has none to find."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                config = json.loads(archive.read("config.json"))
        else:
            import h5py

            with h5py.File(path, "r") as file:
                raw = file.attrs.get("model_config")
            config = json.loads(raw.decode() if isinstance(raw, bytes) else raw) if raw else {}
    except (OSError, KeyError, ValueError) as error:
        raise errors.TftrtError(f"not a Keras model file: {path} ({' '.join(str(error).split())})",
                                "save the model with model.save('name.keras'), or give a SavedModel directory") from None
    return _find_lambdas(config)


def _find_lambdas(config):
    if isinstance(config, dict):
        # "Lambda" is the layer; "__lambda__" is byte code in any other layer's configuration.
        inner = config.get("config")
        name = inner.get("name", "lambda") if isinstance(inner, dict) else "lambda"
        here = [str(name)] if config.get("class_name") in ("Lambda", "__lambda__") else []
        return here + [name for value in config.values() for name in _find_lambdas(value)]
    if isinstance(config, list):
        return [name for value in config for name in _find_lambdas(value)]
    return []


def _custom_objects(reference):
    if not reference:
        return None
    module_name, colon, attribute = reference.partition(":")
    if not colon:
        raise errors.UsageError(f"--custom_objects={reference} is not of the form module:dict", "e.g. --custom_objects=my_layers:CUSTOM")
    sys.path.insert(0, "")
    try:
        objects = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise errors.UsageError(f"--custom_objects={reference}: {error}", "the module must be importable from here") from None
    if not isinstance(objects, dict):
        raise errors.UsageError(f"--custom_objects={reference} is no dict", "map each class name to its class")
    return objects
