"""Queues of tasks and the threads that take batches from them, as TensorFlow's SharedBatchScheduler does it.

When a batch closes and runs, when a queue is full, and the error texts are as in TensorFlow 2.14.1's
core/kernels/batching_util/shared_batch_scheduler.h. TensorFlow polls every millisecond; here conditions wake the threads.
"""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Generic, TypeVar

import grpc

from tftrt_tools.servers.serving.local import failure
from tftrt_tools.servers.serving.local.batching_parameters import BatchingParameters

Task = TypeVar("Task")


class Scheduler:
    """One pool of threads for the queues of all models; they are served in turn, a batch at a time.

    Args: threads: their number. name: prefix of their names.
    """

    def __init__(self, threads: int, name: str = "batch_threads") -> None:
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._emptied = threading.Condition(self._lock)
        self._queues: collections.deque[Queue[Any]] = collections.deque()
        self._stopped = False
        self._threads = [
            threading.Thread(target=self._serve, name=f"{name}_{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def add_queue(self, parameters: BatchingParameters, process: Callable[[list[Task]], object]) -> Queue[Task]:
        """A new Queue. Args: parameters: BatchingParameters, checked. process: function of a list of tasks; raises nothing."""
        with self._lock:
            queue = Queue(self, parameters, process)
            queue._closed = self._stopped
            self._queues.append(queue)
            return queue

    def close(self, queues: Collection[Queue[Any]]) -> None:
        """Take no more tasks into `queues`, run the waiting ones, wait for their end, and forget the queues."""
        with self._lock:
            for queue in queues:
                queue._closed = True
            self._work.notify_all()
            self._emptied.wait_for(lambda: all(queue._empty() for queue in queues))
            self._queues = collections.deque(queue for queue in self._queues if queue not in queues)

    def stop(self) -> None:
        """Close all queues and end the threads."""
        with self._lock:
            self._stopped = True
            queues = list(self._queues)
        self.close(queues)
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        while True:
            with self._lock:
                while (due := self._next()) is None:
                    if self._stopped:
                        return
                    self._work.wait(self._until_next())
                queue, batch = due
                queue._running += 1
                if any(not waiting._idle() for waiting in self._queues):
                    self._work.notify()  # perhaps only this thread knew when the next batch is due
            try:
                queue._process([task for task, _ in batch.tasks])
            finally:
                with self._lock:
                    queue._running -= 1
                    self._emptied.notify_all()

    def _next(self) -> tuple[Queue[Any], _Batch[Any]] | None:
        """A queue and its batch to run; None if no batch is due. The queue goes to the end of the line."""
        now = time.monotonic()
        for _ in range(len(self._queues)):
            queue = self._queues[0]
            self._queues.rotate(-1)
            batch = queue._take(now)
            if batch is not None:
                return queue, batch
        return None

    def _until_next(self) -> float | None:
        """Seconds until a batch is due by its timeout; None: nothing waits."""
        due = [queue._batches[-1].due for queue in self._queues if queue._batches[-1].tasks]
        return min(max(min(due) - time.monotonic(), 0), threading.TIMEOUT_MAX) if due else None


class Queue(Generic[Task]):
    """Tasks of one kind, gathered into batches. Made by `Scheduler.add_queue`; its state is guarded by the scheduler's lock."""

    def __init__(
        self, scheduler: Scheduler, parameters: BatchingParameters, process: Callable[[list[Task]], object]
    ) -> None:
        self._scheduler = scheduler
        self._parameters = parameters
        self._process = process
        self._batches = collections.deque([_Batch[Task]()])  # the last one is open, the others are full
        self._running = 0
        self._closed = False

    def schedule(self, task: Task, rows: int, split: Callable[[Sequence[int]], Iterable[Task]] | None = None) -> None:
        """Put a task into the open batch, or into a new one where that has no room.

        Args:
          task: anything; handed to `process` with the tasks of its batch.
          rows: its size.
          split: function (sizes) -> tasks of these sizes, for enable_large_batch_splitting.

        Raises: Failure: INVALID_ARGUMENT for a task larger than max_batch_size; UNAVAILABLE where the queue is full or closed.
        """
        limit = self._parameters.max_batch_size
        if rows > limit:
            raise failure.invalid(f"Task size {rows} is larger than maximum input batch size {limit}")
        with self._scheduler._lock:
            if self._closed:
                raise failure.Failure(
                    grpc.StatusCode.UNAVAILABLE, "The batch scheduling queue to which this task was submitted is closed"
                )
            if self._parameters.enable_large_batch_splitting:
                self._check_capacity(rows)
                sizes = self._split_sizes(rows)
                parts = list(zip(split(sizes), sizes, strict=True)) if split and len(sizes) > 1 else [(task, rows)]
            else:
                self._check_room(rows)
                parts = [(task, rows)]
            for part, size in parts:
                if self._batches[-1].rows + size > self._parameters.execution_rows:
                    self._batches.append(_Batch[Task]())
                if not self._batches[-1].tasks:
                    self._batches[-1].due = time.monotonic() + self._parameters.batch_timeout_micros / 1e6
                self._batches[-1].add(part, size)
            # A thread that waits for a later time must check again as well.
            self._scheduler._work.notify(len(parts))

    def _check_room(self, rows: int) -> None:
        # As in the real check, a task that fits into the open batch is taken, however many batches wait.
        allowed = max(self._parameters.max_enqueued_batches, 1)
        if self._batches[-1].rows + rows > self._parameters.max_batch_size and len(self._batches) >= allowed:
            raise failure.Failure(
                grpc.StatusCode.UNAVAILABLE,
                "The batch scheduling queue to which this task was submitted is full; currently "
                f"{len(self._batches)} batches enqueued and max_enqueued_batches is "
                f"{allowed}",
            )

    def _check_capacity(self, rows: int) -> None:
        most, waiting, opened = self._parameters.execution_rows, len(self._batches), self._batches[-1].rows
        allowed = self._parameters.max_enqueued_batches
        capacity = (allowed - waiting) * most + most - opened
        if rows > capacity:
            raise failure.Failure(
                grpc.StatusCode.UNAVAILABLE,
                f"The batch scheduling queue to which this task was submitted is full; task size is {rows} but "
                f"scheduling capacity is only {capacity} (num_enqueued_batches={waiting}, max_enqueued_batches="
                f"{allowed}, open_batch_size={opened}, max_execution_batch_size={most})",
            )

    def _split_sizes(self, rows: int) -> list[int]:
        """Sizes of the parts of a task: what the open batch still holds, then full batches, then the rest."""
        most = self._parameters.execution_rows
        room = most - self._batches[-1].rows
        if rows <= room:
            return [rows]
        first = [room] if room else []
        full, rest = divmod(rows - room, most)
        return first + [most] * full + ([rest] if rest else [])

    def _take(self, now: float) -> _Batch[Task] | None:
        """The batch to run next, None where none is due."""
        opened = self._batches[-1]
        if (
            len(self._batches) == 1
            and opened.tasks
            and (self._closed or opened.rows >= self._parameters.execution_rows or now >= opened.due)
        ):
            self._batches.append(_Batch[Task]())
        return self._batches.popleft() if len(self._batches) > 1 else None

    def _idle(self) -> bool:
        return len(self._batches) == 1 and not self._batches[0].tasks

    def _empty(self) -> bool:
        return self._idle() and not self._running


class _Batch(Generic[Task]):
    """tasks: (task, rows) in order of arrival; rows: their sum; due: monotonic seconds at which its first task has waited enough."""

    def __init__(self) -> None:
        self.tasks: list[tuple[Task, int]] = []
        self.rows, self.due = 0, 0.0

    def add(self, task: Task, rows: int) -> None:
        self.tasks.append((task, rows))
        self.rows += rows
