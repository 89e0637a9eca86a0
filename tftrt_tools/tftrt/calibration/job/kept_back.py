"""Keeps back some batches of calibration data while ranges are measured, to judge the ranges on rows that they were not made from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy.typing as npt

Batch = Mapping[str, npt.NDArray[Any]]

# The most batches, rows and bytes; one batch is kept back in any case.
BATCHES, ROWS, BYTES = 16, 128, 128 << 20


class KeptBack:
    """Keeps every k-th batch, spread evenly over data of unknown length: k is 2 at first, and doubles when that would be too many."""

    def __init__(self) -> None:
        self._every = 2
        self._kept: dict[int, Batch] = {}
        self._others: list[Batch] = []

    @property
    def batches(self) -> list[Batch]:
        """The kept batches, in order."""
        return list(self._kept.values())

    @property
    def others(self) -> list[Batch]:
        """The other half of the batches, if all batches were few enough to keep; else []."""
        return list(self._others)

    def sorted_out(self, number: int, batch: Batch) -> list[Batch]:
        """Take the batch of that number, from 1. Returns: the batches to be counted now; each comes out once or stays in `batches`."""
        if number % self._every:
            if self._every == 2 and (number == 1 or self._others):
                self._others = [] if number > 1 and _too_many([*self._others, batch]) else [*self._others, batch]
            return [batch]
        self._kept[number], released = batch, []
        while len(self._kept) > 1 and _too_many(self._kept.values()):
            self._every, self._others = 2 * self._every, []
            released += [self._kept.pop(place) for place in list(self._kept) if place % self._every]
        return released


def rows(batches: Iterable[Batch]) -> int:
    """The number of rows in batches."""
    return sum(max((len(array) for array in batch.values() if array.ndim), default=1) for batch in batches)


def _too_many(batches: Iterable[Batch]) -> bool:
    batches = list(batches)
    return (
        len(batches) > BATCHES
        or rows(batches) > ROWS
        or sum(array.nbytes for batch in batches for array in batch.values()) > BYTES
    )
