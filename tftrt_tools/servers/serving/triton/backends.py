"""Triton's backends: what runs a model there, which kinds of models each takes, and how its files are named."""

import dataclasses
from typing import Literal

from tftrt_tools.base import errors
from tftrt_tools.models.kinds.plan import document
from tftrt_tools.servers.serving.triton.servable import Kind, Servable

Name = Literal["tensorrt", "onnxruntime", "python", "tensorflow"]
NAMES: tuple[Name, ...] = ("tensorrt", "onnxruntime", "python", "tensorflow")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Backend:
    """One backend."""

    name: Name
    # What config.pbtxt calls it: its field "platform", or "backend" where that is "".
    platform: str
    # Kinds of models that it takes.
    kinds: tuple[Kind, ...]
    # What Triton looks for in a version where config.pbtxt names nothing else.
    file: str
    # What `cc_model_filenames` names in the folder of a kind of GPU: a file of it, or "" for the folder itself. None for a backend that
    # does not choose by it.
    file_of_kind: str | None = None
    # What it is in NVIDIA's container, for people.
    about: str


_BACKENDS = {
    backend.name: backend
    for backend in (
        Backend(
            name="tensorrt",
            platform="tensorrt_plan",
            kinds=("plan",),
            file=document.PLAN,
            file_of_kind=document.PLAN,
            about="TensorRT of Triton's container",
        ),
        Backend(
            name="onnxruntime",
            platform="onnxruntime_onnx",
            kinds=("onnx", "plan"),
            file=document.ONNX,
            about="ONNX Runtime of Triton's container",
        ),
        Backend(
            name="python",
            platform="",
            kinds=("onnx", "plan"),
            file="model.py",
            about="model.py in Triton's Python backend: a plan on a GPU, ONNX Runtime on a CPU",
        ),
        Backend(
            name="tensorflow",
            platform="tensorflow_savedmodel",
            kinds=("savedmodel",),
            file="model.savedmodel",
            file_of_kind="",
            about="TensorFlow of Triton's container",
        ),
    )
}
# What Triton takes where config.pbtxt names nothing else, of all backends.
FILES = frozenset(backend.file for backend in _BACKENDS.values())
_DEFAULTS: dict[Kind, Name] = {"plan": "tensorrt", "onnx": "onnxruntime", "savedmodel": "tensorflow"}


def choose(name: str, model: Servable) -> Backend:
    """The Backend of --triton_backend, "" for the one that fits the model. Raises: UsageError where it does not take the model."""
    backend = _BACKENDS[name or _DEFAULTS[model.kind]]  # type: ignore[index]
    if model.kind not in backend.kinds:
        mend = (
            "`tftrt export` makes an ONNX file of it, and `tftrt convert --backend=tensorrt` a plan"
            if model.kind == "savedmodel"
            else f"use --triton_backend={_DEFAULTS[model.kind]}, or python"
        )
        raise errors.UsageError(
            f"--triton_backend={backend.name} does not run {_TITLES[model.kind]}: {model.path}", mend
        )
    return backend


_TITLES: dict[Kind, str] = {"plan": "a plan directory", "onnx": "an ONNX file", "savedmodel": "a SavedModel"}
