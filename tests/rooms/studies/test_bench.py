"""The parts of `tftrt bench` that need no server."""

import csv
import dataclasses
import json
import resource
import signal
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tftrt_tools.base import errors
from tftrt_tools.base.stack import fingerprint
from tftrt_tools.command_line.commands import _bench_outputs
from tftrt_tools.command_line.commands import bench as command
from tftrt_tools.command_line.report import bench_plots
from tftrt_tools.models.inputs import calls as inputs
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.servers.load import latency_statistics, run_record
from tftrt_tools.servers.serving.smoke import server_process
from tftrt_tools.studies.bench import (
    bench,
    goal,
    gpu_watch,
    live,
    measure,
    measurements,
    points,
    search,
    server_metrics,
    summary,
    tables,
    threads,
    workload,
)

MS = 1_000_000
CLOSED = points.Point(scenario=points.CLOSED, concurrency=1)


def records(times_ms, seconds=10.0, failed=0, kind="closed", **more):
    """A run: requests sent at equal gaps, answered after `times_ms`; `failed` more that were refused at once."""
    times = np.concatenate([np.asarray(times_ms, float) * MS, np.zeros(failed)]).astype(np.int64)
    sent = np.linspace(0, seconds * 1e9, times.size, endpoint=False).astype(np.int64)
    code = np.repeat([0, 14], [len(times_ms), failed]).astype(np.int64)
    zeros = np.zeros(times.size, np.int64)
    refused = {14: run_record.Failures(14, "UNAVAILABLE", failed, ("full",))} if failed else {}
    return run_record.Records(
        scheduled_ns=sent,
        sent_ns=sent,
        done_ns=sent + times,
        code=code,
        payload=zeros,
        flags=zeros,
        kind=kind,
        length_ns=int(seconds * 1e9),
        errors=refused,
        **more,
    )


def refused(function, *arguments):
    with pytest.raises(errors.UsageError) as raised:
        function(*arguments)
    assert raised.value.mend and "\n" not in raised.value.cause
    return raised.value.cause


# --- the goal


def test_a_goal_is_read_with_units_and_signs():
    first, second, third = goal.parse("p99<20ms, p50<=1.5s,errors<=0.1%").bounds
    assert (first.percentile, first.limit, first.inclusive) == (99.0, 0.02, False)
    assert (second.percentile, second.limit, second.inclusive) == (50.0, 1.5, True)
    assert (third.percentile, third.limit) == (None, 0.001)
    assert goal.parse("p99.9<800us").bounds[0].limit == pytest.approx(8e-4)
    assert not first.kept(0.02) and second.kept(1.5)
    assert goal.parse("") is None


@pytest.mark.parametrize(
    "text",
    [
        "p99",
        "p99>20ms",
        "p99<20",
        "p99<20%",
        "errors<1ms",
        "p100<1ms",
        "p0<1ms",
        "p99<0ms",
        "p99<1..2ms",
        "p99<1ms,p99<2ms",
        "median<1ms",
        "p99<1ms,",
        "p99<-1ms",
    ],
)
def test_what_is_no_goal_is_refused(text):
    assert "--slo" in refused(goal.parse, text)


def judged(times_ms, text, **more):
    return summary.row(measurements.SERVER, CLOSED, records(times_ms, **more), [1], goal.parse(text))


def test_a_percentile_is_kept_only_where_that_is_sure():
    fast, slow = np.full(2000, 1.0), np.full(2000, 30.0)
    assert judged(fast, "p99<20ms").kept is True
    assert judged(slow, "p99<20ms").kept is False
    assert judged(fast[:300], "p99<20ms").kept is None, (
        "459 requests, all of them fast, are the fewest that prove a p99"
    )
    assert judged(np.concatenate([fast[:-20], slow[:20]]), "p99<20ms").kept is None, (
        "one in a hundred is the bound itself"
    )


def test_a_failed_request_is_slower_than_every_bound():
    fast = np.full(2000, 1.0)
    assert judged(fast, "p99<20ms", failed=1).kept is False, "no failure is allowed where nothing is said of them"
    assert judged(fast, "p99<20ms,errors<=5%", failed=1).kept is True
    assert judged(fast, "p99<20ms,errors<=5%", failed=60).kept is False, "3 % failed: the p99 is a failure"


def test_mean_and_max_are_bounded_too():
    row = judged([1.0, 3.0], "mean<=2ms,max<3ms")
    assert [one.kept for one in row.goal] == [None, False, True], "two requests say nothing of a mean"
    assert "3.000 ms" in summary.shortfall(row.goal[1], row)
    times = np.random.default_rng(4).exponential(2.0, 1000)
    assert [judged(times, f"mean<{limit}ms").goal[0].kept for limit in (2.5, 2.0, 1.5)] == [True, None, False]


def test_a_bound_on_errors_is_kept_only_where_that_is_sure():
    fast = np.full(5000, 1.0)
    for sent, failed, kept in ((3, 0, None), (4000, 0, None), (5000, 0, True), (5000, 5, None), (4000, 30, False)):
        row = judged(fast[:sent], "errors<=0.1%", failed=failed)
        assert row.goal[0].kept is kept, (sent, failed)
    assert judged(fast[:3], "errors<=0%").goal[0].kept is True and judged(fast[:3], "errors<=100%").goal[0].kept is True


def test_a_percentile_that_is_not_known_can_still_be_missed():
    """30 slow ones of 600 are too many for a p99, whatever it is exactly."""
    row = judged(np.concatenate([np.full(570, 1.0), np.full(30, 50.0)]), "p99<20ms")
    one = row.goal[0]
    assert one.kept is False and one.value is None
    assert summary.shortfall(one, row) == "not kept: too many of 600 requests were slower or failed"


def test_an_open_row_that_was_cut_short_says_the_rate_that_was_asked_for():
    whole = records([1.0] * 50, kind="open", seconds=5.0)
    cut = dataclasses.replace(whole, partial="interrupted", unsent=150)
    point = points.Point(scenario=points.OPEN, rate=40.0)
    assert summary.row("server", point, cut, np.ones(1)).offered == 40.0
    assert summary.row("server", point, whole, np.ones(1)).offered == 10.0


def test_a_probe_is_long_enough_for_a_bound_on_errors():
    options = types.SimpleNamespace(min_queries=0, seconds=1.0, goal=goal.parse("p90<1s,errors<=0.1%"))
    assert measure.length(options, 100, probe=True) == 2 * latency_statistics.min_samples(0.999) / 100
    assert "errors<=0.1% needs 6636" in measure.too_short(options, points.Point(scenario=points.OPEN, rate=100.0))


# --- the sweep


def test_a_sweep_is_the_product():
    found = points.product("closed", [1, 4], [], "constant", [1, 8])
    assert [(one.concurrency, one.batch_size) for one in found] == [(1, 1), (4, 1), (1, 8), (4, 8)]
    assert [one.rate for one in points.product("open", [], [10.0, 20.0], "poisson", [])] == [10.0, 20.0]
    assert points.product("closed", [], [], "constant", [])[0].text() == "closed, concurrency 1"
    assert found[3].text() == "closed, concurrency 4, batch 8"


@pytest.mark.parametrize(
    "arguments",
    [
        ("burst", [], [], "constant", []),
        ("open", [2], [10.0], "constant", []),
        ("closed", [], [10.0], "constant", []),
        ("offline", [], [], "constant", [], "file"),
        ("open", [], [10.0], "constant", [], "file"),
    ],
)
def test_flags_that_do_not_go_with_the_scenario_are_refused(arguments):
    refused(points.product, *arguments)


@pytest.mark.parametrize("texts", [["0"], ["-1"], ["x"], ["1.5"], ["1e99"], ["nan"]])
def test_what_is_no_count_is_refused(texts):
    assert "--concurrency" in refused(points.integers, "concurrency", texts)


@pytest.mark.parametrize("text", ["0", "-1", "x", "nan", "inf"])
def test_what_is_no_rate_is_refused(text):
    assert "--rate" in refused(points.rates, "rate", [text])


# --- the search


@given(capacity=st.floats(0.5, 1e5), start=st.floats(0.5, 1e5), resolution=st.sampled_from([0.01, 0.05, 0.3]))
def test_the_search_brackets_the_capacity_or_says_that_nothing_keeps_it(capacity, start, resolution):
    asked = []

    def probe(rate):
        asked.append(rate)
        return search.KEPT if rate <= capacity else search.MISSED

    found = search.highest(probe, start, resolution=resolution)
    assert len(asked) <= search.MOST_PROBES
    if found.rate is None:
        assert capacity < start / 2**6 * 1.001 and found.above == min(asked)
        return
    assert found.rate <= capacity < found.above
    assert found.above <= found.rate * (1 + resolution) * 1.001
    assert {found.rate, found.above} <= set(asked), "what is said was measured"


def test_the_search_keeps_its_bounds():
    asked = []
    found = search.highest(lambda rate: asked.append(rate) or search.KEPT, 10, ceiling=35)
    assert (found.rate, found.above, asked) == (35, None, [10, 20, 35]) and "highest rate allowed" in found.ended
    asked.clear()
    found = search.highest(lambda rate: asked.append(rate) or search.MISSED, 100, lowest=100)
    assert (found.rate, asked) == (None, [100]) and "100/s, does not keep it" in found.ended


def test_where_the_generator_is_the_limit_the_search_says_so():
    found = search.highest(lambda rate: search.KEPT if rate < 70 else search.UNOFFERED, 10)
    assert found.rate < 70 <= found.above and "load generator" in found.ended


def test_a_rate_that_too_few_requests_were_sent_at_is_not_said_to_miss_the_goal():
    found = search.highest(lambda rate: search.KEPT if rate < 70 else search.UNDECIDED, 10)
    assert "may keep it or miss it" in found.ended and "does not" not in found.ended
    found = search.highest(lambda rate: search.UNDECIDED, 10)
    assert found.rate is None and "may keep it or miss it" in found.ended


# --- the summary


def test_a_percentile_with_too_few_samples_is_no_number():
    found = summary.latency(np.arange(1, 401) * MS)
    assert (
        found.percentiles["p50"] == 200.0
        and found.percentiles["p99"] is None
        and found.needs == {"p99": 662, "p99.9": 6636}
    )
    assert (found.text("p99"), found.text("p50")) == ("needs 662", "200.000")
    nothing = summary.latency(np.array([], np.int64))
    assert (
        nothing.max_ms is None
        and set(nothing.percentiles.values()) == {None}
        and nothing.text("p50").startswith("needs")
    )


@pytest.mark.parametrize("count", [1, 5, 64, 700, 20_000])
def test_the_distribution_ends_where_the_samples_do(count):
    pairs = summary.curve(np.arange(1, count + 1) * MS)
    assert all(latency_statistics.min_samples(share) <= count * 1.01 + 1 for share, _ in pairs if share > 0)
    assert [ms for _, ms in pairs] == sorted(ms for _, ms in pairs)
    if count == 20_000:
        assert pairs[-1][0] > 0.999


def test_a_row_counts_rows_and_what_was_offered():
    run = records(np.full(100, 2.0), seconds=1.0, kind="open", unsent=20)
    row = summary.row(measurements.SERVER, CLOSED, run, [8])
    assert (row.requests, row.offered, row.sent_rate, row.failed) == (100, 120.0, 100.0, 0)
    assert row.rows_per_second == pytest.approx(8 * row.throughput)
    assert row.kept is None and row.complete


def test_a_single_open_request_has_a_rate_that_can_be_believed():
    row = summary.row(measurements.SERVER, CLOSED, records([500.0], seconds=0, kind="open"), [1])
    assert (row.throughput, row.sent_rate, row.offered) == (pytest.approx(2, rel=1e-6), None, None)
    assert list(measure._notes(row, records([500.0], seconds=0, kind="open"))) == []


def test_the_server_is_said_not_to_keep_up_where_a_backlog_grows_and_not_for_the_last_latency():
    for times, notes in ((np.full(100, 500.0), 0), (np.linspace(500, 3000, 100), 1)):
        run = records(times, seconds=5, kind="open")
        row = summary.row(measurements.SERVER, CLOSED, run, [1])
        said = list(measure._notes(row, run))
        assert len(said) == notes and all("backlog grew" in one for one in said)
        assert row.throughput == pytest.approx(20 if not notes else 20 / 1.5, rel=0.02)


@pytest.mark.parametrize(("uncertain_ms", "said"), [(0.4, 0), (49.0, 0), (51.0, 1)])
def test_a_schedule_whose_order_is_not_known_across_generators_is_said(uncertain_ms, said):
    """Requests are 50 ms apart."""
    each = dict(host="h", cores=2, clock_offset_ms=3.0)
    generators = (
        run_record.Generator(number=1, clock_uncertainty_ms=0.1, **each),
        run_record.Generator(number=2, clock_uncertainty_ms=uncertain_ms, **each),
    )
    run = records(np.full(100, 2.0), seconds=5, kind="open", generators=generators)
    row = summary.row(measurements.SERVER, points.Point(scenario=points.OPEN, rate=20.0), run, [1])
    assert row.generators == generators
    notes = [one for one in measure._notes(row, run) if "in another order than the schedule's" in one]
    assert len(notes) == said


def test_answers_that_nobody_judged_are_said():
    run = records(np.full(100, 2.0), checked=6, wrong=6, unjudged=12)
    row = summary.row(measurements.SERVER, CLOSED, run, [1])
    assert row.to_dict()["unjudged"] == 12 and any(
        "12 answers had other bytes" in note for note in measure._notes(row, run)
    )
    done = types.SimpleNamespace(rows=[row], refused="", searched=[], unanswered=2)
    asked = types.SimpleNamespace(
        address="h:1", original="m", in_process="", expected="first", require_no_errors=False, goal=None
    )
    assert "6 of 6 compared answers are wrong, and 12 more were not judged" in next(bench._problems(asked, done))
    assert bench._compared(asked, done) == (
        "the first answers are like those of m, except for 2 requests without an answer; a sample of the "
        "later ones was compared with the first, except for 12 with other bytes that nobody judged"
    )


@pytest.mark.parametrize(
    "address, original, expected, says",
    [
        (
            "h:1",
            "",
            "first",
            "a sample was compared with the first answer to the same request (in process: not compared)",
        ),
        ("h:1", "", "none", "not compared (in process: not compared)"),
        ("", "", "first", "not compared"),
        ("", "m", "first", "the first answers are like those of m; later ones not compared"),
    ],
)
def test_what_runs_in_process_is_said_not_to_be_compared(address, original, expected, says):
    done = types.SimpleNamespace(rows=[], refused="", unanswered=0)
    asked = types.SimpleNamespace(address=address, original=original, in_process="d", expected=expected)
    assert bench._compared(asked, done) == says


def test_the_series_adds_up():
    run = records(np.full(500, 2.0), failed=20)
    assert run.done_ns.max() < run.length_ns
    series = summary.row(measurements.SERVER, CLOSED, run, [1]).series
    assert sum(series.answered) * series.seconds == pytest.approx(500, abs=0.1)
    assert sum(series.failed) * series.seconds == pytest.approx(20, abs=0.1)
    assert all(value is None or value == 2.0 for value in series.p50_ms)


# --- what is sent


def loads(specs, sizes, **asked):
    return workload.workloads(inputs.Takes.one("s", {"s": specs}), sizes, inputs.Asked(**asked), 4)


IMAGE = InputSpec("x", "float32", (None, 8))


def test_requests_are_drawn_for_each_batch_size():
    one, eight = loads([IMAGE], [1, 8])
    assert [call.shapes["x"] for call in eight.calls] == [(8, 8)] * 4 and (one.rows, eight.rows) == (1, 8)
    again = loads([IMAGE], [1])[0]
    assert all((a.inputs["x"] == b.inputs["x"]).all() for a, b in zip(one.calls, again.calls, strict=True)), (
        "the seed says all"
    )
    assert len({call.inputs["x"].tobytes() for call in one.calls}) == 4


def test_shapes_are_sent_in_turn_and_batched_where_asked():
    (mixed,) = loads([IMAGE], [], shapes="x:1x8,3x8")
    assert [call.rows for call in mixed.calls] == [1, 3, 1, 3]
    ids = InputSpec("ids", "int32", (None, None))
    found = loads([ids], [2, 4], shapes="ids:1x16")
    assert [one.calls[0].shapes["ids"] for one in found] == [(2, 16), (4, 16)]


def test_data_is_cut_and_what_is_left_out_is_said(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.arange(80, dtype=np.float32).reshape(10, 8))
    three, four = loads([IMAGE], [3, 4], data=str(tmp_path / "d.npz"))
    assert three.source.endswith("without the last row, which fills no batch of 3")
    assert four.source.endswith("without the last 2 rows, which fill no batch of 4")
    (found,) = loads([IMAGE], [2], data=str(tmp_path / "d.npz"))
    assert "batch of" not in found.source
    assert len(found.calls) == 4 and "first 4 of 5" in found.source
    assert (found.calls[1].inputs["x"] == np.arange(16, 32, dtype=np.float32).reshape(2, 8)).all()


@pytest.mark.parametrize(
    "specs, sizes, changed",
    [
        ([InputSpec("x", "float32", None)], [], {}),
        ([InputSpec("x", "float32", (None, None))], [], {}),
        ([InputSpec("x", "float32", (4, 8))], [2], {}),
        ([IMAGE], [], {"ranges": "z:0:1"}),
        ([IMAGE], [], {"shapes": "x:1x8", "data": "d"}),
        ([InputSpec("x", "DataType 20", ())], [], {}),
        ([IMAGE], [1], {"data": "none.npz"}),
    ],
)
def test_inputs_that_cannot_be_made_are_refused(specs, sizes, changed):
    refused(lambda: loads(specs, sizes, **changed))


def test_the_signature_is_chosen():
    assert workload.choose_signature(["a", "serving_default"], "") == "serving_default"
    assert workload.choose_signature(["a"], "") == "a" and workload.choose_signature(["a", "b"], "b") == "b"
    for known, wanted in ((["a", "b"], ""), (["a"], "c"), ([], "")):
        refused(workload.choose_signature, known, wanted)


# --- the server's counters

PAGE = """# TYPE :tensorflow:serving:request_count counter
:tensorflow:serving:request_count{model_name="m",status="OK"} %(ok)d
:tensorflow:serving:request_count{model_name="m",status="INVALID_ARGUMENT"} 2
:tensorflow:serving:request_count{model_name="other",status="OK"} %(ok)d
# TYPE :tensorflow:serving:request_latency histogram
:tensorflow:serving:request_latency_bucket{model_name="m",API="Predict",entrypoint="GRPC",le="+Inf"} %(ok)d
:tensorflow:serving:request_latency_sum{model_name="m",API="Predict",entrypoint="GRPC"} %(sum)d
:tensorflow:serving:request_latency_count{model_name="m",API="Predict",entrypoint="GRPC"} %(ok)d
# TYPE :tensorflow:serving:batching_session:processed_batch_size histogram
:tensorflow:serving:batching_session:processed_batch_size_bucket{le="1"} 3
:tensorflow:serving:batching_session:processed_batch_size_bucket{le="2"} %(ok)d
:tensorflow:serving:batching_session:processed_batch_size_bucket{le="+Inf"} %(ok)d
:tensorflow:serving:batching_session:processed_batch_size_sum{} %(sum)d
:tensorflow:serving:batching_session:processed_batch_size_count{} %(ok)d
"""


def page(ok, total):
    return server_metrics.parse(PAGE % {"ok": ok, "sum": total})


def test_the_difference_of_two_pages_is_the_model_s_own():
    found = server_metrics.difference(page(10, 10_000), page(30, 50_000), "m")
    assert found.requests == {"OK": 20}, "what did not grow, and what is another model's, is not there"
    assert (found.request_ms, found.runtime_ms, found.processed_rows, found.batches) == (2.0, None, 2000.0, {"<2": 20})
    assert "20 OK" in found.text() and "2.000 ms in the server" in found.text()


def test_a_server_that_started_anew_counts_from_zero():
    assert server_metrics.difference(page(100, 10_000), page(30, 60_000), "m").requests == {
        "INVALID_ARGUMENT": 2,
        "OK": 30,
    }


def test_a_gauge_that_falls_is_no_new_start():
    gauge = "# TYPE :tensorflow:serving:busy gauge\n:tensorflow:serving:busy{} %d\n"
    before, after = (
        server_metrics.parse(PAGE % {"ok": ok, "sum": ok} + gauge % value) for ok, value in ((1000, 5), (1010, 4))
    )
    assert server_metrics.difference(before, after, "m").requests == {"OK": 10}


def test_a_page_that_is_none_is_refused():
    with pytest.raises(errors.TftrtError, match="Prometheus"):
        server_metrics.parse("<html>not found")
    for rest, address in (("localhost", ""), ("http://localhost:1", ""), ("", "localhost:8501")):
        refused(server_metrics.url, rest, address)


# --- files


def test_the_requests_file_has_its_name_when_it_is_whole(tmp_path):
    file = tables.RequestsFile(tmp_path / "r.csv")
    file.add("server", CLOSED, records([1.0, 2.0]))
    assert not (tmp_path / "r.csv").exists() and file.partial.exists()
    file.close()
    file.finish()
    with open(tmp_path / "r.csv") as text:
        rows = list(csv.DictReader(text))
    assert [(row["point"], int(row["done_ns"]) - int(row["sent_ns"])) for row in rows] == [
        (CLOSED.text(), MS),
        (CLOSED.text(), 2 * MS),
    ]
    assert not file.partial.exists()


def test_a_full_disk_keeps_whole_points_and_the_benchmark(tmp_path):
    file = tables.RequestsFile(tmp_path / "r.csv")
    file.add("server", CLOSED, records([1.0] * 10))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        file.add("server", CLOSED, records([1.0] * 1000))
        file.add("server", CLOSED, records([1.0]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    file.close()
    file.finish()
    assert "too large" in file.failed and not (tmp_path / "r.csv").exists()
    assert len(file.partial.read_text().splitlines()) == 11 and file.partial.read_text().endswith("\n")


def test_the_histogram_log_is_read_by_hdrhistogram(tmp_path):
    from hdrh.histogram import HdrHistogram
    from hdrh.log import HistogramLogReader

    path, times = tmp_path / "b.hdr", np.linspace(1, 50, 700)
    with _bench_outputs.Outputs(hdr=str(path)) as files:
        for run in (records(times), records([], failed=3), records(times[:5])):
            files.add("server", CLOSED, run)
        assert files.write(types.SimpleNamespace(complete=True), None) == []
    assert "#row 2: server, closed, concurrency 1" in path.read_text()
    reader = HistogramLogReader(str(path), HdrHistogram(1, 10**12, 3))
    read = [reader.get_next_interval_histogram() for _ in range(3)]
    reader.close()
    assert [(one.get_tag(), one.get_total_count()) for one in read] == [("1", 700), ("2", 0), ("3", 5)]
    exact = latency_statistics.percentile(records(times).latency_ns, 0.99).value
    assert read[0].get_value_at_percentile(99) == pytest.approx(exact, rel=1e-3)
    assert read[0].get_end_time_stamp() - read[0].get_start_time_stamp() == pytest.approx(10_000, abs=1)


def test_the_bound_of_a_percentile_is_shown_beside_it():
    found = summary.latency(np.arange(1, 801) * MS)
    assert (
        set(found.to_dict()["below"]) == {"p50", "p90", "p95", "p99"}
        and found.below["p99"] > found.percentiles["p99"] == 792
    )
    assert (
        found.bounds().endswith(f"p99 below {found.below['p99']:.3f} ms")
        and summary.latency(np.arange(5)).bounds() == ""
    )


def test_nothing_is_left_where_nothing_was_measured(tmp_path):
    with _bench_outputs.Outputs(requests_csv=str(tmp_path / "r.csv")):
        pass
    assert list(tmp_path.iterdir()) == []


# --- GPUs


class Nvml:
    """An NVML of two GPUs, the second of which tells little; Watch takes the module as an argument."""

    NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = 1, 0

    class NVMLError(Exception):
        pass

    def __init__(self):
        self.busy = 40

    def nvmlDeviceGetUtilizationRates(self, handle):  # noqa: N802 (NVML's names)
        if handle == 1:
            raise self.NVMLError
        self.busy = 100 - self.busy
        return types.SimpleNamespace(gpu=self.busy)

    def nvmlDeviceGetMemoryInfo(self, handle):  # noqa: N802
        return types.SimpleNamespace(used=3 << 30)

    def nvmlDeviceGetClockInfo(self, handle, kind):  # noqa: N802
        return 1700 + self.busy

    def nvmlDeviceGetPowerUsage(self, handle):  # noqa: N802
        raise self.NVMLError

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):  # noqa: N802
        return 0x4 | 0x1

    def nvmlDeviceGetTemperature(self, handle, kind):  # noqa: N802
        return 60


def test_gpus_are_watched_as_far_as_they_tell():
    watch = gpu_watch.Watch(Nvml(), [0, 1], ["A", "B"])
    while len(watch.uses(0.0)) < 2 or watch.uses(0.0)[0].samples < 2:
        assert watch.now < 30
    watch.stop()
    first, second = watch.uses(0.0)
    assert first.max_utilization in (40, 60) and 40 <= first.mean_utilization <= 60 and first.max_memory_mib == 3072
    assert 1740 <= first.min_clock_mhz <= 1760 and first.mean_power_w is None and first.slowed == ("power cap",)
    assert (
        second.mean_utilization is None and "busy" not in second.text() and "clock lowered: power cap" in second.text()
    )
    assert watch.uses(watch.now + 1) == []


@pytest.mark.gpu
def test_a_real_gpu_is_watched():
    with gpu_watch.watching() as watch:
        while not watch.uses(0.0):
            assert watch.now < 30
        use = watch.uses(0.0)[0]
    assert use.name and use.max_memory_mib and use.mean_clock_mhz and 0 <= use.mean_utilization <= 100
    found = fingerprint.fingerprint()
    assert found.driver and use.name in found.gpus


# --- plots


def test_plots_are_drawn_of_what_there_is():
    rows = [
        summary.row(
            measurements.SERVER,
            points.Point(scenario="closed", concurrency=n),
            records(np.linspace(1, 5 * n, 800)),
            [1],
        )
        for n in (1, 2)
    ]
    assert bench_plots.cdf(rows, [(99.0, 8.0)]).count("goal p99") == 1
    drawn = bench_plots.throughput_latency(rows)
    assert drawn.startswith("<svg") and "closed p50" in drawn
    assert bench_plots.throughput_latency(rows[:1]) == "", "one point is no curve"
    empty = summary.row(measurements.SERVER, CLOSED, records([], failed=5), [1])
    assert bench_plots.cdf([empty]) == "" and bench_plots.throughput_latency([empty, empty]) == ""
    assert bench_plots.over_time(rows[0]).startswith("<svg")


# --- the machine


def test_a_fingerprint_tells_machines_apart():
    one = fingerprint.fingerprint()
    assert (
        one.cores
        and one.memory_gib
        and one.python
        and fingerprint.Fingerprint.from_dict(json.loads(json.dumps(one.to_dict()))) == one
    )
    other = fingerprint.Fingerprint.from_dict({**one.to_dict(), "driver": "550.1", "gpus": ["H200", "H200"]})
    assert other.digest != one.digest and fingerprint.fingerprint().digest == one.digest
    assert one.differences(other) == [
        f"gpus: {'none' if not one.gpus else ', '.join(one.gpus)}, now 2 x H200",
        f"driver: {one.driver or 'none'}, now 550.1",
    ]
    assert one.cpu in one.text()


def test_a_server_without_a_thread_left_is_no_pass():
    run = records(np.full(60, 2.0), failed=40)
    errors_of = {8: run_record.Failures(8, "RESOURCE_EXHAUSTED", 40, ("Server Threadpool Exhausted",))}
    run = dataclasses.replace(run, errors=errors_of)
    row = summary.row(measurements.SERVER, CLOSED, run, [1])
    assert row.refused == 40 and any(
        "40 of 100 requests" in note and "--grpc_max_threads" in note for note in measure._notes(row, run)
    )
    done = types.SimpleNamespace(rows=[row], refused="", searched=[], unanswered=0)
    asked = types.SimpleNamespace(
        address="h:1", original="", in_process="", expected="first", require_no_errors=False, goal=None
    )
    assert (
        "refused 40 of 100 requests: no gRPC thread left; start it with --grpc_max_threads=256, or have fewer under way"
        in next(bench._problems(asked, done))
    )
    assert (
        row.to_dict()["refused"] == 40
        and command._failed(row) == "40 (40 refused)"
        and "40 failed (40 refused" in live.summary(row)
    )
    other = dataclasses.replace(
        row, errors=(measurements.Error("RESOURCE_EXHAUSTED", 40, "the message is larger than allowed"),)
    )
    assert other.refused == 0


@pytest.mark.parametrize(
    "address, argv, most, said",
    [
        ("h:8500", None, 4, ""),
        ("h:8500", None, 16, "has 4 gRPC threads for each of its cores by default"),
        ("", None, 64, ""),
        ("triton://h:8001", None, 64, ""),
        ("localhost:8500", ("s", "--grpc_max_threads=8"), 5, ""),
        ("localhost:8500", ("s", "--grpc_max_threads=8"), 6, "has 8 gRPC threads (--grpc_max_threads=8)"),
        ("localhost:8500", ("s", "--grpc_max_threads=256"), 64, ""),
        ("localhost", ("s",), 4096, "by default 4 for each core"),
    ],
)
def test_more_calls_than_the_threads_of_a_server_are_told_before_they_are_sent(monkeypatch, address, argv, most, said):
    process = server_process.Process(1, server_process.SERVING, argv, None) if argv else None
    monkeypatch.setattr(server_process, "find", lambda target: (process, ""))
    found = threads.note(address, most)
    assert bool(found) == bool(said) and said in found and ("--grpc_max_threads=256" in found) == bool(said)


def test_offline_asks_no_more_than_a_server_with_default_flags_carries():
    (point,) = points.product("offline", [], [], "constant", [])
    assert threads.note("h:8500", point.concurrency) == ""


def test_the_times_of_an_offline_row_have_two_names():
    run = dataclasses.replace(records(np.full(700, 2.0)), kind="offline")
    row = summary.row(measurements.SERVER, points.Point(scenario=points.OFFLINE, concurrency=4), run, [1])
    assert any(
        note.startswith("times count from the start, when all requests were due; from sending to answer: p50 ")
        for note in measure._notes(row, run)
    )


def test_a_search_that_ends_at_the_threads_of_the_server_says_so():
    found = search.highest(lambda rate: search.KEPT if rate < 70 else search.REFUSED, 10)
    assert found.rate < 70 <= found.above and "--grpc_max_threads" in found.ended


def test_a_label_that_moves_during_a_row_is_said():
    versions = iter([1, 2, 2])
    client = types.SimpleNamespace(
        metadata=lambda *_: types.SimpleNamespace(model=types.SimpleNamespace(version=next(versions)))
    )
    asked = types.SimpleNamespace(model_version=None, model_name="m", version_label="stable")
    watched = bench._Versions(client, asked, 1)
    assert [watched.changed() for _ in range(3)] == [
        "",
        "label 'stable' changed its version during this row: 1 answered before, 2 answers now",
        "",
    ]
    assert bench._Versions(None, types.SimpleNamespace(model_version=1), 1).changed() == ""
    there_and_back = bench._Versions(
        types.SimpleNamespace(metadata=lambda *_: types.SimpleNamespace(model=types.SimpleNamespace(version=1))),
        asked,
        1,
    )
    there_and_back.seen |= {1, 3}
    assert [there_and_back.changed() for _ in range(2)] == [
        "label 'stable' changed its version for a while during this row: 1 answers before and now, 3 did too",
        "",
    ]
