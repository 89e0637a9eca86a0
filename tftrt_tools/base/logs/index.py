"""Finds known messages in a text: by the words that are in it, so that a long log is read fast."""

from __future__ import annotations

import collections
import functools
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tftrt_tools.base.choices import LogLevel
from tftrt_tools.base.logs import known
from tftrt_tools.base.logs.message import LONGEST, Form, Message


class Found(NamedTuple):
    """A known message in a text."""

    message: Message
    # {place: its text}.
    values: dict[str, str]


class Index:
    """Known messages by the words of their forms."""

    def __init__(self, messages: Iterable[Message]) -> None:
        by_key: dict[str, list[tuple[Message, Form]]] = collections.defaultdict(list)
        for message in messages:
            for form in message.forms:
                by_key[form.key].append((message, form))
        # Forms without a key are few, and of errors alone.
        self._loose = [(max(form.literals, key=len), message, form) for message, form in by_key.pop("", [])]
        self._by_key = dict(by_key)
        self._keys = frozenset(by_key)

    def find(self, text: str, thoroughly: bool = True) -> list[Found]:
        """The messages in a text, each once. Of messages that overlap, the one with more fixed text counts.

        Args: thoroughly: also those of errors, such as "CUDA_ERROR_OUT_OF_MEMORY", that may stand anywhere.
        """
        candidates = [candidate for key in self._keys.intersection(text.split()) for candidate in self._by_key[key]]
        if thoroughly:
            candidates += [(message, form) for literal, message, form in self._loose if literal in text]
        if not candidates:
            return []
        matches = [
            (form.weight, *_span(form, match), message, match.groupdict())
            for message, form in candidates
            if (match := form.search(text))
        ]
        chosen: list[tuple[int, int, Message, dict[str, str]]] = []
        for _, start, end, message, values in sorted(matches, key=lambda hit: (-hit[0], hit[1])):
            if all((end <= other[0] or start >= other[1]) and other[2] is not message for other in chosen):
                chosen.append((start, end, message, values))
        return [
            Found(message, {name: value.strip()[:LONGEST] for name, value in values.items()})
            for start, _, message, values in sorted(chosen, key=lambda hit: hit[0])
        ]


def _span(form: Form, found: re.Match[str]) -> tuple[int, int]:
    """The span from the first fixed letter of a match to the last one. The text of a place at the end is not part of it."""
    last, matched = form.literals[-1], found.group()
    return found.start(), found.start() + matched.rfind(last) + len(last)


@functools.cache
def _indexes() -> tuple[Index, Index]:
    return Index(known.MESSAGES), Index(known.GENERAL)


def find(text: str, level: LogLevel) -> list[Found]:
    """The known messages in a text (a line, or one with the lines that belong to it). Args: level: its level; lines of I and V are many."""
    special, general = _indexes()
    if level in ("I", "V"):
        return special.find(text, thoroughly=False)
    return special.find(text) or general.find(text)


def all_of(messages: Iterable[Message], text: str, place: str) -> Iterator[str]:
    """What a place holds in each of these messages in a text of many lines. Messages and forms without that place are skipped."""
    for line in text.splitlines():
        for message in messages:
            matched = next((values for form in message.forms if (values := form.find(line))), None)
            if matched and place in matched:
                yield matched[place]
                break
