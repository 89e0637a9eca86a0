"""Facts about a Keras file, read without TensorFlow: a zip archive (.keras) or HDF5."""

import dataclasses
import json
import pathlib
import zipfile
from typing import Any

from tftrt_tools import errors
from tftrt_tools.stack import installed, releases

_GROUPS_SHOWN = 3


@dataclasses.dataclass(frozen=True)
class Facts:
    """keras: version that wrote the file, "" where it does not say. code_layers: names of layers that run code when they are loaded."""

    keras: str
    code_layers: tuple[str, ...]


def read(path: pathlib.Path) -> Facts:
    """Facts of a file that this Keras may be able to load. Raises: TftrtError for a file that it cannot load: damaged, of another
    program, only weights, or written by a newer Keras."""
    try:
        written_by, config = _of_archive(path) if zipfile.is_zipfile(path) else _of_hdf5(path)
    except (OSError, KeyError, ValueError, RuntimeError, zipfile.BadZipFile) as error:
        raise errors.TftrtError(f"not a Keras model file: {path} is damaged or of another program ({' '.join(str(error).split())})",
                                "copy it again; a whole one is what model.save('name.keras') writes") from None
    _check_version(path, written_by)
    return Facts(written_by, tuple(_code_layers(config)))


def _of_archive(path: pathlib.Path) -> tuple[str, object]:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        written_by = json.loads(archive.read("metadata.json")).get("keras_version", "") if "metadata.json" in names else ""
        return written_by, json.loads(archive.read("config.json"))


def _of_hdf5(path: pathlib.Path) -> tuple[str, object]:
    import h5py

    with h5py.File(path, "r") as file:
        config, written_by = _text(file.attrs.get("model_config")), _text(file.attrs.get("keras_version"))
        if not config:
            raise _without_architecture(path, file)
    return written_by, json.loads(config)


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")


def _without_architecture(path: pathlib.Path, file: Any) -> errors.TftrtError:
    """The error for an HDF5 file without a whole model. Args: file: h5py.File."""
    groups = list(file)
    # Keras 2 writes the layers' names to an attribute; Keras 3 has groups of its own.
    if "layer_names" in file.attrs or "_layer_checkpoint_dependencies" in groups or {"layers", "vars"} <= set(groups):
        return errors.TftrtError(f"{path} holds weights only, no architecture", "build the model in Python, call load_weights with this "
                                 "file, and give what its save('name.keras') writes")
    shown = ", ".join(groups[:_GROUPS_SHOWN]) + (", …" if len(groups) > _GROUPS_SHOWN else "")
    return errors.TftrtError(f"{path} is an HDF5 file, and no Keras model" + (f": it holds {shown}" if groups else ": it is empty"),
                             "give what model.save('name.keras') writes, or a SavedModel directory")


def _check_version(path: pathlib.Path, written_by: str) -> None:
    """Keras 3 names layers, shapes and types in ways that Keras 2 does not know: no file of it can be loaded. Raises: TftrtError."""
    here = installed.version_of("keras")
    written, ours = releases.minor(written_by), releases.minor(here)
    if written and ours and written[0] > ours[0]:
        raise errors.TftrtError(f"{path} was written by Keras {written_by}; this Keras is {here}, which cannot read it",
                                "load it there (keras.saving.load_model), export it with model.export('DIR'), and give DIR; for an ONNX "
                                "file, run `tftrt export` there (the extra `export-tensorflow`)")


def _code_layers(config: object) -> list[str]:
    if isinstance(config, dict):
        # "Lambda" is the layer; "__lambda__" is byte code in any other layer's configuration.
        inner = config.get("config")
        name = inner.get("name", "lambda") if isinstance(inner, dict) else "lambda"
        here = [str(name)] if config.get("class_name") in ("Lambda", "__lambda__") else []
        return here + [name for value in config.values() for name in _code_layers(value)]
    if isinstance(config, list):
        return [name for value in config for name in _code_layers(value)]
    return []
