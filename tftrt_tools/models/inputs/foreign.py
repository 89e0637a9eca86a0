"""Files that hold no inputs, or inputs in a form that nothing here reads: what each is, and how to get inputs from it. No TensorFlow
here."""

import os
import pathlib
import zipfile

from tftrt_tools.base import errors

_AS_ROWS = "write its rows with np.savez(path, input_name=array), or yield them from module:function"
_UNPACK = "unpack it and name the folder"
_MODEL = "data are inputs: name pictures, arrays, TFRecords, a table or module:function"
# ending: (what it is, how to get inputs from it)
_ENDINGS = {
    ".pb": ("a graph or model of TensorFlow (.pb), and no data", _MODEL),
    ".pbtxt": ("a graph or model of TensorFlow (.pbtxt), and no data", _MODEL),
    ".onnx": ("an ONNX model, and no data", _MODEL),
    ".tflite": ("a TensorFlow Lite model, and no data", _MODEL),
    ".keras": ("a Keras model, and no data", _MODEL),
    ".h5": ("an HDF5 file: a Keras model, or data", f"a model is no data; of data {_AS_ROWS}"),
    ".hdf5": ("an HDF5 file: a Keras model, or data", f"a model is no data; of data {_AS_ROWS}"),
    ".pt": ("a file of PyTorch", _AS_ROWS),
    ".pth": ("a file of PyTorch", _AS_ROWS),
    ".safetensors": ("weights of a model, and no data", _MODEL),
    ".ckpt": ("a checkpoint of TensorFlow: variables, and no data", _MODEL),
    ".index": ("part of a checkpoint of TensorFlow: variables, and no data", _MODEL),
    ".meta": ("part of a checkpoint of TensorFlow: a graph, and no data", _MODEL),
    ".engine": ("an engine of TensorRT, and no data", _MODEL),
    ".plan": ("an engine of TensorRT, and no data", _MODEL),
    ".zip": ("an archive", _UNPACK),
    ".tar": ("an archive", _UNPACK),
    ".tgz": ("an archive", _UNPACK),
    ".gz": ("packed", _UNPACK),
    ".bz2": ("packed", _UNPACK),
    ".xz": ("packed", _UNPACK),
    ".7z": ("an archive", _UNPACK),
    ".pkl": ("pickled Python objects, which are not read as they can run code", _AS_ROWS),
    ".pickle": ("pickled Python objects, which are not read as they can run code", _AS_ROWS),
    ".mat": ("a file of MATLAB", _AS_ROWS),
    ".parquet": ("a Parquet table", _AS_ROWS),
    ".feather": ("an Arrow table", _AS_ROWS),
    ".arrow": ("an Arrow table", _AS_ROWS),
    ".xlsx": ("a spreadsheet", "save it as .csv"),
    ".xls": ("a spreadsheet", "save it as .csv"),
    ".json": ("JSON", _AS_ROWS),
    ".jsonl": ("JSON", _AS_ROWS),
    ".mp4": ("a video", f"save its pictures as .jpg or .png, or {_AS_ROWS}"),
    ".avi": ("a video", f"save its pictures as .jpg or .png, or {_AS_ROWS}"),
}
# Files that a model that takes strings may decode itself.
_ENCODED = {
    ending: (f"{what}, which is decoded nowhere here", f"{way}; inputs that take strings get the files' bytes")
    for what, way, endings in (
        (
            "a picture of another kind",
            "convert it to .jpg or .png",
            (".webp", ".tif", ".tiff", ".heic", ".avif", ".dcm", ".exr"),
        ),
        ("sound", _AS_ROWS, (".wav", ".mp3", ".flac", ".ogg", ".m4a")),
    )
    for ending in endings
}


def kind(path: str | os.PathLike[str]) -> tuple[str, str] | None:
    """(what the path is, how to get inputs from it) of a model, an archive or other data that is never rows; None if it may be rows."""
    path = pathlib.Path(path)
    if path.is_dir():
        return _folder(path)
    if ".data-" in path.name and "-of-" in path.name:
        return _ENDINGS[".index"]
    if not path.exists():
        return _ENDINGS[".ckpt"] if path.with_name(path.name + ".index").is_file() else None
    return _ENDINGS.get(path.suffix.lower())


def encoded(path: str | os.PathLike[str]) -> tuple[str, str] | None:
    """The same for a file that only a model with string inputs can take."""
    return _ENCODED.get(pathlib.Path(path).suffix.lower())


def _folder(path: pathlib.Path) -> tuple[str, str] | None:
    names = {child.name for child in path.iterdir()}
    if names & {"saved_model.pb", "saved_model.pbtxt"}:
        return "a SavedModel, and no data", _MODEL
    if "checkpoint" in names or any(name.endswith(".index") for name in names):
        return "a folder of checkpoints of TensorFlow: variables, and no data", _MODEL
    return None


def check(path: str | os.PathLike[str], said: str) -> None:
    """Args: said: the path as messages name it. Raises: UsageError for a file that can never be rows."""
    found = kind(path)
    if found:
        raise errors.UsageError(f"{said} is {found[0]}", found[1])


def is_arrays(path: str | os.PathLike[str]) -> bool:
    """Whether a file of any name has NumPy's format."""
    try:
        with open(path, "rb") as file:
            if file.read(6) == b"\x93NUMPY":
                return True
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith(".npy") for name in archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return False
