"""Is the candidate better or worse than the native model, the same, or can nobody tell?

The rule for each metric, on the ratio candidate / native:
  worse, better   three things hold together: the bootstrap interval of the ratio leaves out 1, Wilcoxon's signed-rank test of the rounds is
                  significant, and the ratio is off by the minimum effect or more
  same            a difference of the minimum effect is ruled out on both sides, which is more than "nothing was found": two one-sided tests
                  at SAME_ALPHA, which is an interval at twice that level inside the minimum effect (Schuirmann, Journal of Pharmacokinetics
                  and Biopharmaceutics 15, 1987)
  cannot tell     everything else, with the reason
The level of one metric's test is ALPHA shared among the metrics and the looks at the data (Bonferroni), so that a model compared with
itself is called better or worse in at most that share of runs.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tftrt_tools.base import choices, records
from tftrt_tools.base.statistics import averages, dependence, rank_test, resampling

BETTER: choices.Verdict = "better"
WORSE: choices.Verdict = "worse"
SAME: choices.Verdict = "same"
UNSURE: choices.Verdict = "cannot tell"
# Half of the promised 1 %: recorded rounds scatter more than theory expects (benchmarks/verdict_power.py).
ALPHA = 0.005
# The most runs that may be called the same, as a share, of models that differ by the minimum effect.
SAME_ALPHA = 0.05
MIN_EFFECT = 0.03
# With fewer rounds no interval is reliable: a bootstrap knows nothing beyond its data.
LEAST_ROUNDS = 8
# With fewer requests a tail percentile says nothing, at 99 % confidence (LoadGen's early-stopping table).
TAIL_SAMPLES = {0.9: 64, 0.95: 130, 0.99: 662, 0.999: 6636}
_NAMES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
THROUGHPUT = "throughput"
METRICS = (*_NAMES, THROUGHPUT)
DEFAULT_METRICS = ("p50", "p99", THROUGHPUT)

Floats = npt.NDArray[np.float64]
# The latencies of a model: one 1-D array of seconds for each round.
Rounds = Sequence[npt.ArrayLike]


@dataclasses.dataclass(frozen=True)
class Series:
    """The figures of one model's rounds."""

    # One 1-D array of seconds for each round.
    latencies: tuple[Floats, ...]
    # Answered requests a second of each round, float (rounds,); None where it was not measured.
    rates: Floats | None = None

    def first(self, rounds: int) -> "Series":
        """The Series of the first rounds."""
        return Series(self.latencies[:rounds], None if self.rates is None else self.rates[:rounds])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judgement(records.Record):
    """One metric judged. Figures that could not be computed are None."""

    # One of METRICS.
    metric: str
    # Values over all rounds, seconds or requests a second; None if there are too few requests.
    native: float | None
    candidate: float | None
    # candidate / native, and its interval.
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    # The narrower interval of the ratio that decides "same".
    same_low: float | None = None
    same_high: float | None = None
    # The interval of each value by itself, in its unit.
    native_low: float | None = None
    native_high: float | None = None
    candidate_low: float | None = None
    candidate_high: float | None = None
    # The deciding rank test: Wilcoxon's smaller sum of signed ranks, or U if two runs are compared; and its two-sided p.
    statistic: float | None = None
    p: float | None = None
    # Mann-Whitney's p of the rounds as they are, which takes drift for noise. It decides nothing.
    raw_p: float | None = None
    # Rounds of each model, and the equivalent number of independent ones.
    rounds: int
    effective_rounds: float
    # Level of this metric's test: the share of false alarms for a model against itself.
    alpha: float
    direction: choices.Direction = ""
    verdict: choices.Verdict = UNSURE
    # The reason of the verdict, in words.
    reason: str = ""

    @property
    def higher_is_better(self) -> bool:
        return self.metric == THROUGHPUT

    @property
    def judged_interval(self) -> tuple[float, float] | None:
        """The interval that decided the verdict: the narrower one for SAME; None where no ratio is known."""
        if self.verdict == SAME and self.same_low is not None and self.same_high is not None:
            return self.same_low, self.same_high
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def hang_together(self) -> bool:
        """Whether the rounds are worth much less than as many independent ones. With few rounds even independent ones count as half."""
        return 3 * self.effective_rounds < self.rounds

    @property
    def speed_up(self) -> tuple[float, float, float] | None:
        """(value, low, high): how many times as fast the candidate is; None where no ratio is known."""
        if self.ratio is None or self.low is None or self.high is None:
            return None
        if self.higher_is_better:
            return self.ratio, self.low, self.high
        return 1 / self.ratio, 1 / self.high, 1 / self.low


@dataclasses.dataclass(frozen=True)
class Verdict(records.Record):
    """judgements: in the order asked for. min_effect, alpha: as given; looks: the most times that the data is judged."""

    judgements: tuple[Judgement, ...]
    min_effect: float
    alpha: float
    looks: int

    def of(self, metric: str) -> Judgement | None:
        """The Judgement of a metric, or None."""
        return next((one for one in self.judgements if one.metric == metric), None)


def judge(
    native_rounds: Rounds,
    candidate_rounds: Rounds,
    metrics: Sequence[str] = ("p50",),
    *,
    min_effect: float = MIN_EFFECT,
    alpha: float = ALPHA,
    looks: int = 1,
    seed: int = 0,
    native_rates: npt.ArrayLike | None = None,
    candidate_rates: npt.ArrayLike | None = None,
) -> Verdict:
    """Judge two models by their rounds.

    Args:
      native_rounds, candidate_rounds: [1-D float array of seconds], as many of both; entry i of both was measured in the same round.
      metrics: of METRICS. min_effect: the smallest change of a ratio that counts, as a share. alpha: the share of runs of a model
        against itself that may be called better or worse. looks: the most times that the growing data is judged. seed: of the bootstrap.
      native_rates, candidate_rates: answered requests a second of each round; needed for THROUGHPUT.

    Returns: Verdict; with few rounds its judgements are UNSURE. Raises: ValueError for unequal or empty rounds, or unknown metrics.
    """
    native, candidate = (
        Series(tuple(np.asarray(one, float) for one in rounds), None if rates is None else np.asarray(rates, float))
        for rounds, rates in ((native_rounds, native_rates), (candidate_rounds, candidate_rates))
    )
    _check(native, candidate, metrics)
    level, same_level = alpha / (len(metrics) * looks), 2 * SAME_ALPHA / looks
    return Verdict(
        tuple(_judge(metric, native, candidate, min_effect, (level, same_level), seed) for metric in metrics),
        min_effect,
        alpha,
        looks,
    )


def alone(
    metric: str, rounds: Rounds, rates: npt.ArrayLike | None = None, *, alpha: float = ALPHA, seed: int = 0
) -> tuple[float, float | None, float | None]:
    """A model's metric by itself, with its interval: (value, low, high). The interval is None where there are too few rounds.

    Args: rounds, rates: as for `judge`. alpha: the share of intervals that may miss.
    """
    series = Series(
        tuple(np.asarray(one, float) for one in rounds), None if rates is None else np.asarray(rates, float)
    )
    share = _NAMES.get(metric)
    values = _of_each_round(series, share)
    value, count = _whole(metric, series, values), len(values)
    if count < LEAST_ROUNDS:
        return value, None, None
    estimates = _resampled(share, series, values, resampling.draws(count, seed))
    low, high = resampling.interval(estimates, value, alpha, count, dependence.lengthening(np.log(values), alpha))
    return value, low, high


def without_verdict(found: Verdict, reason: str) -> Verdict:
    """The same figures, from which nothing follows. Args: reason: why."""
    return dataclasses.replace(
        found,
        judgements=tuple(
            dataclasses.replace(one, verdict=UNSURE, direction="", reason=reason) for one in found.judgements
        ),
    )


def rounds_needed(metrics: Sequence[str], looks: int, alpha: float = ALPHA) -> int:
    """The fewest independent rounds that can show anything at that level."""
    return 1 + math.ceil(math.log2(len(metrics) * looks / alpha))


def requests_needed(metric: str) -> int:
    """The fewest requests to each model, over all rounds, that a metric of METRICS needs."""
    return TAIL_SAMPLES.get(_NAMES.get(metric, 0.0), 0)


def judge_change(
    metric: str,
    before: npt.ArrayLike,
    after: npt.ArrayLike,
    *,
    min_effect: float = MIN_EFFECT,
    alpha: float = ALPHA,
    looks: int = 1,
    seed: int = 0,
) -> Judgement:
    """Judge whether the candidate's lead over the native model has changed since another run.

    Each run has its native model beside the candidate, so a machine that is slower today is slower for both; the test compares candidate
    / native of each round, then and now. The rounds of the two runs are independent, so the plain Mann-Whitney U test holds. The rounds
    do not show differences between two starts of a server; `min_effect` has to cover them.

    Args: metric: name, such as "p50" or THROUGHPUT. before, after: log(candidate / native) of each round, float (n,) and (m,).
    Returns: Judgement, `native` and `candidate` of which are the ratios then and now.
    """
    from scipy import stats

    level, same_level = alpha / looks, 2 * SAME_ALPHA / looks
    gaps = [np.asarray(one, float) for one in (before, after)]
    native, candidate = (math.exp(averages.trimmed_mean(one)) for one in gaps)
    rounds = min(map(len, gaps))
    blank = Judgement(
        metric=metric,
        native=native,
        candidate=candidate,
        rounds=rounds,
        alpha=level,
        effective_rounds=min(map(dependence.worth, gaps)),
    )
    if rounds < LEAST_ROUNDS:
        return dataclasses.replace(blank, reason=f"{rounds} rounds are too few")
    tested = stats.mannwhitneyu(*gaps, alternative="two-sided")
    resampled = [
        resampling.resampled_means(one, resampling.draws(len(one), seed + place)) for place, one in enumerate(gaps)
    ]
    ratio, changes = candidate / native, np.exp(resampled[1] - resampled[0])
    (low, high), (same_low, same_high) = (
        resampling.interval(changes, ratio, one, rounds, max(dependence.lengthening(values, one) for values in gaps))
        for one in (level, same_level)
    )
    known = dataclasses.replace(
        blank,
        ratio=ratio,
        low=low,
        high=high,
        same_low=same_low,
        same_high=same_high,
        statistic=float(len(gaps[0]) * len(gaps[1]) - tested.statistic),
        p=float(tested.pvalue),
        raw_p=float(tested.pvalue),
    )
    return _decided(known, min_effect, level)


def _check(native: Series, candidate: Series, metrics: Sequence[str]) -> None:
    unknown = [one for one in metrics if one not in METRICS]
    if unknown or not metrics:
        raise ValueError(f"no metric {unknown[0] if unknown else ''!r}; known: {', '.join(METRICS)}")
    if len(native.latencies) != len(candidate.latencies):
        raise ValueError(
            f"{len(native.latencies)} rounds of the native model and {len(candidate.latencies)} of the candidate"
        )
    if not native.latencies or any(not len(one) for series in (native, candidate) for one in series.latencies):
        raise ValueError("there is a round without an answer, or no round at all")
    if THROUGHPUT in metrics and (native.rates is None or candidate.rates is None):
        raise ValueError("throughput needs the rates of both models")


def _judge(
    metric: str, native: Series, candidate: Series, min_effect: float, levels: tuple[float, float], seed: int
) -> Judgement:
    level, same_level = levels
    both, share = (native, candidate), _NAMES.get(metric)
    values = [_of_each_round(series, share) for series in both]
    whole = [_whole(metric, series, one) for series, one in zip(both, values, strict=True)]
    rounds, gaps = len(values[0]), np.log(values[1]) - np.log(values[0])
    blank = Judgement(
        metric=metric,
        native=whole[0],
        candidate=whole[1],
        rounds=rounds,
        alpha=level,
        effective_rounds=dependence.worth(gaps),
    )
    if tail := _too_few_requests(metric, native, candidate):
        return dataclasses.replace(blank, native=None, candidate=None, reason=tail)
    if rounds < LEAST_ROUNDS:
        return dataclasses.replace(blank, reason=f"{rounds} rounds are too few")
    drawn = resampling.draws(rounds, seed)
    each = [_resampled(share, series, one, drawn) for series, one in zip(both, values, strict=True)]
    if _is_typical(share):
        # A ratio inside each round first, so that drift of the machine cancels.
        ratio, ratios = math.exp(averages.trimmed_mean(gaps)), np.exp(resampling.resampled_means(gaps, drawn))
    else:
        ratio, ratios = whole[1] / whole[0], each[1] / each[0]

    def interval(estimates: Floats, value: float, logs: Floats, at: float) -> tuple[float, float]:
        return resampling.interval(estimates, value, at, rounds, dependence.lengthening(logs, at))

    low, high = interval(ratios, ratio, gaps, level)
    same_low, same_high = interval(ratios, ratio, gaps, same_level)
    own = [
        interval(one, value, np.log(of_rounds), level)
        for one, value, of_rounds in zip(each, whole, values, strict=True)
    ]
    tested = rank_test.signed_rank(gaps)
    known = dataclasses.replace(
        blank,
        ratio=ratio,
        low=low,
        high=high,
        same_low=same_low,
        same_high=same_high,
        native_low=own[0][0],
        native_high=own[0][1],
        candidate_low=own[1][0],
        candidate_high=own[1][1],
        statistic=tested.statistic,
        p=tested.p,
        raw_p=_raw_p(values),
    )
    return _decided(known, min_effect, level)


def _of_each_round(series: Series, share: float | None) -> Floats:
    """A metric's value in each round, float (rounds,): the rate, or the percentile of this share."""
    if share is None:
        assert series.rates is not None
        return series.rates
    return np.array([averages.nearest_rank(one, share) for one in series.latencies])


def _is_typical(share: float | None) -> bool:
    """Whether a metric is the value of a typical round; a tail is taken over all requests, because a single round has too few."""
    return share is None or share == 0.5


def _whole(metric: str, series: Series, values: Floats) -> float:
    """The value of a metric over all rounds."""
    if metric == THROUGHPUT or metric == "p50":
        return math.exp(averages.trimmed_mean(np.log(values)))
    return averages.nearest_rank(np.concatenate(series.latencies), _NAMES[metric])


def _too_few_requests(metric: str, native: Series, candidate: Series) -> str:
    wanted = requests_needed(metric)
    least = min(sum(map(len, series.latencies)) for series in (native, candidate))
    return f"{metric} needs {wanted} requests, and there are {least}" if least < wanted else ""


def _resampled(share: float | None, series: Series, values: Floats, drawn: resampling.Draws) -> Floats:
    """One model's value in each bootstrap sample of whole rounds."""
    if share is None or _is_typical(share):
        return np.exp(resampling.resampled_means(np.log(values), drawn))
    return resampling.resampled_quantiles(series.latencies, share, drawn)


def _raw_p(values: Sequence[Floats]) -> float:
    from scipy import stats

    return float(stats.mannwhitneyu(values[0], values[1], alternative="two-sided").pvalue)


def _decided(one: Judgement, min_effect: float, level: float) -> Judgement:
    """A Judgement that has its numbers, with direction, verdict and reason."""
    ratio, low, high, same_low, same_high, p = _numbers(one)
    edge = 1 + min_effect
    found = (low > 1 or high < 1) and p <= level
    words: tuple[choices.Direction, choices.Direction] = (
        ("higher", "lower") if one.higher_is_better else ("slower", "faster")
    )
    direction = words[ratio < 1] if found else ""
    if 1 / edge <= same_low and same_high <= edge:
        return dataclasses.replace(
            one, direction=direction, verdict=SAME, reason=f"a difference of {min_effect:.0%} is ruled out"
        )
    if found and not 1 / edge < ratio < edge:
        worse = (ratio < 1) == one.higher_is_better
        return dataclasses.replace(
            one,
            direction=direction,
            verdict=WORSE if worse else BETTER,
            reason=f"the interval leaves out 1, p = {p:.2g}, and the ratio is off by {min_effect:.0%} or more",
        )
    return dataclasses.replace(one, direction=direction, verdict=UNSURE, reason=_why(one, min_effect, level, found))


def _numbers(one: Judgement) -> tuple[float, float, float, float, float, float]:
    """(ratio, low, high, same_low, same_high, p), all known."""
    assert one.ratio is not None and one.low is not None and one.high is not None
    assert one.same_low is not None and one.same_high is not None and one.p is not None
    return one.ratio, one.low, one.high, one.same_low, one.same_high, one.p


def _why(one: Judgement, min_effect: float, level: float, found: bool) -> str:
    if rank_test.smallest_p(one.rounds) > level:
        return f"{one.rounds} rounds are too few: they cannot show anything at the level of {level:.2g}"
    if found:
        return f"there is a difference, and whether it is {min_effect:.0%} or more is not settled"
    worth = (
        f"; the {one.rounds} rounds are correlated and worth {one.effective_rounds:.1f} independent ones"
        if one.hang_together
        else ""
    )
    _, low, high, *_ = _numbers(one)
    # Half the interval's width, on the scale of ratios: a smaller difference cannot be outside of it.
    least = math.sqrt(high / low) - 1
    return (
        f"too noisy: the interval is wider than the {min_effect:.0%} that count; only a difference of {least:.1%} or more would show"
        f"{worth}"
    )
