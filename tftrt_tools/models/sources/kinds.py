"""What kind of model a path names, told by its name and place; nothing is loaded. No TensorFlow here."""

import pathlib
import re

from tftrt_tools.base import errors
from tftrt_tools.models.savedmodel import files

SAVED_MODEL, KERAS, GRAPH, CHECKPOINT = "SavedModel", "Keras file", "graph", "checkpoint"
KERAS_SUFFIXES = (".keras", ".h5", ".hdf5")
GRAPH_SUFFIXES = (".pb", ".pbtxt")
# What can be given, for people.
FORMS = ("a SavedModel directory", "a Keras file (.keras, .h5)", "a frozen graph (.pb)", "a checkpoint")
_HDF5 = b"\x89HDF\r\n\x1a\n"
_CHECKPOINT_FILE = "checkpoint"
_PART = re.compile(r"\.(index|meta|data-\d+-of-\d+)$")
_ENGINE = ("a TensorRT engine, built already", "give the TensorFlow model that it was built from")
_TORCH = (
    "a PyTorch file, which runs the code that it names when it is loaded (a pickle, or TorchScript)",
    "torch.export.save(torch.export.export(module.eval(), inputs), 'model.pt2') writes a program, of which `tftrt export` makes an "
    "ONNX file for TensorRT",
)
_WEIGHTS = (
    "a file of weights, without the computation",
    "build the model in Python, load them, and give what model.save(DIR) writes",
)
_PART_ALONE = (
    "one file of a checkpoint, and its .index is not beside it",
    "copy all of its files: .index, .data-… and .meta",
)
_ARCHIVE = ("an archive", "unpack it, and give the SavedModel directory that is in it")
# What to do with an ONNX file where TF-TRT cannot take it.
WITH_ONNX = (
    "`tftrt export` prepares it for TensorRT (opset, FP16, INT8 with --calibration_data), and `tftrt convert --backend=tensorrt` "
    "builds it"
)
# Other files, by their suffix: (what they are, how to get a model from them).
_FOREIGN = {
    ".onnx": ("an ONNX model, and TF-TRT takes TensorFlow models", WITH_ONNX),
    ".tflite": (
        "a TensorFlow Lite model",
        "it cannot be turned back; give the SavedModel or the Keras file that it was made from",
    ),
    ".pt2": (
        "a PyTorch program",
        "TF-TRT takes TensorFlow models; `tftrt export` makes an ONNX file of it, which TensorRT builds",
    ),
    ".pt": _TORCH,
    ".pth": _TORCH,
    ".torchscript": _TORCH,
    ".engine": _ENGINE,
    ".plan": _ENGINE,
    ".trt": _ENGINE,
    ".safetensors": _WEIGHTS,
    ".npz": _WEIGHTS,
    ".npy": _WEIGHTS,
    ".json": (
        "a JSON file: a Keras architecture without its weights",
        "build the model in Python (model_from_json), load its weights, and give what model.save('name.keras') writes",
    ),
    ".meta": _PART_ALONE,
    ".index": _PART_ALONE,
    ".zip": _ARCHIVE,
    ".gz": _ARCHIVE,
    ".tgz": _ARCHIVE,
    ".tar": _ARCHIVE,
}


class UnknownFile(errors.UsageError):
    """A file of an unknown kind."""


def resolved(path: str) -> str:
    """The path that stands for the model where `path` is one of its files.

    saved_model.pb stands for its directory; a part of a checkpoint for the checkpoint's prefix; the file `checkpoint`, or a directory that
    holds one and no SavedModel, for the prefix that it calls the latest. Every other path is its own.
    """
    place = pathlib.Path(path)
    if place.is_file():
        if place.name in ("saved_model.pb", "saved_model.pbtxt"):
            return str(place.parent)
        if place.name == _CHECKPOINT_FILE:
            return _latest(place) or path
        return (
            _PART.sub("", path) if _PART.sub("", place.name) and files.checkpoint_parts(_PART.sub("", path)) else path
        )
    if place.is_dir() and not files.is_saved_model(place):
        return _latest(place / _CHECKPOINT_FILE) or path
    return path


def kind(path: str) -> str:
    """SAVED_MODEL (also for a missing path: files.check says what is wrong), KERAS, GRAPH or CHECKPOINT. Args: path: of `resolved`.

    Raises: UsageError for a file of another kind, with the way from there to a model; UnknownFile for an unknown kind.
    """
    place = pathlib.Path(path)
    if place.is_dir():
        return CHECKPOINT if (place / ".index").is_file() and not files.is_saved_model(place) else SAVED_MODEL
    if not place.is_file():
        if files.checkpoint_parts(path):
            return CHECKPOINT
        if place.suffix.lower() in (*KERAS_SUFFIXES, *GRAPH_SUFFIXES) and not place.exists():
            raise errors.UsageError(f"no such file: {path}", f"give {', '.join(FORMS[:-1])} or {FORMS[-1]}")
        return SAVED_MODEL
    suffix = place.suffix.lower()
    if suffix in KERAS_SUFFIXES or not suffix and _begins_with(place, _HDF5):
        return KERAS
    if suffix in GRAPH_SUFFIXES:
        return GRAPH
    if suffix in _FOREIGN:
        what, mend = _FOREIGN[suffix]
        raise errors.UsageError(f"not a model for TF-TRT: {path} is {what}", mend)
    raise UnknownFile(f"not a SavedModel: {path} is a file", f"give {', '.join(FORMS[:-1])} or {FORMS[-1]}")


def _begins_with(place: pathlib.Path, magic: bytes) -> bool:
    with open(place, "rb") as file:
        return file.read(len(magic)) == magic


def _latest(place: pathlib.Path) -> str:
    """The prefix that a `checkpoint` file calls the latest, "" if it is missing. If its path is of the machine that trained the model,
    it is looked for beside the file."""
    if not place.is_file():
        return ""
    match = re.search(r'^model_checkpoint_path:\s*"(.*)"', place.read_text(errors="replace"), re.MULTILINE)
    named = pathlib.PurePosixPath(match[1]) if match else pathlib.PurePosixPath("")
    for prefix in (place.parent / named, place.parent / named.name):
        if named.name and files.checkpoint_parts(prefix):
            return str(prefix)
    return ""
