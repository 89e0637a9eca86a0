"""Statistics of paired rounds, as pure functions of arrays.

Why rounds and not requests: requests of one round share whatever the machine did in that second, so they are no independent draws, and a
test over single requests finds "differences" between a model and itself. The unit that is resampled and ranked is therefore the round, in
which both models took their turns (Kalibera and Jones, "Rigorous benchmarking in reasonable time", ISMM 2013: resample the level at which
the noise enters; Künsch, "The jackknife and the bootstrap for general stationary observations", Annals of Statistics 17, 1989: blocks, not
single values, of dependent data). Where rounds themselves hang together, intervals are widened, see `inflation`.
"""

import math

import numpy as np

RESAMPLES = 10_000
# Share of the values that the trimmed mean leaves out at each end: Wilcox, "Introduction to Robust Estimation and Hypothesis Testing",
# chapter 4, recommends a fifth for the percentile bootstrap; two disturbed rounds of ten then move nothing.
TRIM = 0.2
_CHUNK = 4_000_000
# Fewer values have no correlation to speak of.
_FEWEST = 4
# Correlation of neighbours that is believed at most: with more the rounds are worth hardly one.
_LARGEST = 0.95
# Logarithms that differ by less are equal but for rounding.
_ROUNDING = 1e-9
# Resamples that have to lie beyond a percentile for it to be known well.
_BEYOND = 25
# Rounds that Student's factor is taken of at least.
_LEAST_UNITS = 6.0
# exp() of more is no number.
_LARGEST_LOG = 700.0


def nearest_rank(values, share):
    """The smallest value that at least `share` of `values` do not exceed: one that was measured. Args: values: 1-D, not empty."""
    return float(np.partition(values, rank := max(0, math.ceil(share * len(values) - 1e-9) - 1))[rank])


def trimmed_mean(values, axis=-1):
    """Mean without the TRIM lowest and highest; of fewer than five values the plain mean."""
    ordered = np.sort(values, axis=axis)
    cut = int(TRIM * ordered.shape[axis])
    return np.take(ordered, range(cut, ordered.shape[axis] - cut), axis=axis).mean(axis=axis)


def autocorrelation(values):
    """Correlation of neighbours, with the small sample's bias taken out: r + (1 + 4 r) / n (Marriott and Pope, Biometrika 41, 1954).

    Values are winsorized first (TRIM at each end): a few outliers would hide any correlation, or be taken for one. Returns: float in [-1,
    0.95].
    """
    values = np.asarray(values, float)
    if len(values) < _FEWEST:
        return 0.0
    low, high = np.quantile(values, (TRIM, 1 - TRIM))
    gaps = np.clip(values, low, high)
    gaps = gaps - gaps.mean()
    square = float(gaps @ gaps)
    if square <= len(gaps) * _ROUNDING**2:
        return 0.0
    plain = float(gaps[1:] @ gaps[:-1]) / square
    return float(np.clip(plain + (1 + 4 * plain) / len(values), -1.0, _LARGEST))


def inflation(values):
    """How many times larger the variance of a mean may be than that of as many independent values: (1 + r) / (1 - r) with r the correlation
    of neighbours (Bayley and Hammersley, "The effective number of independent observations in an autocorrelated time series", Supplement to
    the Journal of the Royal Statistical Society 8, 1946; exact for a long first-order autoregression).

    r is taken a standard error above what is seen (sqrt((1 - r^2) / n), Bartlett, same journal and year), and never below 0: of few rounds
    it is not known better, and too small a value calls a model slower than itself. Returns: 1.0 where the values do not spread.
    """
    values = np.asarray(values, float)
    if len(values) < _FEWEST or np.ptp(values) <= _ROUNDING:
        return 1.0
    seen = max(0.0, autocorrelation(values))
    correlation = min(_LARGEST, seen + math.sqrt((1 - seen**2) / len(values)))
    return (1 + correlation) / (1 - correlation)


def u_statistic(first, second):
    """Mann-Whitney's U of `second`: pairs in which it is the larger, ties as halves. Args: 1-D. Returns: float in [0, n m]."""
    gaps = np.subtract.outer(np.asarray(second, float), np.asarray(first, float))
    return float(np.sum(gaps > 0) + 0.5 * np.sum(gaps == 0))


def aligned_u_test(log_ratios):
    """Mann-Whitney's U test of two models that were measured in rounds, with the machine's drift taken out.

    Each round's two values are aligned: the round's own mean is subtracted (Hodges and Lehmann, "Rank methods for combination of
    independent experiments in analysis of variance", Annals of Mathematical Statistics 33, 1962). What is left are -d/2 and d/2 with d the
    round's log ratio, which are no longer independent, so the table of U does not hold: its distribution is that of U when the two labels
    are swapped inside each round with even odds, which is how the rounds were made. With the aligned values U is the sum of (2 rank|d| - 1)
    over the rounds with d > 0, so the distribution is exact: a convolution of two-point distributions.

    Args: log_ratios: float (n,), one for each round. Returns: (U, two-sided p); p is 1.0 where all are zero.
    """
    gaps = np.asarray(log_ratios, float)
    observed = u_statistic(-gaps / 2, gaps / 2)
    sizes = np.abs(gaps[gaps != 0])
    zeros = len(gaps) - len(sizes)
    if not len(sizes):
        return observed, 1.0
    # Twice U without what no swap changes, in whole numbers: midranks are halves.
    below = np.searchsorted(np.sort(sizes), sizes, "left")
    upto = np.searchsorted(np.sort(sizes), sizes, "right")
    weights = 2 * (below + upto + 1) - 2 + 4 * zeros
    chances = np.ones(1)
    for weight in weights:
        longer = np.zeros(len(chances) + weight)
        longer[:len(chances)] += chances / 2
        longer[weight:] += chances / 2
        chances = longer
    at = int(weights[gaps[gaps != 0] > 0].sum())
    tail = min(chances[:at + 1].sum(), chances[at:].sum())
    return observed, float(min(1.0, 2 * tail))


def smallest_p(rounds):
    """The smallest two-sided p that so many rounds can give."""
    return 2.0 ** (1 - rounds)


def student(alpha, units):
    """Half the width of a 1 - alpha interval in standard errors of a percentile bootstrap of few: sqrt(n / (n - 1)) t, with t the
    1 - alpha/2 point of Student's t with n - 1 degrees of freedom (Hesterberg, "What teachers should know about the bootstrap", The
    American Statistician 69, 2015: the plain interval is too narrow). Args: units: n, a float above 1."""
    from scipy import stats

    return float(math.sqrt(units / (units - 1)) * stats.t.ppf(1 - alpha / 2, units - 1))


def draws(units, seed, resamples=RESAMPLES):
    """Indices of `resamples` bootstrap samples. Returns: int (resamples, units)."""
    return np.random.default_rng(seed).integers(0, units, (resamples, units))


def interval(estimates, whole, alpha, units, stretch=1.0):
    """The interval (low, high) of a positive value, from the percentiles of its bootstrap on the scale of logarithms.

    The level that Student's factor asks for can lie beyond what so many resamples have. The percentiles are then taken where at least
    _BEYOND resamples lie outside, and their distances lengthened by the ratio of Student's factor to the normal one there, which keeps a
    skewed bootstrap skewed.

    Args: estimates: of the bootstrap samples. whole: the value itself. alpha: share of intervals that may miss it. units: independent
      rounds. stretch: variance of the value over that of independent rounds (`inflation`): the arms are lengthened by its root, and
      Student's factor is that of units / stretch rounds, _LEAST_UNITS at least: `inflation` has a margin of its own, and the factor of
      fewer has none but theory behind it.
    """
    from scipy import stats

    wanted = student(alpha, max(min(units, _LEAST_UNITS), units / stretch))
    level = max(2 * stats.norm.sf(wanted), 2 * _BEYOND / len(estimates))
    bounds = np.log(np.quantile(estimates, (level / 2, 1 - level / 2)))
    middle, length = math.log(whole), math.sqrt(stretch) * wanted / stats.norm.isf(level / 2)
    low, high = (min(max(middle + length * (bound - middle), -_LARGEST_LOG), _LARGEST_LOG) for bound in bounds)
    return math.exp(low), math.exp(high)


def resampled_means(values, drawn):
    """The trimmed mean of each bootstrap sample. Args: values: (n,); drawn: of `draws`. Returns: float (resamples,)."""
    return trimmed_mean(np.asarray(values, float)[drawn])


def resampled_quantiles(rounds, share, drawn):
    """The nearest-rank quantile of all requests of each bootstrap sample of whole rounds.

    Args: rounds: [1-D array of a round's latencies]; share: such as 0.99; drawn: of `draws`. Returns: float (resamples,).
    """
    lengths = np.array([len(one) for one in rounds])
    values = np.concatenate(rounds)
    owner = np.repeat(np.arange(len(rounds)), lengths)
    order = np.argsort(values)[::-1]
    values, owner = values[order], owner[order]
    cells = drawn + len(rounds) * np.arange(len(drawn))[:, None]
    times = np.bincount(cells.ravel(), minlength=len(drawn) * len(rounds)).reshape(len(drawn), len(rounds)).astype(np.int32)
    totals = times @ lengths
    # Rank from above; the value there has at least `share` of all at or below it.
    wanted = totals - np.ceil(share * totals - 1e-9).astype(int) + 1
    found = np.full(len(drawn), np.nan)
    # The upper end is tried first: tails mostly need no more.
    for reach in (min(len(values), 64 + math.ceil(2 * (1 - share) * len(values))), len(values)):
        unknown = np.flatnonzero(np.isnan(found))
        step = max(1, _CHUNK // reach)
        for start in range(0, len(unknown), step):
            part = unknown[start:start + step]
            reached = np.cumsum(times[part][:, owner[:reach]], axis=1, dtype=np.int32)
            enough = reached[:, -1] >= wanted[part]
            places = np.argmax(reached >= wanted[part][:, None], axis=1)
            found[part[enough]] = values[places[enough]]
    return found
