"""The last comparison: the original and the trials that may win, timed in turns in one process. No TensorFlow here.

Trials are timed minutes apart, and the GPU's clock or a neighbour's load may change meanwhile, so the ratio of two trials is not
reliable. Here each model is called in short blocks, in turn (base.statistics.interleaving); the round is the unit of the statistics.
"""

import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tftrt_tools.accuracy.goal import Goal
from tftrt_tools.base import records
from tftrt_tools.base.statistics import ratios
from tftrt_tools.studies.tuning import search
from tftrt_tools.studies.tuning.latency import DRIFT, Latency
from tftrt_tools.studies.tuning.tried import NATIVE, Trial, plain

LEVEL = 0.95
# Trials that are slower than the fastest by more than this share are not timed again.
_NEAR = 0.1
# The most trials that are timed, because all are in GPU memory at once; FP16 may come on top, to know its factor, and so may one that
# cannot win.
_MOST = 3
_SEED = 0


@dataclasses.dataclass(frozen=True)
class Faster(records.Record):
    """How many times as fast one model is as another. times: of medians; low, high: its 95 % interval."""

    times: float
    low: float
    high: float

    def text(self, other: str) -> str:
        """For people: "2.31 times as fast as TensorFlow (95 %: 2.28 to 2.35)"."""
        return f"{self.times:.2f} times as fast as {other} (95 %: {self.low:.2f} to {self.high:.2f})"


@dataclasses.dataclass(frozen=True)
class Final:
    """call: as text, what was timed. latencies: {number of the trial, or NATIVE: Latency}; rounds: {number: (median of each round, ms)}."""

    call: str
    latencies: Mapping[int, Latency]
    rounds: Mapping[int, Sequence[float]]

    @property
    def numbers(self) -> tuple[int, ...]:
        """Of the trials that were timed."""
        return tuple(number for number in self.latencies if number != NATIVE)

    def faster(self, one: int, other: int = NATIVE) -> Faster:
        """Faster: trial `one` beside `other`."""
        logs = np.log(np.divide(self.rounds[other], self.rounds[one]))
        return Faster(*dataclasses.astuple(ratios.of_rounds(logs, 1 - LEVEL, _SEED)))

    def to_dict(self) -> dict[str, Any]:
        """Written by hand: it also has how many times as fast each trial is."""
        return {
            "call": self.call,
            "latencies": {str(number): one.to_dict() for number, one in self.latencies.items()},
            "rounds_ms": {str(number): list(one) for number, one in self.rounds.items()},
            "times_as_fast_as_tensorflow": {str(number): self.faster(number).to_dict() for number in self.numbers},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Final":
        return cls(
            data["call"],
            {int(number): Latency.from_dict(one) for number, one in data["latencies"].items()},
            {int(number): tuple(one) for number, one in data["rounds_ms"].items()},
        )


def finalists(trials: Iterable[Trial], winner: Trial, objective: str) -> tuple[Trial, ...]:
    """The Trials to time: the winner, those that keep the goal and are nearly as fast, plain FP16, and the fastest of those that keep the
    goal and were tried for comparison alone. Args: winner: of `trials`."""
    trials = tuple(trials)
    kept = sorted((one for one in trials if one.may_win), key=lambda one: one.ms(objective))
    compared = sorted((one for one in trials if one.kept and one.compared), key=lambda one: one.ms(objective))
    limit = (1 + _NEAR) * kept[0].ms(objective)
    near = [one for one in kept if one.ms(objective) <= limit and one != winner]
    fp16 = plain(trials, "FP16")
    beside = (fp16,) if fp16 and fp16.latency(objective) else ()
    return tuple({one.number: one for one in (winner, *near[: _MOST - 1], *beside, *compared[:1])}.values())


def final(call: str, numbers: Sequence[int], seconds: Sequence[Sequence[Sequence[float]]]) -> Final:
    """The result of the turns. Args: call: as text. numbers: of the trials that were called; seconds: of turns_job.in_turns. Returns:
    Final."""
    named = dict(zip(numbers, seconds, strict=True))
    return Final(
        call,
        {number: Latency.of([one for block in blocks for one in block]) for number, blocks in named.items()},
        {number: tuple(1e3 * statistics.median(block) for block in blocks) for number, blocks in named.items()},
    )


def chosen(found: Final, trials: Iterable[Trial], goal: Goal, drift: float = DRIFT) -> Trial:
    """The winner by the turns: a Trial. Args: found: Final; trials: of the whole search; goal: Goal. Which of equals: as search.choose."""
    timed = [one for one in trials if one.may_win and one.number in found.numbers]
    fastest = min(timed, key=lambda one: found.latencies[one.number].ms)
    equal = [one for one in timed if one == fastest or _tied(found.faster(fastest.number, one.number), drift)]
    return search.preferred(equal, goal, lambda one: found.latencies[one.number].ms)


def _tied(faster: Faster, drift: float) -> bool:
    return faster.low <= 1 or faster.times <= 1 + drift
