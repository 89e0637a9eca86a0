"""What logs say, as one record; and the checks of `tftrt log --fail_on`."""

import dataclasses
import typing
from collections.abc import Iterator

from tftrt_tools.base import records
from tftrt_tools.base.choices import LOG_CATEGORIES
from tftrt_tools.base.logs import log_file
from tftrt_tools.base.logs.collect.builder import Builder
from tftrt_tools.base.logs.collect.context import Context
from tftrt_tools.base.logs.collect.engines import EngineRuns
from tftrt_tools.base.logs.collect.findings import Finding, Unknown

# What a check can name besides the categories of messages.
ANY_ERROR, UNKNOWN = "error", "unknown"
CHECKS: tuple[str, ...] = (*LOG_CATEGORIES, ANY_ERROR, UNKNOWN)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogRead(records.Record):
    """A log that was read."""

    # "-" is stdin.
    path: str
    lines: int
    # The number of lines that were too long and were read only at the beginning.
    cut: int
    # Why its end is missing, "" where it is not.
    damage: str
    # Times of its first and last message, as the log has them, "" for none.
    first: str
    last: str
    # The number of process starts in a log whose lines do not tell the processes apart.
    starts: int

    @property
    def name(self) -> str:
        """The log's name as messages show it."""
        return log_file.name(self.path)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary(records.Record):
    """What logs say."""

    document: typing.ClassVar = "log"
    logs: tuple[LogRead, ...]
    # Whether the reading was interrupted.
    interrupted: bool
    # What matters first.
    findings: tuple[Finding, ...]
    unknown: tuple[Unknown, ...]
    # Messages of levels F, E and W: all, the unknown ones, the errors among these (F and E), and those of kinds that there was no place for
    # in `unknown`.
    loud: int
    unknown_count: int
    unknown_errors: int
    unknown_left_out: int
    engines: EngineRuns
    builder: Builder
    context: Context

    @property
    def lines(self) -> int:
        """The number of lines in all logs."""
        return sum(one.lines for one in self.logs)

    def failed(self, checks: typing.Collection[str]) -> Iterator[str]:
        """What breaks the checks, in words. Args: checks: of CHECKS."""
        for category in (name for name in LOG_CATEGORIES if name in checks):
            texts = [
                f"{finding.name} ({finding.count}×)"
                for finding in self.findings
                if finding.category == category and finding.severity != "note"
            ]
            if category == "fallback":
                texts += [
                    f"{engine.name} ran natively {engine.native_runs}×"
                    for engine in self.engines.engines
                    if engine.native_runs
                ]
            if texts:
                yield f"{category}: {', '.join(texts)}"
        if ANY_ERROR in checks and (wrong := [finding for finding in self.findings if finding.severity == "error"]):
            yield f"error: {', '.join(f'{check.name} ({check.count}×)' for check in wrong)}"
        if UNKNOWN in checks and self.unknown_errors:
            yield f"unknown: {self.unknown_errors} error{'s that are' if self.unknown_errors > 1 else ' that is'} not known here"
