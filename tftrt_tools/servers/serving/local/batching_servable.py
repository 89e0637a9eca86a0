"""A servable whose runs are gathered into batches, as TensorFlow Serving's BatchingSession does it.

Rules and texts are those of TensorFlow Serving 2.14.1 (batching/batching_session.cc), with two differences:
- A request without rows is refused if allowed_batch_sizes is set: the real server may then have no row to pad with, and aborts.
- A request without a deadline has none; the real one gives it 2147 s.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grpc
import numpy as np

from tftrt_tools.servers.serving.local import batch_tensors, failure
from tftrt_tools.servers.serving.local.batch_scheduler import Queue, Scheduler
from tftrt_tools.servers.serving.local.batching_parameters import BatchingParameters
from tftrt_tools.servers.serving.local.servable import AnyServable, Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hooks:
    """Functions that count for a metrics page. Each is optional, has the name of the real metric, and is called from several threads."""

    # (rows): called for each input tensor of a request.
    input_batch_size: Callable[[int], object] | None = None
    # (thread pool name, microseconds): called for each request of a batch, or part of one.
    queuing_latency: Callable[[str, float], object] | None = None
    # (rows): called for each batch; rows with the padding.
    processed_batch_size: Callable[[int], object] | None = None
    # (rows, rows of the padded batch): called for each batch.
    padding_size: Callable[[int, int], object] | None = None
    # (): called for each run of the graph.
    wrapped_run: Callable[[], object] | None = None

    def call(self, name: str, *values: object) -> None:
        """Call the hook `name` where it is set."""
        hook = getattr(self, name)
        if hook:
            hook(*values)


class BatchingServable:
    """The servable `wrapped` with batched runs.

    One queue for each set of input and output tensors, made with the first request that has it.

    Args:
      parameters: num_batch_threads and thread_pool_name count where the scheduler is made.
      scheduler: shared with other models.

    Raises: Failure INVALID_ARGUMENT for parameters that contradict themselves.
    """

    def __init__(
        self, wrapped: AnyServable, parameters: BatchingParameters, scheduler: Scheduler, hooks: Hooks | None = None
    ) -> None:
        parameters.check()
        self.wrapped = wrapped
        self._parameters = parameters
        self._scheduler = scheduler
        self._hooks = hooks or Hooks()
        self._queues: dict[tuple[frozenset[str], frozenset[str]], Queue[_Task]] = {}
        self._lock = threading.Lock()
        self._closed = False

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.wrapped.name

    @property
    def version(self) -> int:
        """Version number."""
        return self.wrapped.version

    @property
    def path(self) -> str:
        """Version directory."""
        return self.wrapped.path

    @property
    def signatures(self) -> Mapping[str, Any]:
        """{signature name: SignatureDef}."""
        return self.wrapped.signatures

    def run(self, feeds: Mapping[str, Array], fetches: Sequence[str], timeout_ms: int = 0) -> list[Array]:
        """Run together with the requests of other threads; returns when their batch is done.

        Args:
          feeds: {tensor name: np.ndarray}, the same number of rows in front of each.
          fetches: tensor names; each output has the rows of the inputs.
          timeout_ms: milliseconds that this request may take, waiting included; 0 for no limit. A batch runs with the latest deadline of
            its members, and fails without a run if all have passed.

        Returns: [np.ndarray], this request's rows of each output.

        Raises: Failure: INVALID_ARGUMENT for inputs that cannot be batched; UNAVAILABLE where the queue is full; RESOURCE_EXHAUSTED
          where the batch timed out in the queue; what the run of the whole batch raises, whichever request it was for.
        """
        queue = self._queue(feeds, fetches)
        rows = batch_tensors.rows(feeds)
        for _ in feeds:
            self._hooks.call("input_batch_size", rows)
        if not rows and self._parameters.allowed_batch_sizes:
            raise failure.invalid(
                "Batching Run() input tensors have no rows, and allowed_batch_sizes asks for padding with a copy of "
                "one; TensorFlow Serving may abort on such a request"
            )
        task = _Task(feeds, rows, timeout_ms)
        parts = [task]

        def split(sizes: Sequence[int]) -> list[_Task]:
            parts[:] = task.split(sizes)
            return parts

        queue.schedule(task, rows, split)
        for part in parts:
            part.done.wait()
        for part in parts:
            if part.error is not None:
                raise part.error
        return [
            np.concatenate([part.outputs[name] for part in parts]) if len(parts) > 1 else task.outputs[name]
            for name in fetches
        ]

    def close(self) -> None:
        """Run the waiting requests, then close the wrapped servable. Later requests raise Failure UNAVAILABLE."""
        with self._lock:
            self._closed = True
            queues = list(self._queues.values())
        self._scheduler.close(queues)
        self.wrapped.close()

    def _queue(self, feeds: Mapping[str, Array], fetches: Sequence[str]) -> Queue[_Task]:
        key = frozenset(feeds), frozenset(fetches)
        with self._lock:
            if key not in self._queues:
                if self._closed:
                    raise failure.Failure(
                        grpc.StatusCode.UNAVAILABLE, f"model {self.name} version {self.version} is closed"
                    )
                self._queues[key] = self._scheduler.add_queue(
                    self._parameters, lambda tasks: self._process(sorted(key[1]), tasks)
                )
            return self._queues[key]

    def _process(self, fetches: Sequence[str], tasks: Sequence[_Task]) -> None:
        """Run one batch and hand each task its outputs, or all the same error."""
        try:
            outputs = self._run(fetches, tasks)
        except Exception as error:  # a bug, too, is an error that the waiting requests must get
            for task in tasks:
                task.fail(error)
        else:
            for task, own in zip(tasks, outputs, strict=True):
                task.finish(own)

    def _run(self, fetches: Sequence[str], tasks: Sequence[_Task]) -> list[dict[str, Array]]:
        now = time.monotonic()
        for task in tasks:
            self._hooks.call("queuing_latency", self._parameters.thread_pool_name, (now - task.start) * 1e6)
        timeout_ms = _timeout(tasks, now)
        sizes = [task.rows for task in tasks]
        padded = self._parameters.padded(sum(sizes))
        padding = padded - sum(sizes)
        self._hooks.call("padding_size", padding, padded)
        self._hooks.call("processed_batch_size", padded)
        feeds = batch_tensors.merge(
            [task.feeds for task in tasks], padding, self._parameters.pad_variable_length_inputs
        )
        try:
            outputs = self.wrapped.run(feeds, fetches, timeout_ms)
        finally:
            self._hooks.call("wrapped_run")
        return batch_tensors.divide(dict(zip(fetches, outputs, strict=True)), sizes, padding)


class _Task:
    """One request, or a part of one, on its way through a queue."""

    def __init__(self, feeds: Mapping[str, Array], rows: int, timeout_ms: int, start: float | None = None) -> None:
        self.feeds, self.rows, self.timeout_ms = feeds, rows, timeout_ms
        self.start = time.monotonic() if start is None else start
        self.done = threading.Event()
        self.outputs: dict[str, Array] = {}
        self.error: Exception | None = None

    def split(self, sizes: Sequence[int]) -> list[_Task]:
        """Tasks of the given rows, in order; together they are this one."""
        ends = [sum(sizes[:count]) for count in range(1, len(sizes) + 1)]
        return [
            _Task(
                {name: array[end - size : end] for name, array in self.feeds.items()}, size, self.timeout_ms, self.start
            )
            for size, end in zip(sizes, ends, strict=True)
        ]

    def finish(self, outputs: dict[str, Array]) -> None:
        self.outputs = outputs
        self.done.set()

    def fail(self, error: Exception) -> None:
        # A Failure of its own for each thread: raising one object in several would mix their tracebacks.
        self.error = failure.Failure(error.code, error.message) if isinstance(error, failure.Failure) else error
        self.done.set()


def _timeout(tasks: Sequence[_Task], now: float) -> int:
    """Milliseconds left until the latest deadline of the batch, 0 where a task has none. Raises: Failure RESOURCE_EXHAUSTED where all
    have passed."""
    if any(task.timeout_ms <= 0 for task in tasks):
        return 0
    left = max(task.start + task.timeout_ms / 1e3 for task in tasks) - now
    if left <= 0:
        raise failure.Failure(
            grpc.StatusCode.RESOURCE_EXHAUSTED, "Run() timeout exceeded while waiting in batching queue"
        )
    return max(1, int(left * 1e3))
