"""Reads logs into a Summary."""

from __future__ import annotations

from collections.abc import Sequence

from tftrt_tools.base import errors
from tftrt_tools.base.logs import entries
from tftrt_tools.base.logs.collect.builder import Builds
from tftrt_tools.base.logs.collect.context import Contexts
from tftrt_tools.base.logs.collect.engines import Engines
from tftrt_tools.base.logs.collect.findings import Findings
from tftrt_tools.base.logs.entries import Entry
from tftrt_tools.base.logs.log_file import MEND, LogFile
from tftrt_tools.base.logs.summary import LogRead, Summary
from tftrt_tools.base.process import progress

_SAID_EVERY = 50_000
# trtexec writes the first message once, a process with TensorFlow the second.
_STARTS = ("&&&& RUNNING ", "This TensorFlow binary is optimized")


class _Span:
    """When a log was written, and by how many processes that cannot be told apart."""

    def __init__(self, origin: str) -> None:
        """Args: origin: what its messages' sources begin with."""
        self.origin = origin
        self.first = self.last = ""
        self.starts = 0

    def take(self, entry: Entry) -> None:
        if entry.time:
            self.first = self.first or entry.time
            self.last = entry.time
        if entry.source == self.origin and entry.text.startswith(_STARTS):
            self.starts += 1


class Reader:
    """Takes logs one after the other."""

    def __init__(self, several: bool = False) -> None:
        """Args: several: whether more than one will come, so that messages have to say whose they are."""
        self._findings, self._engines, self._builds, self._contexts = Findings(), Engines(), Builds(), Contexts()
        self._logs: list[LogRead] = []
        self._several, self._recognised = several, 0

    def read(self, path: str, allow_empty: bool) -> bool:
        """Read a log to its end, or until an interrupt. Returns: whether it was read to its end.

        Raises: UsageError for what can be no log; TftrtError, but for allow_empty, for a log that has nothing that is known.
        """
        before, whole = self._recognised, True
        span = _Span(path if self._several else "")
        with LogFile(path) as log:
            try:
                self._take(log, span)
            except KeyboardInterrupt:
                whole = False
        self._logs.append(
            LogRead(
                path=path,
                lines=log.lines,
                cut=log.cut,
                damage=log.damage,
                first=span.first,
                last=span.last,
                starts=span.starts,
            )
        )
        if allow_empty or log.damage or not whole:
            return whole
        if not log.lines:
            raise errors.TftrtError(f"{log.name} is empty", MEND)
        if self._recognised == before:
            raise errors.TftrtError(
                f"no line of {log.name} (of {log.lines}) is of TF-TRT, TensorRT, TensorFlow Serving or trtexec", MEND
            )
        return whole

    def _take(self, log: LogFile, span: _Span) -> None:
        takers = self._engines.take, self._builds.take, self._contexts.take, span.take
        for count, entry in enumerate(entries.of(log, span.origin)):
            finding = self._findings.take(entry)
            for take in takers:
                take(entry)
            self._recognised += entry.headed or finding
            if count % _SAID_EVERY == 0:
                progress.say(f"{log.name}: {log.lines} lines")

    def summary(self, interrupted: bool = False) -> Summary:
        """What was read so far."""
        return Summary(
            logs=tuple(self._logs),
            interrupted=interrupted,
            findings=self._findings.known(),
            unknown=self._findings.unknown(),
            loud=self._findings.loud,
            unknown_count=self._findings.unknown_count,
            unknown_errors=self._findings.unknown_errors,
            unknown_left_out=self._findings.unknown_kinds_left_out,
            engines=self._engines.result(),
            builder=self._builds.result(),
            context=self._contexts.result(),
        )


def read(paths: Sequence[str], allow_empty: bool = False) -> Summary:
    """Read logs. After an interrupt, the rest is left out. Args and raises: as Reader.read."""
    reader = Reader(several=len(paths) > 1)
    whole = all(reader.read(path, allow_empty) for path in paths)
    return reader.summary(interrupted=not whole)
