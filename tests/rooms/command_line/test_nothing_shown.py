"""Answers that show nothing: what they are, and that no command takes them for agreement."""

import json

import numpy as np
import pytest

from tests.detectors import BLIND, detector
from tftrt_tools.accuracy import judgement
from tftrt_tools.base import errors
from tftrt_tools.models.execution import constancy, npz, run
from tftrt_tools.servers.serving.smoke import answer_check as smoke_answers
from tftrt_tools.studies.bench import answers as bench_answers
from tftrt_tools.studies.regression import answers as regress_answers
from tftrt_tools.studies.tuning import tune
from tftrt_tools.studies.tuning.measuring import Scored

ROWS = np.arange(6, dtype=np.float32).reshape(3, 2)


def said(*arrays, inputs_differ=True):
    """What an output shows that gave one array a call."""
    seen = constancy.Variation()
    for array in arrays:
        seen.add(np.asarray(array), 3)
    return seen.text(inputs_differ)


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (ROWS, ""),
        (np.zeros((3, 2)), "0 everywhere"),
        (np.full((3, 2), 0.25, np.float32), "0.25 everywhere"),
        (np.zeros((3, 0)), "empty"),
        (np.full((3, 2), np.nan), "nan everywhere"),
        (np.full(3, 100, np.int32), "100 everywhere"),
        (np.array([b"no"] * 3, object), "'no' everywhere"),
        (np.zeros(3, bool), "False everywhere"),
        (np.tile([0.5, 0.25], (3, 1)), "the same for every input"),
        (np.array([1, 1, 2]), ""),
        (np.array([[b"a", b"b"]] * 3, object), "the same for every input"),
        (np.array(0.0), ""),
        # Rounding is no answer; a small difference is one.
        (np.array([[0.5, 0.25]] * 2 + [[0.5 + 1e-8, 0.25]]), "the same for every input"),
        (np.array([[0.5, 0.25]] * 2 + [[0.501, 0.25]]), ""),
        # Whole numbers are ids: these are three.
        (np.array([1e7, 1e7 + 1, 1e7 + 2]), ""),
    ],
)
def test_what_an_output_shows(array, text):
    assert said(array) == text


def test_the_same_row_for_the_same_input_is_right():
    assert said(np.tile([0.5, 0.25], (3, 1)), inputs_differ=False) == ""


LARGE = np.random.default_rng(0).normal(size=(64, 5)) * 40


def _softmax(logits):
    return (lambda raised: raised / raised.sum(-1, keepdims=True))(
        np.exp(logits - logits.max(-1, keepdims=True))
    ).astype(np.float32)


@pytest.mark.parametrize(
    ("array", "saturated"),
    [
        (_softmax(LARGE * 50), True),
        (_softmax(LARGE / 40), False),
        ((1 / (1 + np.exp(-LARGE - 20 * np.sign(LARGE)))).astype(np.float32), True),
        # A mask, boxes' flags: exactly 0 and 1.
        ((LARGE > 0).astype(np.float32), False),
        ((1 / (1 + np.exp(-LARGE / 40))).astype(np.float32), False),
        (_softmax(LARGE * 50)[:31], False),
    ],
)
def test_scores_of_zero_and_one_in_all_rows_are_saturated(array, saturated):
    seen = constancy.Variation()
    seen.add(array, len(array))
    assert (seen.text(True) == f"saturated: 0 or 1 in all {len(array)} rows") == saturated


def test_answers_that_show_little_are_a_warning():
    rows, mostly = np.arange(64.0)[:, None], _softmax(LARGE * 50)
    mostly[0] = 0.2
    for given, answer, text in (
        (rows, mostly, "y is saturated, 0 or 1, in 98.4% of the rows"),
        (rows, _softmax(LARGE / 40), ""),
        (np.ones((64, 1)), np.tile(_softmax(LARGE / 40)[:1], (64, 1)), "all 64 rows of the data are the same"),
    ):
        pair = run.Call("s", {"x": given}), {"y": answer}, {"y": answer}
        found = judgement.judge([pair], "INT8", ["s"], judgement.Rules())
        assert not found.all_problems and (text in found.warnings[0] if text else found.warnings == ()), found.warnings
        assert judgement.judge([pair], "INT8", [], judgement.Rules()).warnings == (), "random inputs are no data"


def test_calls_are_seen_together():
    assert said(np.zeros((3, 2)), np.zeros((3, 2))) == "0 everywhere"
    assert said(np.zeros((3, 2)), np.ones((3, 2))) == ""
    assert said(np.ones((3, 2)), np.ones((3, 4))) == "1 everywhere"
    assert said([[1, 2]] * 3, [[1, 2, 3]] * 3) == ""


def pairs(*outputs, signature="s"):
    """(call, answer, the same answer) for each {output: array}, with inputs that differ."""
    return [(run.Call(signature, {"x": np.arange(3) + number}), one, one) for number, one in enumerate(outputs)]


def judged(listed, **rules):
    return judgement.judge(listed, "rewrite", (), judgement.Rules(**rules))


def test_one_output_that_shows_something_is_enough_and_the_others_are_told():
    found = judged(pairs({"scores": ROWS, "count": np.full(3, 100), "state": np.zeros((3, 4))}))
    assert found.nothing_shown == () and found.all_problems == ()
    assert found.warnings == (
        "s: count is 100 everywhere, state is 0 everywhere in the original, which shows nothing of them",
    )
    assert [one.constant for one in found.comparisons] == ["", "100 everywhere", "0 everywhere"]


def test_each_signature_has_to_show_something_of_itself():
    found = judged([*pairs({"y": ROWS}), *pairs({"a": np.zeros((3, 2)), "b": np.zeros(3)}, signature="t")])
    (line,) = found.nothing_shown
    assert line == (
        "t: nothing was shown: in the original a and b are 0 everywhere; give --data for which the model answers something, or "
        "accept it with --allow_constant_outputs"
    ) and found.all_problems == (line,)
    accepted = judged(pairs({"a": np.zeros((3, 2))}), allow_constant_outputs=True)
    assert accepted.all_problems == () and accepted.warnings == (
        "s: nothing was shown: in the original a is 0 everywhere (accepted)",
    )


def test_a_signature_without_inputs_is_rightly_constant():
    answer = {"version": np.array([b"1", b"1"], object)}
    assert judged([(run.Call("s", {}), answer, answer)]).nothing_shown == ()


def test_every_command_that_judges_answers_says_so(tmp_path):
    call, answer = run.Call("s", {"x": np.arange(3)}), {"y": np.zeros((3, 2), np.float32)}
    rules = judgement.Rules()
    asked = smoke_answers.compare([(call, answer, answer)], "FP16", (), rules)
    regressed = regress_answers.judge([call], [answer], [answer], ("FP16", ""), False, rules)
    assert (
        asked.nothing_shown == regressed.nothing_shown == regressed.problems
        and "y is 0 everywhere" in asked.nothing_shown[0]
    )
    with pytest.raises(errors.CheckFailed, match="nothing was shown") as raised:
        bench_answers.check_first(bench_answers.Judge([call], {0: answer}, rules, False, None), {0: answer})
    assert "--allow_constant_outputs" in raised.value.mend
    npz.save(tmp_path / "x.npz", call.inputs)
    npz.save(tmp_path / "y.npz", answer)
    calls = [Scored(signature="s", rows=3, inputs=str(tmp_path / "x.npz"), reference=str(tmp_path / "y.npz"))]
    with pytest.raises(errors.CheckFailed, match="nothing was shown"):
        tune.nothing_shown(calls)
    assert "accepted" in tune.nothing_shown(calls, allowed=True)[0]


@pytest.fixture(scope="module")
def detectors(tmp_path_factory):
    """Folder of two detectors that find nothing, `blind` and `other`, whose weights differ, and of one with a second output."""
    folder = tmp_path_factory.mktemp("detectors")
    detector(folder / "blind", bias=BLIND)
    detector(folder / "other", seed=1, bias=BLIND)
    detector(folder / "beside", bias=BLIND, beside=True)
    return folder


def test_two_detectors_that_find_nothing_do_not_pass(tftrt, detectors, tmp_path):
    both = detectors / "blind", detectors / "other"
    done = tftrt("verify", *both, f"--html={tmp_path / 'r.html'}", f"--json={tmp_path / 'r.json'}", "--nowrite")
    assert (
        done.returncode == 3
        and "FAILED" in done.stdout
        and "(0 everywhere)" in done.stdout
        and "(nothing found)" in done.stdout
    ), done.stdout
    line = (
        "serving_default: nothing was shown: in the original boxes, classes, num_detections and scores are 0 everywhere"
    )
    said = json.loads((tmp_path / "r.json").read_text())
    assert (
        not said["passed"]
        and said["misses"] == []
        and said["nothing_shown"][0].startswith(line)
        and line in (tmp_path / "r.html").read_text()
    )
    done = tftrt("verify", *both, "--allow_constant_outputs", "--nowrite")
    assert done.returncode == 0 and f"warning: {line} (accepted)" in done.stdout, done.stdout


def test_a_detector_with_another_output_passes_with_a_warning(tftrt, detectors):
    done = tftrt("verify", detectors / "beside", detectors / "beside", "--nowrite")
    assert done.returncode == 0 and "which shows nothing of them" in done.stdout, done.stdout
