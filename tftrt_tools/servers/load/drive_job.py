"""Sends requests as a plan says and records how each ended: the part of a worker that does not know gRPC.

A Call starts the request of a payload index and returns its Future. The future's callback notes the instant before anything else. In a
closed loop the callback also sends the next request, so that no other thread has to wake up for it. All instants are of
request_entries.clock.
"""

import array
import collections
import concurrent.futures
import itertools
import math
import queue
import threading
import time
import typing
from collections.abc import Callable, Iterator, Sequence

from tftrt_tools.base.wire import fields
from tftrt_tools.servers.load import link
from tftrt_tools.servers.load.assignment import Offsets
from tftrt_tools.servers.load.request_entries import CHECKED, DIFFERS, FIELDS, HELD, UNAVAILABLE, clock

# When the server is gone, a call fails at once. Without a pause a closed loop would count millions of failures.
_PAUSE_NS = 50_000_000
_CANCELLED = 1
_UNKNOWN = 2
_POLL_SECONDS = 0.0002
_SLICE_NS = 50_000_000
_MESSAGES, _MESSAGE_LENGTH = 3, 300
# How many unequal answers a worker hands to the generator, which judges them. Later ones are only counted.
_ANSWERS, _ANSWER_BYTES = 256, 64 << 20


class Future(typing.Protocol):
    """A future answer: what grpc.Future and concurrent.futures.Future have in common."""

    def add_done_callback(self, fn: Callable[[typing.Any], object]) -> object: ...

    def exception(self) -> BaseException | None: ...

    def result(self) -> typing.Any: ...


# Starts the request of a payload index.
Call = Callable[[int], Future]


def indices(process: int, processes: int, count: int, first: int = 0, skipped: int = 0) -> Iterator[int]:
    """Payload indices for one of several processes, without end. Together the processes send `count` requests in turn: those from `first`
    on, beginning after the first `skipped` of them."""
    return itertools.cycle([first + (skipped + process + processes * turn) % count for turn in range(count)])


class Recorder:
    """Records how each request ended. Any thread may call its methods; only the reporter takes records out.

    Args: expected: the answers, None for one that is not known; () if none is known. check_every: one of so many answers is compared, 0
      for none.
      explain: gives (code number, name, message) of an exception. judge_all: hand over every unequal answer, however many. unordered:
      answers are protocol messages whose fields may come in any order.
    """

    def __init__(
        self,
        expected: Sequence[bytes | None],
        check_every: int,
        explain: Callable[[typing.Any], tuple[int, str, str]],
        judge_all: bool = False,
        unordered: bool = False,
    ) -> None:
        self.entries = array.array("q")
        self.events: collections.deque[tuple[bytes, typing.Any]] = collections.deque()  # (kind of link, body)
        self.given_up = 0
        self.giving_up = False
        self._expected = expected if any(answer is not None for answer in expected) else ()
        self._every, self._explain, self._unordered = check_every, explain, unordered
        self._sorted: dict[int, list[bytes]] = {}  # the fields of expected answers that were needed so far
        self._turn = 0
        self._messages: dict[int, list[str]] = {}
        self._answers: float
        self._answer_bytes: float
        self._answers, self._answer_bytes = (math.inf, math.inf) if judge_all else (_ANSWERS, _ANSWER_BYTES)

    @property
    def ended(self) -> int:
        """Requests that came to an end."""
        return len(self.entries) // len(FIELDS) + self.given_up

    def done(self, future: Future, *, now: int, scheduled: int, sent: int, index: int, flags: int = 0) -> int:
        """Note a request that has ended. Returns: its code, 0 for OK."""
        try:
            error = future.exception()
        except concurrent.futures.CancelledError:
            error = None
            self.given_up += 1
            return _CANCELLED
        code = 0
        if error is None:
            if self._expected and self._every:
                flags |= self._compared(future.result(), index, sent)
        else:
            code, name, message = self._explain(error)
            if self.giving_up and code == _CANCELLED:
                self.given_up += 1
                return code
            self._heard(code, name, message)
        # One call of C code, so that entries of two threads cannot mix.
        self.entries.extend((scheduled, sent, now, code, index, flags))
        return code

    def _compared(self, answer: bytes, index: int, sent: int) -> int:
        expected = self._expected[index]
        self._turn += 1
        if expected is None or self._turn % self._every:
            return 0
        if answer == expected or (
            self._unordered and len(answer) == len(expected) and self._same_fields(answer, expected, index)
        ):
            return CHECKED
        self._answers -= 1
        self._answer_bytes -= len(answer)
        if self._answers < 0 or self._answer_bytes < 0:
            return DIFFERS
        self.events.append((link.ANSWER, link.ANSWER_HEAD.pack(index, sent) + answer))
        return CHECKED | DIFFERS

    def _same_fields(self, answer: bytes, expected: bytes, index: int) -> bool:
        """Whether both have the same fields, in whatever order: a server writes a map's entries in any. Nothing is decoded."""
        sorted_fields = self._sorted.get(index)
        if sorted_fields is None:
            sorted_fields = self._sorted[index] = _fields(expected)
        return bool(sorted_fields) and _fields(answer) == sorted_fields

    def _heard(self, code: int, name: str, message: str) -> None:
        numbers = self._messages.setdefault(code, [])
        message = message[:_MESSAGE_LENGTH]
        if len(numbers) < _MESSAGES and message not in numbers:
            numbers.append(message)
            self.events.append((link.EVENT, {"error": [code, name, message]}))


class Closed:
    """Keeps a number of requests under way: each that ends sends the next one. It also runs the offline scenario, where all are due at
    once.

    Args: calls: one for each connection. slots: requests under way. start: the instant of the first. due_at_start: latencies count from
      `start`, not from the send. limit: requests in all, or None.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        recorder: Recorder,
        indices: Iterator[int],
        *,
        slots: int,
        start: int = 0,
        due_at_start: bool = False,
        limit: int | None = None,
    ) -> None:
        self.recorder, self.scheduled = recorder, start if due_at_start else None
        self._start = start
        self.indices = indices if limit is None else itertools.islice(indices, limit)
        self.stopped = False
        self.finished = threading.Event()
        self.later: queue.SimpleQueue[tuple[int, _Slot] | None] = queue.SimpleQueue()
        self._slots = [_Slot(self, calls[number % len(calls)]) for number in range(slots)]
        self._active, self._lock = slots, threading.Lock()

    def run(self) -> int:
        """Returns: 0, the requests that were not sent, when the last has ended."""
        threading.Thread(target=self._resume_paused, daemon=True).start()
        _sleep_until(self._start, lambda: self.stopped)
        for slot in self._slots:
            slot.go()
        while not self.finished.wait(0.5):
            pass
        self.later.put(None)
        return 0

    def stop(self) -> None:
        """Send no more."""
        self.stopped = True

    def retire(self) -> None:
        """Note that a slot sends no more requests."""
        with self._lock:
            self._active -= 1
            if not self._active:
                self.finished.set()

    def _resume_paused(self) -> None:
        while (item := self.later.get()) is not None:
            instant, slot = item
            _sleep_until(instant, lambda: self.stopped)
            slot.go()


class _Slot:
    """One of the requests that are under way."""

    __slots__ = ("_call", "_index", "_run", "_sent")

    def __init__(self, run: Closed, call: Call) -> None:
        self._run, self._call = run, call

    def go(self) -> None:
        """Send the next request."""
        run = self._run
        if run.stopped:
            return run.retire()
        index = next(run.indices, None)
        if index is None:
            return run.retire()
        self._index = index
        self._sent = clock()
        try:
            self._call(index).add_done_callback(self._done)
        except Exception as error:
            _broken(run.recorder, error)
            run.retire()

    def _done(self, future: Future) -> None:
        now = clock()
        run = self._run
        try:
            sent = self._sent
            code = run.recorder.done(
                future,
                now=now,
                scheduled=sent if run.scheduled is None else run.scheduled,
                sent=sent,
                index=self._index,
            )
        except Exception as error:
            _broken(run.recorder, error)
            return run.retire()
        if code == UNAVAILABLE and not run.stopped:
            run.later.put((now + _PAUSE_NS, self))
        else:
            self.go()


class Open:
    """Sends requests at fixed instants, whether or not earlier ones have come back. Latencies count from the scheduled instant, because
    the user also waits while a request waits to be sent.

    Args: offsets: ns from `start`, ascending. indices: of the payload, in turn. bound: requests outstanding at most. When this many are
      outstanding, a send waits and its entry says so (HELD). Its latency still counts from its instant.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        recorder: Recorder,
        indices: Iterator[int],
        *,
        offsets: Offsets,
        start: int,
        bound: int,
    ) -> None:
        self._calls, self._recorder, self._indices = itertools.cycle(calls), recorder, indices
        self._offsets, self._start, self._bound = offsets, start, bound
        self.stopped = False

    def stop(self) -> None:
        """Send no more."""
        self.stopped = True

    def run(self) -> int:
        """Returns: the number of requests that were not sent, when the last of the others has ended."""
        recorder, start, bound = self._recorder, self._start, self._bound
        ended_before, sent_count = recorder.ended, 0
        is_stopped = lambda: self.stopped  # noqa: E731
        for offset, index, call in zip(self._offsets, self._indices, self._calls):  # noqa: B905 (two of them are endless)
            scheduled = start + offset
            if clock() < scheduled:
                _sleep_until(scheduled, is_stopped)
            flags = 0
            while sent_count - (recorder.ended - ended_before) >= bound and not self.stopped:
                flags = HELD
                time.sleep(_POLL_SECONDS)
            if self.stopped:
                break
            sent = clock()
            try:
                call(index).add_done_callback(
                    _noting(recorder, scheduled=scheduled, sent=sent, index=index, flags=flags)
                )
            except Exception as error:
                _broken(recorder, error)
                break
            sent_count += 1
        while recorder.ended - ended_before < sent_count:
            time.sleep(0.005)
        return len(self._offsets) - sent_count


def _noting(recorder: Recorder, *, scheduled: int, sent: int, index: int, flags: int) -> Callable[[Future], None]:
    def done(future: Future) -> None:
        now = clock()
        try:
            recorder.done(future, now=now, scheduled=scheduled, sent=sent, index=index, flags=flags)
        except Exception as error:
            recorder.given_up += 1
            _broken(recorder, error)

    return done


def _fields(raw: bytes) -> list[bytes]:
    """The outermost fields of a message, sorted; [] for bytes that are none."""
    try:
        return sorted(
            b"%d:%d:%b"
            % (number, kind, value if kind == fields.DELIMITED else b"%d" % value if kind == fields.VARINT else value)
            for number, kind, value in fields.walk(memoryview(raw))
        )
    except ValueError:
        return []


def _broken(recorder: Recorder, error: Exception) -> None:
    """A call could not be started or recorded. That is a bug, unless the generator is giving up."""
    if not recorder.giving_up:
        recorder.events.append((link.EVENT, {"bug": f"{type(error).__name__}: {error}"}))


def _sleep_until(instant: int, stopped: Callable[[], bool]) -> None:
    while (left := instant - clock()) > 0 and not stopped():
        time.sleep(min(left, _SLICE_NS) / 1e9)
