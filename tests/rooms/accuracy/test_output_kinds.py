"""What an output is: recognised or said, and what it is judged by."""

import numpy as np
import pytest

from tftrt_tools.accuracy import goal as goals
from tftrt_tools.accuracy import judgement, kinds, score, thresholds
from tftrt_tools.accuracy import labels as labels_room
from tftrt_tools.accuracy.metrics import detections
from tftrt_tools.base import errors
from tftrt_tools.command_line.report import answers
from tftrt_tools.models.execution import run
from tftrt_tools.studies.regression import answers as regress_answers

RNG = np.random.default_rng(0)
IDS = RNG.integers(0, 80, (20, 3)).astype(np.float32)


def judged(reference, answer, own=False, arithmetic="FP16", **rules):
    call = run.Call("s", {"x": np.arange(len(next(iter(reference.values()))))})
    return judgement.judge([(call, reference, answer)], arithmetic, ["s"] if own else [], judgement.Rules(**rules))


def one(reference, answer=None, name="y", kind="", **more):
    """The Comparison of one output, and its bounds."""
    found = judged(
        {name: reference}, {name: reference if answer is None else answer}, kinds={name: kind} if kind else {}, **more
    )
    return found.comparisons[0], found.bounds[f"s/{name}"]


@pytest.mark.parametrize(
    ("array", "name", "kind"),
    [
        (IDS, "y", "ids"),
        (IDS, "classes", "ids"),
        (IDS + 0.5, "classes", "values"),
        (IDS > 40, "y", "exact"),
        # 0 and 1 are a mask or a rounded share, unless the name says more.
        ((IDS > 40).astype(np.float32), "y", "values"),
        ((IDS > 40).astype(np.float32), "class_id", "ids"),
        (IDS * 0, "classes", "values"),
        (-5 - IDS, "y", "values"),
        (RNG.integers(0, 1 << 20, (200, 100)).astype(np.float32), "y", "values"),
        (IDS.astype(np.int64), "y", "exact"),
        (IDS - 1, "grid", "ids"),
    ],
)
def test_ids_in_floats_are_recognised(array, name, kind):
    assert one(array, name=name)[0].kind == kind


def test_ids_are_right_or_wrong():
    """One of sixty is another class, far away in number: SNR would fail it by 13 dB for being far, and pass a near one."""
    answer = IDS.copy()
    answer[0, 0] = IDS[0, 0] + 1
    near, bounds = one(IDS, answer)
    assert near.mismatches == pytest.approx(1 / 60) and bounds == {"mismatches": 0.02} and near.snr_db > 30
    assert one(IDS, answer, kind="values")[1] == {"snr_db": 30.0, "cosine": 0.999}
    answer[:2] += 1
    found = judged({"y": IDS}, {"y": answer})
    assert [miss.metric for miss in found.misses] == ["mismatches"]
    # A bound for every float output is none for ids.
    assert one(IDS, bounds={"": {"snr_db": 40.0}})[1] == {"mismatches": 0.02}


def test_an_answer_between_two_numbers_is_no_id():
    assert one(IDS, IDS + np.float32(0.25))[0].kind == "values"


@pytest.mark.parametrize(
    ("kind", "array", "own", "metrics"),
    [
        ("scores", RNG.uniform(size=(9, 7)), True, {"max_share"}),
        ("probabilities", RNG.uniform(size=(9, 7)), False, {"max_abs"}),
        ("probabilities", RNG.uniform(size=(9, 7)), True, {"max_abs", "top1", "top5"}),
        ("probabilities", RNG.uniform(size=(9, 3)), True, {"max_abs", "top1"}),
        ("boxes", np.sort(RNG.uniform(size=(9, 4))), True, {"iou", "max_box"}),
        ("masks", RNG.uniform(size=(9, 2, 2, 3)), False, {"mean_iou"}),
        ("masks", RNG.uniform(size=(9, 2, 2, 3)), True, {"mean_iou", "top1"}),
        ("texts", np.array([b"a b"] * 8 + [b"c"], object), True, {"wer"}),
        ("ids", IDS.astype(np.int64), True, {"mismatches"}),
        ("values", IDS, True, {"snr_db", "cosine"}),
    ],
)
def test_each_kind_has_its_bounds(kind, array, own, metrics):
    found, bounds = one(array, kind=kind, own=own)
    assert (
        found.kind == kind
        and set(bounds) == metrics
        and not judged({"y": array}, {"y": array}, own, kinds={"y": kind}).misses
    )


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["y"], "not of the form"),
        (["y:number"], "'number' is no kind"),
        ([":ids"], "not of the form"),
        (["y:ids;y:boxes"], "said to be ids and boxes"),
    ],
)
def test_kinds_that_cannot_be_read(texts, words):
    with pytest.raises(errors.UsageError, match=words):
        kinds.parse(texts)


def test_kinds_are_read_one_by_one_or_divided():
    assert kinds.parse(["y:ids; s/z : Boxes", "a:b:scores"]) == {"y": "ids", "s/z": "boxes", "a:b": "scores"}


@pytest.mark.parametrize(
    ("array", "said", "words"),
    [
        (IDS, {"z": "ids"}, "no output 'z'"),
        (IDS, {"s/z": "ids"}, "no output 's/z'"),
        (IDS.astype(int), {"y": "scores"}, r"int64\[20,3\], and scores are floats"),
        (IDS, {"y": "boxes"}, "boxes have four numbers"),
        (IDS[:, 0], {"y": "probabilities"}, "have the classes in the last"),
        (IDS, {"y": "texts"}, "texts are strings"),
        (np.array([b"a"], object), {"s/y": "ids"}, "ids are numbers"),
    ],
)
def test_kinds_that_do_not_fit_are_told(array, said, words):
    with pytest.raises(errors.UsageError, match=words):
        judged({"y": array}, {"y": array}, kinds=said)


# A detector of 5 images, 3 places each; the third place of each is empty.
SCORES = np.array([[0.9, 0.8999, 0]] * 5, np.float32)
CLASSES = np.array([[1, 2, 0]] * 5, np.float32)
BOXES = np.array([[[0, 0, 0.4, 0.4], [0.5, 0.5, 0.9, 0.9], [0, 0, 0, 0]]] * 5, np.float32)
COUNT = np.full(5, 2, np.int32)
NAMED = {"boxes": BOXES, "scores": SCORES, "classes": CLASSES, "num_detections": COUNT}
SWAPPED = {"boxes": BOXES[:, [1, 0, 2]], "scores": SCORES, "classes": CLASSES[:, [1, 0, 2]], "num_detections": COUNT}


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("boxes", "scores", "classes", "num_detections"), True),
        (("detection_boxes", "detection_scores", "detection_classes", "num_detections"), True),
        (("nmsed_boxes", "nmsed_scores", "nmsed_classes", "valid_detections"), True),
        (("boxes", "scores", "classes", "detections"), True),
        (("boxes", "confidence", "labels", ""), True),
        (("boxes", "scores", "", "count"), True),
        (("boxes", "scores", "", ""), False),
        (("out_0", "out_1", "out_2", "out_3"), False),
    ],
)
def test_a_detector_is_recognised_by_names_and_shapes(names, found):
    outputs = dict(zip(names, NAMED.values(), strict=True))
    outputs = {name: array for name, array in outputs.items() if name}
    group = detections.find(outputs, {})
    assert (group is not None) == found and (not found or group.members == tuple(outputs))


def test_raw_outputs_beside_a_detectors_are_not_taken_for_its():
    raw = {
        "raw_detection_boxes": np.zeros((5, 100, 4), np.float32),
        "raw_detection_scores": np.zeros((5, 100, 9), np.float32),
        "detection_multiclass_scores": np.zeros((5, 3, 9), np.float32),
    }
    assert (
        detections.find(raw | {f"detection_{name}": array for name, array in NAMED.items()}, {}).boxes
        == "detection_boxes"
    )
    # Offsets and the scores of two classes, as face detectors have them before suppression.
    assert detections.find({"boxes": np.zeros((5, 4), np.float32), "scores": np.zeros((5, 2), np.float32)}, {}) is None


def test_what_is_said_makes_a_detector_or_takes_an_output_out():
    outputs = dict(zip(("a", "b", "c"), (BOXES, SCORES, CLASSES), strict=True))
    assert detections.find(outputs, {"a": "boxes", "b": "scores", "c": "ids"}).name == "a+b+c"
    assert detections.find(NAMED, {"boxes": "values"}) is None


def test_a_near_tie_in_another_order_passes_and_is_judged_once():
    found = judged(NAMED, SWAPPED)
    together = found.comparisons[-1]
    assert together.name == "s/boxes+scores+classes" and together.values["matched"] == 1.0 and not found.misses
    assert together.elements == 10 and found.bounds[together.name] == {
        "matched": 0.95,
        "matched_iou": 0.95,
        "matched_score": 0.05,
    }
    assert all(found.bounds[f"s/{name}"] == {} for name in NAMED)
    assert found.comparisons[0].snr_db < 10, "element by element they are far apart"


def test_detections_that_are_others_fail():
    moved = NAMED | {"boxes": BOXES + np.float32(0.3)}
    assert [miss.output for miss in judged(NAMED, moved).misses] == ["s/boxes+scores+classes"]
    another = NAMED | {"classes": CLASSES + (CLASSES > 1)}
    assert [miss.metric for miss in judged(NAMED, another).misses] == ["matched"]
    fewer = NAMED | {"num_detections": COUNT - 1}
    assert judged(NAMED, fewer).misses[0].value == pytest.approx(2 / 3)
    quieter = NAMED | {"scores": SCORES * np.float32(0.9)}
    assert [miss.metric for miss in judged(NAMED, quieter).misses] == ["matched_score"]


def test_an_output_of_a_detector_can_be_bounded_by_itself():
    found = judged(
        NAMED,
        SWAPPED,
        bounds={"s/boxes": {"max_abs": 0.1}, "s/boxes+scores+classes": {"map": 0.99}, "": {"snr_db": 30.0}},
    )
    assert [miss.text() for miss in found.misses] == ["s/boxes: max_abs is 0.5, wanted <= 0.1"]


def test_a_bound_that_applies_to_nothing_is_told():
    assert judged({"y": IDS}, {"y": IDS}, bounds={"": {"map": 0.5}}).warnings == (
        "--thresholds: map applies to no output here, and bounds nothing",
    )


# Goals of `tftrt tune` and `tftrt regress`.
TRUTH = {"boxes": BOXES[:, :2], "classes": CLASSES[:, :2].astype(int)}


def goal_score(text, answer, labels=None, **more):
    goal = goals.parse(text)
    truth = labels_room.Labels(labels) if labels else None
    return score.score(goal, ["s"], [NAMED], [answer], truth, **more).value


@pytest.mark.parametrize(
    ("text", "answer", "labels", "value"),
    [
        ("map:max-degradation=0.1", NAMED, TRUTH, 1.0),
        ("map50:threshold=0.9", NAMED | {"num_detections": COUNT - 1}, TRUTH, 0.5),
        # Without labels the original's detections are the truth.
        ("map:threshold=0.9", SWAPPED, None, 1.0),
        ("ap50:threshold=0.9", NAMED | {"num_detections": COUNT - 1}, None, 0.5),
        ("matched:threshold=0.9", SWAPPED, TRUTH, 1.0),
        # Of the outputs that are judged by themselves there is none.
        ("wer:threshold=0.1", NAMED, None, None),
        ("auc:threshold=0.9", NAMED, None, None),
    ],
)
def test_goals_speak_of_detections(text, answer, labels, value):
    if value is None:
        with pytest.raises(errors.UsageError, match="does not apply"):
            goal_score(text, answer, labels)
    else:
        assert goal_score(text, answer, labels) == pytest.approx(value)


def test_a_regression_is_held_against_its_labels_and_without_them_against_the_original():
    right = np.linspace(0, 9, 12).astype(np.float32)[:, None]
    calls, before, after = (
        ["s"] * 2,
        [{"y": right[:6] + 1}, {"y": right[6:] + 1}],
        [{"y": right[:6] + 3}, {"y": right[6:] + 3}],
    )
    goal, truth = goals.parse("mae:max-degradation=1"), labels_room.Labels({"": right[:, 0]})
    native, other = (score.score(goal, calls, before, answers, truth).value for answers in (before, after))
    assert (native, other) == pytest.approx((1.0, 3.0)) and not goal.kept(other, native) and goal.kept(1.5, native)
    assert score.score(goal, calls, before, after).value == pytest.approx(2.0)
    with pytest.raises(errors.UsageError, match="top1 does not apply to --labels, which are .* of s/y") as refused:
        score.score(goals.parse("top1:threshold=0.9"), calls, before, after, truth)
    assert "rmse" in refused.value.mend and "without --labels" in refused.value.mend
    # No metric of labels: against the original, labels or not.
    assert score.score(goals.parse("cosine:threshold=0.9"), calls, before, after, truth).value > 0.9


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("map:threshold=40", "between 0 and 1"),
        ("snr_db:max-degradation=1", "has no meaning"),
        ("max_share:percent-max-degradation=1", "has no meaning"),
        ("f1:threshold=0.5", "no metric 'f1'"),
    ],
)
def test_goals_that_mean_nothing(text, words):
    with pytest.raises(errors.UsageError, match=words):
        goals.parse(text)


def test_regress_holds_both_models_against_the_labels(tmp_path):
    np.savez(tmp_path / "truth.npz", **TRUTH)
    call, truth = run.Call("s", {"x": np.arange(5)}), labels_room.read(str(tmp_path / "truth.npz"))
    found = regress_answers.judge(
        [call],
        [NAMED],
        [NAMED | {"num_detections": COUNT - 1}],
        ("FP16", ""),
        True,
        judgement.Rules(),
        regress_answers.parse_goals("map50:max-degradation=0.1"),
        truth,
    )
    (row,) = found.goals
    assert (row["native"], row["candidate"], row["kept"]) == (1.0, 0.5, False) and "map50 >= 0.9" in found.problems[0]
    assert "detections matched" in found.text


def test_bounds_on_labels_need_labels_and_metrics_of_labels():
    for text, words in (
        ("labels:snr_db>=3", "no metric of labels"),
        ("auc>=0.9", "needs the truth"),
        ("labels:auc<=0.9", "bounded by >="),
    ):
        with pytest.raises(errors.UsageError, match=words):
            thresholds.parse(text)
    given = thresholds.parse("labels:mae<=0.5,top1>=0.9;snr_db>=3")
    assert given == {"labels": {"mean_abs": 0.5, "top1": 0.9}, "": {"snr_db": 3.0}}
    assert [miss.text() for miss in thresholds.of_labels({"mean_abs": 0.4, "top1": 0.8}, given)] == [
        "labels: top1 is 0.8, wanted >= 0.9"
    ]
    with pytest.raises(errors.UsageError, match="mean_abs does not apply to these labels"):
        thresholds.of_labels({"top1": 0.8}, given)


def test_tables_have_the_columns_that_say_something():
    found = judged(NAMED | {"raw": RNG.normal(size=(5, 3))}, SWAPPED | {"raw": RNG.normal(size=(5, 3))})
    outputs, detectors = answers.parts(found.comparisons, found.bounds)
    # Nothing to show of classes; there are ids.
    assert [one.name for one in outputs.columns] == [
        "max_abs",
        "max_rel",
        "rmse",
        "cosine",
        "snr_db",
        "mismatches",
    ] and len(outputs.comparisons) == 5
    assert [one.column for one in detectors.columns] == [
        "matched",
        "IoU of pairs",
        "score gap",
        "mAP",
        "mAP 50",
    ] and detectors.detections
    missed = {miss.output for miss in found.misses}
    said = {one.output: answers.verdict(one, missed) for one in found.comparisons}
    assert said == dict.fromkeys(("boxes", "scores", "classes"), "see detections (the same for every input)") | {
        "num_detections": "see detections (2 everywhere)",
        "boxes+scores+classes": "yes",
        "raw": "NO",
    }
    (plain,) = answers.parts([one(IDS + 0.5)[0]], {})
    assert [metric.name for metric in plain.columns] == [
        "max_abs",
        "max_rel",
        "rmse",
        "cosine",
        "snr_db",
        "top1",
        "mismatches",
    ]
    (plain,) = answers.parts([one(IDS + 0.5)[0]], {}, tight=True)
    assert [metric.name for metric in plain.columns] == ["max_abs", "max_rel", "rmse", "cosine", "snr_db"]


def test_what_both_have_against_the_labels_begins_with_what_says_most():
    accuracy = {
        "metric": "mean_iou",
        "metrics": {"top1": {"original": 0.9, "converted": 0.8}, "mean_iou": {"original": 0.5, "converted": 0.25}},
    }
    assert answers.against_labels(accuracy) == [("mean_iou", "0.5000", "0.2500"), ("top1", "90.00%", "80.00%")]
    assert answers.against_labels({"original": 0.5, "converted": 0.25}) == [("top1", "50.00%", "25.00%")], (
        "of a version before"
    )
    listed = [
        {"class": number, "rows": 9, "original": 0.5, "converted": 0.5 - change}
        for number, change in enumerate((0.1, 0, -0.3))
    ]
    assert [one["class"] for one in answers.changed_classes({"per_class": listed})] == [
        2,
        0,
    ] and answers.changed_classes({}) == []
