"""The generator's side of the worker processes: it starts them, commands them, listens to them and ends them."""

import contextlib
import dataclasses
import functools
import os
import pathlib
import selectors
import signal
import socket
import subprocess
import tempfile
import time
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.base.process import interpreter, starting
from tftrt_tools.servers.load import assignment, link
from tftrt_tools.servers.load.request_entries import Entries

_END_SECONDS = 5
_START_SECONDS = 30
_ROOT = pathlib.Path(__file__).resolve().parents[3]
_WORDS = 2000


class UnequalAnswer(typing.NamedTuple):
    """An answer that is not byte for byte the expected one."""

    request: int  # its index in the payload
    sent_ns: int  # when the request was sent, on CLOCK_MONOTONIC
    answer: bytes


class Beat(typing.NamedTuple):
    """A worker's report on itself, about ten times a second."""

    worker: int  # its number
    now_ns: int  # when it was sent, on CLOCK_MONOTONIC
    cpu_ns: int  # processor time since its start
    lags_ns: npt.NDArray[np.int64]  # [n], how late its clock woke since the last beat


@dataclasses.dataclass(kw_only=True)
class _Worker:
    process: subprocess.Popen[bytes]
    socket: socket.socket  # this end of it
    reader: link.Reader  # of what it sends
    cores: int = 1  # that it may run on
    idle: int = 0  # number of the last run that it has finished
    ended: bool = False  # its process has


class Team:
    """All workers of a run; made by `started`. Everything they say is kept here, in the order of its arrival."""

    def __init__(self, members: Sequence[_Worker], log: typing.IO[bytes]) -> None:
        self._members, self._log = members, log
        self._selector = selectors.DefaultSelector()
        for member in members:
            self._selector.register(member.socket, selectors.EVENT_READ, member)
        self._number = 0
        self._heard = 0
        self._mend = ""
        self.entries: list[Entries] = []
        self.beats: list[Beat] = []
        self.messages: dict[
            int, tuple[str, list[str]]
        ] = {}  # by status code: its name, and the first different messages
        self.answers: list[UnequalAnswer] = []
        self.unsent = self.given_up = 0
        self._stepped: float | None = None  # when a worker began one of its first calls
        self.problems: list[str] = []  # why a worker failed or ended by itself

    @property
    def size(self) -> int:
        """Workers."""
        return len(self._members)

    @property
    def cores(self) -> int:
        """Cores that a worker may run on."""
        return max(member.cores for member in self._members)

    def tell(self, commands: Iterable[Mapping[str, typing.Any]]) -> int:
        """Give each worker its next run. Args: commands: one for each. Returns: the run's number."""
        self._number += 1
        for member, command in zip(self._members, commands, strict=True):
            self._send(member, {**command, "number": self._number})
        return self._number

    def tell_all(self, do: str) -> None:
        """ "stop" sending, "give_up" what is outstanding, or "end"."""
        for member in self._members:
            self._send(member, {"do": do, "number": self._number})

    def idle(self) -> bool:
        """Whether no worker has requests outstanding or left to send."""
        return all(member.ended or member.idle >= self._number for member in self._members)

    def listen(self, seconds: float, enough: Callable[[], object] = lambda: False) -> Entries:
        """Take in messages for `seconds`, or until `enough()`. Returns: the entries that arrived."""
        before, until = len(self.entries), time.monotonic() + seconds
        while (
            (left := until - time.monotonic()) > 0
            and any(not member.ended for member in self._members)
            and not enough()
        ):
            for key, _ in self._selector.select(left):
                self._receive(key.data)
        return Entries.joined(self.entries[before:])

    def listen_until_idle(self, seconds: float) -> bool:
        """Returns: whether they all became idle within `seconds`."""
        self.listen(seconds, self.idle)
        return self.idle()

    def connected(self, address: str, seconds: float, call_seconds: float | None = None) -> None:
        """Wait for each worker to say that it is ready.

        Args: address: of what is asked, for messages, "" for none. seconds: for its start. call_seconds: for each call of a function that
          it makes before it is ready, None where it makes none. Raises: TftrtError.
        """
        until = time.monotonic() + seconds + _START_SECONDS
        while not self._met(self._stepped) and (left := until - time.monotonic()) > 0:
            before = self._stepped
            self.listen(left, functools.partial(self._met, before))
            if call_seconds is not None and self._stepped != before:
                until = time.monotonic() + call_seconds
        if self._heard == len(self._members):
            return
        if call_seconds is not None and not self.problems:
            raise hung(call_seconds if self._stepped else seconds, self._stepped is not None)
        cause = self.problems[0] if self.problems else "the load generator's processes did not start in time"
        raise errors.TftrtError(f"no load on {address}: {cause}" if address else cause, self._mend)

    def _met(self, before: float | None) -> bool:
        """Whether all workers are ready, or one failed, or one began another first call. Args: before: `_stepped` as it was."""
        return self._heard == len(self._members) or bool(self.problems) or self._stepped != before

    def _send(self, member: _Worker, command: Mapping[str, typing.Any]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            link.send(member.socket, link.COMMAND, command)

    def _receive(self, member: _Worker) -> None:
        try:
            data = member.socket.recv(1 << 20)
        except ConnectionResetError:
            data = b""
        if not data:
            self._lost(member)
            return
        for kind, body in member.reader.feed(data):
            if kind == link.RECORDS:
                self.entries.append(Entries.read(body))
            elif kind == link.BEATS:
                values = np.frombuffer(body, np.int64)
                self.beats.append(Beat(self._members.index(member), int(values[0]), int(values[1]), values[2:]))
            elif kind == link.ANSWER:
                request, sent = link.ANSWER_HEAD.unpack_from(body)
                self.answers.append(UnequalAnswer(request, sent, body[link.ANSWER_HEAD.size :]))
            else:
                self._event(member, link.parsed(body))

    def _event(self, member: _Worker, event: Mapping[str, typing.Any]) -> None:
        if "step" in event:
            self._stepped = time.monotonic()
        elif "problem" in event:
            self.problems.append(event["problem"])
            self._mend = event["mend"]
        elif "bug" in event:
            self.problems.append(f"a worker failed: {event['bug']}")
        elif "pid" in event:
            member.cores = event["cores"]
            self._heard += 1
        elif "error" in event:
            code, name, message = event["error"]
            numbers = self.messages.setdefault(code, (name, []))[1]
            if message not in numbers:
                numbers.append(message)
        elif "idle" in event:
            member.idle = event["idle"]
            self.unsent += event["unsent"]
            self.given_up += event["given_up"]
        elif "end" in event:
            member.idle = self._number

    def _last_words(self) -> str:
        # The workers write through descriptors of their own, which share this one's place in the file.
        size = os.fstat(self._log.fileno()).st_size
        words = (
            os.pread(self._log.fileno(), _WORDS, max(0, size - _WORDS)).decode(errors="replace").strip().splitlines()
        )
        return f": {words[-1]}" if words else ""

    def _lost(self, member: _Worker) -> None:
        member.ended = True
        self._selector.unregister(member.socket)
        code = member.process.wait()
        if code:
            name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            # A killed process writes nothing about its end.
            why = ": often the system ran out of memory" if code == -signal.SIGKILL else self._last_words()
            self.problems.append(f"a worker process ended by itself ({name}){why}")


def hung(seconds: float, called: bool, what: str = "the model") -> errors.TftrtError:
    """The error of a function that does not come to its end. Args: called: whether it was loaded, and a call hangs. what: that hangs."""
    entries = (
        f"hangs in process: for {seconds:g} s no call came to an end"
        if called
        else f"was not loaded within {seconds:g} s"
    )
    return errors.TftrtError(
        f"{what} {entries}",
        "fix it, or what it waits for" + ("; a larger --timeout_seconds waits longer" if called else ""),
    )


@contextlib.contextmanager
def started(work: Iterable[assignment.Assignment], env: Mapping[str, str] | None = None) -> Iterator[Team]:
    """Worker processes, one for each Assignment; env: variables to set. Yields: Team. They have ended when the context is left.

    Their output goes to a file; if one dies, the end of the file goes into the message.
    """
    members: list[_Worker] = []
    with tempfile.TemporaryFile() as log:
        try:
            for part in work:
                members.append(_start(part, log, env))
            team = Team(members, log)
            yield team
            team.tell_all("end")
            team.listen(_END_SECONDS)
        finally:
            for member in members:
                if member.process.poll() is None:
                    member.process.kill()
                member.process.wait()
                member.socket.close()


def _start(work: assignment.Assignment, log: typing.IO[bytes], env: Mapping[str, str] | None) -> _Worker:
    ours, theirs = socket.socketpair()
    with theirs:
        fd = assignment.write(work)
        try:
            path = starting.search_path(first=str(_ROOT))
            folder, place = starting.start()
            # A session of its own: Ctrl-C reaches only the generator, which then asks the workers for their entries.
            command = interpreter.command(
                work.python, "tftrt_tools.servers.load.worker_job", str(theirs.fileno()), str(fd)
            )
            variables = {**os.environ, **(env or {}), **interpreter.path_variables(work.python, path), **place}
            process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno(), fd],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={name: value for name, value in variables.items() if value is not None},
                cwd=folder,
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            os.close(fd)
    return _Worker(process=process, socket=ours, reader=link.Reader())
