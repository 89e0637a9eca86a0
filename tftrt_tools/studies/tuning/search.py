"""The order of the trials. `search` gets the Means of each backend, which run a trial.

1. The plain precisions: FP32, FP16, INT8, with each back end in turn.
2. FP16, where it misses the goal: the most harmful nodes in FP32, as many as the simulation suggests, then twice as many and so on until
   the goal is kept, then bisection to the fewest. INT8, where it misses the goal: first other ranges, which cost no time in a call, from
   the calibration methods that promise less noise, the best first. If none keeps the goal: the most accurate one with nodes in FP16 or
   FP32, as for FP16. The search assumes that more nodes in a higher precision make a model slower and nearer to the original. So it
   leaves a precision as soon as it is no faster than a model that keeps the goal, or if the precisions above it miss the goal too. Then
   the same with the next back end, if it can keep nodes in a higher precision.
3. For the best so far: other minimum segment sizes.
4. For the best so far: other profile strategies. Only TF-TRT cuts a model into segments with profiles: where another back end made the
   best so far, nothing is tried in 3 and 4.

The best trial is the fastest that keeps the goal. Among trials with the same latency within the noise: the most accurate, then the one
with fewer nodes in a higher precision, then the faster one.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from tftrt_tools.accuracy import harm
from tftrt_tools.accuracy.goal import Goal
from tftrt_tools.base import choices, errors
from tftrt_tools.models.backends.protocol import Ranked
from tftrt_tools.models.execution import kernels
from tftrt_tools.studies import backends
from tftrt_tools.studies.tuning import space as space_module
from tftrt_tools.studies.tuning.budget import Budget, Spent
from tftrt_tools.studies.tuning.latency import DRIFT, tied
from tftrt_tools.studies.tuning.tried import Measured, Trial
from tftrt_tools.tftrt.conversion.settings import Settings

# For each precision: the higher precision for its most harmful nodes.
_ABOVE: dict[str, tuple[str, ...]] = {"FP16": ("FP32",), "INT8": ("FP32", "FP16")}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a search."""

    # In the order of the search.
    trials: tuple[Trial, ...]
    # The trial to take, None where none keeps the goal; then the one nearest to it.
    winner: Trial | None
    best: Trial | None
    # Why the search ended, and its decisions, in words.
    ended: str
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Means:
    """What a search asks of one backend."""

    # Runs a trial.
    evaluate: Callable[[Settings], Measured]
    # Ranks nodes; called at most once a precision. May raise TftrtError.
    rank: Callable[[Settings], Ranked]
    # The SNR in dB that a simulation promises. May raise TftrtError.
    snr_db: Callable[[Settings], float]
    # Other settings to try where plain ones gave a model.
    variants: Callable[[Settings], Sequence[Settings]] = lambda settings: ()


class Prefetch(Protocol):
    """Does trials before a search asks for them, so that they need not be done one after the other."""

    # How many it does at once.
    width: int

    def __call__(self, listed: Sequence[tuple[str, Settings]], seconds: float) -> None:
        """Do those of `listed`, (backend, settings) each, that are not done yet. Args: seconds: of trials, after which none begins."""


def search(
    means: Mapping[str, Means],
    space: space_module.Space,
    objective: str,
    goal: Goal,
    original: float,
    budget: Budget | None = None,
    drift: float = DRIFT,
    prefetch: Prefetch | None = None,
) -> Outcome:
    """Find the fastest settings that keep the goal.

    Args:
      means: of the backends that `space` tries, in the order in which they keep nodes in a higher precision. space: Space.
      objective: text of the call whose latency counts. goal: Goal; original: its metric of the original model.
      budget: Budget. drift: latencies that differ by less than this share count as equal. prefetch: is told the trials that need no
        other; None for nobody. The search is the same with it.

    Returns: Outcome.
    """
    return _Search(means, space, objective, goal, original, budget or Budget(), drift, prefetch).run()


def choose(trials: Iterable[Trial], objective: str, goal: Goal, drift: float = DRIFT) -> Trial | None:
    """The best of the Trials that keep the goal and can be served, or None."""
    kept = [one for one in trials if one.may_win]
    if not kept:
        return None
    fastest = min(kept, key=lambda one: one.ms(objective))
    times = fastest.measured.latencies[objective]
    equal = [one for one in kept if tied(one.measured.latencies[objective], times, drift)]
    return preferred(equal, goal, lambda one: one.ms(objective))


def preferred(equal: Iterable[Trial], goal: Goal, ms: Callable[[Trial], float]) -> Trial:
    """Of Trials that keep the goal and are equally fast: the one to take. Args: ms: function Trial -> its latency."""
    return min(equal, key=lambda one: (-goal.merit(_accuracy(one)), len(one.high), ms(one), one.number))


def _accuracy(one: Trial) -> float:
    """The goal's metric of a trial; NaN if it has none, which counts as the worst."""
    return math.nan if one.measured.accuracy is None else one.measured.accuracy


class _Search:
    def __init__(
        self,
        means: Mapping[str, Means],
        space: space_module.Space,
        objective: str,
        goal: Goal,
        original: float,
        budget: Budget,
        drift: float,
        prefetch: Prefetch | None,
    ) -> None:
        self._means, self._space, self._objective, self._goal, self._original = means, space, objective, goal, original
        self._budget, self._drift, self._prefetch = budget, drift, prefetch
        self._trials: list[Trial] = []
        self._seen: dict[tuple[str, Settings], Trial] = {}
        self._notes: list[str] = []
        self._not_taken: set[str] = set()

    def run(self) -> Outcome:
        ended = "everything was tried"
        try:
            plain = [
                (backend, space_module.with_precision(self._space.base, precision))
                for backend in self._space.backends
                for precision in self._space.precisions
            ]
            self._ahead((*plain, *self._compared()))
            for backend, settings in plain:
                self._trial(settings, backend)
            self._try_variants()
            for backend in (one for one in self._means if one not in self._space.compared):
                self._keep_high("FP16", backend)
                self._keep_high("INT8", backend)
            self._vary(
                "segment sizes",
                self._space.sizes,
                lambda settings, size: dataclasses.replace(settings, minimum_segment_size=size),
            )
            self._vary("profile strategies", self._space.strategies, space_module.with_strategy)
            self._compare()
        except Spent as spent:
            ended = str(spent)
        winner = self._best()
        return Outcome(
            trials=tuple(self._trials),
            winner=winner,
            best=None if winner else self._nearest(),
            ended=ended,
            notes=tuple(self._notes),
        )

    def _ahead(self, listed: Sequence[tuple[str, Settings]], at_once: bool = False) -> None:
        """Let trials begin that come next, as many as the budget has. Args: at_once: only as many as run at once, because the search may
        end before the others."""
        if self._prefetch:
            left, seconds = self._budget.trials - len(self._trials), self._budget.seconds_left(self._taken())
            new = [one for one in listed if one not in self._seen]
            new = new[: min(left, self._prefetch.width) if at_once else left]
            if new and seconds > 0:
                self._prefetch(new, seconds)

    def _taken(self) -> float:
        return sum(one.measured.seconds for one in self._trials)

    def _try_variants(self) -> None:
        """Try what else the back ends can make of a precision that they have made."""
        plain = [
            self._seen[backend, space_module.with_precision(self._space.base, precision)]
            for backend in self._space.backends
            for precision in self._space.precisions
        ]
        variants = [
            (one.backend, settings)
            for one in plain
            if not one.measured.failure
            for settings in self._means[one.backend].variants(one.settings)
        ]
        self._ahead(variants)
        for backend, settings in variants:
            self._trial(settings, backend)

    def _compared(self) -> list[tuple[str, Settings]]:
        """Each precision but FP32 with the back ends that cannot win."""
        return [
            (backend, space_module.with_precision(self._space.base, precision))
            for backend in self._space.compared
            for precision in self._space.precisions
            if precision != "FP32"
        ]

    def _compare(self) -> None:
        """Try what cannot win. What is nearer to the goal there is not searched."""
        for backend, settings in self._compared():
            self._trial(settings, backend)

    def _trial(self, settings: Settings, backend: str, high: Sequence[str] = ()) -> Trial:
        if (backend, settings) in self._seen:
            return self._seen[backend, settings]
        following = f"next would be {space_module.text(settings, high, backend)}"
        self._budget.check(len(self._trials), self._taken(), following)
        measured = self._means[backend].evaluate(settings)
        kept = (
            not measured.failure
            and measured.accuracy is not None
            and self._goal.kept(measured.accuracy, self._original)
        )
        one = Trial(
            number=len(self._trials) + 1,
            settings=settings,
            high=tuple(high),
            measured=measured,
            kept=kept,
            backend=backend,
            compared=backend in self._space.compared,
        )
        self._trials.append(one)
        self._seen[backend, settings] = one
        self._say_what_was_not_taken(one)
        return one

    def _say_what_was_not_taken(self, one: Trial) -> None:
        """Note once for each precision that TensorRT did not take it. This does not steer the search, because kernels of other GPUs may
        have other names."""
        precision = one.settings.precision_mode
        text = kernels.not_taken(precision, one.measured.kernels)
        if text and precision not in self._not_taken:
            self._not_taken.add(precision)
            self._notes.append(f"trial {one.number}: {text}")

    def _best(self) -> Trial | None:
        return choose(self._trials, self._objective, self._goal, self._drift)

    def _nearest(self) -> Trial | None:
        """The most accurate trial that gave a model; NaN counts as the worst."""
        usable = [one for one in self._trials if not one.measured.failure and not one.compared]
        return max(usable, key=self._closeness, default=None)

    def _closeness(self, one: Trial) -> tuple[bool, float]:
        return not math.isnan(_accuracy(one)), self._goal.merit(_accuracy(one))

    def _worth(self, one: Trial) -> bool:
        """Whether something a little slower than `one` could still be the fastest that keeps the goal."""
        best = min((other.ms(self._objective) for other in self._trials if other.may_win), default=math.inf)
        return bool(one.measured.failure) or one.ms(self._objective) < best

    def _keep_high(self, precision: choices.Precision, backend: str) -> None:
        plain, named = (
            self._seen.get((backend, space_module.with_precision(self._space.base, precision))),
            _named(precision, backend),
        )
        if plain is None or plain.kept or plain.measured.failure:
            return
        if precision not in backends.named(backend).keeps_high:
            self._notes.append(f"{named} misses the goal, and {backend} keeps no nodes in a higher precision")
            return
        above = [
            one
            for one in self._trials
            if one.settings.precision_mode in _ABOVE[precision] and not one.high and one.backend == backend
        ]
        if above and not any(one.kept for one in above):
            self._notes.append(
                f"{named} misses the goal, and so does {' and '.join(one.settings.precision_mode for one in above)}: no "
                "nodes were kept in a higher precision"
            )
            return
        if not self._worth(plain):
            self._notes.append(
                f"{named} misses the goal and is no faster than what keeps it: no nodes were kept in a higher precision"
            )
            return
        if precision == "INT8":
            plain = self._calibrated_otherwise(plain)
            if plain.kept:
                return
        try:
            ranked = self._means[backend].rank(plain.settings)
        except errors.TftrtError as error:
            self._notes.append(f"{named} misses the goal, and its nodes could not be ranked: {error.cause}")
            return
        if not ranked.names:
            self._notes.append(f"{named} misses the goal, and no node was found to keep in a higher precision")
            return
        self._fewest(plain, ranked.names, ranked.first)

    def _calibrated_otherwise(self, plain: Trial) -> Trial:
        """Try plain INT8 with the other methods, until one keeps the goal. Returns: the Trial that does, or the most accurate of all."""
        tried, promising = [plain], self._promising(plain)
        for number, settings in enumerate(promising):
            self._ahead([(plain.backend, one) for one in promising[number:]], at_once=True)
            tried.append(self._trial(settings, plain.backend))
            if tried[-1].kept:
                break
        best = max((one for one in tried if not one.measured.failure), key=self._closeness)
        if len(tried) > 1:
            said = "keeps the goal" if best.kept else "is the most accurate, and misses it too"
            methods = [one.settings.calibration_method for one in (plain, best)]
            self._notes.append(f"{_named('INT8', plain.backend)} by {methods[0]} misses the goal; {methods[1]} {said}")
        return best

    def _promising(self, plain: Trial) -> list[Settings]:
        """Settings with the other methods that promise less noise, the best first; with all of them if nothing can be simulated."""
        settings, snr_db = plain.settings, self._means[plain.backend].snr_db
        by_whom = backends.named(plain.backend)
        methods, of = self._space.methods.get(plain.backend, ()), f" of {by_whom.makes}" if by_whom.title else ""
        others = [space_module.with_method(settings, method, self._space.percentile) for method in methods]
        try:
            levels = {one: snr_db(one) for one in (*others, settings)} if others else {}
        except errors.TftrtError as error:
            self._notes.append(f"the calibration methods{of} could not be simulated: {error.cause}")
            return others
        better = [one for one in others if levels[one] >= levels[settings] + harm.PROMISE_DB]
        if others and not better:
            self._notes.append(
                f"no other calibration method{of} promises a fifth less noise: "
                + ", ".join(f"{one.calibration_method} {level:.1f} dB" for one, level in levels.items())
            )
        return sorted(better, key=lambda one: -levels[one])

    def _fewest(self, plain: Trial, ranked: Sequence[str], first: int) -> None:
        """Double the number of nodes in a higher precision, from `first` on, until the goal is kept, then bisect to the fewest. Args:
        ranked: names."""
        keeps: int | None = None
        misses, count, named = 0, min(first, len(ranked)), _named(plain.settings.precision_mode, plain.backend)
        while keeps is None:
            self._ahead([self._high(plain, ranked[:several]) for several in _doubled(count, len(ranked))], at_once=True)
            one = self._with_high(plain, ranked[:count])
            if one.kept:
                keeps = count
            elif not self._worth(one):
                self._notes.append(
                    f"{named} with {count} nodes in a higher precision misses the goal and is no faster than what keeps it: "
                    "more were not tried"
                )
                return
            elif count == len(ranked):
                self._notes.append(f"{named} misses the goal even with all {count} ranked nodes in a higher precision")
                return
            else:
                misses, count = count, min(2 * count, len(ranked))
        while keeps - misses > 1:
            count = (keeps + misses) // 2
            if self._with_high(plain, ranked[:count]).kept:
                keeps = count
            else:
                misses = count

    def _high(self, plain: Trial, nodes: Sequence[str]) -> tuple[str, Settings]:
        return plain.backend, space_module.with_high(plain.settings, nodes, plain.backend)

    def _with_high(self, plain: Trial, nodes: Sequence[str]) -> Trial:
        backend, settings = self._high(plain, nodes)
        return self._trial(settings, backend, nodes)

    def _vary(self, what: str, values: Sequence[Any], change: Callable[[Settings, Any], Settings]) -> None:
        best = self._best()
        if best is None:
            if values:
                self._notes.append(f"other {what} were not tried: no trial so far keeps the goal")
            return
        if not (by_whom := backends.named(best.backend)).has_segments:
            if values:
                self._notes.append(
                    f"other {what} were not tried: a {by_whom.title}, which has none, is the best so far"
                )
            return
        changed = [change(best.settings, value) for value in values]
        self._ahead([(best.backend, one) for one in changed])
        for settings in changed:
            self._trial(settings, best.backend, best.high)


def _doubled(count: int, most: int) -> list[int]:
    """count, twice that, and so on; the last is `most`."""
    found = [count]
    while found[-1] < most:
        found.append(min(2 * found[-1], most))
    return found


def _named(precision: choices.Precision, backend: str) -> str:
    """The plain trial of a precision, in notes."""
    title = backends.named(backend).title
    return f"{precision} as a {title}" if title else precision
