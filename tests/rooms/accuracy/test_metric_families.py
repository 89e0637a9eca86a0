"""Each family of metrics against its definition, against scikit-learn, or against answers worked out by hand."""

import math

import numpy as np
import pytest
import sklearn.metrics as sk
from hypothesis import given, settings
from hypothesis import strategies as st

from tftrt_tools.accuracy import kinds, metrics, thresholds, truth
from tftrt_tools.accuracy import labels as label_kinds
from tftrt_tools.accuracy.labels import Labels
from tftrt_tools.accuracy.metrics import boxes, classes, detections, elements, registry, segmentation, texts
from tftrt_tools.base import errors
from tftrt_tools.models.execution import run

RNG = np.random.default_rng(3)
ROWS, CLASSES = 60, 8


def measured(measure, *pairs):
    one = measure()
    for reference, answer in pairs:
        one.add(reference, answer)
    return one.values()


def halves(first, second):
    """The same as two calls: what accumulates must not depend on how rows are batched."""
    return (first[:17], second[:17]), (first[17:], second[17:])


def scores(seed, sharp=1.0, columns=CLASSES):
    raw = np.exp(sharp * np.random.default_rng(seed).normal(size=(ROWS, columns)))
    return (raw / raw.sum(-1, keepdims=True)).astype(np.float32)


WANTED = RNG.integers(0, CLASSES, ROWS)


def test_classes_against_scikit_learn():
    given = scores(1) + 0.05 * np.eye(CLASSES, dtype=np.float32)[WANTED]
    found = measured(classes.Top, *halves(WANTED, given))
    assert found["top1"] == pytest.approx(sk.accuracy_score(WANTED, given.argmax(-1)))
    assert found["top5"] == pytest.approx(sk.top_k_accuracy_score(WANTED, given, k=5)) and 0.5 < found["top5"] < 1
    assert found["class_top1"] == pytest.approx(sk.balanced_accuracy_score(WANTED, given.argmax(-1)))
    area = measured(classes.Auc, *halves(WANTED, given))["auc"]
    assert area == pytest.approx(
        sk.roc_auc_score(WANTED, given / given.sum(-1, keepdims=True), multi_class="ovr", average="macro")
    )


def test_against_the_originals_answers_its_largest_entry_is_the_right_class():
    reference, given = scores(1), scores(2)
    found = measured(classes.Top, *halves(reference, given))
    assert found == measured(classes.Top, (reference.argmax(-1), given)) and found["top1"] < found["top5"]
    assert "top5" not in measured(classes.Top, (reference[:, :5], given[:, :5]))


@pytest.mark.parametrize("ties", [False, True])
def test_the_area_of_one_probability_with_and_without_ties(ties):
    right = RNG.integers(0, 2, ROWS)
    given = RNG.uniform(size=(ROWS, 1)) + 0.3 * right[:, None]
    given = np.round(given, 1) if ties else given
    assert measured(classes.Auc, *halves(right, given))["auc"] == pytest.approx(sk.roc_auc_score(right, given[:, 0]))
    assert measured(classes.Top, *halves(right, given / 2))["top1"] == pytest.approx(
        sk.accuracy_score(right, given[:, 0] / 2 >= 0.5)
    )
    two = np.concatenate([1 - given / 2, given / 2], axis=1)
    assert measured(classes.Auc, (right, two))["auc"] == pytest.approx(sk.roc_auc_score(right, given[:, 0]))
    assert measured(classes.Auc, (np.zeros(ROWS, int), given)) == {}


def test_the_area_of_tags_is_the_mean_over_the_tags():
    right = RNG.integers(0, 2, (ROWS, 4))
    given = (RNG.uniform(size=(ROWS, 4)) + 0.2 * right).astype(np.float32)
    assert measured(classes.Auc, *halves(right, given))["auc"] == pytest.approx(
        sk.roc_auc_score(right, given, average="macro")
    )


@pytest.mark.parametrize("shape", [(ROWS,), (ROWS, 1), (ROWS, 3)])
def test_regression_against_scikit_learn(shape):
    right = 100 + RNG.normal(size=shape)
    given = right + 0.3 * RNG.normal(size=shape)
    found = measured(elements.Elements, *halves(right, given)) | measured(elements.Determination, *halves(right, given))
    assert found["mean_abs"] == pytest.approx(sk.mean_absolute_error(right, given))
    assert found["rmse"] == pytest.approx(math.sqrt(((right - given) ** 2).mean()))
    assert found["r2"] == pytest.approx(sk.r2_score(right, given, multioutput="variance_weighted"))
    assert measured(elements.Determination, (np.ones(3), np.ones(3))) == {}


def test_masks_against_scikit_learn():
    right, given = RNG.integers(0, 4, (20, 6, 6)), RNG.normal(size=(20, 6, 6, 4))
    found = measured(segmentation.MeanIou, *halves(right, given))["mean_iou"]
    assert found == pytest.approx(sk.jaccard_score(right.ravel(), given.argmax(-1).ravel(), average="macro"))
    one = RNG.uniform(size=(20, 6, 6, 1))
    found = measured(segmentation.MeanIou, *halves(right > 1, one))["mean_iou"]
    assert found == pytest.approx(sk.jaccard_score((right > 1).ravel(), one.ravel() >= 0.5, average="macro"))


@pytest.mark.parametrize(
    ("wanted", "given", "edits"),
    [
        ("the cat sat", "the cat sat", 0),
        ("the cat sat", "the hat sat", 1),
        ("the cat sat", "cat sat", 1),
        ("the cat sat", "the black cat sat", 1),
        ("the cat sat", "", 3),
        ("", "a b", 2),
        ("a b c d", "b c d e", 2),
        ("kitten on the mat", "sitting on mat the", 3),
    ],
)
def test_words_that_have_to_be_changed(wanted, given, edits):
    assert texts.edits(wanted.split(), given.split()) == edits == texts.edits(given.split(), wanted.split())


def test_word_errors_are_counted_over_all_texts():
    wanted = np.array([b"a b c", b"eins zwei", b""], object)
    assert measured(texts.WordErrors, (wanted, np.array([b"a b", b"eins drei", b""], object)))["wer"] == 2 / 5
    assert measured(texts.WordErrors, (wanted[2:], wanted[2:]))["wer"] == 0.0


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.sampled_from("abc"), max_size=6),
    st.lists(st.sampled_from("abc"), max_size=6),
    st.lists(st.sampled_from("abc"), max_size=6),
)
def test_word_edits_are_a_distance(one, two, three):
    assert texts.edits(one, two) == texts.edits(two, one) <= texts.edits(one, three) + texts.edits(three, two)
    assert abs(len(one) - len(two)) <= texts.edits(one, two) <= max(len(one), len(two)) and (
        texts.edits(one, two) == 0
    ) == (one == two)


SQUARE = [0.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("other", "iou"),
    [
        (SQUARE, 1.0),
        ([0, 0, 1, 0.5], 0.5),
        ([0.5, 0, 1.5, 1], 1 / 3),
        ([2, 2, 3, 3], 0.0),
        ([1, 1, 0, 0], 1.0),
        ([1, 0, 2, 1], 0.0),
    ],
)
def test_overlaps_by_hand(other, iou):
    found = measured(boxes.Boxes, (np.array([[SQUARE]]), np.array([[other]], float)))
    assert found["iou"] == pytest.approx(iou)


def test_differences_of_boxes_are_seen_beside_their_size_and_padding_does_not_count():
    reference = np.array([[[0, 0, 2, 4], [0, 0, 0, 0]]], np.float32)
    assert measured(boxes.Boxes, (reference, reference + np.float32([0, 0, 0, 1]) * (reference > 0)))[
        "max_box"
    ] == pytest.approx(0.25)
    assert measured(boxes.Boxes, (reference, reference)) == {"iou": 1.0, "max_box": 0.0}
    assert measured(boxes.Boxes, (reference * 0, reference * 0)) == {}


def image(*found):
    """detections.Found of (box, score, class)."""
    return detections.Found(
        boxes.sorted_corners(np.array([one[0] for one in found]).reshape(-1, 4)),
        np.array([one[1] for one in found], float),
        np.array([one[2] for one in found], int),
    )


FAR = [5.0, 5.0, 6.0, 6.0]
HALF = [0.0, 0.0, 1.0, 0.6]


def pairs_of(reference, answer):
    return measured(detections.Pairs, ([reference], [answer]))


def test_near_ties_in_another_order_are_the_same_detections():
    one, other = (SQUARE, 0.9, 1), (FAR, 0.8999, 2)
    assert pairs_of(image(one, other), image((FAR, 0.9, 2), (SQUARE, 0.8999, 1))) == pytest.approx(
        {"matched": 1.0, "matched_iou": 1.0, "matched_score": 1e-4}
    )


@pytest.mark.parametrize(
    ("answer", "matched"),
    [
        (image((SQUARE, 0.9, 1)), 2 / 3),
        (image((SQUARE, 0.9, 3), (FAR, 0.8, 2)), 0.5),
        (image((HALF, 0.9, 1), (FAR, 0.8, 2)), 1.0),
        (image(([0, 0, 1, 0.4], 0.9, 1), (FAR, 0.8, 2)), 0.5),
        (image(), 0.0),
        # The better one takes it, the second finds none left.
        (image((SQUARE, 0.9, 1), (SQUARE, 0.8, 1), (FAR, 0.8, 2)), 4 / 5),
    ],
)
def test_detections_are_matched_by_class_and_overlap(answer, matched):
    assert pairs_of(image((SQUARE, 0.9, 1), (FAR, 0.8, 2)), answer)["matched"] == pytest.approx(matched)


def test_nothing_on_both_sides_is_no_match():
    assert pairs_of(image(), image()) == {} and measured(detections.Precision, ([image()], [image()])) == {}


def precision(reference, answer):
    return measured(detections.Precision, (reference, answer))


def test_average_precision_by_hand():
    wanted = [image((SQUARE, 1, 1)), image((SQUARE, 1, 1), (FAR, 1, 1))]
    # In the order of the scores: right, wrong, right; one of three is never found. Precision 1 to recall 1/3, 2/3 to recall 2/3, then 0.
    given = [image((SQUARE, 0.9, 1)), image((FAR, 0.5, 1), ([8, 8, 9, 9], 0.7, 1))]
    expected = (34 * 1 + 33 * 2 / 3) / 101
    assert precision(wanted, given) == pytest.approx({"map": expected, "map50": expected})
    assert precision(wanted, wanted) == {"map": 1.0, "map50": 1.0}
    # HALF has an IoU of 0.6: right at three of ten thresholds.
    assert precision([image((SQUARE, 1, 1))], [image((HALF, 0.9, 1))]) == pytest.approx({"map": 0.3, "map50": 1.0})
    # A class without an answer counts 0, one without a truth not at all.
    assert precision([image((SQUARE, 1, 1), (FAR, 1, 2))], [image((SQUARE, 0.9, 1), (FAR, 0.8, 3))])[
        "map50"
    ] == pytest.approx(0.5)


def slow_precision(wanted, given, threshold):
    """Average precision of one class as its definition says, image by image, without a thought of speed."""
    marks = []
    for reference, answer in zip(wanted, given, strict=True):
        free = list(range(len(reference.boxes)))
        for place in sorted(range(len(answer.boxes)), key=lambda one: -answer.scores[one]):
            values = {one: float(boxes.overlaps(reference.boxes[one], answer.boxes[place])) for one in free}
            best = max(values, key=values.get, default=None)
            right = best is not None and values[best] >= threshold
            if right:
                free.remove(best)
            marks.append((-answer.scores[place], right))
    total, right, points = sum(len(one.boxes) for one in wanted), 0, []
    for count, (_, flag) in enumerate(sorted(marks), 1):
        right += flag
        points.append((right / total, right / count))
    return np.mean(
        [
            max((precise for recall, precise in points if recall >= wanted_recall), default=0)
            for wanted_recall in np.linspace(0, 1, 101)
        ]
    )


@pytest.mark.parametrize("seed", range(4))
def test_average_precision_is_its_definition(seed):
    rng = np.random.default_rng(seed)

    def drawn(count):
        corners = rng.uniform(0, 1, (count, 2))
        return np.concatenate([corners, corners + rng.uniform(0.2, 0.5, (count, 2))], axis=1)

    wanted = [image(*((box, 1, 0) for box in drawn(4))) for _ in range(6)]
    given = [
        image(*((box + rng.normal(0, 0.05, 4), rng.uniform(), 0) for box in [*one.boxes[:3], *drawn(2)]))
        for one in wanted
    ]
    expected = [slow_precision(wanted, given, threshold) for threshold in np.linspace(0.5, 0.95, 10)]
    assert (
        precision(wanted, given) == pytest.approx({"map": np.mean(expected), "map50": expected[0]})
        and 0 < np.mean(expected) < 1
    )


def test_every_metric_is_right_of_the_original_itself():
    """`perfect` is what a model has against itself, and the direction is such that nothing is better."""
    reference = {
        "values": scores(1) * 3 - 1,
        "ids": RNG.integers(0, 9, (ROWS, 3)).astype(np.float32),
        "boxes": np.sort(RNG.uniform(size=(ROWS, 2, 4))),
        "masks": RNG.uniform(size=(ROWS, 2, 2, 3)),
        "texts": np.array([b"a b"] * ROWS, object),
        "probabilities": scores(2),
    }
    said = {name: name for name in reference}
    found, _ = metrics.compare([(run.Call("s", {"x": np.arange(ROWS)}), reference, reference)], said=said)
    values = {name: value for one in found for name, value in one.values.items()}
    values |= measured(detections.Pairs, ([image((SQUARE, 1, 1))],) * 2) | measured(
        detections.Precision, ([image((SQUARE, 1, 1))],) * 2
    )
    assert set(values) == {one.name for one in metrics.METRICS.values() if one.kinds}
    assert values == pytest.approx({name: metrics.METRICS[name].perfect for name in values})


def test_every_kind_of_output_and_of_labels_has_metrics_and_bounds():
    assert set(thresholds.KIND_DEFAULTS) == {*kinds.KINDS, kinds.DETECTIONS} - {kinds.VALUES}
    for kind, defaults in thresholds.KIND_DEFAULTS.items():
        for metric, by in defaults.items():
            assert kind in metrics.METRICS[metric].kinds and set(by) == set(thresholds.DEFAULTS)
            ordered = list(by.values())
            assert ordered == sorted(ordered, reverse=metrics.METRICS[metric].higher), (
                "coarser arithmetic, looser bounds"
            )
    for kind in (
        label_kinds.CLASSES,
        label_kinds.TAGS,
        label_kinds.VALUES,
        label_kinds.MASKS,
        label_kinds.TEXTS,
        label_kinds.BOXES,
    ):
        first = registry.first_of(kind)
        assert kind in metrics.METRICS[first].labels and registry.of_labels(kind)


# What labels are for an output.
CASES = [
    (np.zeros(4, int), np.ones((4, 3)), "classes"),
    (np.zeros((4, 1), int), np.ones((4, 3)), "classes"),
    (np.zeros(4, int), np.full((4, 1), 0.5), "classes"),
    (np.array([0, 3, 7, 1]), np.full((4, 1), 0.5), "values"),
    (np.zeros(4, int), np.zeros(4, np.int64), "classes"),
    (np.arange(4), np.arange(4.0), "classes"),
    (np.zeros((4, 5), int), np.ones((4, 5, 3)), "classes"),
    (np.zeros((4, 6, 6), int), np.ones((4, 6, 6, 3)), "masks"),
    (np.zeros((4, 6, 6), int), np.full((4, 6, 6, 1), 0.5), "masks"),
    (np.zeros((4, 6, 6), int), np.zeros((4, 6, 6), int), "masks"),
    (np.zeros((4, 5), int), np.full((4, 5), 0.5), "tags"),
    (np.zeros(4), np.ones((4, 1)), "values"),
    (np.zeros((4, 2)), np.ones((4, 2)), "values"),
    (np.array(["a"] * 4), np.array([b"a"] * 4, object), "texts"),
    (np.array(["a"] * 4), np.ones((4, 3)), "classes"),
    (np.zeros(4), np.ones((4, 3)), "classes"),
    (np.full(4, 0.5), np.ones((4, 3)), ""),
    (np.array(["no", "yes"] * 2), np.full((4, 1), 0.5), "classes"),
    (np.array(["a", "b", "c"]), np.full((3, 1), 0.5), ""),
    (np.zeros((4, 2), int), np.ones((4, 3)), ""),
    (np.zeros(4, int), np.array([b"a"] * 4, object), ""),
    (np.zeros(4, complex), np.ones((4, 3)), ""),
]


@pytest.mark.parametrize(("array", "answer", "kind"), CASES)
def test_labels_are_of_the_kind_that_goes_with_the_output(array, answer, kind):
    assert Labels({"": array}).kind(answer) == kind


def scored(labels, *answers, wanted="", output="y"):
    """truth.Scored of an output's answers, one array a call."""
    calls = [{output: np.asarray(one)} for one in answers]
    target = truth.find(labels, {"s": calls[0]}, {}, (), wanted, "--label_output")
    return truth.score(labels, target, calls)


def test_labels_go_along_with_the_calls():
    given = scores(1) + 0.3 * np.eye(CLASSES, dtype=np.float32)[WANTED]
    whole, cut = (scored(Labels({"": WANTED}), *parts) for parts in ((given,), (given[:32], given[32:48], given[48:])))
    assert whole == cut and whole.rows == ROWS and set(whole.values) == {"top1", "top5", "class_top1", "auc"}
    assert sum(rows for rows, _ in whole.per_class.values()) == ROWS
    assert whole.per_class[2][1] == pytest.approx(np.mean(given[WANTED == 2].argmax(-1) == 2))


def test_names_of_classes_are_numbered_in_the_models_order(tmp_path):
    given = np.eye(3)[[2, 0, 1, 0]]
    names = np.array(["dog", "ant", "cow", "ant"], object)
    assert scored(Labels({"": names}), given).values["top1"] == 1.0, "sorted, where nobody says more"
    labels = Labels({"": names}, ("dog", "cow", "ant"))
    assert scored(labels, given[:2], given[2:]).values["top1"] == 0.25
    labels.save(tmp_path / "l.npz")
    again = Labels.load(tmp_path / "l.npz")
    assert again.names == labels.names and again.array.tolist() == names.tolist() and again.kind(given) == "classes"


def test_texts_may_be_given_as_unicode():
    found = scored(
        Labels({"": np.array(["grün oder rot", "a b"])}), np.array(["grün oder rot".encode(), b"a c"], object)
    )
    assert found.values == {"wer": 0.2, "mismatches": 0.5}


DETECTOR = {
    "boxes": np.array([[SQUARE, FAR, [0] * 4], [SQUARE, [0] * 4, [0] * 4]], np.float32),
    "scores": np.array([[0.9, 0.8, 0], [0.95, 0, 0]], np.float32),
    "classes": np.array([[1, 2, 0], [1, 0, 0]], np.float32),
    "detections": np.array([2, 1], np.int32),
}


@pytest.mark.parametrize(
    "labels",
    [
        {"boxes": np.array([[SQUARE, FAR], [SQUARE, [0] * 4]]), "classes": np.array([[1, 2], [1, 0]])},
        {"boxes": np.array([[SQUARE, FAR], [SQUARE, SQUARE]]), "classes": np.array([[1, 2], [1, -1]])},
        {"boxes": np.array([FAR, SQUARE, SQUARE]), "classes": np.array([2, 1, 1]), "rows": np.array([0, 1, 0])},
    ],
)
def test_labels_of_detectors_are_boxes_by_row_or_in_a_list(labels):
    target = truth.find(Labels(labels), {"s": DETECTOR}, {}, (), "", "--label_output")
    assert target.output == "boxes+scores+classes"
    one_by_one = [{name: array[row : row + 1] for name, array in DETECTOR.items()} for row in range(2)]
    assert (
        truth.score(Labels(labels), target, [DETECTOR]).values
        == truth.score(Labels(labels), target, one_by_one).values
        == {"map": 1.0, "map50": 1.0}
    )
    assert truth.find(Labels(labels), {"s": DETECTOR}, {}, (), "s/boxes", "--label_output") == target


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({"boxes": np.zeros((2, 3, 4))}, "holds boxes"),
        ({"boxes": np.zeros((2, 3, 4)), "classes": np.zeros((2, 4))}, r"boxes float64\[2, 3, 4\]"),
        ({"boxes": np.zeros((2, 4)), "classes": np.zeros(2), "rows": np.zeros(3, int)}, "rows int64"),
        ({"a": np.zeros(2), "b": np.zeros(2)}, "2 arrays: a, b"),
    ],
)
def test_labels_that_are_none_are_told(tmp_path, labels, words):
    np.savez(tmp_path / "l.npz", **labels)
    with pytest.raises(errors.UsageError, match=words):
        label_kinds.read(str(tmp_path / "l.npz"))


def test_the_output_that_labels_speak_of_is_named_or_found():
    first = {"s": {"a": np.ones((4, 3)), "b": np.ones((4, 5)), "size": np.ones((4, 2))}}
    numbers = Labels({"": np.zeros(4, int)})
    with pytest.raises(errors.UsageError, match="is not clear") as raised:
        truth.find(numbers, first, {}, (), "", "--label_output")
    assert "--label_output=s/a or --label_output=s/b" in raised.value.mend
    assert truth.find(numbers, first, {}, ["s/b"], "", "--label_output").name == "s/b"
    assert truth.find(numbers, first, {}, (), "s/a", "--label_output").name == "s/a"
    with pytest.raises(errors.UsageError, match=r"int64\[4\] fits no output 's/c'") as raised:
        truth.find(numbers, first, {}, (), "s/c", "--label_output")
    assert "s/a float64[?, 3]" in raised.value.mend
    with pytest.raises(errors.UsageError, match="fits no output"):
        truth.find(Labels({"": np.zeros((4, 7))}), first, {}, (), "", "--label_output")
    with pytest.raises(errors.UsageError, match="no signature with --data has the outputs of a detector") as raised:
        truth.find(
            Labels({"boxes": np.zeros((4, 1, 4)), "classes": np.zeros((4, 1))}), first, {}, (), "", "--label_output"
        )
    assert "--output_kind" in raised.value.mend


def test_one_hot_labels_of_classes_are_refused_and_tags_and_values_are_not():
    first = {"s": {"a": np.full((4, 3), 1 / 3, np.float32)}}
    one_hot = np.eye(3)[[0, 1, 2, 0]]
    for array in (one_hot, one_hot.astype(int), one_hot.astype(bool), one_hot[:, None]):
        with pytest.raises(errors.UsageError, match="is one-hot, and s/a holds classes") as raised:
            truth.find(Labels({"": array}), first, {}, ["s/a"], "", "--label_output")
        assert "np.argmax" in raised.value.mend
        with pytest.raises(errors.UsageError, match="one-hot"):
            truth.find(Labels({"": array}), first, {}, ["s/a"], "s/a", "--label_output")
        assert truth.find(Labels({"": array}), first, {}, [], "", "--label_output").output == "a"
    masks, pixels = np.eye(3, dtype=int)[np.zeros((4, 2, 2), int)], {"s": {"a": np.full((4, 2, 2, 3), 1 / 3)}}
    with pytest.raises(errors.UsageError, match="is one-hot"):
        truth.find(Labels({"": masks}), pixels, {}, ["s/a"], "", "--label_output")
    assert truth.find(Labels({"": masks[..., 0]}), pixels, {}, ["s/a"], "", "--label_output").kind == "masks"
    for array in (one_hot[[0, 0, 0, 0]] + one_hot[[1, 1, 1, 1]], one_hot * 0.5, 0 * one_hot):
        assert truth.find(Labels({"": array}), first, {}, ["s/a"], "", "--label_output").output == "a"


@pytest.mark.parametrize("wrong", [[0, 1, 3], [1, 2, -1], [99, 99, 99]])
def test_a_label_that_is_no_class_of_the_output_is_told(wrong):
    """Counted from 1, say: no model is ever right, and a degradation of the score none."""
    target = truth.Target("s", "p", "classes")
    answers = [{"p": np.eye(3, dtype=np.float32)}]
    with pytest.raises(errors.UsageError, match="is no class of s/p, which has 3: 0 to 2") as caught:
        truth.score(Labels({"": np.array(wrong)}), target, answers)
    assert "count classes from 0" in caught.value.mend
    assert truth.score(Labels({"": np.array([0, 1, 2])}), target, answers).values["top1"] == 1.0


@pytest.mark.parametrize(
    ("right", "rows", "told"),
    [
        (1 / 3, 60, True),  # always the same class
        (0.36, 60, True),
        (0.6, 60, False),
        (0.0, 60, True),
        (1 / 3, 9, False),  # too few to tell
    ],
)
def test_labels_by_which_the_original_only_guesses_show_nothing(right, rows, told):
    each, classes = rows // 3, np.repeat(np.arange(3), rows // 3)
    chosen = (classes + 1) % 3
    for number in range(3):
        chosen[number * each : number * each + round(right * each)] = number
    labels, answer = Labels({"": classes}), {"y": np.eye(3, dtype=np.float32)[chosen]}
    target = truth.find(labels, {"s": answer}, {}, [], "", "--label_output")
    seen = truth.score(labels, target, [answer])
    line = truth.guessed(truth.to_dict(target, seen, seen))
    assert bool(line) == told
    assert not told or f"of {rows} right, 3 classes), so they show nothing" in line and "--image_scale" in line


def test_labels_of_another_shape_than_the_answers_are_told():
    with pytest.raises(errors.UsageError, match="does not go with s/y"):
        scored(Labels({"": np.zeros((4, 5))}), np.zeros((2, 5)), np.zeros((2, 6)))
    with pytest.raises(errors.UsageError, match="holds 3 values for 4 rows and more"):
        scored(Labels({"": np.zeros(3)}), np.zeros(2), np.zeros(2))
    with pytest.raises(errors.UsageError, match="give no auc"):
        scored(Labels({"": np.zeros((4, 2), int)}), np.full((4, 2), 0.5))
