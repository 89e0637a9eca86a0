"""Facts about a Keras file, read without TensorFlow: a zip archive (.keras) or HDF5."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import zipfile
from typing import IO, TYPE_CHECKING

from tftrt_tools.base import errors
from tftrt_tools.base.files import archives, documents
from tftrt_tools.base.stack import installed, releases

if TYPE_CHECKING:
    import h5py

_GROUPS_SHOWN = 3
# A configuration holds the words of text layers; a model in a model is some levels deeper.
_MOST_CONFIG, _MOST_METADATA, _MOST_LEVELS = 256 << 20, 1 << 20, 400
# Weights are packed some times smaller at most, and arrays of zeros that no chunk holds are not weights.
_MOST_RATIO, _UNPACKED_BYTES = 100, 1 << 30


@dataclasses.dataclass(frozen=True)
class Facts:
    """keras: version that wrote the file, "" where it does not say. config: what Keras makes the model from."""

    keras: str
    config: object


def read(path: pathlib.Path) -> Facts:
    """Facts of a file that this Keras may be able to load. Raises: TftrtError for a file that it cannot load: damaged, of another
    program, only weights, or written by a newer Keras; UsageError for one that would read other files."""
    try:
        written_by, config = _of_archive(path) if is_archive(path) else _of_hdf5(path)
    except (OSError, RuntimeError, NotImplementedError, zipfile.BadZipFile, *documents.MISREAD) as error:
        raise errors.TftrtError(
            f"not a Keras model file: {path} is damaged or of another program ({documents.reason(error)})",
            "copy it again; a whole one is what model.save('name.keras') writes",
        ) from None
    _check_version(path, written_by)
    return Facts(written_by, config)


def is_archive(path: pathlib.Path) -> bool:
    """Whether Keras takes the file for an archive. It goes by the name, too: an HDF5 file may end as an archive does."""
    return str(path).endswith(".keras") and zipfile.is_zipfile(path)


def _of_archive(path: pathlib.Path) -> tuple[str, object]:
    with zipfile.ZipFile(path) as archive:
        archives.check(archive)
        written_by = ""
        if "metadata.json" in archive.namelist():
            written_by = _version(
                documents.parse_object(archives.read(archive, "metadata.json", _MOST_METADATA)).get("keras_version")
            )
        config = documents.parse_object(archives.read(archive, "config.json", _MOST_CONFIG), _MOST_LEVELS)
        for name in archive.namelist():
            if name.endswith(".h5"):
                with archive.open(name) as member:
                    _check_weights(path, member)
    # `load_model` does not compile the model, and drops this.
    return written_by, {key: value for key, value in config.items() if key != "compile_config"}


def _of_hdf5(path: pathlib.Path) -> tuple[str, object]:
    import h5py

    with h5py.File(path, "r") as file:
        config, written_by = _text(file.attrs.get("model_config")), _text(file.attrs.get("keras_version"))
        if not config:
            raise _without_architecture(path, file)
    with open(path, "rb") as opened:
        _check_weights(path, opened)
    return _version(written_by), documents.parse_object(config, _MOST_LEVELS)


def _check_weights(path: pathlib.Path, opened: IO[bytes]) -> None:
    """Refuse HDF5 whose weights lie in other files, which a link or an external dataset may name: any file that the user can read would
    become a weight. Raises: UsageError; ValueError where they unpack to far more than the file holds."""
    import h5py

    unpacked, stored = 0, 0
    with h5py.File(opened, "r") as file:
        waiting = [file["/"]]
        seen = set()
        while waiting:
            group = waiting.pop()
            for name in group:
                link = group.get(name, getlink=True)
                if isinstance(link, h5py.ExternalLink):
                    raise _elsewhere(path, f"{group.name}/{name}", link.filename)
                member = group.get(name)
                if isinstance(member, h5py.Dataset):
                    if member.external or member.is_virtual:
                        raise _elsewhere(path, member.name, member.external[0][0] if member.external else "others")
                    unpacked, stored = unpacked + member.nbytes, stored + member.id.get_storage_size()
                elif isinstance(member, h5py.Group) and (place := h5py.h5o.get_info(member.id).addr) not in seen:
                    seen.add(place)
                    waiting.append(member)
    if unpacked > max(_UNPACKED_BYTES, _MOST_RATIO * stored):
        raise ValueError(f"its weights are {stored / 1e6:.3g} MB, and would unpack to {unpacked / 1e9:.3g} GB")


def _elsewhere(path: pathlib.Path, name: str, other: str) -> errors.UsageError:
    return errors.UsageError(
        f"{path} takes {name} from another file ({other})",
        "a model is one file: give what model.save('name.keras') writes",
    )


def _version(value: object) -> str:
    if not isinstance(value, (str, type(None))):
        raise TypeError("its keras_version is no text")
    return value or ""


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")


def _without_architecture(path: pathlib.Path, file: h5py.File) -> errors.TftrtError:
    """The error for an HDF5 file without a whole model."""
    groups = list(file)
    # Keras 2 writes the layers' names to an attribute; Keras 3 has groups of its own.
    if "layer_names" in file.attrs or "_layer_checkpoint_dependencies" in groups or {"layers", "vars"} <= set(groups):
        return errors.TftrtError(
            f"{path} holds weights only, no architecture",
            "build the model in Python, call load_weights with this file, and give what its save('name.keras') writes",
        )
    shown = ", ".join(groups[:_GROUPS_SHOWN]) + (", …" if len(groups) > _GROUPS_SHOWN else "")
    return errors.TftrtError(
        f"{path} is an HDF5 file, and no Keras model" + (f": it holds {shown}" if groups else ": it is empty"),
        "give what model.save('name.keras') writes, or a SavedModel directory",
    )


def _check_version(path: pathlib.Path, written_by: str) -> None:
    """Keras 3 names layers, shapes and types in ways that Keras 2 does not know: no file of it can be loaded. Raises: TftrtError."""
    written, here = releases.minor(written_by), releases.minor(ours())
    if written and here and written[0] > here[0]:
        raise _of_another(path, written_by)


def legacy() -> bool:
    """Whether the user wants tf.keras to be tf_keras, which is Keras 2, where TensorFlow has Keras 3."""
    asked = os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True")
    return asked and not (installed.version_of("keras") or "").startswith("2.")


def ours() -> str:
    """The version of the Keras that reads files here, "" for none."""
    return installed.version_of("tf_keras" if legacy() else "keras") or ""


def of_another_major(path: pathlib.Path, written_by: str) -> bool:
    """Whether no consent helps: an archive of another major version is not read. HDF5 of Keras 2 may be."""
    written, here = releases.minor(written_by), releases.minor(ours())
    return bool(is_archive(path) and written and here and written[0] != here[0])


def of_another(path: pathlib.Path, written_by: str) -> errors.TftrtError | None:
    """The error for a file that failed to load, where its version explains that; a Keras loads most files of older ones, and some of newer.

    Args: written_by: Facts.keras. Returns: None where this Keras wrote the file, or an older one of the same major version.
    """
    written, here = releases.minor(written_by), releases.minor(ours())
    if not written or not here or written == here or (written[0] == here[0] and written < here):
        return None
    return _of_another(path, written_by)


def _of_another(path: pathlib.Path, written_by: str) -> errors.TftrtError:
    if written_by.startswith("2."):
        mend = "load it there (tf.keras.models.load_model), and give the directory that model.save('DIR') writes"
    else:
        mend = (
            "load it there (keras.saving.load_model), export it with model.export('DIR'), and give DIR; for an ONNX "
            "file, run `tftrt export` there (the extra `export-tensorflow`)"
        )
    return errors.TftrtError(
        f"{path} was written by Keras {written_by}; this Keras is {ours()}, which cannot read it", mend
    )
