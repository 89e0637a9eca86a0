"""Calls timed in turns, for the last comparison (`final`) and for builds that are compared (`repeats`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tftrt_tools.base.statistics import interleaving
from tftrt_tools.models.execution.job import timing

ROUNDS = 20
_LEAST_CALLS, _MOST_CALLS = 3, 200


def in_turns(calls: Sequence[Callable[[], Any]]) -> list[list[list[float]]]:
    """Call each in blocks, in turn. Args: calls: functions without arguments, each called before. Returns: for each a list of ROUNDS lists
    of seconds a call."""
    counts = list(map(count, calls))
    found = interleaving.in_turns(range(len(calls)), range(ROUNDS), lambda at: block(calls[at], counts[at]))
    return list(found.values())


def count(call: Callable[[], Any]) -> int:
    """Calls of a block. Args: call: called before."""
    return interleaving.calls_of_block(timing.seconds(call), _LEAST_CALLS, _MOST_CALLS)


def block(call: Callable[[], Any], calls: int) -> list[float]:
    """Seconds of each call of a block."""
    return interleaving.block(lambda: timing.seconds(call), calls)
