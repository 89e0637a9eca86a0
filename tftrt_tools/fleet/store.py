"""Ray's store: what travels lies there in chunks, put there and taken out one after the other."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from tftrt_tools.fleet import content

# (digest, name, Ray's references to the chunks in their order). Ray frees a chunk when nobody has its reference any more.
Sent = tuple[str, str, list[Any]]


def put(ray: Any, packed: content.Packed, chunk_bytes: int) -> Sent:
    """Put what is packed into the store. Raises: as content.chunks; RayError."""
    # `map` holds one chunk at a time, where a loop would hold the last one until it has the next.
    return packed.digest, packed.name, list(map(ray.put, content.chunks(packed, chunk_bytes)))


def taken(ray: Any, sent: Sent) -> content.Packed:
    """A handle on what is in the store; its pieces raise RayError."""
    digest, name, references = sent
    return content.Packed(digest, name, functools.partial(_taken, ray, references))


def _taken(ray: Any, references: list[Any]) -> Iterator[bytearray]:
    return map(ray.get, references)
