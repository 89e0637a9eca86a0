"""A new metric is one entry, or a function of the user's: all that judge, rank and show know of it at once."""

import numpy as np
import pytest

from tftrt_tools.accuracy import goal, judgement, kinds, labels, score, thresholds, truth
from tftrt_tools.accuracy.metrics import registry
from tftrt_tools.accuracy.metrics.metric import Measure, Metric, fixed
from tftrt_tools.base import errors
from tftrt_tools.command_line.report import answers as pages
from tftrt_tools.models.execution import run
from tftrt_tools.studies.regression import answers as regression_answers

REFERENCE, ANSWER = np.ones((4, 3), np.float32), np.array([[1, 1, 1]] * 3 + [[1, 1, 2]], np.float32)
CALL = run.Call("s", {"x": np.zeros((4, 2), np.float32)})


class Near(Measure):
    """near: share of the elements that are within 0.5."""

    def __init__(self, epsilon=1e-3):
        super().__init__(epsilon)
        self._near = self._all = 0

    def add(self, reference, answer):
        self._near += int((np.abs(reference - answer) < 0.5).sum())
        self._all += reference.size

    def values(self):
        return {"near": self._near / self._all}


@pytest.fixture
def near(monkeypatch):
    entry = Metric(
        name="near",
        higher=True,
        column="near",
        show=fixed(3),
        measure=Near,
        kinds=frozenset((kinds.VALUES,)),
        labels=frozenset((labels.VALUES,)),
        perfect=1.0,
        share=True,
        shown="tables",
        written=True,
        meaning="share of elements that are near",
    )
    monkeypatch.setitem(registry.METRICS, "near", entry)


def judged(text, function_labels=None):
    rules = judgement.Rules(bounds=thresholds.parse(text), allow_constant_outputs=True)
    return judgement.judge([(CALL, {"y": REFERENCE}, {"y": ANSWER})], "INT8", ["s"], rules, function_labels)


def test_a_new_metric_is_bounded_ranked_scored_and_shown(near):
    # verify and smoke
    found = judged("near>=0.95")
    assert found.comparisons[0].value("near") == pytest.approx(11 / 12) and found.comparisons[0].to_dict()[
        "near"
    ] == pytest.approx(11 / 12)
    assert [miss.text() for miss in found.misses if miss.metric == "near"] == ["s/y: near is 0.916667, wanted >= 0.95"]
    # pages and terminals
    (part,) = pages.parts(found.comparisons, found.bounds)
    assert "near" in [column.column for column in part.columns] and found.comparisons[0].shown("near") == "0.917"
    # tune and regress
    wanted = goal.parse("near:threshold=0.9")
    assert score.score(wanted, ["s"], [{"y": REFERENCE}], [{"y": ANSWER}]).value == pytest.approx(11 / 12)
    asked = regression_answers.judge(
        [CALL],
        [{"y": REFERENCE}],
        [{"y": ANSWER}],
        ("INT8", ""),
        False,
        judgement.Rules(allow_constant_outputs=True),
        regression_answers.parse_goals("near:max-degradation=0.01"),
    )
    assert asked.goals[0]["candidate"] == pytest.approx(11 / 12) and not asked.goals[0]["kept"]
    # against labels
    truths = labels.Labels({"": REFERENCE})
    target = truth.find(truths, {"s": {"y": ANSWER}}, {}, [], "", "--label_output")
    assert truth.score(truths, target, [{"y": ANSWER}]).values["near"] == pytest.approx(11 / 12)
    assert thresholds.of_labels({"near": 11 / 12}, thresholds.parse("labels:near>=0.95"))[0].metric == "near"


def test_without_its_entry_nobody_knows_it():
    for call in (lambda: thresholds.parse("near>=0.95"), lambda: goal.parse("near:threshold=0.9")):
        with pytest.raises(errors.UsageError, match="near"):
            call()


@pytest.fixture
def function(tmp_path, monkeypatch):
    (tmp_path / "metrics_of_this_test.py").write_text(
        "def gap(outputs, labels, reference):\n"
        "    return abs(outputs['y'] - (reference['y'] if labels is None else labels)).max()\n\n"
        "def broken(outputs, labels, reference):\n    return outputs['z']\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return "metrics_of_this_test:gap"


def test_a_function_of_the_users_is_bounded_like_a_metric(function):
    found = judged(f"snr_db>=1,{function}<=0.5;s/y:max_abs<=2")
    assert found.functions == {function: 1.0} and found.problems == (f"{function} is 1, wanted <= 0.5",)
    assert found.bounds["s/y"]["max_abs"] == 2 and found.bounds["s/y"]["snr_db"] == 1
    assert judged(f"{function}<=1").problems == () and judged(f"{function}>=3").problems
    assert judged(f"{function}<=1", labels.Labels({"": np.zeros((4, 3))})).functions == {function: 2.0}


def test_functions_that_cannot_be_called_are_one_line(function):
    for text, words in (
        ("no_module_here:f>=1", "No module named"),
        ("metrics_of_this_test:broken>=1", "KeyError: 'z'"),
        (f"{function}>=x", "--thresholds"),
    ):
        with pytest.raises(errors.UsageError, match=words):
            judged(text)
    with pytest.raises(errors.UsageError, match="several signatures") as caught:
        rules = judgement.Rules(bounds=thresholds.parse(f"{function}<=1"), allow_constant_outputs=True)
        other = run.Call("t", CALL.inputs)
        judgement.judge([(one, {"y": REFERENCE}, {"y": ANSWER}) for one in (CALL, other)], "INT8", [], rules)
    assert "--signature_keys" in caught.value.mend


@pytest.mark.parametrize(
    "bound",
    [
        "top1>=2",
        "top1>=-1",
        "mismatches<=-1",
        "mismatches<=2",
        "max_abs<=-0.1",
        "cosine>=1.01",
        "r2>=1.5",
        "labels:top1>=3",
        "s/y:top1>=3",
    ],
)
def test_a_bound_that_no_value_or_every_value_keeps_is_refused(bound):
    with pytest.raises(errors.UsageError, match="judges nothing: (no|every) value is"):
        thresholds.parse(bound)
    assert thresholds.parse("top1>=0,cosine>=-1,snr_db>=-200,mismatches<=1"), (
        "the end itself says that a metric does not count"
    )


@pytest.mark.parametrize(
    ("bound", "mend"),
    [
        ("snr>=40", "did you mean 'snr_db'?"),
        ("snr_db=40", "write snr_db>=NUMBER"),
        ("max_abs<3", "write max_abs<=NUMBER"),
        ("foo>=3", "metrics: max_abs"),
    ],
)
def test_a_bound_that_cannot_be_read_names_what_was_meant(bound, mend):
    with pytest.raises(errors.UsageError, match="is no bound") as caught:
        thresholds.parse(bound)
    assert caught.value.mend.startswith(mend)


@pytest.mark.parametrize(
    ("text", "said"), [("rmse:threshold=-1", "no value is <= -1"), ("top1:threshold=-1", "every value is >= -1")]
)
def test_a_goal_that_judges_nothing_is_refused(text, said):
    with pytest.raises(errors.UsageError, match=said):
        goal.parse(text)
