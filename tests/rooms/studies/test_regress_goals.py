"""Goals from flags and TOML, every mistake in them, and what keeps, misses or leaves them undecided."""

import dataclasses
import types

import numpy as np
import pytest

from tftrt_tools.base import errors
from tftrt_tools.servers import client
from tftrt_tools.servers.serving.smoke import gate
from tftrt_tools.studies.regression import answers, goals, models, verdict
from tftrt_tools.studies.regression.goals import KEPT, MISSED, UNDECIDED, Goals

CANDIDATE = models.Model(path="", name="c", build_seconds=40.0, engine_bytes=30 << 20, gpu_memory_bytes=2 << 30)


def read(tmp_path, text, **flags):
    path = tmp_path / "goals.toml"
    path.write_text(text)
    return goals.read(str(path), flags)


WHOLE = """
speed_up_at_least = 1.5
p50_ms_at_most = 4
p99_ms_at_most = 20.5
throughput_at_least = 500
accuracy = "top1:max-degradation=0.01; snr_db:threshold=30"
build_seconds_at_most = 600
engine_mib_at_most = 100
gpu_mib_at_most = 8000
no_engine_fallback = true
"""


def test_every_goal_can_stand_in_the_file(tmp_path):
    found = read(tmp_path, WHOLE)
    assert set(found.to_dict()) == set(goals.NAMES)
    assert (found.speed_up_at_least, found.p50_ms_at_most, found.no_engine_fallback) == (1.5, 4.0, True)
    assert read(tmp_path, "[goals]" + WHOLE) == found


def test_flags_go_before_the_file(tmp_path):
    found = read(tmp_path, WHOLE, speed_up_at_least=2.0, no_engine_fallback=False)
    assert (found.speed_up_at_least, found.no_engine_fallback, found.p99_ms_at_most) == (2.0, False, 20.5)
    assert goals.read("", {}) == Goals()


@pytest.mark.parametrize(
    "text, cause, mend",
    [
        ("sped_up_at_least = 1.5", "no goal 'sped_up_at_least'", "did you mean speed_up_at_least?"),
        ("p99_at_most = 20", "no goal 'p99_at_most'", "did you mean p99_ms_at_most?"),
        ("colour = 3", "no goal 'colour'", "goals: speed_up_at_least"),
        ('speed_up_at_least = "1.5"', "is no number", "without quotes"),
        ("speed_up_at_least = true", "is no number", "without quotes"),
        ("speed_up_at_least = [1.5]", "is no number", "without quotes"),
        ("speed_up_at_least = 0", "is no number above 0", "write"),
        ("p99_ms_at_most = -3", "is no number above 0", "write"),
        ("p99_ms_at_most = nan", "is no number above 0", "write"),
        ("p99_ms_at_most = inf", "is no number above 0", "write"),
        ("accuracy = 0.99", "is no text", "write accuracy"),
        ('accuracy = "top1"', "is no goal", "max-degradation"),
        ('accuracy = "top1:max-degradtion=0.01"', "is no kind of goal", "max-degradation"),
        ('no_engine_fallback = "yes"', "neither true nor false", "no_engine_fallback = true"),
        ("no_engine_fallback = 1", "neither true nor false", "no_engine_fallback = true"),
        ("[accuracy]\ntop1 = 0.9", "accuracy is a table", "a file of goals"),
        ("[goals]\nspeed_up = 2", "no goal 'speed_up'", "did you mean speed_up_at_least?"),
        ("[goals]\np99_ms_at_most = 3\n[other]\nx = 1", "'other' stands beside [goals]", "into that table"),
        ("speed_up_at_least = ", "is no TOML", "a file of goals"),
        ("p99_ms_at_most = 1\np99_ms_at_most = 2", "is no TOML", "a file of goals"),
    ],
)
def test_mistakes_in_the_file_are_named_with_their_mend(tmp_path, text, cause, mend):
    with pytest.raises(errors.UsageError) as caught:
        read(tmp_path, text)
    assert cause in caught.value.cause and mend in caught.value.mend, (caught.value.cause, caught.value.mend)
    assert "--accuracy" not in caught.value.cause, "the file is to be fixed"


def test_files_that_are_none(tmp_path):
    with pytest.raises(errors.UsageError, match="no such file"):
        goals.read(str(tmp_path / "none.toml"), {})
    with pytest.raises(errors.UsageError, match="is a directory"):
        goals.read(str(tmp_path), {})
    (tmp_path / "latin").write_bytes(b"# \xe9\xff")
    with pytest.raises(errors.UsageError, match="UTF-8"):
        goals.read(str(tmp_path / "latin"), {})


def judged(**wanted):
    """{name: Kept} for rounds in which the candidate takes half of 2 ms."""
    rng = np.random.default_rng(0)
    native, candidate = ([rng.normal(seconds, seconds / 100, 40) for _ in range(30)] for seconds in (2e-3, 1e-3))
    rates = rng.normal(500, 2, 30)
    found = verdict.judge(native, candidate, verdict.DEFAULT_METRICS, native_rates=rates, candidate_rates=2 * rates)
    return {one.name: one for one in goals.judge(Goals(**wanted), found, CANDIDATE)}


@pytest.mark.parametrize(
    "name, kept, missed, near",
    [
        ("speed_up_at_least", 1.8, 2.2, 2.0),
        ("p50_ms_at_most", 1.1, 0.9, 1.0),
        ("p99_ms_at_most", 1.2, 0.9, 1.0235),
        ("throughput_at_least", 900, 1100, 1000),
    ],
)
def test_a_measured_goal_is_decided_by_its_whole_interval(name, kept, missed, near):
    assert judged(**{name: kept})[name].verdict == KEPT
    assert judged(**{name: missed})[name].verdict == MISSED
    undecided = judged(**{name: near})[name]
    assert undecided.verdict == UNDECIDED and "inside the interval" in undecided.reason, undecided


@pytest.mark.parametrize(
    "name, kept, missed",
    [("build_seconds_at_most", 40, 39), ("engine_mib_at_most", 30, 29.9), ("gpu_mib_at_most", 2048, 2047)],
)
def test_a_goal_of_the_passport(name, kept, missed):
    assert judged(**{name: kept})[name].verdict == KEPT
    assert judged(**{name: missed})[name].verdict == MISSED
    unknown = goals.judge(Goals(**{name: 1.0}), verdict.Verdict((), 0.03, 0.01, 1), models.Model(path="", name="c"))[0]
    assert unknown.verdict == UNDECIDED and "metadata" in unknown.reason


@pytest.mark.parametrize(
    "answer, wanted",
    [("yes", KEPT), ("no", MISSED), ("partly", MISSED), ("cannot tell", UNDECIDED), ("contradiction", UNDECIDED)],
)
def test_the_goal_on_fallbacks_follows_the_evidence(answer, wanted):
    evidence = types.SimpleNamespace(answer=answer, certainty="likely", reason="seen")
    (found,) = goals.judge(
        Goals(no_engine_fallback=True), verdict.Verdict((), 0.03, 0.01, 1), CANDIDATE, engines=evidence
    )
    assert found.verdict == wanted and "did they run?" in found.value
    (nobody,) = goals.judge(Goals(no_engine_fallback=True), verdict.Verdict((), 0.03, 0.01, 1), CANDIDATE)
    assert nobody.verdict == UNDECIDED


def test_a_metric_that_was_not_judged_leaves_its_goal_undecided():
    few = verdict.judge([np.ones(3)] * 20, [np.ones(3)] * 20, ("p99",))
    (found,) = goals.judge(Goals(p99_ms_at_most=1.0), few, CANDIDATE)
    assert found.verdict == UNDECIDED and "662 requests" in found.reason
    (found,) = goals.judge(Goals(speed_up_at_least=1.0), few, CANDIDATE)
    assert found.verdict == UNDECIDED and "p50 was not measured" in found.reason


def test_every_number_is_a_flag_of_the_command():
    from absl import flags as absl_flags

    from tftrt_tools.command_line.commands import regress

    values = absl_flags.FlagValues()
    regress.define(values)
    assert set(goals.NAMES) <= set(values) and dataclasses.asdict(Goals())["accuracy"] == ""


def test_a_request_that_the_closed_gate_refuses_is_a_failed_check_and_any_other_refusal_is_not():
    refused = answers.read_failure(client.ServingError("ABORTED", f"[...] {gate.REFUSAL}"), "candidate", "/m")
    assert (
        isinstance(refused, errors.CheckFailed)
        and "no engine of the candidate serves" in refused.cause
        and "build --shapes" in refused.mend
    )
    other = answers.read_failure(client.ServingError("INVALID_ARGUMENT", "bad shape"), "native", "/m")
    assert (
        other.exit_code == errors.EXIT_FAILED
        and "the native model /m refuses a request: INVALID_ARGUMENT: bad shape" in other.cause
    )
    silent = answers.read_failure(
        client.ServingError("DEADLINE_EXCEEDED", "Deadline Exceeded", "no answer within 1 s", "give more time"),
        "candidate",
        "/m",
    )
    assert (
        silent.exit_code == errors.EXIT_FAILED
        and silent.cause == "the candidate model /m does not answer a request: no answer within 1 s"
    )
