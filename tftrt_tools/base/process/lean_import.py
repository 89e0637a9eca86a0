"""Imports TensorFlow without Keras and without packages that only Keras needs, because commands do not use them."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Iterator, Sequence

# TensorFlow skips each of these if it is not installed.
_LEFT_OUT = frozenset({"keras", "scipy", "h5py"})


@contextlib.contextmanager
def tensorflow() -> Iterator[None]:
    """An import of TensorFlow in this block leaves out Keras and what only Keras needs, a fifth of its time. They are imported when
    used. Code that needs Keras without naming it, such as loading a SavedModel with an optimizer, has to import it."""
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds these modules, because TensorFlow asks for their folders, but does not load them before TensorFlow is imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _LEFT_OUT or not _begun("tensorflow"):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None:
            spec.loader = _Loader()
        return spec


class _Loader(importlib.abc.Loader):
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        raise ModuleNotFoundError(f"{spec.name} is imported later", name=spec.name)


def _begun(name: str) -> bool:
    """Whether the import of a module has begun and not ended."""
    return bool(getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False))
