"""Candidates that are timed in turns: the order of their blocks, how long a block is, and when there are rounds enough.

A machine changes while it measures: its clock, its heat, its neighbours' work. So candidates are not measured one after the other, but in
rounds. In a round each gets a short block, or several, in an order by which a steady drift adds the same to all. The figures of one round
are then compared with each other (`ratios`). All commands that time models side by side do it by these functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

Name = TypeVar("Name", bound=Hashable)
Figure = TypeVar("Figure")

# A block is short compared with the machine's drift, and long compared with the pause between two blocks.
BLOCK_SECONDS = 0.1
# Calls at the start of a block that are not counted: they warm up caches and other parts that were idle.
LEAD = 2


def order(names: Sequence[Name], number: int, blocks: int = 1) -> list[Name]:
    """The candidates in the order of their blocks.

    One block of each: A B C, and in the next round C B A; over two rounds a linear drift adds the same to all.
    Several blocks of two candidates: A B B A B A A B, the sequence of Thue and Morse, and in the next round A and B exchanged. Within a
    round of two blocks of each a linear drift adds the same to both, within one of four blocks a quadratic drift, too.
    Several blocks of more candidates: A B C C B A, and again; the next round begins with B. Within a round of an even number of blocks a
    linear drift adds the same to all.

    Args: names: of the candidates. number: of the round, from 0. blocks: of each candidate in a round.
    """
    if blocks == 1:
        return list(names[:: -1 if number % 2 else 1])
    first = number % len(names)
    turned = [*names[first:], *names[:first]]
    backwards = [bin(at).count("1") % 2 if len(names) == 2 else at % 2 for at in range(blocks)]
    return [name for back in backwards for name in turned[:: -1 if back else 1]]


def in_turns(
    names: Sequence[Name], numbers: Iterable[int], measure: Callable[[Name], Figure], blocks: int = 1
) -> dict[Name, list[Figure]]:
    """Do rounds. Args: names, blocks: as of `order`. numbers: of the rounds. measure: does one block of a candidate.

    Returns: {name: the figure of each of its blocks}, `blocks` figures for each round, in the order of time.
    """
    found: dict[Name, list[Figure]] = {name: [] for name in names}
    for number in numbers:
        for name in order(names, number, blocks):
            found[name].append(measure(name))
    return found


def calls_of_block(call_seconds: float, least: int, most: int, block_seconds: float = BLOCK_SECONDS) -> int:
    """How many calls fill a block. Args: call_seconds: of one call. least, most: bounds of the number."""
    return max(least, min(most, math.ceil(block_seconds / max(call_seconds, 1e-6))))


def block(measure: Callable[[], Figure], count: int) -> list[Figure]:
    """Measure `count` calls, after LEAD that are not counted. Args: measure: makes one call."""
    return [measure() for _ in range(LEAD + count)][LEAD:]


def looks(rounds: int, most: int) -> list[range]:
    """The numbers of the rounds before each look at the data. Args: rounds: before the first look, and between two. most: rounds in all."""
    return [range(first, min(first + rounds, most)) for first in range(0, most, rounds)]


def until_decided(
    looks: Iterable[range],
    one_round: Callable[[int], None],
    decided: Callable[[], bool],
    late: Callable[[], bool] = lambda: False,
) -> bool:
    """Do rounds until a look at the data decides, or the time is over.

    Args: looks: of `looks`. one_round: does the round of a number. decided: looks at the data. late: whether the time is over, asked after
      each round.
    Returns: whether the time was over; then nobody has looked at the last rounds.
    """
    for look in looks:
        for number in look:
            one_round(number)
            if late():
                return True
        if decided():
            return False
    return False
