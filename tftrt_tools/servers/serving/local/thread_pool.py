"""Threads that run jobs."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable


class Workers:
    """Runs jobs in up to `threads` threads, started as they are needed; with 0 in the caller's thread. A job must not raise."""

    def __init__(self, threads: int, name: str) -> None:
        self._limit = threads
        self._name = name
        self._jobs: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def submit(self, job: Callable[[], object]) -> None:
        """Args: job: function (). From one thread at a time, and not after `close`."""
        if not self._limit:
            job()
            return
        self._jobs.put(job)
        if len(self._threads) < self._limit:
            # Daemons, so that a process that forgets to stop can still end.
            thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def close(self) -> None:
        """Wait until all jobs are done and the threads have ended."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
