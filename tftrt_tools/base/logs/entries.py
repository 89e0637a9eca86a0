"""What a log says, message by message: a line with a head, and the lines without one that belong to it."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tftrt_tools.base.choices import LogLevel
from tftrt_tools.base.logs import heads

# The most characters that are kept of a message of many lines.
_MOST_LINES, _MOST_CHARACTERS = 200, 32 * 1024
# The most writers that may have an unfinished message at a time.
_MOST_OPEN = 64
_LONGEST_SOURCE = 200
# Messages of these levels are awaited to their end. Others have lines of their own behind them, each a message.
_AWAITED = ("F", "E", "W")


class Entry(NamedTuple):
    """A message."""

    # Who wrote it: its log, where there are several, a container, a pod, a process, with its thread where the log says it; "" for unknown.
    source: str
    # The time as the log writes it, "" for none.
    time: str
    level: LogLevel
    # The file and line in the program's source, "" for none.
    place: str
    # Whether TensorRT wrote the message.
    tensorrt: bool
    # Its lines.
    text: str
    # The number of its first line.
    number: int
    # Whether the line has a head.
    headed: bool


class _Open:
    """A message whose last line has not been read."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.lines = [entry.text]
        self.size = len(entry.text)

    def add(self, line: str) -> None:
        if len(self.lines) < _MOST_LINES and self.size < _MOST_CHARACTERS:
            self.lines.append(line)
            self.size += len(line) + 1

    def done(self) -> Entry:
        return self.entry._replace(text="\n".join(self.lines)) if len(self.lines) > 1 else self.entry


def of(lines: Iterable[str], origin: str = "") -> Iterator[Entry]:
    """The messages of a log's lines. Lines of several writers may be mixed: a line without a head belongs to the last message of its
    writer, as far as what encloses the lines tells writers apart. After an interrupt, the messages so far come, and then it.

    Args: origin: what sources of this log begin with.
    """
    unfinished: collections.OrderedDict[str, _Open] = collections.OrderedDict()
    stopped: BaseException | None = None
    try:
        yield from _finished(lines, origin, unfinished)
    except KeyboardInterrupt as stop:
        stopped = stop
    for entry in unfinished.values():
        yield entry.done()
    if stopped is not None:
        raise stopped


def _finished(lines: Iterable[str], origin: str, unfinished: collections.OrderedDict[str, _Open]) -> Iterator[Entry]:
    """The messages whose end has come; the others are in `unfinished`, by writer."""
    for number, line in enumerate(lines, 1):
        around, rest = heads.split(line)
        if origin:
            around = f"{origin} {around}".rstrip()
        for part in heads.parts(rest):
            head = heads.read(part)
            before = unfinished.get(around)
            if head is None:
                if before is not None:
                    before.add(part)
                elif part.strip():
                    yield Entry(around, "", "", "", False, part, number, False)
                continue
            if before is not None:
                yield unfinished.pop(around).done()
            source = (
                f"{around[:_LONGEST_SOURCE]} thread {head.thread}".strip() if head.thread else around[:_LONGEST_SOURCE]
            )
            entry = Entry(source, head.time, head.level, head.place, head.tensorrt, head.text, number, True)
            if head.level not in _AWAITED:
                yield entry
                continue
            unfinished[around] = _Open(entry)
            if len(unfinished) > _MOST_OPEN:
                yield unfinished.popitem(last=False)[1].done()
