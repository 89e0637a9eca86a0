"""The worker processes as the generator sees them: started, told what to do, listened to, ended."""

import contextlib
import dataclasses
import os
import pathlib
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time

import numpy as np

from tftrt_tools import errors
from tftrt_tools.load import job, link

_END_SECONDS = 5
_START_SECONDS = 30
_ROOT = pathlib.Path(__file__).resolve().parents[2]
_COLUMNS = 6
_WORDS = 2000


@dataclasses.dataclass
class _Worker:
    process: subprocess.Popen
    socket: socket.socket
    reader: link.Reader
    cores: int = 1
    idle: int = 0  # number of the last run that it has finished
    ended: bool = False


class Team:
    """All workers of a run; made by `started`. Everything they say is kept here, in the order of its arrival."""

    def __init__(self, members, log):
        self._members, self._log = members, log
        self._selector = selectors.DefaultSelector()
        for member in members:
            self._selector.register(member.socket, selectors.EVENT_READ, member)
        self._number = 0
        self._heard = 0
        self._mend = ""
        self.rows = []  # int64 [n, 6]: record.FIELDS, monotonic instants
        self.beats = []  # (worker, now, processor time ns, int64 lags)
        self.messages = {}  # code -> (name, [messages])
        self.answers = []  # (index, sent, bytes) that were not byte for byte what was expected
        self.unsent = self.given_up = 0
        self.problems = []

    @property
    def size(self):
        return len(self._members)

    @property
    def cores(self):
        """Cores that a worker may run on."""
        return max(member.cores for member in self._members)

    def tell(self, commands):
        """Give each worker its next run. Args: commands: a dict each. Returns: the run's number."""
        self._number += 1
        for member, command in zip(self._members, commands, strict=True):
            self._send(member, {**command, "number": self._number})
        return self._number

    def tell_all(self, do):
        """"stop" sending, "give_up" what is outstanding, or "end"."""
        for member in self._members:
            self._send(member, {"do": do, "number": self._number})

    def idle(self):
        """Whether no worker has anything outstanding or to send."""
        return all(member.ended or member.idle >= self._number for member in self._members)

    def listen(self, seconds, enough=lambda: False):
        """Take in what arrives within `seconds`, or until `enough()`. Returns: the rows that did, int64 [n, 6]."""
        before, until = len(self.rows), time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and any(not member.ended for member in self._members) and not enough():
            for key, _ in self._selector.select(left):
                self._receive(key.data)
        return np.concatenate(self.rows[before:]) if len(self.rows) > before else np.zeros((0, _COLUMNS), np.int64)

    def listen_until_idle(self, seconds):
        """Returns: whether they all became idle within `seconds`."""
        self.listen(seconds, self.idle)
        return self.idle()

    def connected(self, address, seconds):
        """Wait for each worker to say that it is ready. Raises: TftrtError."""
        self.listen(seconds + _START_SECONDS, lambda: self._heard == len(self._members) or self.problems)
        if self._heard == len(self._members):
            return
        cause = self.problems[0] if self.problems else "the load generator's processes did not start in time"
        raise errors.TftrtError(f"no load on {address}: {cause}", self._mend)

    def _send(self, member, command):
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            link.send(member.socket, link.COMMAND, command)

    def _receive(self, member):
        try:
            data = member.socket.recv(1 << 20)
        except ConnectionResetError:
            data = b""
        if not data:
            self._lost(member)
            return
        for kind, body in member.reader.feed(data):
            if kind == link.RECORDS:
                self.rows.append(np.frombuffer(body, np.int64).reshape(-1, _COLUMNS))
            elif kind == link.BEATS:
                values = np.frombuffer(body, np.int64)
                self.beats.append((self._members.index(member), int(values[0]), int(values[1]), values[2:]))
            elif kind == link.ANSWER:
                index, sent = link.ANSWER_HEAD.unpack_from(body)
                self.answers.append((index, sent, body[link.ANSWER_HEAD.size:]))
            else:
                self._event(member, link.parsed(body))

    def _event(self, member, event):
        if "problem" in event:
            self.problems.append(event["problem"])
            self._mend = event["mend"]
        elif "bug" in event:
            self.problems.append(f"a worker failed: {event['bug']}")
        elif "pid" in event:
            member.cores = event["cores"]
            self._heard += 1
        elif "error" in event:
            code, name, message = event["error"]
            known = self.messages.setdefault(code, (name, []))[1]
            if message not in known:
                known.append(message)
        elif "idle" in event:
            member.idle = event["idle"]
            self.unsent += event["unsent"]
            self.given_up += event["given_up"]
        elif "end" in event:
            member.idle = self._number

    def _last_words(self):
        # The workers write through descriptors of their own, which share this one's place in the file.
        size = os.fstat(self._log.fileno()).st_size
        words = os.pread(self._log.fileno(), _WORDS, max(0, size - _WORDS)).decode(errors="replace").strip().splitlines()
        return f": {words[-1]}" if words else ""

    def _lost(self, member):
        member.ended = True
        self._selector.unregister(member.socket)
        code = member.process.wait()
        if code:
            name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            # Nobody who is killed has last words of his own about it.
            why = ": often the system ran out of memory" if code == -signal.SIGKILL else self._last_words()
            self.problems.append(f"a worker process ended by itself ({name}){why}")


@contextlib.contextmanager
def started(jobs, env=None):
    """Worker processes, one for each job.Job; env: variables to set. Yields: Team. They have ended when the context is left.

    What they print goes to a file, and its end to the message where one dies.
    """
    members, team = [], None
    with tempfile.TemporaryFile() as log:
        try:
            for one in jobs:
                members.append(_start(one, log, env))
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


def _start(one, log, env):
    ours, theirs = socket.socketpair()
    with theirs:
        fd = job.write(one)
        try:
            env = {**os.environ, **(env or {}), "PYTHONPATH": os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))}
            # A session of its own: Ctrl-C reaches the generator alone, which then asks for what there is.
            process = subprocess.Popen([sys.executable, "-m", "tftrt_tools.load.worker", str(theirs.fileno()), str(fd)],
                                       pass_fds=[theirs.fileno(), fd], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env,
                                       start_new_session=True)
        except BaseException:
            ours.close()
            raise
        finally:
            os.close(fd)
    return _Worker(process, ours, link.Reader())
