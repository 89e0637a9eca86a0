"""`tftrt bench --tune_batching`: the search for batching parameters."""

import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from absl import flags

from tests.conftest import ROOT
from tests.pages import quoted, unprinted
from tftrt_tools.base import errors
from tftrt_tools.base.stack import fingerprint
from tftrt_tools.base.wire import config_messages
from tftrt_tools.command_line.commands import _batching, _flags, _older
from tftrt_tools.command_line.commands import bench as command
from tftrt_tools.command_line.report import batching_plot
from tftrt_tools.servers.load import run_record
from tftrt_tools.servers.serving.configuration import batching_file, config_check
from tftrt_tools.studies.batching import journal, measure, search, space, trial, turns
from tftrt_tools.studies.batching.options import Options
from tftrt_tools.studies.batching.trial import Trial
from tftrt_tools.studies.batching.tuned import Tuned
from tftrt_tools.studies.bench import goal, measurements, points, summary
from tftrt_tools.studies.bench import options as bench_options
from tftrt_tools.studies.regression import verdict
from tftrt_tools.studies.tuning.budget import Budget

MS = 1_000_000
ANY = space.space(None, 1, 0.02, 2)


# --- what is tried


@pytest.mark.parametrize(
    "covered, rows, sizes",
    [
        (None, 1, [((), 32), ((), 8), ((), 128)]),
        (None, 4, [((), 128), ((), 32), ((), 512)]),
        (tuple(range(1, 33)), 1, [((), 32), ((), 16), ((), 8), ((), 4)]),
        (tuple(range(1, 5)), 2, [((), 4)]),
        ((1, 8, 32), 1, [((1, 8, 32), 32), ((1, 8), 8)]),
        (
            tuple(range(4, 65)),
            1,
            [(tuple(range(4, 65)), 64), (tuple(range(4, 33)), 32), (tuple(range(4, 17)), 16), (tuple(range(4, 9)), 8)],
        ),
    ],
)
def test_batch_sizes_are_those_of_the_engines(covered, rows, sizes):
    tried = space.space(covered, rows, 0.02, 2)
    found = next(one for one in tried.coordinates if one.name == "max_batch_size").values
    assert [(one["allowed_batch_sizes"], one["max_batch_size"]) for one in found] == sizes
    assert (tried.start.allowed_batch_sizes, tried.start.max_batch_size) == sizes[0]


@pytest.mark.parametrize("covered", [None, (1, 8, 32), tuple(range(1, 17))])
def test_every_set_that_can_be_tried_is_one_that_a_server_takes(covered):
    tried = space.space(covered, 1, 0.02, 2)
    for coordinate in tried.coordinates:
        for value in coordinate.values:
            text = batching_file.text(dataclasses.replace(tried.start, **value), covered)
            problems = config_check.check_text("file", text, config_messages.BATCHING).problems
            assert not [one for one in problems if one.level == "error"], text


def test_engines_for_single_requests_have_nothing_to_join():
    with pytest.raises(errors.UsageError, match="batches of 1: no two requests of 1 row fit into one") as raised:
        space.space((1,), 1, 0.02, 2)
    assert "larger batches" in raised.value.mend


def test_waits_are_shares_of_the_promise_and_threads_those_of_the_machine():
    values = {one.name: [value[one.name] for value in one.values] for one in space.space(None, 1, 0.02, 16).coordinates}
    assert values["batch_timeout_micros"] == [0, 1000, 2000, 5000]
    assert values["num_batch_threads"] == [16, 32, 8, 4, 1] and values["max_enqueued_batches"] == [10, 100]


# --- the search


class Servers:
    """Keeps how often a server with which parameters was measured. rate: function of Settings or None that gives its highest rate."""

    def __init__(self, rate):
        self.rate, self.asked = rate, []

    def __call__(self, number, settings, floor):
        self.asked.append(settings)
        rate = self.rate(settings)
        if isinstance(rate, str):
            return Trial(number=number, settings=settings, floor=floor, failure=rate, seconds=60)
        kept = rate if floor is None or rate >= floor else None
        return Trial(number=number, settings=settings, floor=floor, rate=kept, seconds=60)


def hills(settings):
    """Best with 1 thread, batches of 8 and a wait of 2000 us."""
    if settings is None:
        return 100
    return (
        1000
        / (1 + abs(settings.num_batch_threads - 1))
        / (1 + abs(settings.max_batch_size - 8) / 8)
        / (1 + abs(settings.batch_timeout_micros - 2000) / 2000)
    )


def test_one_parameter_after_the_other_leads_to_the_best():
    servers = Servers(hills)
    found = search.search(servers, ANY, Budget(50, 1e9), 0.05)
    assert found.best.settings == batching_file.Settings(
        max_batch_size=8, batch_timeout_micros=2000, num_batch_threads=1, max_enqueued_batches=10
    )
    assert found.ended == "no other value of any parameter gives a higher rate"
    assert len(set(map(repr, servers.asked))) == len(servers.asked), "a set was measured twice"
    assert servers.asked[:2] == [None, ANY.start] and [one.number for one in found.trials] == list(
        range(1, len(found.trials) + 1)
    )


def test_a_trial_first_has_to_keep_more_than_the_best_so_far():
    found = search.search(Servers(lambda settings: 100 if settings is None else 104), ANY, Budget(50, 1e9), 0.05)
    assert found.best == found.trials[0], "4 % more is not higher with a resolution of 5 %"
    assert {one.floor for one in found.trials[1:]} == {105.0}


def test_where_nothing_keeps_the_promise_there_is_a_nearest_and_no_best():
    found = search.search(
        lambda number, settings, floor: Trial(number=number, settings=settings, floor=floor, nearest_ms=50.0 - number),
        ANY,
        Budget(3, 1e9),
        0.05,
    )
    assert found.best is None and search.nearest(found.trials).number == 3


def test_parameters_with_which_a_server_fails_do_not_end_the_search():
    found = search.search(
        Servers(lambda settings: "it ended" if settings and settings.num_batch_threads == 2 else hills(settings)),
        ANY,
        Budget(50, 1e9),
        0.05,
    )
    assert found.trials[1].failure == "it ended" and found.best.settings.num_batch_threads == 1


@pytest.mark.parametrize(
    "budget, trials, ended",
    [
        (Budget(4, 1e9), 4, "--max_trials=4 are done"),
        (Budget(50, 3), 3, "--max_minutes=3 are over"),
        (Budget(1, 0), 1, "--max_trials=1 are done"),
    ],
)
def test_the_budget_bounds_trials_and_time(budget, trials, ended):
    found = search.search(Servers(hills), ANY, budget, 0.05)
    assert (len(found.trials), found.ended) == (trials, ended)


# --- the journal

OF = {"model": "sha256:1", "machine": "abc", "flags": {"slo": "p99<20ms", "seed": 1}}
KEPT = Trial(number=1, settings=None, floor=None, rate=100.0, above=105.0, seconds=9.0)
MISSED = Trial(number=2, settings=ANY.start, floor=105.0)


def test_finished_trials_are_read_back(tmp_path):
    kept = journal.Journal(tmp_path / "new", OF)
    kept.put(KEPT)
    kept.put(MISSED)
    again = journal.Journal(tmp_path / "new", OF)
    assert again.get(None, None) == KEPT
    assert again.get(ANY.start, 110.0) == MISSED
    assert again.get(ANY.start, 90.0) is None, "that it does not keep 105/s says nothing about 90/s"
    assert again.get(dataclasses.replace(ANY.start, num_batch_threads=1), None) is None


@pytest.mark.parametrize(
    "other, text",
    [
        ({"model": "sha256:2"}, "trials of another model"),
        ({"machine": "x"}, "trials of another machine or other versions"),
        ({"flags": {"slo": "p99<30ms", "seed": 1}}, r"trials of other flags \(--slo\)"),
        ({"flags": {"slo": "p99<20ms"}}, r"trials of other flags \(--seed\)"),
    ],
)
def test_a_journal_of_something_else_is_refused(tmp_path, other, text):
    journal.Journal(tmp_path, OF).put(KEPT)
    with pytest.raises(errors.UsageError, match=text) as raised:
        journal.Journal(tmp_path, OF | other)
    assert "--work_dir" in raised.value.mend
    assert journal.Journal(tmp_path, OF).get(None, None) == KEPT


def test_a_journal_that_was_begun_with_names_of_before_goes_on(tmp_path):
    named = {"launch": "binary", "server_image": "i", "timeout_seconds": 5.0, "seed": 1}
    before = {"backend": "binary", "image": "i", "timeout": 5.0, "seed": 1}
    defined = flags.FlagValues()
    command.define(defined)
    renamed = _older.names("bench", defined)
    journal.Journal(tmp_path, OF | {"flags": before}).put(KEPT)
    with pytest.raises(errors.UsageError, match=r"trials of other flags \(--server_image, --timeout_seconds\)"):
        journal.Journal(tmp_path, OF | {"flags": named | {"server_image": "j", "timeout_seconds": 6.0}}, renamed)
    with pytest.raises(errors.UsageError, match=r"trials of other flags \(--launch\)"):
        journal.Journal(tmp_path, OF | {"flags": named | {"launch": "local"}}, renamed)
    assert journal.Journal(tmp_path, OF | {"flags": named}, renamed).get(None, None) == KEPT
    # It has the new names from now on.
    assert journal.Journal(tmp_path, OF | {"flags": named}).get(None, None) == KEPT


def test_a_journal_without_trials_belongs_to_nobody(tmp_path):
    journal.Journal(tmp_path, OF)
    journal.Journal(tmp_path, OF | {"model": "sha256:2"}).put(KEPT)


@pytest.mark.parametrize("line", ["{", "[]", '{"trial": {"number": 1}}', "{}"])
def test_a_damaged_line_is_named(tmp_path, line):
    journal.Journal(tmp_path, OF).put(KEPT)
    path = tmp_path / journal.NAME
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(errors.TftrtError, match="line 3 is damaged"):
        journal.Journal(tmp_path, OF)


def test_sizes_to_pad_to_are_read_back_too(tmp_path):
    one = dataclasses.replace(ANY.start, allowed_batch_sizes=(1, 8, 32))
    journal.Journal(tmp_path, OF).put(Trial(number=3, settings=one, floor=None, rate=7.0))
    assert journal.Journal(tmp_path, OF).get(one, None).settings == one


# --- a trial from its benchmark


def probe(rate, times_ms, **more):
    run = block(times_ms)
    point = points.Point(scenario=points.OPEN, rate=rate, distribution="constant")
    row = summary.row(measurements.SERVER, point, run, np.ones(1), goal.parse("p90<20ms"), probe=True)
    return dataclasses.replace(row, **more)


def made(*rows, rate=None, above=None, problem=None, **more):
    """The trial that `rows` make, searched for p90<20ms."""
    asked = measurements.Searched(
        target="server", batch_size=None, rate=rate, above=above, resolution=0.05, ended="within 5%"
    )
    first = dataclasses.replace(probe(1.0, [1.0] * 200), offered=None)  # single requests in a row
    values = dict.fromkeys(("subject", "settings", "versions", "fingerprint", "stamp"))
    done = measurements.Bench(**values, rows=(first, *rows), searched=(asked,), **more)
    return measure._made(Trial(number=2, settings=None, floor=None), done, "p90", problem)


def test_a_trial_has_the_times_at_its_highest_rate_and_what_limited_the_next():
    found = made(
        probe(100.0, [5.0] * 200),
        probe(200.0, [8.0] * 200),
        probe(400.0, [30.0] * 200, limited="late sends"),
        rate=200.0,
        above=400.0,
    )
    assert (found.rate, found.above, found.ms, found.limited, found.ended) == (
        200.0,
        400.0,
        8.0,
        "late sends",
        "within 5%",
    )
    assert found.nearest_ms is None and not found.failure


def test_a_trial_that_keeps_nothing_has_what_came_nearest():
    found = made(probe(200.0, [40.0] * 200), probe(100.0, [30.0] * 200), probe(50.0, [31.0] * 200), above=50.0)
    assert (found.rate, found.nearest_ms, found.nearest_rate) == (None, 30.0, 100.0)


@pytest.mark.parametrize(
    "wrong, more, text",
    [
        (3, {}, "3 of 9 compared answers are wrong"),
        (0, {"ended": "the server answered no more"}, "the server answered no more"),
        (0, {"problem": errors.TftrtError("it ended by itself")}, "it ended by itself"),
    ],
)
def test_wrong_answers_and_a_server_that_ends_are_a_failure(wrong, more, text):
    found = made(probe(100.0, [5.0] * 200, wrong=wrong, checked=9), rate=100.0, **more)
    assert text in found.failure and found.rate is None


# --- in turns


def options(**more):
    values, _ = _flags.parse("bench", command, ["--slo=p99<20ms", "--scenario=open", "--model_name=m"])
    load = bench_options.from_flags("", values, {"original": "", "in_process": ""})
    return Options(
        **{
            "model": "m",
            "backend": "local",
            "image": "",
            "load": load,
            "budget": Budget(9, 9),
            "work_dir": pathlib.Path("w"),
            **more,
        }
    )


FULL = ("the batch scheduling queue is full",)


def block(times_ms, failed=0):
    """Open-loop records of one second."""
    count = len(times_ms) + failed
    due = np.linspace(0, 1e9, count, endpoint=False).astype(np.int64)
    done = due + (np.concatenate([times_ms, np.zeros(failed)]) * MS).astype(np.int64)
    zeros = np.zeros(count, np.int64)
    return run_record.Records(
        scheduled_ns=due,
        sent_ns=due,
        done_ns=done,
        code=np.repeat([0, 14], [len(times_ms), failed]),
        payload=zeros,
        flags=zeros,
        kind="open",
        length_ns=10**9,
        errors={14: run_record.Failures(14, "UNAVAILABLE", failed, FULL)} if failed else {},
    )


def blocks(scale_ms, seed, failed=0):
    rng = np.random.default_rng(seed)
    return [block(scale_ms * rng.lognormal(0, 0.2, 150), failed) for _ in range(turns.ROUNDS)]


def compared(without, winner):
    return turns.compared(without, winner, 150.0, 150.0, 1.0, options())


def test_a_winner_that_keeps_what_the_other_misses_is_better_for_sure():
    found = compared(blocks(40, 1), blocks(8, 2))
    assert found.certain and found.winner.kept is True and found.without.kept is False
    assert (
        found.winner.within == found.winner.requests == 150 * turns.ROUNDS
        and found.judgement.metric == "p99"
        and found.judgement.high < 0.3
    )


def test_two_that_are_alike_are_not_certain():
    found = compared(blocks(8, 1), blocks(8, 2))
    assert not found.certain and found.winner.kept and found.without.kept


def test_the_first_look_can_decide():
    assert verdict.rounds_needed(("p99",), turns.LOOKS) <= turns.ROUNDS


def test_refused_requests_count_as_the_slowest():
    found = compared(blocks(8, 1), blocks(8, 2, failed=20))
    assert (
        found.judgement.verdict == "worse"
        and found.winner.kept is False
        and found.winner.requests == 170 * turns.ROUNDS
    )


def test_two_that_refuse_more_than_the_promise_allows_are_not_called_the_same():
    """A winner with 61 % in time, no batching with 6 %: the deadline of a refused request is no time of the percentile."""
    found = compared(blocks(8, 1, failed=140), blocks(8, 2, failed=90))
    assert found.judgement.verdict == "cannot tell" and found.judgement.ratio is None and not found.certain
    assert found.judgement.reason == "the p99 of both is a request without an answer"
    assert (found.winner.ms, found.winner.failed, found.winner.kept) == (None, 90 * turns.ROUNDS, False)
    assert found.winner.why == "UNAVAILABLE: the batch scheduling queue is full"


def test_a_better_one_that_missed_its_promise_is_no_winner(capsys):
    found = compared(blocks(40, 1, failed=140), blocks(8, 2, failed=5))
    best = Trial(number=2, settings=ANY.start, floor=105.0, rate=300.0, ms=12.5)
    done = tuned(KEPT, best, turns=found)
    assert found.winner.kept is False and not found.certain
    assert done.winner is None and done.best == best and done.to_dict()["winner"] is None and done.gain is None
    _batching._print(done, None)
    said = capsys.readouterr().out
    assert "not kept in turns" in said and "winner    none: the best trial did not keep the SLO in turns" in said
    assert (
        "without an answer (UNAVAILABLE: the batch scheduling queue is full): missed" in said
        and "winner is better" not in said
    )
    error = _batching._missed_in_turns(done)
    assert error.exit_code == errors.EXIT_CHECK and "does not keep p99<20ms in turns: " in error.cause
    open_ = dataclasses.replace(
        done, turns=dataclasses.replace(found, winner=dataclasses.replace(found.winner, kept=None))
    )
    assert open_.winner is None and _batching._missed_in_turns(open_).exit_code == errors.EXIT_UNSURE


def test_a_winner_that_keeps_what_the_other_refuses_is_one(capsys):
    done = tuned(
        KEPT,
        Trial(number=2, settings=ANY.start, floor=105.0, rate=300.0, ms=12.5),
        turns=compared(blocks(8, 1, failed=90), blocks(8, 2)),
    )
    _batching._print(done, None)
    said = capsys.readouterr().out
    assert (
        done.winner == 2 and "the winner is better; the interval leaves out 1" in said and "of the other's" not in said
    )


def test_what_was_found_is_read_back(tmp_path):
    found = compared(blocks(40, 1), blocks(8, 2))
    journal.Journal(tmp_path, OF).put_turns(ANY.start, found)
    again = journal.Journal(tmp_path, OF)
    assert again.turns(ANY.start, 150.0) == found and again.turns(ANY.start, 151.0) is None


# --- the result


def tuned(*trials, **more):
    return Tuned(
        **{
            "stamp": {},
            "model": "m",
            "model_digest": "",
            "machine": fingerprint.fingerprint(),
            "backend": "local",
            "settings": {},
            "goal": "p99<20ms",
            "percentile": "p99",
            "sizes": "every size",
            "source": "no engines",
            "trials": trials,
            "ended": "no other",
            **more,
        }
    )


def test_the_plot_has_a_row_for_each_trial():
    winner = Trial(number=2, settings=ANY.start, floor=105.0, rate=300.0, ms=12.5)
    failed = Trial(number=4, settings=dataclasses.replace(ANY.start, max_batch_size=8), floor=315.0, failure="it ended")
    done = tuned(
        KEPT,
        winner,
        dataclasses.replace(MISSED, number=3, floor=315.0),
        failed,
        turns=compared(blocks(40, 1), blocks(8, 2)),
    )
    text = batching_plot.bars(done, "svg").decode()
    for wanted in (
        "1  no batching",
        "2  batches up to 32; wait 0 us; 2 threads; queue 10",
        "300, 12.5 ms",
        "does not keep 315",
        "failed",
        "in turns the winner kept 150",
        "highest rate that keeps p99&lt;20ms",
    ):
        assert wanted in text, wanted
    assert batching_plot.bars(tuned(Trial(number=1, settings=None, floor=None)), "png").startswith(b"\x89PNG")
    assert done.winner == 2 and done.gain == 3.0 and done.to_dict()["gain"] == 3.0


# --- the command


@pytest.fixture(scope="module")
def slow_calls(tmp_path_factory):
    """A model whose calls wait for each other and take long, however many rows they have: each sleeps, which takes no processor."""
    import tensorflow as tf
    from tensorflow.python.data.experimental.ops.testing import sleep

    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")])
        def __call__(self, x):
            held = tf.raw_ops.MutexLock(mutex=tf.raw_ops.MutexV2(shared_name="one_call"))
            with tf.control_dependencies([held]):
                zero = (
                    tf.data.Dataset.range(1)
                    .apply(sleep(8_000))
                    .reduce(tf.constant(0, tf.int64), lambda _, value: value)
                )
            with tf.control_dependencies([zero]):
                left = tf.raw_ops.ConsumeMutexLock(mutex_lock=held)
            with tf.control_dependencies([left]):
                return {"y": 2.0 * x + tf.cast(zero, tf.float32)}

    folder = tmp_path_factory.mktemp("slow") / "slow"
    module = Module()
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.__call__.get_concrete_function()})
    return folder


# The highest rate is more than single calls of `slow_calls` reach, and much less than batches do.
QUICK = (
    "--slo=p50<100ms",
    "--duration_seconds=1",
    "--warmup_seconds=0.2",
    "--resolution=0.5",
    "--max_trials=2",
    "--highest_rate=80",
)
# Ten rounds in turns can decide. Whether they do depends on the machine, so there is no second look here.
ROUNDS, LOOKS = 10, 1


@pytest.fixture
def two_cores():
    """This thread, and what it starts, has two cores at most."""
    all_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(all_cores)[:2])
    yield
    os.sched_setaffinity(0, all_cores)


def with_any_verdict(said):
    """An output with each of the words that a busy machine may change."""
    sure = said.replace("NOT CERTAIN that the winner is better", "the winner is better")
    return "\n".join(
        re.sub("(kept|missed|not decided)$", word, sure, flags=re.MULTILINE) for word in ("kept", "missed")
    )


@pytest.mark.slow
@pytest.mark.timeout(1200)  # a busy machine takes its time
def test_an_interrupted_search_goes_on_to_its_files(slow_calls, tftrt, tmp_path, two_cores, monkeypatch):
    arguments = ["bench", f"--tune_batching={slow_calls}", "--launch=local", *QUICK]
    first = subprocess.Popen(
        [sys.executable, "-m", "tftrt_tools", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    for line in iter(first.stderr.readline, ""):
        if line.startswith("trial 2"):
            break
    first.send_signal(signal.SIGINT)
    _, said = first.communicate(timeout=120)
    assert (
        first.returncode == 1
        and "the finished trials are in batching-slow; the same command goes on from there" in said
    )
    assert "Traceback" not in said
    path = tmp_path / "batching-slow/journal.jsonl"
    kept = path.read_text().splitlines()[1]
    # As a version wrote it that had other names.
    assert path.read_text().count('"launch"') == 1
    path.write_text(path.read_text().replace('"launch"', '"backend"'))
    monkeypatch.setattr(turns, "ROUNDS", ROUNDS)
    monkeypatch.setattr(turns, "LOOKS", LOOKS)
    done = tftrt(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "trial 1: no batching (from the journal)" in done.stderr
    assert kept in (tmp_path / "batching-slow/journal.jsonl").read_text()
    found = json.loads((tmp_path / "batching-slow/batching.json").read_text())
    assert [one["number"] for one in found["trials"]] == [1, 2] and found["trials"][1]["settings"][
        "max_batch_size"
    ] == 32
    assert (tmp_path / "batching-slow/batching.png").read_bytes().startswith(b"\x89PNG")
    if found["winner"] == 1:
        # On a machine that is busy enough.
        assert "winner    no batching: no parameters kept a higher rate" in done.stdout and "next:" not in done.stdout
        return
    assert not unprinted(quoted("tftrt bench --tune_batching"), with_any_verdict(done.stdout)), done.stdout
    parameters = tmp_path / "batching-slow/batching_parameters.txt"
    assert not config_check.check_text("file", parameters.read_text(), config_messages.BATCHING).problems
    assert re.search(
        r"next: tftrt publish .*slow --model_name=slow --base_path=models && tftrt serve .*--enable_batching "
        r"--batching_parameters_file=batching-slow/batching_parameters.txt",
        done.stdout,
    )


def test_a_promise_that_nothing_keeps_names_the_nearest(zoo_model, tftrt, tmp_path):
    done = tftrt(
        "bench",
        f"--tune_batching={zoo_model('digits_cnn')}",
        "--slo=p90<20us",
        "--duration_seconds=0.1",
        "--warmup_seconds=0",
        "--lowest_rate=200",
        "--max_trials=1",
        cwd=tmp_path,
    )
    assert done.returncode == 3
    assert re.search(
        r"no trial keeps p90<20us: the nearest is p90 [\d.]+ ms at 200/s with trial 1 \(no batching\)", done.stderr
    )
    assert not list(tmp_path.glob("*/batching_parameters.txt"))


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["localhost:1"], "ADDRESS localhost:1 does not go with --tune_batching"),
        (["--breakdown"], "--breakdown does not go with --tune_batching"),
        (["--tls_root=r.pem"], "--tls_root does not go with --tune_batching"),
        (["--rate=5"], "--rate does not go with --tune_batching"),
        (["--scenario=closed"], "--scenario=closed does not go with --tune_batching"),
        (["--batch_size=1,2"], "--tune_batching takes one --batch_size"),
        (["--slo="], "--tune_batching needs a promised percentile"),
        (["--slo=mean<5ms"], "--tune_batching needs a promised percentile"),
        (["--slo=p98<5ms"], "--tune_batching needs a promised percentile"),
        (
            ["--duration_seconds=0.1"],
            "probes of 0.1 s are too short for --slo=p99<20ms: a backlog could grow and still keep it",
        ),
        (["--signature_keys=other"], "the model has no signature 'other'"),
    ],
)
def test_mistakes_are_told_before_a_server_starts(zoo_model, tftrt, tmp_path, arguments, text):
    done = tftrt("bench", f"--tune_batching={zoo_model('digits_cnn')}", "--slo=p99<20ms", *arguments, cwd=tmp_path)
    assert done.returncode == 2 and text in done.stderr and "Traceback" not in done.stderr


def test_its_flags_have_no_effect_without_it(tftrt):
    done = tftrt("bench", "localhost:1", "--model_name=m", "--max_trials=3")
    assert done.returncode == 2 and "--max_trials has no effect without --tune_batching" in done.stderr


def test_a_folder_that_cannot_be_written_is_told_before_a_server_starts(zoo_model, tftrt, tmp_path):
    (tmp_path / "file").write_text("")
    done = tftrt(
        "bench", f"--tune_batching={zoo_model('digits_cnn')}", "--slo=p99<20ms", f"--work_dir={tmp_path / 'file'}"
    )
    assert done.returncode in (1, 2) and str(tmp_path / "file") in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "shape, text",
    [
        ([2, 4], "input 'x' of 'serving_default' takes batches of 2 only: the server cannot join requests"),
        ([], "input 'x' of 'serving_default' has no batch dimension"),
    ],
)
def test_a_model_without_a_batch_dimension_is_refused(tftrt, tmp_path, shape, text):
    import tensorflow as tf

    module = tf.Module()
    module.call = tf.function(lambda x: {"y": 2.0 * x}, input_signature=[tf.TensorSpec(shape, tf.float32, name="x")])
    tf.saved_model.save(
        module, str(tmp_path / "fixed"), signatures={"serving_default": module.call.get_concrete_function()}
    )
    done = tftrt("bench", f"--tune_batching={tmp_path / 'fixed'}", "--slo=p99<20ms", cwd=tmp_path)
    assert done.returncode == 2 and text in done.stderr


def test_settings_are_told_in_words():
    assert trial.text(ANY.start) == "batches up to 32; wait 0 us; 2 threads; queue 10"
    one = dataclasses.replace(ANY.start, allowed_batch_sizes=(1, 8, 32), num_batch_threads=1)
    assert trial.text(one) == "batches padded to 1, 8, 32; wait 0 us; 1 thread; queue 10"
    assert goal.parse("p99<20ms").percentiles == [99.0] and points.OPEN == "open"
