"""The verdict on synthetic rounds: worse, better, the same, and when it cannot tell."""

import json

import numpy as np
import pytest

from benchmarks import verdict_power
from tftrt_tools.studies.regression import verdict
from tftrt_tools.studies.regression.verdict import BETTER, SAME, UNSURE, WORSE


def made(rounds=30, ratio=1.0, noise=0.01, drift=0.0, requests=40, seed=0, outliers=0):
    """(native, candidate): lists of arrays of seconds."""
    rng = np.random.default_rng(seed)
    level = 1e-3 * np.exp(np.linspace(0, drift, rounds))
    off = np.zeros((2, rounds))
    off[rng.integers(0, 2, outliers), rng.choice(rounds, outliers, replace=False)] = 2.0
    return [
        [
            one * np.exp(off[side, number] + rng.normal(0, noise)) * factor * rng.uniform(0.9, 1.1, requests)
            for number, one in enumerate(level)
        ]
        for side, factor in ((0, 1.0), (1, ratio))
    ]


def p50(*rounds, **options):
    return verdict.judge(*rounds, **options).of("p50")


def test_a_slower_candidate_is_worse():
    found = p50(*made(ratio=1.1))
    assert (found.verdict, found.direction) == (WORSE, "slower")
    assert 1 < found.low < 1.1 < found.high and found.p < 0.01 and found.ratio == pytest.approx(1.1, rel=0.02)
    assert (
        found.speed_up[0] == pytest.approx(1 / found.ratio)
        and found.speed_up[1] < found.speed_up[0] < found.speed_up[2]
    )


def test_a_faster_candidate_is_better():
    found = p50(*made(ratio=0.8))
    assert (found.verdict, found.direction) == (BETTER, "faster") and found.high < 1


def test_equal_models_are_the_same_because_a_difference_is_ruled_out():
    found = p50(*made())
    assert found.verdict == SAME and found.direction == "" and 1 / 1.03 < found.same_low < found.same_high < 1.03


def test_a_difference_that_is_surely_there_and_too_small_is_the_same_with_a_direction():
    found = p50(*made(ratio=1.015, noise=0.002, requests=400))
    assert (found.verdict, found.direction) == (SAME, "slower")


def test_noise_is_no_verdict():
    found = p50(*made(noise=0.3))
    assert found.verdict == UNSURE and "too noisy" in found.reason and found.direction == ""


def test_a_difference_around_the_minimum_effect_is_not_decided_by_chance():
    found = p50(*made(ratio=1.03, noise=0.01, seed=1))
    assert found.verdict == UNSURE and found.low > 1 and "whether it is 3%" in found.reason


def test_drift_of_the_machine_is_no_difference():
    assert p50(*made(drift=1.5)).verdict == SAME
    found = p50(*made(drift=1.5, ratio=1.1))
    assert found.verdict == WORSE and found.raw_p > 0.05  # the test that takes drift for noise does not see it


def test_wild_rounds_neither_make_a_difference_nor_hide_one():
    assert p50(*made(outliers=4, seed=1)).verdict == SAME
    assert p50(*made(outliers=4, seed=1, ratio=1.1)).verdict == WORSE


def test_rounds_that_hang_together_count_as_fewer():
    rng = np.random.default_rng(4)
    native, candidate = made(rounds=60)
    shift = np.repeat(rng.normal(0, 0.1, 6), 10)
    found = p50(native, [one * np.exp(gap) for one, gap in zip(candidate, shift, strict=True)])
    assert found.effective_rounds < 20 and found.verdict == UNSURE and "are correlated" in found.reason


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_few_rounds_say_so(rounds):
    found = p50(*made(rounds=rounds, ratio=1.5))
    assert found.verdict == UNSURE and f"{rounds} rounds are too few" in found.reason


def test_as_many_rounds_as_needed_can_show_it():
    least = verdict.rounds_needed(("p50",), 1)
    assert p50(*made(rounds=least, ratio=1.5, seed=3)).p <= 0.01
    assert verdict.rounds_needed(verdict.DEFAULT_METRICS, 3) > least


def test_a_tail_needs_requests():
    found = verdict.judge(*made(), metrics=("p99", "p99.9"))
    assert found.of("p99").ratio is not None and found.of("p99.9").ratio is None
    assert "6636 requests, and there are 1200" in found.of("p99.9").reason


def test_a_worse_tail_is_found_where_the_median_is_the_same():
    rng = np.random.default_rng(0)
    native, candidate = made(rounds=60, requests=100)
    for side, share in ((native, 0.005), (candidate, 0.1)):
        for one in side:
            one[rng.random(len(one)) < share] *= 5
    found = verdict.judge(native, candidate, ("p50", "p99"))
    assert (found.of("p50").verdict, found.of("p99").verdict, found.of("p99").direction) == (SAME, WORSE, "slower")


def test_more_throughput_is_better():
    native, candidate = made()
    rates = np.random.default_rng(0).normal(100, 1, 30)
    for factor, wanted, direction in ((1.2, BETTER, "higher"), (0.8, WORSE, "lower"), (1.0, SAME, "")):
        found = verdict.judge(
            native, candidate, ("throughput",), native_rates=rates, candidate_rates=rates[::-1] * factor
        ).judgements[0]
        assert (found.verdict, found.direction) == (wanted, direction)
        assert found.speed_up[0] == pytest.approx(found.ratio)


def test_exchanging_the_models_exchanges_the_verdict():
    native, candidate = made(ratio=1.2)
    one, other = p50(native, candidate), p50(candidate, native)
    assert (one.verdict, other.verdict) == (WORSE, BETTER)
    assert one.ratio == pytest.approx(1 / other.ratio) and one.p == pytest.approx(other.p)


def test_more_metrics_and_looks_make_each_test_stricter():
    assert p50(*made()).alpha == verdict.ALPHA
    assert verdict.judge(*made(), metrics=("p50", "p90"), looks=3).judgements[0].alpha == pytest.approx(
        verdict.ALPHA / 6
    )


def test_judgements_go_through_json():
    found = verdict.judge(*made(), metrics=("p50", "p99.9"))
    assert verdict.Verdict.from_dict(json.loads(json.dumps(found.to_dict()))) == found


@pytest.mark.parametrize(
    "native, candidate, metrics, text",
    [
        ([], [], ("p50",), "no round at all"),
        ([[1.0]], [[1.0], [1.0]], ("p50",), "1 rounds of the native"),
        ([[1.0]], [[]], ("p50",), "without an answer"),
        ([[1.0]], [[1.0]], ("p42",), "no metric 'p42'"),
        ([[1.0]], [[1.0]], ("throughput",), "needs the rates"),
    ],
)
def test_what_cannot_be_judged_is_refused(native, candidate, metrics, text):
    with pytest.raises(ValueError, match=text):
        verdict.judge(native, candidate, metrics)


@pytest.mark.parametrize("change, wanted", [(1.2, WORSE), (0.8, BETTER), (1.0, SAME)])
def test_a_change_since_another_run(change, wanted):
    rng = np.random.default_rng(0)
    found = verdict.judge_change("p50", rng.normal(np.log(0.5), 0.02, 30), rng.normal(np.log(0.5 * change), 0.02, 45))
    assert (
        found.verdict == wanted
        and found.native == pytest.approx(0.5, rel=0.02)
        and found.ratio == pytest.approx(change, rel=0.03)
    )
    assert verdict.judge_change("p50", [0.1], [0.1, 0.2]).verdict == UNSURE


@pytest.mark.parametrize("machine", ["calm", "busy"])
def test_recorded_rounds_of_a_model_against_itself_raise_no_alarm_and_show_a_slow_down(machine):
    latencies, rates = verdict_power.sample(machine)
    rng = np.random.default_rng(0)
    same = [verdict_power.judged(verdict_power.recorded_run(latencies, rates, rng, 0.0))["outcome"] for _ in range(10)]
    slower = [verdict_power.judged(verdict_power.recorded_run(latencies, rates, rng, 1.0))["outcome"] for _ in range(3)]
    assert not {WORSE, BETTER} & set(same) and set(slower) == {WORSE}
