"""TensorFlow imported without what it imports only for its Keras, which commands do not use."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Iterator, Sequence

# TensorFlow passes over each of them where it is not installed.
_LEFT_OUT = frozenset({"keras", "scipy", "h5py"})


@contextlib.contextmanager
def tensorflow() -> Iterator[None]:
    """An import of TensorFlow in this block leaves out Keras and what only Keras needs, a fifth of its time. They are imported when used.
    What needs Keras without naming it, as a SavedModel with an optimizer does, imports it itself."""
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds them where they are, since TensorFlow asks for their folder, and does not load them before TensorFlow is there."""

    def find_spec(self, fullname: str, path: Sequence[str] | None,
                  target: types.ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _LEFT_OUT or not _begun("tensorflow"):
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if found is not None:
            found.loader = _Loader()
        return found


class _Loader(importlib.abc.Loader):
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        raise ModuleNotFoundError(f"{spec.name} is imported later", name=spec.name)


def _begun(name: str) -> bool:
    """Whether the import of a module has begun and not ended."""
    return bool(getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False))
