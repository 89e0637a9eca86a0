"""Coordinate search for the parameters with the highest rate: one parameter after the other, until none gives more. Pure of servers.

A trial first has to keep a rate that is clearly above the best so far. If it does not, it ends there: that it is no better is all that
the search has to know.
"""

import dataclasses
from collections.abc import Callable, Iterable

from tftrt_tools.servers.serving.configuration.batching_file import Settings
from tftrt_tools.studies.batching import trial as trials
from tftrt_tools.studies.batching.space import Space
from tftrt_tools.studies.batching.trial import Trial
from tftrt_tools.studies.tuning.budget import Budget, Spent

# Takes the number of a trial, its settings and its floor; gives the Trial.
Measure = Callable[[int, Settings | None, float | None], Trial]
_DIGITS = 4


@dataclasses.dataclass(frozen=True)
class Found:
    """trials: in their order, the first without batching. ended: why the search ended, in words."""

    trials: tuple[Trial, ...]
    ended: str

    @property
    def best(self) -> Trial | None:
        """The Trial with the highest rate; of equal ones the first. None where none kept the promise."""
        return best(self.trials)


def search(measure: Measure, space: Space, budget: Budget, resolution: float) -> Found:
    """Search.

    Args: measure: Measure. space: Space. budget: Budget; without batching one trial is always done. resolution: the least share by which a
      rate has to be higher to count as higher.
    Returns: Found.
    """
    done: list[Trial] = []
    tried_settings: set[Settings] = set()

    def tried(settings: Settings | None) -> bool:
        """Whether it is the best so far, after measuring it."""
        if done:
            budget.check(len(done), sum(trial.seconds for trial in done))
        before = best(done)
        floor = (
            None if before is None or before.rate is None else float(f"{before.rate * (1 + resolution):.{_DIGITS}g}")
        )
        done.append(measure(len(done) + 1, settings, floor))
        return best(done) is done[-1]

    def improved(current: Settings) -> Settings:
        """The best settings of one pass over all coordinates."""
        for coordinate in space.coordinates:
            for value in coordinate.values:
                candidate = dataclasses.replace(current, **value)
                if candidate not in tried_settings:
                    tried_settings.add(candidate)
                    if tried(candidate):
                        current = candidate
        return current

    try:
        tried(None)
        current, before = space.start, None
        tried_settings.add(current)
        tried(current)
        while current != before:
            before, current = current, improved(current)
    except Spent as spent:
        return Found(tuple(done), str(spent))
    return Found(tuple(done), "no other value of any parameter gives a higher rate")


def best(done: Iterable[Trial]) -> Trial | None:
    """The Trial with the highest rate; of equal ones the first. None where none has one."""
    return max((one for one in done if one.rate is not None), key=lambda one: one.rate or 0.0, default=None)


def nearest(done: Iterable[Trial]) -> Trial | None:
    """Of trials that kept no rate, the one that came nearest to the promise; None where nothing was answered."""
    return min((one for one in done if one.nearest_ms is not None), key=lambda one: one.nearest_ms or 0.0, default=None)


def described(one: Trial) -> str:
    """A trial for people: its number and settings."""
    return f"trial {one.number} ({trials.text(one.settings)})"
