"""What is made of a result: the outcome, JUnit, the page, JSON, baselines; and what is left where the disk is full."""

import dataclasses
import json
import resource
import signal
import types
from xml.etree import ElementTree

import numpy as np
import pytest
from absl import flags

from tests.regress_results import MACHINE, WORKLOAD, regression
from tftrt_tools.accuracy import metrics
from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import regress as command
from tftrt_tools.command_line.report import regress as report
from tftrt_tools.studies.regression import (
    answers,
    baseline,
    comparison,
    goals,
    junit,
    models,
    regress,
    rounds,
    sentences,
    verdict,
)


def _judged(**changes):
    """answers.Judged of answers without a fault."""
    return answers.Judged(
        **{"comparisons": (), "arithmetic": ("FP16", ""), "bounds": {}, "goals": (), "problems": (), "requests": 16}
        | changes
    )


@pytest.mark.parametrize(
    "changes, outcome, code",
    [
        ({}, comparison.PASS, 0),
        ({"ratio": 0.7}, comparison.PASS, 0),
        ({"ratio": 1.2}, comparison.FAIL, 3),
        ({"noise": 0.4}, comparison.UNSURE, 4),
        ({"ended": "interrupted"}, comparison.ENDED, 1),
        ({"ratio": 1.2, "allow_worse": True}, comparison.PASS, 0),
        ({"failed": {"native": 0, "candidate": 3}}, comparison.FAIL, 3),
        (
            {"kept": (goals.Kept(name="speed_up_at_least", goal="at least 2", value="1.5", verdict=goals.MISSED),)},
            comparison.FAIL,
            3,
        ),
        (
            {
                "kept": (
                    goals.Kept(
                        name="speed_up_at_least", goal="at least 2", value="1.5", verdict=goals.UNDECIDED, reason="near"
                    ),
                )
            },
            comparison.UNSURE,
            4,
        ),
        (
            {
                "noise": 0.4,
                "kept": (goals.Kept(name="engine_mib_at_most", goal="at most 2", value="9", verdict=goals.MISSED),),
            },
            comparison.FAIL,
            3,
        ),
        ({"answers": _judged(problems=("x: snr_db is 3, wanted >= 30",))}, comparison.FAIL, 3),
    ],
)
def test_outcome_and_exit_code(changes, outcome, code):
    done = regression(**changes)
    assert (done.outcome, done.exit_code) == (outcome, code), done.headline
    assert done.headline.startswith(outcome.upper())
    assert " not " not in done.headline, "what was found, and not what was not wanted"
    assert done.to_dict()["complete"] == (outcome != comparison.ENDED)


def test_an_undecided_tail_alone_is_no_reason_to_stop_a_release():
    done = regression(rounds=12)  # too few requests for a p99
    assert done.verdict.of("p99").verdict == "cannot tell" and done.outcome == comparison.PASS
    assert regression(rounds=12, must_decide=("p50", "p99")).outcome == comparison.UNSURE


def test_junit_read_again():
    done = regression(
        ratio=1.2,
        kept=(
            goals.Kept(
                name="p99_ms_at_most",
                goal="p99 at most 2 ms",
                value="2.1 ms",
                verdict=goals.UNDECIDED,
                reason="near <&> \x00",
            ),
        ),
    )
    root = ElementTree.fromstring(junit.text(done))
    (suite,) = root.findall("testsuite")
    cases = {one.get("name"): one for one in suite.findall("testcase")}
    assert set(cases) == {one.name for one in done.checks} and all(
        one.get("classname") == "tftrt.regress" for one in cases.values()
    )
    assert cases["speed/p50"].find("failure").get("type") == "fail" and "% slower at p50" in cases["speed/p50"].find(
        "failure"
    ).get("message")
    assert cases["goal/p99_ms_at_most"].find("error").text == "near <&> �"
    counted = {name: int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")}
    assert counted == {"tests": len(cases), "failures": len(root.findall(".//failure")), "errors": 1, "skipped": 0}
    assert root.get("tests") == suite.get("tests") and float(suite.get("time")) == 1.5


def test_junit_of_a_pass_has_no_failure_and_of_a_run_that_ended_an_error():
    root = ElementTree.fromstring(junit.text(regression()))
    assert not root.findall(".//failure") and not root.findall(".//error") and root.findall(".//system-out")
    ended = ElementTree.fromstring(junit.text(regression(ended="interrupted")))
    assert [one.get("name") for one in ended.iter("testcase") if one.find("error") is not None] == ["complete"]


def test_the_page_opens_on_the_verdict_and_keeps_direction_and_verdict_apart():
    page = report.page(regression(ratio=1.2))
    body = page[page.index("<body>") :]
    assert body.index("FAIL") < 40 and "slower</td><td>worse" in page and "<svg" in page
    assert not any(text in page for text in ("<script", "src=", 'href="http', "@import", "url(http"))
    assert "CANNOT TELL" in report.page(regression(noise=0.4)) and "none shown</td><td>cannot tell" in report.page(
        regression(noise=0.4)
    )
    assert "ENDED EARLY" in report.page(regression(ended="interrupted"))


def judged(**outputs):
    """answers.Judged of {output: (native's array, candidate's)}."""
    compared = []
    for name, both in outputs.items():
        accumulator = metrics.Accumulator("serving_default", name)
        accumulator.add(*map(np.asarray, both))
        compared.append(accumulator.result())
    bounds = {one.name: {"snr_db": 15.0, "top1": 0.5} for one in compared}
    return _judged(comparisons=tuple(compared), arithmetic=("INT8", "INT8 engines"), bounds=bounds, requests=8)


def test_how_near_the_answers_are_is_shown_with_the_bounds_that_they_keep():
    logits = np.array([[1.0, 2.0], [3.0, 1.0], [0.0, 4.0], [2.0, 1.0]])
    near = judged(
        logits=(logits, logits + [[0.5, 0.0], [0.5, 0.0], [0.5, 0.0], [-1.5, 0.0]]),
        other=([1.0, 2.0], [1.0, 2.0]),
        ids=([1, 2, 3, 4], [1, 2, 3, 5]),
    )
    assert near.text == "8 requests compared, SNR 10.8 dB, top-1 equal in 75.00%, 25.00% of the elements differ"
    assert judged(other=([1.0, 2.0], [1.0, 2.0])).text == "8 requests compared, no float differs"
    page = report.page(regression(answers=near, settings={"thresholds": "top1>=0.5"}))
    assert (
        "75.00%" in page
        and "snr_db &gt;= 15, top1 &gt;= 0.5" in page
        and "those for INT8 (INT8 engines), but for <code>top1&gt;=0.5" in page
    )


@pytest.mark.parametrize(
    "metric, ratio, half, verdict, direction, text",
    [
        ("p50", 0.625, 0.05, "better", "faster", "the candidate is 1.60 times as fast at p50 (1.52 to 1.68)"),
        ("p50", 0.86, 0.06, "better", "faster", "the candidate is 14.0 % faster at p50 (8.8 to 19.2 %)"),
        ("p50", 1.04, 0.035, "worse", "slower", "the candidate is 4.0 % slower at p50 (0.4 to 7.6 %)"),
        ("p99", 1.5, 0.05, "worse", "slower", "the candidate takes 1.50 times as long at p99 (1.42 to 1.58)"),
        (
            "p50",
            1.02,
            0.01,
            "cannot tell",
            "slower",
            "the candidate is 2.0 % slower at p50 (1.0 to 3.0 %), and whether that counts is open",
        ),
        ("p50", 1.0, 0.02, "same", "", "the candidate is as fast at p50 (2.0 % faster to 2.0 % slower)"),
        (
            "p50",
            0.99,
            0.005,
            "same",
            "faster",
            "the candidate is 1.0 % faster at p50 (0.5 to 1.5 %), which is too little to count",
        ),
        (
            "p50",
            1.02,
            0.1,
            "cannot tell",
            "",
            "the candidate may be faster or slower at p50 (8.2 % faster to 12.2 % slower)",
        ),
        ("throughput", 1.6, 0.05, "better", "higher", "the candidate's throughput is 60.0 % higher (52.0 to 68.0 %)"),
        (
            "throughput",
            2.5,
            0.05,
            "better",
            "higher",
            "the candidate's throughput is 2.50 times as high (2.38 to 2.62)",
        ),
        ("throughput", 0.4, 0.05, "worse", "lower", "the candidate's throughput is 60.0 % lower (58.0 to 62.0 %)"),
        (
            "throughput",
            1.0,
            0.1,
            "cannot tell",
            "",
            "the candidate's throughput may be lower or higher (10.0 % lower to 10.0 % higher)",
        ),
    ],
)
def test_a_change_is_worded_so_that_it_can_be_read_in_one_way(metric, ratio, half, verdict, direction, text):
    done = regression()
    low, high = ratio * (1 - half), ratio * (1 + half)
    # "same" is decided by the narrower interval, so that is the one to show.
    wide = (0.5 * ratio, 2 * ratio) if verdict == "same" else (low, high)
    one = dataclasses.replace(
        done.verdict.of(metric),
        ratio=ratio,
        low=wide[0],
        high=wide[1],
        same_low=low,
        same_high=high,
        direction=direction,
        verdict=verdict,
    )
    assert sentences.sentence(one) == text
    done = dataclasses.replace(
        done, verdict=dataclasses.replace(done.verdict, judgements=(one,)), must_decide=(metric,)
    )
    said = {"worse": f"FAIL: {text}", "cannot tell": f"CANNOT TELL: {text}"}.get(verdict, f"PASS: {text}")
    assert done.headline == (said if metric == "p50" or verdict in ("worse", "cannot tell") else "PASS")
    # The same sentence everywhere.
    assert text.replace("'", "&#39;") in report.page(done) and done.to_dict()["checks"][0]["found"] == text
    (case,) = (
        one for one in ElementTree.fromstring(junit.text(done)).iter("testcase") if one.get("name") == f"speed/{metric}"
    )
    told = case.find("system-out").text if said.startswith("PASS") else case[0].get("message")
    assert told == text


@pytest.mark.parametrize("metric", ["p50", "p99", "throughput"])
def test_no_check_says_a_thing_by_two_negations(metric):
    for ratio, noise in ((1.0, 0.01), (1.2, 0.01), (0.7, 0.01), (1.0, 0.4)):
        for one in regression(ratio=ratio, noise=noise).checks:
            assert " not " not in f" {one.what} {one.found} ", one


def test_figures_of_tensorflow_against_tensorflow_are_no_verdict():
    why = "there is no GPU here, so both models ran as TensorFlow ops"
    slower = regression(ratio=1.2)
    done = dataclasses.replace(
        slower, verdict=verdict.without_verdict(slower.verdict, why), speed_not_judged=why, answers=_judged()
    )
    assert (
        done.outcome == comparison.PASS
        and done.headline == f"PASS: the graph's answers are right, and no engine ran; no verdict on speed: {why}"
    )
    assert not any(one.name.startswith("speed/") for one in done.checks) and not done.rounds_help
    assert {(one.verdict, one.direction, one.reason) for one in done.verdict.judgements} == {("cannot tell", "", why)}
    wrong = dataclasses.replace(done, answers=_judged(problems=("x: snr_db is 3, wanted >= 30",)))
    assert wrong.outcome == comparison.FAIL
    kept = goals.judge(goals.Goals(speed_up_at_least=0.1), slower.verdict, slower.candidate, None, not_judged=why)
    assert [(one.verdict, one.reason) for one in kept] == [(goals.UNDECIDED, why)], (
        "a goal on speed would be kept by chance"
    )


@pytest.mark.parametrize(
    ("precision", "kept", "outcome"),
    [("INT8", True, comparison.UNSURE), ("INT8", False, comparison.FAIL), ("FP16", True, comparison.PASS)],
)
def test_a_goal_on_accuracy_of_an_int8_model_is_open_where_no_engine_ran(precision, kept, outcome):
    """The graph alone keeps it: calibrated on other data such a model answered 11 % right, and this passed."""
    goal = {"goal": "top1 >= 0.98", "native": 0.99, "candidate": 0.99, "bound": 0.98, "kept": kept}
    done = regression()
    done = dataclasses.replace(
        done,
        candidate=dataclasses.replace(done.candidate, precision=precision),
        speed_not_judged="there is no GPU here",
        answers=_judged(goals=(goal,), problems=() if kept else ("top1 >= 0.98: 0.5",)),
    )
    (check,) = (one for one in done.checks if one.name == "answers")
    assert done.outcome == check.verdict == outcome
    assert ("what INT8 costs is not in it" in check.reason) == (outcome == comparison.UNSURE)


def test_answers_to_drawn_values_that_differ_ask_for_the_users_own():
    problem = "x: snr_db is 3, wanted >= 30"
    drawn = regression(answers=_judged(problems=(problem,)))
    (told,) = (one for one in drawn.checks if one.name == "answers")
    assert (
        "the values were random, seed 0" in told.reason
        and "--data=FILE" in told.reason
        and "--data=FILE" in junit.text(drawn)
    )
    own = regression(answers=_judged(problems=(problem,)), workload={**WORKLOAD, "values": "rows.npz"})
    assert "random" not in next(one.reason for one in own.checks if one.name == "answers")


def test_text_that_could_be_markup_is_quoted():
    done = regression(notes=("<script>alert(1)</script>",))
    assert "<script>" not in report.page(done)


def saved(tmp_path, **changes):
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps(regression(**changes).to_dict()))
    return path


@pytest.mark.parametrize("ratio, verdict, code", [(1.0, "same", 0), (1.15, "worse", 3), (0.85, "better", 0)])
def test_a_run_against_its_baseline(tmp_path, ratio, verdict, code):
    kept = baseline.read(saved(tmp_path, ratio=0.5))
    now = regression(ratio=0.5 * ratio, seed=1)
    compared = kept.judge(now.rounds, 0.03, 1, 0)
    assert [one.verdict for one in compared.judgements] == [verdict, verdict]
    done = regression(ratio=0.5 * ratio, seed=1, compared=compared)
    assert done.exit_code == code and json.loads(json.dumps(done.to_dict()))["baseline"]["source"] == str(
        tmp_path / "baseline.json"
    )


def test_a_directory_is_no_baseline(tmp_path):
    with pytest.raises(errors.UsageError, match="cannot be read: Is a directory"):
        baseline.read(tmp_path)


@pytest.mark.parametrize(
    "part, changed, text",
    [
        ("machine", {"cpu": "Another"}, "machine: cpu: Another, now A CPU"),
        ("machine", {"tensorflow": "2.13.0"}, "machine: tensorflow: 2.13.0, now 2.14.1"),
        ("machine", {"gpus": ["H100"]}, "machine: gpus: H100, now none"),
        ("native", {"digest": "sha256:ccc"}, "native model: sha256:ccc, now sha256:aaaa"),
        ("workload", {"digest": "fff"}, "the values that are sent"),
        ("workload", {"concurrency": 4}, "concurrency: 4, now 1"),
        (None, {"tool": "tftrt-tools 0.0.1"}, "tftrt-tools: 0.0.1, now"),
    ],
)
def test_a_baseline_of_something_else_is_refused_with_what_differs(tmp_path, part, changed, text):
    path = saved(tmp_path)
    document = json.loads(path.read_text())
    (document[part] if part else document).update(changed)
    path.write_text(json.dumps(document))
    now = regression()
    with pytest.raises(errors.UsageError) as caught:
        baseline.read(path).found(MACHINE, {"native": now.native}, WORKLOAD)
    assert text in caught.value.cause
    kept = baseline.read(saved(tmp_path))
    assert kept.found(MACHINE, {"native": now.native}, WORKLOAD) is kept


def test_models_of_a_server_that_nobody_knows_are_not_compared(tmp_path):
    unknown = models.Model(path="", name="net", version=1)
    with pytest.raises(errors.UsageError, match="native model: not known, now not known") as caught:
        baseline.read(saved(tmp_path, native=unknown)).found(MACHINE, {"native": unknown}, WORKLOAD)
    assert "--native_dir" in caught.value.mend


def test_a_tail_of_too_few_requests_is_no_number():
    done = regression(rounds=12)
    one = done.verdict.of("p99")
    assert (one.native, one.candidate) == (None, None) and "needs 662 requests" in one.reason
    assert "needs 662" in report.page(done)


def test_a_score_without_a_bound_is_valid_json():
    judged = _judged(goals=({"goal": "g", "native": float("inf"), "candidate": 40.0, "bound": 30.0, "kept": True},))
    text = json.dumps(regression(answers=judged).to_dict(), allow_nan=False)
    assert json.loads(text)["answers"]["goals"][0]["native"] == "inf"


def test_only_what_rounds_can_settle_asks_for_more_of_them():
    unknown = goals.Kept(
        name="engine_mib_at_most",
        goal="at most 2 MiB",
        value="not known",
        verdict=goals.UNDECIDED,
        reason="the metadata do not say",
    )
    near = goals.Kept(
        name="p99_ms_at_most", goal="at most 2 ms", value="2.0 ms", verdict=goals.UNDECIDED, reason="near"
    )
    assert regression(noise=0.4).rounds_help and regression(kept=(near,)).rounds_help
    assert (
        not regression(kept=(unknown,)).rounds_help
        and not regression().rounds_help
        and not regression(ratio=1.3).rounds_help
    )


@pytest.mark.parametrize(
    "text, cause",
    [("", "is no result"), ("[]", "is no result"), ('{"kind": "bench"}', "is no result"), ("{", "is no result")],
)
def test_files_that_are_no_baseline(tmp_path, text, cause):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(errors.UsageError, match=cause):
        baseline.read(tmp_path / "x.json")
    with pytest.raises(errors.UsageError, match="no such baseline"):
        baseline.read(tmp_path / "y.json")


@pytest.mark.parametrize("figures", [["x"] * 30, [0.1], [0.0] * 30, [-1.0] * 30, [float("nan")] * 30, None])
def test_a_baseline_with_damaged_rounds_is_refused_before_anything_is_measured(tmp_path, figures):
    path = saved(tmp_path)
    document = json.loads(path.read_text())
    document["rounds"]["native_p50"] = figures
    path.write_text(json.dumps(document))
    with pytest.raises(errors.UsageError, match="is no result"):
        baseline.read(path)


def test_a_run_that_ended_early_is_no_baseline(tmp_path):
    with pytest.raises(errors.UsageError, match="ended early"):
        baseline.read(saved(tmp_path, ended="interrupted"))


def parsed(*arguments):
    values = flags.FlagValues()
    flags.DEFINE_string("json", None, "", flag_values=values)
    command.define(values)
    values(["regress", *map(str, arguments)])
    return values


def test_where_one_file_cannot_be_written_the_others_are_and_nothing_is_half(tmp_path):
    paths = {name: tmp_path / name for name in ("json", "junit", "html")}
    paths["json"].write_text("before")
    values = parsed(*(f"--{name}={path}" for name, path in paths.items()), f"--save_baseline={tmp_path / 'kept.json'}")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, hard))  # JUnit's file is smaller, the others are not
    try:
        lost = command._write(regression(), values, "net")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert (
        len(lost) == 3
        and str(paths["json"]) in lost[0]
        and paths["json"].read_text() == "before"
        and ElementTree.fromstring(paths["junit"].read_text()) is not None
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["json", "junit"]


def test_a_run_that_ended_early_is_written_and_marked_and_not_kept(tmp_path):
    values = parsed(
        f"--json={tmp_path / 'r.json'}",
        f"--junit={tmp_path / 'r.xml'}",
        "--save_baseline=auto",
        f"--history_dir={tmp_path / 'history'}",
    )
    assert command._write(regression(ended="interrupted"), values, "net") == []
    document = json.loads((tmp_path / "r.json").read_text())
    assert (document["complete"], document["ended"], document["outcome"], document["exit_code"]) == (
        False,
        "interrupted",
        "ended early",
        1,
    )
    assert document["verdict"] and not (tmp_path / "history").exists()


def measured_run(failed, ratio=0.5):
    """A regress._Run whose candidate takes `ratio` of the native model's time and failed so many requests of the last round."""
    rng = np.random.default_rng(0)

    def side(factor, lost):
        blocks = [
            rounds.Block(factor * 2e-3 * rng.lognormal(0, 0.01, 40), lost if number == 11 else 0, 0.1)
            for number in range(12)
        ]
        return [rounds.Round((one,)) for one in blocks]

    run = regress._Run.__new__(regress._Run)
    run._options = regress.Options(native="a", candidate="b", metrics=("p50",), rounds=12, max_rounds=12)
    run._measured = rounds.Measured(
        native=side(1.0, 0), candidate=side(ratio, failed), errors={"native": [], "candidate": ["INTERNAL: a slip"]}
    )
    run._both = types.SimpleNamespace(
        gpus=None, replaces_engine_ops=False, where={"address": "h:1", "backend": "", "reason": ""}
    )
    run._models = {name: models.Model(path="", name=name) for name in ("native", "candidate")}
    run._machine, run._workload, run._baseline, run._judged, run._engines, run._notes = (
        MACHINE,
        WORKLOAD,
        None,
        None,
        None,
        [],
    )
    run._per_block, run._begun = 10, 0.0
    return run._result()


def test_nothing_is_better_or_the_same_where_a_request_failed():
    whole, lost = measured_run(0), measured_run(1)
    assert whole.outcome == comparison.PASS and whole.verdict.of("p50").verdict == "better"
    assert lost.outcome == comparison.FAIL and lost.headline.startswith("FAIL: 1 request to the candidate model failed")
    one = lost.verdict.of("p50")
    assert (one.verdict, one.direction) == (
        "cannot tell",
        "",
    ) and one.reason == "1 request failed; the times are of the others"
    assert "pass" not in {check.verdict for check in lost.checks}, "no light is green"
    assert measured_run(1, ratio=1.0).verdict.of("p50").verdict == "cannot tell"
