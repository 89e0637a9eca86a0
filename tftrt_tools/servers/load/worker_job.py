"""A worker process: `python -m tftrt_tools.servers.load.worker_job SOCKET ASSIGNMENT`, two inherited file descriptors.

A fresh interpreter that imports nothing of TensorFlow, and grpc only for TLS: multiprocessing's "spawn" would import the parent's main
module again, and that may well be a program with TensorFlow in it.
"""

from __future__ import annotations

import array
import ctypes
import gc
import os
import queue
import select
import signal
import socket
import sys
import threading
import time
import typing
from collections.abc import Iterator, Mapping, Sequence

from tftrt_tools.base import errors
from tftrt_tools.base.process import background, progress, starting
from tftrt_tools.servers.load import assignment, drive_job, http2_calls_job, link
from tftrt_tools.servers.load.assignment import Assignment
from tftrt_tools.servers.load.http2_calls_job import Http2Calls
from tftrt_tools.servers.load.request_entries import clock

if typing.TYPE_CHECKING:
    import grpc

    from tftrt_tools.servers.load.functions_job import Functions

_PR_SET_PDEATHSIG, _PR_SET_TIMERSLACK = 1, 29
_BEAT_NS, _REPORT_NS = 10_000_000, 100_000_000
_SWITCH_SECONDS = 0.0005


def main(socket_fd: int, assignment_fd: int) -> None:
    """Connect, then run what the generator commands until it says "end"."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    libc.prctl(
        _PR_SET_TIMERSLACK, 1000
    )  # ns; threads inherit it. The default of 50 us would delay every send of an open loop
    sys.setswitchinterval(_SWITCH_SECONDS)
    threading.excepthook = background.end_process
    parent = socket.socket(fileno=socket_fd)
    work = assignment.read(assignment_fd)
    try:
        # Which call of a function is made first: the generator ends a worker in which one hangs.
        with progress.listening(lambda _text, done, total: link.send(parent, link.EVENT, {"step": [done, total]})):
            connection = _connected(work)
    except Exception as error:
        link.send(
            parent, link.HELLO, {"problem": str(error) or type(error).__name__, "mend": getattr(error, "mend", "")}
        )
        return
    link.send(parent, link.HELLO, {"pid": os.getpid(), "cores": len(os.sched_getaffinity(0))})
    # The present objects stay; the garbage collector need not visit them during the run.
    gc.collect()
    gc.freeze()
    recorder = drive_job.Recorder(
        work.expected,
        work.head["check_every"],
        connection.explain,
        work.head.get("judge_all", False),
        work.head.get("unordered", False),
    )
    commands: queue.SimpleQueue[dict[str, typing.Any]] = queue.SimpleQueue()
    reporter = _Reporter(parent, recorder, commands, connection)
    threading.Thread(target=reporter.run, daemon=True).start()
    turns = drive_job.indices(work.head["process"], work.head["processes"], connection.count)
    while (command := commands.get())["do"] != "end":
        part = command.get("part")  # some of the requests, from the place that the generator names
        own = drive_job.indices(work.head["process"], work.head["processes"], **part) if part else turns
        run = _made(command, connection.calls, recorder, own, work)
        reporter.current = run
        if reporter.stopped >= command["number"]:
            run.stop()
        unsent = run.run()
        reporter.tell({"idle": command["number"], "unsent": unsent, "given_up": recorder.given_up})
    reporter.tell({"end": True})
    reporter.ended.wait()
    connection.close()


def _connected(work: Assignment) -> _Connection | Http2Calls | Functions:
    if "factory" not in work.head:
        where = http2_calls_job.place(work.head["address"]) if work.tls is None else None
        return _Connection(work) if where is None else _plain(work, where)
    # A worker that talks to a server does not need it.
    from tftrt_tools.servers.load import functions_job

    return functions_job.Functions(work.head)


def _plain(work: Assignment, where: tuple[str, int] | str) -> Http2Calls:
    """Connections without grpc. Raises: TftrtError where no server answers in time."""
    head = work.head
    try:
        return Http2Calls(
            head["address"],
            where,
            channels=head["channels"],
            method=head["method"],
            requests=work.requests,
            timeout_s=head["timeout_s"],
            connect_s=head["connect_s"],
        )
    except http2_calls_job.NoServer:
        raise _no_server(head["connect_s"]) from None


def _no_server(seconds: float) -> errors.TftrtError:
    return errors.TftrtError(
        f"no connection within {seconds:g} s",
        "check the address, and that the server runs there and speaks gRPC, with or without TLS as asked",
    )


def _made(
    command: Mapping[str, typing.Any],
    calls: Sequence[drive_job.Call],
    recorder: drive_job.Recorder,
    turns: Iterator[int],
    work: Assignment,
) -> drive_job.Open | drive_job.Closed:
    if command["do"] == "open":
        return drive_job.Open(
            calls, recorder, turns, offsets=work.offsets, start=command["start"], bound=command["bound"]
        )
    return drive_job.Closed(
        calls,
        recorder,
        turns,
        slots=command["slots"],
        start=command["start"],
        due_at_start=command["due_at_start"],
        limit=command["limit"],
    )


class _Reporter:
    """The thread that talks with the generator and sends a beat at regular times; limits.py says what the beat is for."""

    def __init__(
        self,
        parent: socket.socket,
        recorder: drive_job.Recorder,
        commands: queue.SimpleQueue[dict[str, typing.Any]],
        connection: _Connection | Http2Calls | Functions,
    ) -> None:
        self._parent, self._recorder, self._commands, self._connection = parent, recorder, commands, connection
        self._reader, self._lags, self._reported = link.Reader(), array.array("q"), 0
        # The run that is under way, and the number of the last that the generator stopped.
        self.current: drive_job.Open | drive_job.Closed | None = None
        self.stopped = 0
        self.ended = threading.Event()
        self._wake = os.eventfd(0)

    def tell(self, event: Mapping[str, typing.Any]) -> None:
        """Send an event now, and before it all entries that were made until now."""
        self._recorder.events.append((link.EVENT, event))
        os.eventfd_write(self._wake, 1)

    def run(self) -> None:
        """Until the generator or the worker ends."""
        try:
            self._run()
        except (BrokenPipeError, ConnectionResetError):
            os._exit(1)  # the generator is gone

    def _run(self) -> None:
        now = clock()
        beat, report = now + _BEAT_NS, now + _REPORT_NS
        while not self.ended.is_set():
            sources: list[typing.Any] = [self._parent, self._wake]
            ready = select.select(sources, (), (), max(0, beat - clock()) / 1e9)[0]
            now = clock()
            if now >= beat:
                self._lags.append(now - beat)
                beat = now + _BEAT_NS
            if self._wake in ready:
                os.eventfd_read(self._wake)
            if self._parent in ready:
                self._read()
            if self._recorder.events or now >= report:
                self._report(now)
                report = now + _REPORT_NS

    def _read(self) -> None:
        data = self._parent.recv(1 << 16)
        if not data:
            os._exit(1)
        for _, body in self._reader.feed(data):
            command = link.parsed(body)
            if command["do"] in ("stop", "give_up"):
                self.stopped = command["number"]
                if self.current:
                    self.current.stop()
                if command["do"] == "give_up":
                    self._recorder.giving_up = True
                    self._connection.close()
            else:
                self._commands.put(command)

    def _report(self, now: int) -> None:
        # The events first: entries that were made before an event are sent before it.
        events = [self._recorder.events.popleft() for _ in range(len(self._recorder.events))]
        entries = self._recorder.entries[self._reported :]
        self._reported += len(entries)
        lags, self._lags = self._lags, array.array("q")
        if entries:
            link.send(self._parent, link.RECORDS, entries.tobytes())
        link.send(self._parent, link.BEATS, array.array("q", (now, time.process_time_ns())).tobytes() + lags.tobytes())
        for kind, body in events:
            link.send(self._parent, kind, body)
            if kind is link.EVENT and "end" in body:
                self.ended.set()


class _Connection:
    """The channels of a worker that needs grpc's own client: for TLS, and for addresses of gRPC's other forms. Raises where no server
    answers in time."""

    def __init__(self, work: Assignment) -> None:
        import grpc

        head = work.head
        options = [
            ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),  # a connection for each channel
            ("grpc.enable_retries", 0),
            ("grpc.enable_http_proxy", 0),  # gRPC's second attempts would hide failures
            # Find a server that comes back soon.
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 1000),
            ("grpc.max_reconnect_backoff_ms", 1000),
        ]
        if head["server_name"]:
            options.append(("grpc.ssl_target_name_override", head["server_name"]))
        self.count = len(work.requests)
        self._channels = []
        for number in range(head["channels"]):
            own = [*options, ("tftrt_tools.channel", number)]
            if work.tls is None:
                self._channels.append(grpc.insecure_channel(head["address"], own))
            else:
                self._channels.append(
                    grpc.secure_channel(head["address"], grpc.ssl_channel_credentials(*work.tls), own)
                )
        try:
            for channel in self._channels:
                grpc.channel_ready_future(channel).result(head["connect_s"])
        except grpc.FutureTimeoutError:
            self.close()
            raise _no_server(head["connect_s"]) from None
        self.calls = [
            _call(channel.unary_unary(head["method"]), work.requests, head["timeout_s"]) for channel in self._channels
        ]

    def explain(self, error: grpc.RpcError) -> tuple[int, str, str]:
        """(code, its name, message)."""
        code = error.code()
        return code.value[0], code.name, error.details() or ""

    def close(self) -> None:
        """Give up the outstanding requests."""
        for channel in self._channels:
            channel.close()


def _call(method: grpc.UnaryUnaryMultiCallable, requests: Sequence[bytes], timeout: float) -> drive_job.Call:
    begin = method.future

    def call(index: int) -> drive_job.Future:
        future: drive_job.Future = begin(requests[index], timeout)
        return future

    return call


if __name__ == "__main__":
    starting.settle()
    main(int(sys.argv[1]), int(sys.argv[2]))
    # Nobody needs the rest that grpc's own threads still do.
    sys.stdout.flush()
    os._exit(0)
