"""Remarks on the rows of a table: each is told once, below the table, and its number stands in the rows that it is about."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclasses.dataclass(frozen=True)
class Footnotes:
    """lines: the remarks, in the order of the rows. marks: of each row, the numbers of its remarks, counted from 1."""

    lines: tuple[str, ...]
    marks: tuple[tuple[int, ...], ...]


def collect(rows: Iterable[Sequence[str]]) -> Footnotes:
    """Args: rows: the remarks of each row; empty ones are left out."""
    numbers: dict[str, int] = {}
    marks = tuple(
        tuple(sorted({numbers.setdefault(line, len(numbers) + 1) for line in remarks if line})) for remarks in rows
    )
    return Footnotes(tuple(numbers), marks)
