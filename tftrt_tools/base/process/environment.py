"""Environment variables, of this process and of those that it starts."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
from collections.abc import Iterator, Mapping, MutableMapping

ONEDNN = "TF_ENABLE_ONEDNN_OPTS"
# Releases whose graph optimizer gives a layer normalization of Keras 2 to oneDNN's kernel on a GPU, too, where that has none, and the call
# fails (github.com/tensorflow/tensorflow/issues/62607; seen with 2.17.1 on an H200, not with 2.14.1).
_FAULTY = (["2", "15"], ["2", "16"], ["2", "17"])
_DEVICES = ("/dev/nvidiactl", "/dev/dxg")
_NO_GPU = ("", "-1")


def of_tensorflow(env: MutableMapping[str, str]) -> None:
    """Switch oneDNN off for a process of such a release that sees a GPU, unless the user says otherwise. Args: env: {name: text}."""
    if env.get("CUDA_VISIBLE_DEVICES") not in _NO_GPU and faulty() and any(map(os.path.exists, _DEVICES)):
        env.setdefault(ONEDNN, "0")


@functools.cache
def faulty() -> bool:
    """Whether this Python's TensorFlow is such a release."""
    try:
        return importlib.metadata.version("tensorflow").split(".")[:2] in _FAULTY
    except importlib.metadata.PackageNotFoundError:
        return False


@contextlib.contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set {name: text} while the context lasts; afterwards each is as it was before."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, text in before.items():
            if text is None:
                del os.environ[name]
            else:
                os.environ[name] = text
