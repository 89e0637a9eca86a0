"""Statistics of rounds, held against scipy, against known distributions and against brute force."""

import itertools

import numpy as np
import pytest
from scipy import stats

from tftrt_tools.regression import statistics


def values(count, seed=0, shift=0.3):
    return np.random.default_rng(seed).normal(shift, 1, count)


@pytest.mark.parametrize("first, second", [(values(7), values(9, 1)), ([1, 2, 2, 3], [2, 2, 5]), ([1], [1])])
def test_u_is_scipys(first, second):
    assert statistics.u_statistic(first, second) == stats.mannwhitneyu(second, first).statistic


@pytest.mark.parametrize("gaps", [values(3), values(8), values(9, 2, 0.8), [1, 1, -1, 2, 0, 0, 3, -2, 2, 5], [0, 0, 1], [-1, -1, -1, -1]])
def test_the_aligned_test_is_the_permutation_test_of_u_inside_rounds(gaps):
    gaps = np.asarray(gaps, float)
    u, p = statistics.aligned_u_test(gaps)
    assert u == stats.mannwhitneyu(gaps / 2, -gaps / 2).statistic
    # Every way to exchange the two labels inside the rounds.
    every = [statistics.u_statistic(-gaps * signs / 2, gaps * signs / 2) for signs in itertools.product((1, -1), repeat=len(gaps))]
    tail = min(np.mean(np.array(every) <= u), np.mean(np.array(every) >= u))
    assert p == pytest.approx(min(1, 2 * tail))


def test_the_aligned_test_agrees_with_scipys_permutation_test():
    gaps = values(30, 5, 0.5)
    found = stats.permutation_test((-gaps / 2, gaps / 2), statistics.u_statistic, permutation_type="samples",
                                   n_resamples=4000, random_state=0)
    assert statistics.aligned_u_test(gaps)[1] == pytest.approx(found.pvalue, abs=0.02)


def test_equal_rounds_show_nothing():
    assert statistics.aligned_u_test(np.zeros(20))[1] == 1.0


def test_drift_does_not_hide_what_the_plain_test_cannot_see():
    rng = np.random.default_rng(3)
    level = np.linspace(0, 1, 20)
    first, second = level + rng.normal(0, 0.005, 20), level + 0.05 + rng.normal(0, 0.005, 20)
    assert stats.mannwhitneyu(first, second).pvalue > 0.3
    assert statistics.aligned_u_test(second - first)[1] < 1e-4


def test_smallest_p_is_reached_where_all_rounds_agree():
    for rounds in (5, 11, 30):
        assert statistics.aligned_u_test(np.arange(1, rounds + 1))[1] == pytest.approx(statistics.smallest_p(rounds))


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.99, 1.0])
def test_nearest_rank_is_numpys(share):
    drawn = values(83)
    assert statistics.nearest_rank(drawn, share) == np.quantile(drawn, share, method="inverted_cdf")


def test_trimmed_mean_is_scipys():
    drawn = values(23)
    assert statistics.trimmed_mean(drawn) == pytest.approx(stats.trim_mean(drawn, statistics.TRIM))
    assert statistics.trimmed_mean(np.array([1.0, 2.0, 6.0])) == 3.0


def test_a_fifth_of_wild_rounds_moves_the_trimmed_mean_little():
    drawn = np.append(np.ones(16), [1e6] * 4)
    assert statistics.trimmed_mean(drawn) == 1.0


@pytest.mark.parametrize("share", [0.3, 0.5, 0.99])
def test_resampled_quantiles_are_those_of_the_joined_rounds(share):
    rng = np.random.default_rng(0)
    rounds = [rng.exponential(1, rng.integers(3, 90)) for _ in range(12)]
    drawn = statistics.draws(12, 1, 40)
    wanted = [statistics.nearest_rank(np.concatenate([rounds[place] for place in row]), share) for row in drawn]
    assert statistics.resampled_quantiles(rounds, share, drawn).tolist() == wanted


def test_the_interval_of_few_is_wider_than_the_plain_percentiles():
    assert statistics.student(0.05, 10) > stats.norm.isf(0.025)
    assert statistics.student(0.05, 100_000) == pytest.approx(stats.norm.isf(0.025), rel=1e-3)


@pytest.mark.parametrize("alpha, units, stretch", [(0.05, 30, 1.0), (0.0005, 30, 1.4), (0.0005, 30, 5.0), (0.0005, 12, 1.8), (0.0005, 30, 20.0)])
def test_the_arms_are_as_long_as_students_t_asks_for_also_beyond_the_resamples(alpha, units, stretch):
    logs = np.random.default_rng(1).normal(0, 0.01, statistics.RESAMPLES)
    low, high = np.log(statistics.interval(np.exp(logs), 1.0, alpha, units, stretch))
    wanted = 0.01 * np.sqrt(stretch) * statistics.student(alpha, max(6, units / stretch))
    assert -low == pytest.approx(wanted, rel=0.08) and high == pytest.approx(wanted, rel=0.08)


def test_a_skewed_bootstrap_gives_a_skewed_interval():
    low, high = np.log(statistics.interval(np.exp(np.random.default_rng(0).exponential(0.01, 10_000)), np.exp(0.01), 0.0005, 30)) - 0.01
    assert high > 3 * -low > 0


@pytest.mark.parametrize("units", [12, 30])
def test_the_bootstrap_interval_covers_the_truth_as_often_as_it_says(units):
    rng, missed, runs = np.random.default_rng(0), 0, 600
    drawn = statistics.draws(units, 0, 2000)
    for _ in range(runs):
        logs = rng.normal(0, 1, units)
        whole, resampled = np.exp(statistics.trimmed_mean(logs)), np.exp(statistics.resampled_means(logs, drawn))
        low, high = statistics.interval(resampled, whole, 0.05, units)
        missed += not low <= 1 <= high
    # 600 runs at 5 %: 30 are expected, and 50 are reached by chance once in 5,000 times.
    assert missed < 50


def autoregression(count, correlation, seed):
    rng, found = np.random.default_rng(seed), [0.0]
    for _ in range(count):
        found.append(correlation * found[-1] + rng.normal())
    return np.array(found[1:])


@pytest.mark.parametrize("correlation", [0.0, 0.4, 0.8])
def test_autocorrelation_is_found_without_the_bias_of_few(correlation):
    found = [statistics.autocorrelation(autoregression(40, correlation, seed)) for seed in range(200)]
    assert np.mean(found) == pytest.approx(correlation, abs=0.08)


@pytest.mark.parametrize("correlation", [0.0, 0.4, 0.7])
def test_inflation_is_the_variance_of_the_mean_over_that_of_independent_rounds(correlation):
    series = [autoregression(200, correlation, seed) for seed in range(300)]
    really = np.var([one.mean() for one in series]) * 200 / np.mean([one.var() for one in series])
    assert 0.75 * really < np.median([statistics.inflation(one) for one in series]) < 1.7 * really, "a standard error of r above it"


def test_series_without_any_spread_hang_together_in_no_way():
    assert statistics.inflation(np.ones(30)) == statistics.inflation(np.log(2 * np.linspace(1, 2, 30) / np.linspace(1, 2, 30))) == 1.0
    assert statistics.inflation([1.0, 2.0]) == 1.0


def test_outliers_do_not_pass_for_correlation_nor_hide_it():
    drawn = values(40)
    drawn[[3, 10, 20, 33]] = 50
    assert statistics.autocorrelation(drawn) < 0.4
    hanging = autoregression(60, 0.8, 1)
    hanging[[10, 30, 50]] = 1e3
    assert statistics.autocorrelation(hanging) > 0.4


def test_an_interval_of_rounds_that_hang_together_covers_too():
    missed, runs = 0, 400
    drawn = statistics.draws(60, 0, 2000)
    for seed in range(runs):
        logs = autoregression(60, 0.5, seed)
        whole, resampled = np.exp(statistics.trimmed_mean(logs)), np.exp(statistics.resampled_means(logs, drawn))
        low, high = statistics.interval(resampled, whole, 0.01, 60, statistics.inflation(logs))
        missed += not low <= 1 <= high
    # 400 runs at 1 %: 4 are expected; without `inflation` it is about 50.
    assert missed <= 16
