"""The numbers of a load run, from synthetic records."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from tftrt_tools.base import errors
from tftrt_tools.servers.load import latency_statistics, limits, payload, run_record, schedule


def test_fewest_samples_of_a_percentile_are_those_of_loadgen():
    assert [latency_statistics.min_samples(share) for share in (0.9, 0.95, 0.99, 0.999)] == [64, 130, 662, 6636]


@pytest.mark.parametrize(
    ("over", "share", "confidence"), [(0, 0.99, 0.99), (1, 0.5, 0.9), (7, 0.9, 0.99), (40, 0.95, 0.95)]
)
def test_passing_is_the_first_count_with_an_unlikely_enough_binomial_tail(over, share, confidence):
    counts = np.arange(over + 1, 3000)
    unlikely = stats.binom.cdf(over, counts, 1 - share) <= 1 - confidence
    assert latency_statistics.passing(over, share, confidence) == counts[np.argmax(unlikely)]


def test_a_percentile_of_too_few_samples_is_refused():
    assert latency_statistics.percentile(np.arange(661), 0.99).value is None
    first = latency_statistics.percentile(np.arange(662), 0.99)
    assert (first.value, first.upper, first.needed) == (655, 661, 662)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_percentile_is_the_nearest_rank_and_its_bound_leaves_out_as_many_as_loadgen_would(share):
    samples = np.random.default_rng(3).permutation(5000)
    found = latency_statistics.percentile(samples, share)
    assert found.value == math.ceil(share * 5000) - 1
    discarded = 1
    while latency_statistics.passing(discarded + 1, share) <= 5000:
        discarded += 1
    assert found.upper == np.sort(samples)[5000 - discarded]


def test_the_bound_holds_as_often_as_its_confidence_says():
    random, true = np.random.default_rng(11), stats.expon.ppf(0.9)
    held = [latency_statistics.percentile(random.exponential(size=400), 0.9, 0.95).upper >= true for _ in range(2000)]
    # 95 % or more; under 93.5 % has a probability of 0.2 % even at 95 %.
    assert np.mean(held) > 0.935


def test_decided_says_yes_no_and_not_yet():
    assert latency_statistics.decided(1, 662, 0.99) is True
    assert latency_statistics.decided(1, 661, 0.99) is None
    assert latency_statistics.decided(20, 662, 0.99) is False
    assert latency_statistics.decided(0, 0, 0.99) is None
    # In between: neither tail of the binomial is unlikely.
    assert latency_statistics.decided(7, 662, 0.99) is None


def test_warm_up_is_over_when_rate_and_latency_stay_within_the_tolerance():
    def window(rate, latency):
        return latency_statistics.Window(rate, latency)

    cold, warm = window(50, 20e6), [window(100, 10e6), window(105, 9.8e6), window(98, 10.2e6)]
    assert latency_statistics.stable([cold, *warm])
    assert not latency_statistics.stable([cold, *warm[:2]])
    assert not latency_statistics.stable(warm[:2])
    assert not latency_statistics.stable([*warm[:2], window(100, 12e6)])
    assert not latency_statistics.stable([*warm[:2], window(0, math.nan)])


def test_windows_count_what_was_done_in_each_and_leave_out_the_rest():
    done, latency = np.array([5, 15, 16, 29, 35]), np.array([1, 2, 4, 8, 100])
    found = latency_statistics.windows(done, latency, 0, 39, 10)
    assert [(one.rate, one.latency_ns) for one in found] == [(1e8, 1.0), (2e8, 3.0), (1e8, 8.0)]


@pytest.mark.parametrize("values", [stats.lognorm(1.2, scale=4e6), stats.uniform(2e5, 9e8), stats.expon(scale=3e7)])
def test_histogram_is_right_to_three_digits(values):
    samples = values.rvs(20_000, random_state=5).astype(np.int64) + 1000
    whole = latency_statistics.histogram(samples)
    assert whole.get_total_count() == samples.size
    for share in (0.5, 0.9, 0.99, 0.999):
        exact = latency_statistics.percentile(samples, share).value
        assert whole.get_value_at_percentile(100 * share) == pytest.approx(exact, rel=1e-3)


def test_a_closed_view_hides_a_stall_that_the_schedule_shows():
    """A second without answers at 100 requests a second, as it is recorded in both ways."""
    scheduled = schedule.constant(100, 3)
    done = np.maximum(scheduled + 1_000_000, np.where((scheduled >= 1e9) & (scheduled < 2e9), int(2e9), 0))
    opened = _records("open", scheduled, scheduled, done)
    assert (opened.latency_ns > 5e6).sum() == 100
    assert opened.percentile(0.9).value > 6e8
    # One at a time, each sent when the one before is back: the stall is a single request.
    naive = _records(
        "closed",
        sent := np.array([*range(0, int(1e9), 10_000_000), *range(int(2e9), int(3e9), 10_000_000)]),
        sent,
        sent + np.where(sent == int(1e9) - 10_000_000, int(1e9), 1_000_000),
    )
    assert (naive.latency_ns > 5e6).sum() == 1
    assert naive.percentile(0.9).value == 1_000_000


def test_records_leave_failed_requests_out_of_the_latencies_and_the_rate():
    sent = np.arange(10) * 100_000_000
    found = _records("closed", sent, sent, sent + 1000, code=np.array([0, 14] * 5))
    assert found.latency_ns.size == 5
    assert found.rate() == 5.0
    assert found.to_dict()["answered"] == 5


def test_limits_each_sign_alone():
    quiet, slow = np.full(100, 50_000), np.full(1000, 20_000_000)
    usual = {
        "cpu_s": 4.0,
        "seconds": 10.0,
        "workers": 2,
        "cores": 8,
        "late": 1,
        "sent": 1000,
        "lags_ns": quiet,
        "latency_ns": slow,
    }
    assert limits.found(**usual) == ()
    for changed, of, word in (
        ({"cpu_s": 18.5}, limits.RATE, "used 1.85 of 2 cores"),
        ({"late": 11}, limits.RATE, "more than 1 ms late"),
        ({"lags_ns": np.full(100, 5_000_000)}, limits.TIMES, "woke 5.0 ms late (p99)"),
    ):
        (sign,) = limits.found(**{**usual, **changed})
        assert word in sign.text and sign.of == of
    # Two processes on one core are at their limit with one core's time.
    assert "of 1 core:" in limits.found(**{**usual, "cpu_s": 9.5, "cores": 1})[0].text
    # Milliseconds of lag do not matter where requests take a second.
    assert limits.found(**{**usual, "lags_ns": np.full(100, 5_000_000), "latency_ns": np.full(1000, 10**9)}) == ()


def test_replies_that_wait_make_the_tail_and_do_not_limit_the_rate():
    lag = limits.Sign(limits.TIMES, "replies waited")
    found = dataclasses.replace(_records("closed", *(np.arange(10),) * 3), limits=(lag,))
    assert (found.limited_by_generator, found.why, found.waits) == (False, "", "replies waited")
    both = dataclasses.replace(found, limits=(limits.Sign(limits.RATE, "used 1 of 1 core"), lag))
    assert (both.limited_by_generator, both.why, both.waits) == (True, "used 1 of 1 core", "replies waited")


def test_more_requests_under_way_and_more_answers_acquit_the_generator():
    runs = [(1, 100.0), (2, 198.0), (4, 240.0), (8, 230.0)]
    assert limits.acquitted(100.0, 1, runs) == (4, 240.0)
    assert limits.acquitted(198.0, 2, runs) is None and limits.acquitted(240.0, 4, runs) is None
    assert limits.acquitted(100.0, None, runs) is None
    assert limits.kept_pace(198.0, 2, runs) == (1, 100.0)
    assert (
        limits.kept_pace(240.0, 4, runs) is None
        and limits.kept_pace(230.0, 8, runs) is None
        and limits.kept_pace(9.0, None, runs) is None
    )


def test_constant_schedule():
    made = schedule.constant(3, 2)
    assert made.dtype == np.int64
    assert made.tolist() == [0, 333333333, 666666667, 1000000000, 1333333333, 1666666667]
    assert len(schedule.constant(250, 4)) == 1000


@pytest.mark.parametrize("rate", [20, 5000])
def test_poisson_gaps_are_exponential_with_the_rates_mean(rate):
    made = schedule.poisson(rate, 20_000 / rate, seed=9)
    gaps = np.diff(np.concatenate(([0], made))) / 1e9
    assert stats.kstest(gaps, stats.expon(scale=1 / rate).cdf).pvalue > 0.01
    # Neighbours do not depend on each other, and the test sees gaps that are not exponential.
    assert abs(np.corrcoef(gaps[1:], gaps[:-1])[0, 1]) < 0.03
    assert (
        stats.kstest(np.diff(schedule.constant(rate, 20_000 / rate)) / 1e9, stats.expon(scale=1 / rate).cdf).pvalue
        < 1e-6
    )


def test_poisson_counts_are_poisson_and_seeds_make_schedules():
    counts = [len(schedule.poisson(50, 2, seed)) for seed in range(400)]
    assert np.mean(counts) == pytest.approx(100, abs=2)
    assert np.var(counts) == pytest.approx(100, rel=0.25)
    one = schedule.poisson(100, 5, seed=1)
    assert np.array_equal(one, schedule.poisson(100, 5, seed=1))
    assert not np.array_equal(one, schedule.poisson(100, 5, seed=2))
    assert (np.diff(one) >= 0).all()
    assert one[-1] < 5e9


def test_read_schedule(tmp_path):
    path = tmp_path / "schedule.txt"
    path.write_text("# seconds\n0\n0.5  # here\n\n0.5\n1e1\n")
    assert schedule.read(path).tolist() == [0, 500_000_000, 500_000_000, 10_000_000_000]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0\nsoon\n", "line 2: 'soon'"),
        ("1\n0.5\n", "line 2: 0.5 s is before"),
        ("-1\n", "line 1"),
        ("nan\n", "line 1"),
        ("# none\n", "holds no times"),
    ],
)
def test_a_bad_schedule_file_is_refused_with_its_line(tmp_path, text, said):
    path = tmp_path / "schedule.txt"
    path.write_text(text)
    with pytest.raises(errors.UsageError, match=said):
        schedule.read(path)


@pytest.mark.parametrize(("rate", "seconds"), [(0, 1), (1, 0), (-1, 1), (math.inf, 1), (math.nan, 1), (1e9, 1e3)])
def test_schedules_that_cannot_be_are_refused(rate, seconds):
    with pytest.raises(errors.UsageError):
        schedule.constant(rate, seconds)


@pytest.mark.parametrize("given", [[], [[1, 2]], [0.5, 1.5], [3, 2], [-1, 2]])
def test_what_is_no_schedule_is_refused(given):
    with pytest.raises(errors.UsageError):
        schedule.checked(np.array(given))


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "Predict", "requests": (b"",)},
        {"method": "/a/b", "requests": ()},
        {"method": "/a/b", "requests": (b"", b""), "expected": (b"",)},
    ],
)
def test_a_payload_that_cannot_be_sent_is_refused(settings):
    with pytest.raises(errors.UsageError):
        payload.Payload(**settings)


def _records(kind, scheduled, sent, done, code=None):
    zeros = np.zeros(len(sent), np.int64)
    return run_record.Records(
        scheduled_ns=scheduled,
        sent_ns=sent,
        done_ns=done,
        code=zeros if code is None else code,
        payload=zeros,
        flags=zeros,
        kind=kind,
        length_ns=1_000_000_000,
    )


def test_a_closed_loop_s_rate_counts_what_was_answered_inside_whenever_it_was_sent():
    """Requests of 500 ms, one after the other, the first of them under way when five seconds begin."""
    sent = np.arange(10) * 500_000_000 + 250_000_000
    found = dataclasses.replace(
        _records("closed", sent, sent, sent + 500_000_000), length_ns=5_000_000_000, earlier_ns=np.array([250_000_000])
    )
    assert found.rate() == 2.0


def _served(rate, seconds, capacity, least_ms=500):
    """An open loop of a server that takes `least_ms` and answers `capacity` a second at most."""
    scheduled = schedule.constant(rate, seconds)
    done, free = [], 0
    for instant in scheduled.tolist():
        free = max(instant + least_ms * 1_000_000, free + int(1e9 / capacity))
        done.append(free)
    return dataclasses.replace(_records("open", scheduled, scheduled, np.array(done)), length_ns=int(seconds * 1e9))


def test_the_last_latency_does_not_lower_an_open_loop_s_rate_and_a_backlog_does():
    keeps_up = _served(20, 5, 1000)
    assert (keeps_up.rate(), keeps_up.falling_behind) == (20.0, 0.0)
    for capacity in (19, 15, 5):
        late = _served(20, 20, capacity, 5)
        assert late.rate() == pytest.approx(capacity, rel=0.02)
        assert late.falling_behind == pytest.approx(20 / capacity - 1, rel=0.05)


def test_noise_is_no_backlog():
    random, scheduled = np.random.default_rng(2), schedule.constant(100, 5)
    for _ in range(50):
        assert latency_statistics.falling_behind(scheduled, (random.exponential(size=500) * 1e8).astype(np.int64)) == 0
    assert latency_statistics.falling_behind(scheduled[:11], scheduled[:11]) == 0
    assert latency_statistics.falling_behind(scheduled[:12], scheduled[:12]) == pytest.approx(1)


def test_an_open_loop_of_one_request_lasts_until_its_answer():
    found = dataclasses.replace(_records("open", np.array([0]), np.array([1]), np.array([250_000_000])), length_ns=0)
    assert found.rate() == pytest.approx(4, rel=1e-6)
    assert _records("open", np.array([0]), np.array([1]), np.array([9]), code=np.array([14])).rate() == 0


def test_a_mean_is_decided_as_often_wrongly_as_its_confidence_says_at_most():
    random, found = np.random.default_rng(6), []
    for _ in range(3000):
        found.append(latency_statistics.mean_decided(random.normal(10, 3, 100), 10, 0.95))
    # 5 % each way; over 6.5 % has a probability of 0.02 %.
    assert found.count(True) < 195 and found.count(False) < 195
    assert (
        latency_statistics.mean_decided(np.full(64, 5), 6) is True
        and latency_statistics.mean_decided(np.full(63, 5), 6) is None
    )


@pytest.mark.parametrize(
    ("codes", "milliseconds"),
    [
        ([0, 0, 14, 14, 14], 700),
        ([14, 14, 14, 14, 14], 1000),
        ([0, 0, 0, 14, 14], 0),
        ([14, 14, 14, 14, 0], 0),
        ([0, 5, 14, 5, 5], 900),
        ([0, 0, 0, 0, 4], 300),
        ([4, 4, 4, 4, 0], 0),
    ],
)
def test_how_long_nothing_was_answered_at_the_end_of_a_run(codes, milliseconds):
    """Requests of 100 ms, every 200 ms of a second; from the last answer to the end. Of a server that hangs, one request tells."""
    sent = np.arange(5) * 200_000_000
    found = _records("closed", sent, sent, sent + 100_000_000, np.array(codes))
    assert found.silent_ns == milliseconds * 1_000_000
    none = _records("closed", *(np.zeros(0, np.int64),) * 3)
    assert none.silent_ns == none.unanswered == none.pace == 0


def test_how_much_a_server_may_have_left_to_do_and_at_which_pace_it_worked():
    sent = np.arange(5) * 200_000_000
    found = dataclasses.replace(
        _records("closed", sent, sent, sent + 100_000_000, np.array([0, 14, 0, 4, 4])), unfinished=3
    )
    assert found.unanswered == 5 and found.pace == 4.0, "two answers in half a second"
    assert dataclasses.replace(found, earlier_ns=np.array([1, 2])).pace == 8.0


def test_how_many_requests_were_under_way():
    sent, done = np.array([0, 10, 10, 30]), np.array([10, 40, 50, 35])
    assert _records("closed", sent, sent, done).under_way == 3, "one that ends as another begins makes room for it"
    assert _records("closed", *(np.zeros(0, np.int64),) * 3).under_way == 0
