"""TensorRT's timing cache carried from one process to the next, around each build."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tftrt_tools.base import tf_private
from tftrt_tools.models.engine_cache import key as keys
from tftrt_tools.models.engine_cache import timings
from tftrt_tools.models.engine_cache.timings import Timings

if TYPE_CHECKING:
    from tftrt_tools.models.engine_cache.store import Store


class TimingCache:
    """The kernel times that this process knows, and those on disk."""

    def __init__(self, registry: tf_private.TimingCache | None, timings: Timings | None) -> None:
        """Args: registry: of this process, timings: on disk; None for either carries nothing."""
        self._registry, self._timings = registry, timings

    @classmethod
    def of(cls, store: Store | None, versions: Mapping[str, str], facts: Mapping[str, str], gpu: str) -> TimingCache:
        """For builds on the GPU with the identity `gpu`. Args: store, versions, facts (of the GPU): as an engines.Site has them.

        Times are not carried without an engine cache that keeps something, with TFTRT_TIMING_CACHE=0 in the environment, if this
        TensorFlow keeps them in another form, or if nothing names the GPU.
        """
        if store is None or not store.max_bytes or not gpu or timings.switched_off():
            return cls(None, None)
        try:
            registry = tf_private.TimingCache()
        except (RuntimeError, OSError):
            return cls(None, None)
        conditions = {**versions, **facts, "gpu": gpu, **keys.environment()}
        return cls(registry, Timings(store.folder, conditions))

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Read the times on disk before the block, and write the known ones after it, unless the block raises.

        The caller has to hold the GPU's turn meanwhile, so that no other process writes in between and loses its times.
        """
        if self._registry is None or self._timings is None:
            yield
            return
        kept = self._timings.read()
        new = kept != b"" and kept != self._registry.read()
        if new:
            self._registry.write(kept)
        with self._timings.trial() if new else contextlib.nullcontext():
            yield
        cached = self._registry.read()
        if cached != kept:
            self._timings.write(cached)
