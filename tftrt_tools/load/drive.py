"""Sends requests as a plan says and notes what became of each: the part of a worker that knows nothing of gRPC.

A call is a function of a payload index that starts a request and returns a future (grpc.Future or concurrent.futures.Future: both have
add_done_callback, exception and result). Its callback notes the instant before anything else. In a closed loop the callback also sends the
next request, so that no other thread has to wake up for it.

All instants are of time.perf_counter_ns, which on Linux reads CLOCK_MONOTONIC: it is the same in all processes of a machine, and setting
the machine's clock does not move it (NTP may slew it, by 0.05 % at most), so that neither shows in a latency.
"""

import array
import collections
import concurrent.futures
import itertools
import math
import queue
import threading
import time

from tftrt_tools.load import link
from tftrt_tools.load.record import CHECKED, DIFFERS, HELD, UNAVAILABLE

clock = time.perf_counter_ns
# A server that is gone refuses at once; a closed loop would count nothing but that.
_PAUSE_NS = 50_000_000
_CANCELLED = 1
_UNKNOWN = 2
_POLL_SECONDS = 0.0002
_SLICE_NS = 50_000_000
_MESSAGES, _MESSAGE_LENGTH = 3, 300
# What unequal answers a worker hands to the generator to be judged; those after it are counted.
_ANSWERS, _ANSWER_BYTES = 256, 64 << 20


def indices(process, processes, count, first=0, skipped=0):
    """Payload indices of one of several processes, for ever: together they send the `count` requests from `first` on in turn, beginning
    behind `skipped` of them."""
    return itertools.cycle([first + (skipped + process + processes * turn) % count for turn in range(count)])


class Recorder:
    """What became of each request. Its methods may be called from any thread; the reporter alone takes things out.

    Args: expected: answers, bytes or None each, or (). check_every: every how many-th answer is compared, 0 for none. explain: function of
      an exception that returns (code number, name, message). judge_all: hand over every unequal answer, however many.
    """

    def __init__(self, expected, check_every, explain, judge_all=False):
        self.entries = array.array("q")
        self.events = collections.deque()  # (kind of link, body)
        self.given_up = 0
        self.giving_up = False
        self._expected, self._every, self._explain = expected if any(one is not None for one in expected) else (), check_every, explain
        self._turn = 0
        self._messages = {}
        self._answers, self._answer_bytes = (math.inf, math.inf) if judge_all else (_ANSWERS, _ANSWER_BYTES)

    @property
    def ended(self):
        """Requests that came to an end."""
        return len(self.entries) // 6 + self.given_up

    def done(self, future, now, scheduled, sent, index, flags=0):
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

    def _compared(self, answer, index, sent):
        expected = self._expected[index]
        self._turn += 1
        if expected is None or self._turn % self._every:
            return 0
        if answer == expected:
            return CHECKED
        self._answers -= 1
        self._answer_bytes -= len(answer)
        if self._answers < 0 or self._answer_bytes < 0:
            return DIFFERS
        self.events.append((link.ANSWER, link.ANSWER_HEAD.pack(index, sent) + answer))
        return CHECKED | DIFFERS

    def _heard(self, code, name, message):
        known = self._messages.setdefault(code, [])
        message = message[:_MESSAGE_LENGTH]
        if len(known) < _MESSAGES and message not in known:
            known.append(message)
            self.events.append((link.EVENT, {"error": [code, name, message]}))


class Closed:
    """A number of requests under way at all times: each that ends sends the next. Also the offline scenario, where all are due at once.

    Args: calls: functions that start a request, a connection each. slots: requests under way. start: the instant of the first.
      due_at_start: latencies count from `start`, not from the send. limit: requests in all, or None.
    """

    def __init__(self, calls, recorder, indices, slots, start=0, due_at_start=False, limit=None):
        self.recorder, self.scheduled = recorder, start if due_at_start else None
        self._start = start
        self.indices = indices if limit is None else itertools.islice(indices, limit)
        self.stopped = False
        self.finished = threading.Event()
        self.later = queue.SimpleQueue()
        self._slots = [_Slot(self, calls[number % len(calls)]) for number in range(slots)]
        self._active, self._lock = slots, threading.Lock()

    def run(self):
        """Returns: 0, the requests that were not sent, when the last has ended."""
        threading.Thread(target=self._resume_paused, daemon=True).start()
        _sleep_until(self._start, lambda: self.stopped)
        for slot in self._slots:
            slot.go()
        while not self.finished.wait(0.5):
            pass
        self.later.put(None)
        return 0

    def stop(self):
        self.stopped = True

    def retire(self):
        """A slot sends no more."""
        with self._lock:
            self._active -= 1
            if not self._active:
                self.finished.set()

    def _resume_paused(self):
        while (item := self.later.get()) is not None:
            instant, slot = item
            _sleep_until(instant, lambda: self.stopped)
            slot.go()


class _Slot:
    """One of the requests that are under way."""

    __slots__ = ("_call", "_index", "_run", "_sent")

    def __init__(self, run, call):
        self._run, self._call = run, call

    def go(self):
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

    def _done(self, future):
        now = clock()
        run = self._run
        try:
            sent = self._sent
            code = run.recorder.done(future, now, sent if run.scheduled is None else run.scheduled, sent, self._index)
        except Exception as error:
            _broken(run.recorder, error)
            return run.retire()
        if code == UNAVAILABLE and not run.stopped:
            run.later.put((now + _PAUSE_NS, self))
        else:
            self.go()


class Open:
    """Requests at fixed instants, whether or not earlier ones have come back. Latencies count from the scheduled instant: the time that a
    request waited to be sent is the user's time too.

    Args: offsets: ns from `start`, ascending. indices: of the payload, in turn. bound: requests outstanding at most; where that many are,
      a send waits, its entry says so (HELD), and its latency still counts from its instant.
    """

    def __init__(self, calls, recorder, indices, offsets, start, bound):
        self._calls, self._recorder, self._indices = itertools.cycle(calls), recorder, indices
        self._offsets, self._start, self._bound = offsets, start, bound
        self.stopped = False

    def stop(self):
        self.stopped = True

    def run(self):
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
                call(index).add_done_callback(_noting(recorder, scheduled, sent, index, flags))
            except Exception as error:
                _broken(recorder, error)
                break
            sent_count += 1
        while recorder.ended - ended_before < sent_count:
            time.sleep(0.005)
        return len(self._offsets) - sent_count


def _noting(recorder, scheduled, sent, index, flags):
    def done(future):
        now = clock()
        try:
            recorder.done(future, now, scheduled, sent, index, flags)
        except Exception as error:
            recorder.given_up += 1
            _broken(recorder, error)

    return done


def _broken(recorder, error):
    """A call that could not even be started, or noted. While the generator gives up that is so; else it is a bug."""
    if not recorder.giving_up:
        recorder.events.append((link.EVENT, {"bug": f"{type(error).__name__}: {error}"}))


def _sleep_until(instant, stopped):
    while (left := instant - clock()) > 0 and not stopped():
        time.sleep(min(left, _SLICE_NS) / 1e9)
