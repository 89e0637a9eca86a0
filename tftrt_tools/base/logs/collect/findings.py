"""Known messages with their meaning and mend, and unknown ones, counted."""

from __future__ import annotations

import dataclasses
import re

from tftrt_tools.base import records
from tftrt_tools.base.choices import LOG_CATEGORIES, LOG_SEVERITIES, LogCategory, LogLevel, LogSeverity
from tftrt_tools.base.logs import engine_layers, engine_lines, index, load_failure
from tftrt_tools.base.logs.bounded import Counts, Table
from tftrt_tools.base.logs.entries import Entry
from tftrt_tools.base.logs.known import loading, precision
from tftrt_tools.base.logs.message import Message

_MOST_SUBJECTS, _MOST_UNKNOWN = 1000, 1000
_LONGEST = 400
# Levels whose messages should be known.
_LOUD = ("F", "E", "W")
# TensorRT 8.5 writes such a line, and behind it, on a level that is mostly off, the names. Others name one in a line before it.
_AFFECTED, _LIST = "weights are affected by this issue", "List of affected weights:"
# What differs between two messages of one kind.
_VARIES = re.compile(r"0x[0-9a-fA-F]+|\d[\d.,:x]*|'[^']*'|\"[^\"]*\"|\[[^\]]*\]|/\S+")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding(records.Record):
    """A known message that a log contains."""

    # Of logs.message.Message.
    name: str
    category: LogCategory
    severity: LogSeverity
    count: int
    # When it came first and last, as the log has it, "" for unknown; and the number of the first line, and who wrote it, "" for unknown.
    first: str
    last: str
    line: int
    source: str
    # The first one, and what its place holds: {engine, layer, …: how often}, the most frequent first.
    example: str
    subjects: dict[str, int]
    # How often further subjects came, which are not listed.
    subjects_left_out: int
    meaning: str
    mend: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unknown(records.Record):
    """An unknown message of level F, E or W. Messages that differ only in numbers and quoted names count as one."""

    level: LogLevel
    count: int
    # The file and line in the program's source, "" for unknown; the number of the first line, and who wrote it; the first message.
    place: str
    line: int
    source: str
    example: str


@dataclasses.dataclass(kw_only=True)
class _Row:
    count: int = 0
    first: str = ""
    last: str = ""
    line: int = 0
    source: str = ""
    example: str = ""
    mend: str = ""
    subjects: Counts = dataclasses.field(default_factory=lambda: Counts(_MOST_SUBJECTS))


@dataclasses.dataclass(kw_only=True)
class _UnknownRow:
    count: int = 0
    level: LogLevel = ""
    place: str = ""
    line: int = 0
    source: str = ""
    example: str = ""


class Findings:
    """Collects known and unknown messages from logs."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[Message, _Row]] = {}
        # {source: the finding whose weights TensorRT lists in its next line}, {source: whose weights its next lines are about}.
        self._awaiting: dict[str, _Row] = {}
        self._named: dict[str, str] = {}
        self._unknown: Table[tuple[str, str, str], _UnknownRow] = Table(_UnknownRow, _MOST_UNKNOWN)
        # Messages of levels F, E and W, how many of them are unknown, and how many of these are errors.
        self.loud = self.unknown_count = self.unknown_errors = 0

    def take(self, entry: Entry) -> bool:
        """Returns: whether the message is known."""
        match = index.find(entry.text, entry.level)
        if _LIST in entry.text and (row := self._awaiting.pop(entry.source, None)):
            for node in engine_layers.owners(entry.text.partition(_LIST)[2]):
                row.subjects.add(node)
        for message, values in match:
            self._note(entry, message, values)
        if entry.level in _LOUD:
            self.loud += 1
            if not match:
                self._note_unknown(entry)
        return bool(match)

    def _note(self, entry: Entry, message: Message, values: dict[str, str]) -> None:
        if message.name not in self._rows:
            self._rows[message.name] = (
                message,
                _Row(
                    first=entry.time,
                    line=entry.number,
                    source=entry.source,
                    example=_short(entry.text),
                    mend=message.mend,
                ),
            )
        row = self._rows[message.name][1]
        row.count += 1
        row.last = entry.time or row.last
        if message is loading.FAILED:
            # TensorFlow's words behind it say more than that it failed.
            cause, mend = load_failure.explain(entry.text[entry.text.index("failed: ") + len("failed: ") :])
            row.mend = mend or row.mend
            row.subjects.add(f"{values['model']} version {values['version']}: {cause}")
        elif message in precision.OF_WEIGHTS:
            self._note_weights(entry, row)
        elif message is precision.CONVERTED and (weights := values.get(message.subject)):
            if len(self._named) < _MOST_SUBJECTS or entry.source in self._named:
                self._named[entry.source] = engine_layers.owner(weights)
        elif subject := values.get(message.subject):
            row.subjects.add(engine_lines.name(subject) if message.subject == "engine" else subject)

    def _note_weights(self, entry: Entry, row: _Row) -> None:
        """Notes which weights a message is about; the next line or the last line names them."""
        if _AFFECTED in entry.text:
            if len(self._awaiting) < _MOST_SUBJECTS:
                self._awaiting[entry.source] = row
        elif node := self._named.get(entry.source):
            row.subjects.add(node)

    def _note_unknown(self, entry: Entry) -> None:
        self.unknown_count += 1
        self.unknown_errors += entry.level != "W"
        first, _, _ = entry.text.partition("\n")
        row = self._unknown.row((entry.level, entry.place[:_LONGEST], _VARIES.sub("#", first)[:_LONGEST]))
        if row is None:
            return
        if not row.count:
            row.level, row.place, row.line, row.source = entry.level, entry.place[:_LONGEST], entry.number, entry.source
            row.example = _short(entry.text)
        row.count += 1

    def known(self) -> tuple[Finding, ...]:
        """What matters first: errors before warnings, in the order of LOG_CATEGORIES, the most frequent first."""
        findings = [
            Finding(
                name=message.name,
                category=message.category,
                severity=message.severity,
                count=row.count,
                first=row.first,
                last=row.last,
                line=row.line,
                source=row.source,
                example=row.example,
                subjects=row.subjects.sorted(),
                subjects_left_out=row.subjects.left_out,
                meaning=message.meaning,
                mend=row.mend,
            )
            for message, row in self._rows.values()
        ]
        return tuple(
            sorted(
                findings,
                key=lambda finding: (
                    LOG_SEVERITIES.index(finding.severity),
                    LOG_CATEGORIES.index(finding.category),
                    -finding.count,
                ),
            )
        )

    def unknown(self) -> tuple[Unknown, ...]:
        """The most severe first, then the most frequent."""
        groups = [
            Unknown(
                level=row.level, count=row.count, place=row.place, line=row.line, source=row.source, example=row.example
            )
            for row in self._unknown.rows.values()
        ]
        return tuple(sorted(groups, key=lambda group: (_LOUD.index(group.level), -group.count)))

    @property
    def unknown_kinds_left_out(self) -> int:
        """Unknown messages of kinds that there was no place for."""
        return self._unknown.left_out


def _short(text: str) -> str:
    """The first line that says something."""
    return next((line.strip() for line in text.splitlines() if line.strip("# \t-")), "")[:_LONGEST]
