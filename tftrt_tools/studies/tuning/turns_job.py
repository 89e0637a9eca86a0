"""Calls timed in turns, for the last comparison (`final`) and for builds that are compared (`repeats`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tftrt_tools.models.execution.job import timing

ROUNDS = 20
# Calls at the start of a block that are not counted: they warm up caches and other parts that were idle.
_LEAD = 2
_BLOCK_SECONDS = 0.1
_LEAST_CALLS, _MOST_CALLS = 3, 200


def in_turns(calls: Sequence[Callable[[], Any]]) -> list[list[list[float]]]:
    """Call each in blocks, in turn: A B C, then C B A, and so on, so that a drift meets all alike.

    Args: calls: functions without arguments, each called before. Returns: for each a list of ROUNDS lists of seconds a call.
    """
    counts = list(map(count, calls))
    found: list[list[list[float]]] = [[] for _ in calls]
    for number in range(ROUNDS):
        for at in range(len(calls))[:: -1 if number % 2 else 1]:
            found[at].append(block(calls[at], counts[at]))
    return found


def count(call: Callable[[], Any]) -> int:
    """Calls of a block. Args: call: called before."""
    return max(_LEAST_CALLS, min(_MOST_CALLS, round(_BLOCK_SECONDS / timing.seconds(call))))


def block(call: Callable[[], Any], calls: int) -> list[float]:
    """Seconds of each call of a block."""
    return [timing.seconds(call) for _ in range(_LEAD + calls)][_LEAD:]
