"""TensorRT's timing cache carried from one process to the next, around each build."""

import contextlib
import os
from collections.abc import Iterator

from tftrt_tools import tf_private
from tftrt_tools.engine_cache import key as keys
from tftrt_tools.engine_cache.timings import Timings

SWITCH = "TFTRT_TIMING_CACHE"


class TimingCache:
    """What this process knows of kernels' times, and what the disk does."""

    def __init__(self, registry: tf_private.TimingCache | None, timings: Timings | None):
        """Args: registry: of this process, timings: on disk; None for either carries nothing."""
        self._registry, self._timings = registry, timings

    @classmethod
    def of(cls, site, gpu: str) -> "TimingCache":
        """For the builds of an engines.Site on the GPU with the identity `gpu`.

        Nothing is carried but with TFTRT_TIMING_CACHE=1 in the environment, for TensorRT has not yet been seen to take what comes from
        another process; nor without an engine cache, where this TensorFlow keeps times in another form, or where nothing names the GPU.
        """
        if site.store is None or not gpu or os.environ.get(SWITCH) != "1":
            return cls(None, None)
        try:
            registry = tf_private.TimingCache()
        except (RuntimeError, OSError):
            return cls(None, None)
        conditions = {**site.versions, **site.gpu, "gpu": gpu, **dict(keys.environment())}
        return cls(registry, Timings(site.store.folder, conditions))

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Take what the disk knows before the block, and leave there what is known behind it, where the block ends well.

        Who holds the GPU's turn meanwhile loses nothing of what other processes learn.
        """
        if self._registry is None:
            yield
            return
        kept = self._timings.read()
        if kept and kept != self._registry.read():
            self._registry.write(kept)
        yield
        known = self._registry.read()
        if known != kept:
            self._timings.write(known)
