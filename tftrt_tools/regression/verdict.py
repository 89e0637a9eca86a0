"""Is the candidate better or worse than the native model, the same, or can nobody tell?

The rule, for each metric, on the ratio candidate / native:
  worse, better   three things hold together: the bootstrap interval of the ratio leaves out 1, the U test of the rounds is significant, and
                  the ratio is off by the minimum effect or more
  same            a difference of the minimum effect is ruled out on both sides, which is more than "nothing was found": two one-sided tests
                  at SAME_ALPHA, which is an interval at twice that level inside the minimum effect (Schuirmann, Journal of Pharmacokinetics
                  and Biopharmaceutics 15, 1987)
  cannot tell     everything else, with the reason
The level of one metric's test is ALPHA shared among the metrics and the looks at the data (Bonferroni), so that a model compared with
itself is called better or worse in at most that share of runs.
"""

import dataclasses
import math

import numpy as np

from tftrt_tools.regression import statistics

BETTER, WORSE, SAME, UNSURE = "better", "worse", "same", "cannot tell"
# Half of the 1 % that is promised: recorded rounds scatter more wildly than any theory has them (benchmarks/verdict_power.py).
ALPHA = 0.005
# Share of runs of models that do differ by the minimum effect which may be called the same.
SAME_ALPHA = 0.05
MIN_EFFECT = 0.03
# Rounds below which no interval is believed: a bootstrap knows nothing outside of what it was given.
LEAST_ROUNDS = 8
# Requests below which a tail percentile says nothing, at 99 % confidence (LoadGen's early-stopping table).
TAIL_SAMPLES = {0.9: 64, 0.95: 130, 0.99: 662, 0.999: 6636}
_NAMES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
THROUGHPUT = "throughput"
METRICS = (*_NAMES, THROUGHPUT)
DEFAULT_METRICS = ("p50", "p99", THROUGHPUT)


@dataclasses.dataclass(frozen=True)
class Series:
    """What one model's rounds gave. latencies: a 1-D float array of seconds for each round; rates: answered requests a second of each
    round, float (rounds,), or None where it was not measured."""

    latencies: tuple
    rates: np.ndarray | None = None

    def first(self, rounds):
        """The Series of the first rounds."""
        return Series(self.latencies[:rounds], None if self.rates is None else self.rates[:rounds])


@dataclasses.dataclass(frozen=True)
class Judgement:
    """One metric judged.

    native, candidate: values over all rounds, seconds or requests a second; None where the requests are too few for one. ratio, low, high:
    candidate / native with its interval, None where nothing could be computed. same_low, same_high: the narrower interval that "same" is
    judged by. native_low … candidate_high: interval of each value by itself. u, p: of the aligned U test; raw_p: of scipy's Mann-Whitney U
    on the rounds as they are, which takes drift for noise: to look at, nothing is decided by it. effective_rounds: how many independent
    ones they are worth. direction: "faster", "slower", "higher", "lower" or "" where none is shown. verdict: BETTER, WORSE, SAME or UNSURE.
    reason: in words.
    """

    metric: str
    native: float | None
    candidate: float | None
    ratio: float | None
    low: float | None
    high: float | None
    same_low: float | None
    same_high: float | None
    native_low: float | None
    native_high: float | None
    candidate_low: float | None
    candidate_high: float | None
    u: float | None
    p: float | None
    raw_p: float | None
    rounds: int
    effective_rounds: float
    alpha: float
    direction: str
    verdict: str
    reason: str

    @property
    def higher_is_better(self):
        return self.metric == THROUGHPUT

    @property
    def hang_together(self):
        """Whether the rounds are worth much less than as many independent ones."""
        return 2 * self.effective_rounds < self.rounds

    @property
    def speed_up(self):
        """(value, low, high): how many times as fast the candidate is; None where no ratio is known."""
        if self.ratio is None:
            return None
        if self.higher_is_better:
            return self.ratio, self.low, self.high
        return 1 / self.ratio, 1 / self.high, 1 / self.low

    def to_dict(self):
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data):
        return cls(**data)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """judgements: (Judgement, …) in the order asked for. min_effect, alpha: as given; looks: how often the data is looked at, at most."""

    judgements: tuple
    min_effect: float
    alpha: float
    looks: int

    def of(self, metric):
        """The Judgement of a metric, or None."""
        return next((one for one in self.judgements if one.metric == metric), None)

    def to_dict(self):
        return {"judgements": [one.to_dict() for one in self.judgements], "min_effect": self.min_effect, "alpha": self.alpha,
                "looks": self.looks}

    @classmethod
    def from_dict(cls, data):
        return cls(tuple(map(Judgement.from_dict, data["judgements"])), data["min_effect"], data["alpha"], data["looks"])


def judge(native_rounds, candidate_rounds, metrics=("p50",), min_effect=MIN_EFFECT, alpha=ALPHA, looks=1, seed=0,
          native_rates=None, candidate_rates=None):
    """Judge two models by their rounds.

    Args:
      native_rounds, candidate_rounds: [1-D float array of seconds], as many of both; entry i of both was measured in the same round.
      metrics: of METRICS. min_effect: share by which a ratio must be off to count. alpha: share of runs of a model against itself that
        may be called better or worse. looks: how often the growing data is judged, at most. seed: of the bootstrap.
      native_rates, candidate_rates: answered requests a second of each round; needed for THROUGHPUT.

    Returns: Verdict; with few rounds its judgements are UNSURE. Raises: ValueError for unequal or empty rounds, or unknown metrics.
    """
    native, candidate = (Series(tuple(np.asarray(one, float) for one in rounds), None if rates is None else np.asarray(rates, float))
                         for rounds, rates in ((native_rounds, native_rates), (candidate_rounds, candidate_rates)))
    _check(native, candidate, metrics)
    level, same_level = alpha / (len(metrics) * looks), 2 * SAME_ALPHA / looks
    return Verdict(tuple(_judge(metric, native, candidate, min_effect, (level, same_level), seed) for metric in metrics), min_effect, alpha,
                   looks)


def rounds_needed(metrics, looks, alpha=ALPHA):
    """The fewest independent rounds that can show anything at that level."""
    return 1 + math.ceil(math.log2(len(metrics) * looks / alpha))


def requests_needed(metric):
    """The fewest requests to each model, over all rounds, that a metric of METRICS is judged by."""
    return TAIL_SAMPLES.get(_NAMES.get(metric), 0)


def judge_change(metric, before, after, min_effect=MIN_EFFECT, alpha=ALPHA, looks=1, seed=0):
    """Judge whether the candidate's lead over the native model has changed since another run.

    Each run has its native model beside the candidate, so a machine that is slower today is slower for both, and what is compared is
    candidate / native of each round, then and now. The rounds of the two runs are independent: here the plain Mann-Whitney U test holds.
    What differs from one start of a server to the next is in neither run's rounds; `min_effect` has to cover it.

    Args: metric: name, such as "p50" or THROUGHPUT. before, after: log(candidate / native) of each round, float (n,) and (m,).
    Returns: Judgement, `native` and `candidate` of which are the ratios then and now.
    """
    from scipy import stats

    level, same_level = alpha / looks, 2 * SAME_ALPHA / looks
    gaps = [np.asarray(one, float) for one in (before, after)]
    whole = [float(np.exp(statistics.trimmed_mean(one))) for one in gaps]
    rounds, stretch = min(map(len, gaps)), max(map(statistics.inflation, gaps))
    blank = Judgement(metric, *whole, *([None] * 12), rounds, max(1.0, rounds / stretch), level, "", UNSURE, "")
    if rounds < LEAST_ROUNDS:
        return dataclasses.replace(blank, reason=f"{rounds} rounds are too few")
    tested = stats.mannwhitneyu(*gaps, alternative="two-sided")
    resampled = [statistics.resampled_means(one, statistics.draws(len(one), seed + place)) for place, one in enumerate(gaps)]
    ratio, changes = whole[1] / whole[0], np.exp(resampled[1] - resampled[0])
    bounds = [bound for one in (level, same_level) for bound in statistics.interval(changes, ratio, one, rounds, stretch)]
    known = dataclasses.replace(blank, ratio=ratio, low=bounds[0], high=bounds[1], same_low=bounds[2], same_high=bounds[3],
                                u=float(len(gaps[0]) * len(gaps[1]) - tested.statistic), p=float(tested.pvalue), raw_p=float(tested.pvalue))
    return dataclasses.replace(known, **_decided(known, min_effect, level))


def _check(native, candidate, metrics):
    unknown = [one for one in metrics if one not in METRICS]
    if unknown or not metrics:
        raise ValueError(f"no metric {unknown[0] if unknown else ''!r}; known: {', '.join(METRICS)}")
    if len(native.latencies) != len(candidate.latencies):
        raise ValueError(f"{len(native.latencies)} rounds of the native model and {len(candidate.latencies)} of the candidate")
    if not native.latencies or any(not len(one) for series in (native, candidate) for one in series.latencies):
        raise ValueError("there is a round without an answer, or no round at all")
    if THROUGHPUT in metrics and (native.rates is None or candidate.rates is None):
        raise ValueError("throughput needs the rates of both models")


def _judge(metric, native, candidate, min_effect, levels, seed):
    level, same_level = levels
    share = _NAMES.get(metric)
    values = [series.rates if share is None else np.array([statistics.nearest_rank(one, share) for one in series.latencies])
              for series in (native, candidate)]
    whole = [_whole(metric, series, one) for series, one in zip((native, candidate), values, strict=True)]
    rounds = len(values[0])
    gaps = np.log(values[1]) - np.log(values[0])
    stretch = statistics.inflation(gaps)
    blank = Judgement(metric, *whole, *([None] * 12), rounds, max(1.0, rounds / stretch), level, "", UNSURE, "")
    if tail := _too_few_requests(metric, native, candidate):
        return dataclasses.replace(blank, native=None, candidate=None, reason=tail)
    if rounds < LEAST_ROUNDS:
        return dataclasses.replace(blank, reason=f"{rounds} rounds are too few")
    drawn = statistics.draws(rounds, seed)
    each = [_resampled(share, series, one, drawn) for series, one in zip((native, candidate), values, strict=True)]
    if _is_typical(share):
        # A ratio inside each round first, so that drift of the machine cancels.
        ratio, ratios = float(np.exp(statistics.trimmed_mean(gaps))), np.exp(statistics.resampled_means(gaps, drawn))
    else:
        ratio, ratios = whole[1] / whole[0], each[1] / each[0]
    own = [statistics.interval(one, value, level, rounds, statistics.inflation(np.log(of_rounds)))
           for one, value, of_rounds in zip(each, whole, values, strict=True)]
    same = statistics.interval(ratios, ratio, same_level, rounds, stretch)
    low, high = statistics.interval(ratios, ratio, level, rounds, stretch)
    u, p = statistics.aligned_u_test(gaps)
    known = dataclasses.replace(
        blank, ratio=ratio, low=low, high=high, same_low=same[0], same_high=same[1], native_low=own[0][0], native_high=own[0][1],
        candidate_low=own[1][0], candidate_high=own[1][1], u=u, p=p, raw_p=_raw_p(values))
    return dataclasses.replace(known, **_decided(known, min_effect, level))


def _is_typical(share):
    """Whether a metric is of the typical round; a tail is of all requests, because a round alone has too few for one."""
    return share is None or share == 0.5


def _whole(metric, series, values):
    """The value of a metric over all rounds."""
    if metric == THROUGHPUT or metric == "p50":
        return float(np.exp(statistics.trimmed_mean(np.log(values))))
    return statistics.nearest_rank(np.concatenate(series.latencies), _NAMES[metric])


def _too_few_requests(metric, native, candidate):
    wanted = requests_needed(metric)
    least = min(sum(map(len, series.latencies)) for series in (native, candidate))
    return f"{metric} needs {wanted} requests, and there are {least}" if least < wanted else ""


def _resampled(share, series, values, drawn):
    """One model's value in each bootstrap sample of whole rounds."""
    if _is_typical(share):
        return np.exp(statistics.resampled_means(np.log(values), drawn))
    return statistics.resampled_quantiles(series.latencies, share, drawn)


def _raw_p(values):
    from scipy import stats

    return float(stats.mannwhitneyu(values[0], values[1], alternative="two-sided").pvalue)


def _decided(one, min_effect, level):
    """{"direction", "verdict", "reason"} of a Judgement with numbers."""
    edge = 1 + min_effect
    found = one.low > 1 or one.high < 1
    significant = one.p <= level
    words = ("higher", "lower") if one.higher_is_better else ("slower", "faster")
    direction = words[one.ratio < 1] if found and significant else ""
    if 1 / edge <= one.same_low and one.same_high <= edge:
        return {"direction": direction, "verdict": SAME, "reason": f"a difference of {min_effect:.0%} is ruled out"}
    if found and significant and not 1 / edge < one.ratio < edge:
        worse = (one.ratio < 1) == one.higher_is_better
        return {"direction": direction, "verdict": WORSE if worse else BETTER,
                "reason": f"the interval leaves out 1, p = {one.p:.2g}, and the ratio is off by {min_effect:.0%} or more"}
    return {"direction": direction, "verdict": UNSURE, "reason": _why(one, min_effect, level, found, significant)}


def _why(one, min_effect, level, found, significant):
    if statistics.smallest_p(one.rounds) > level:
        return f"{one.rounds} rounds are too few: they cannot show anything at the level of {level:.2g}"
    if found and significant:
        return f"there is a difference, and whether it is {min_effect:.0%} or more is not settled"
    worth = f"; the {one.rounds} rounds hang together and are worth {one.effective_rounds:.1f}" if one.hang_together else ""
    # Half the interval's width, on the scale of ratios: what a difference needs at least to be outside of it.
    least = math.sqrt(one.high / one.low) - 1
    return f"too noisy: the interval is wider than the {min_effect:.0%} that count, and no difference below {least:.1%} would show{worth}"
