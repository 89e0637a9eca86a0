"""The back ends that are known. Commands and studies ask here, and know none by name.

    backend = backends.named("tensorrt")
    settings = backend.check(backend.settings(precision_mode="FP16", shapes="x:1x8"), protocol.Given())
    done = backend.make(protocol.Work(source=source, output="model_plan", settings=settings))

A package adds one by an entry point of GROUP that names an object of `protocol.Backend`; a program by `register`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
from collections.abc import Iterator, Mapping
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.base.choices import SERVERS, Server
from tftrt_tools.models.backends.protocol import AnyBackend, Served
from tftrt_tools.models.kinds import table
from tftrt_tools.tensorrt.plans.backend import TENSORRT
from tftrt_tools.tftrt.conversion.backend import TFTRT

GROUP = "tftrt_tools.backends"

# The first is the default.
_OWN: tuple[AnyBackend, ...] = (TFTRT, TENSORRT)
_registered: list[AnyBackend] = []


def known() -> tuple[AnyBackend, ...]:
    """All of them, the default first."""
    return (*_OWN, *_installed(), *_registered)


def names() -> tuple[str, ...]:
    """Their names, as --backend takes them."""
    return tuple(one.name for one in known())


def default() -> AnyBackend:
    """The one that is taken where none is named."""
    return _OWN[0]


def named(name: str) -> AnyBackend:
    """The back end of a name. Raises: UsageError."""
    for one in known():
        if one.name == name:
            return one
    raise errors.UsageError(f"{name!r} is no backend", "known: " + ", ".join(names()))


def versions(name: str) -> dict[str, Mapping[str, str]]:
    """{"versions": Backend.versions} for the key of what was measured; {} where a back end has none of its own."""
    found = named(name).versions()
    return {"versions": dict(found)} if found else {}


def servers(name: str) -> tuple[Server, ...]:
    """What serves the models of a back end, of what is known here; () where it names no server."""
    found = named(name)
    return tuple(one for one in SERVERS if one in found.servers) if isinstance(found, Served) else ()


def of_made(model: str) -> AnyBackend | None:
    """The back end that made a model and can rebuild it; None where none says so."""
    return next((one for one in reversed(known()) if one.made(model)), None)


def described(model: str) -> str:
    """What a path names, for messages: "an ONNX file", "an ONNX file that onnxruntime made"."""
    made_by = of_made(model)
    return table.noun(model) + (f" that {made_by.name} made" if made_by else "")


def of_manifest(manifest: Mapping[str, Any] | None) -> str:
    """The name of the back end that wrote a manifest; the default one does not name itself."""
    return str((manifest or {}).get("backend", default().name))


@contextlib.contextmanager
def register(backend: AnyBackend) -> Iterator[None]:
    """In this block `backend` is known, too. Raises: ValueError for a name that is taken."""
    if backend.name in names():
        raise ValueError(f"there is a backend {backend.name!r} already")
    _registered.append(backend)
    try:
        yield
    finally:
        _registered.remove(backend)


@functools.cache
def _installed() -> tuple[AnyBackend, ...]:
    """Those of other packages. Raises: TftrtError for one that cannot be loaded, or has a name that is taken."""
    found: list[AnyBackend] = []
    for point in importlib.metadata.entry_points(group=GROUP):
        try:
            one: AnyBackend = point.load()
            name = one.name
        except Exception as error:
            raise errors.TftrtError(
                f"the back end {point.name} of {point.value} cannot be loaded: {error}", "fix or remove its package"
            ) from error
        if name in (other.name for other in (*_OWN, *found)):
            raise errors.TftrtError(f"{point.value} is a second back end of the name {name!r}", "remove its package")
        found.append(one)
    return tuple(found)
