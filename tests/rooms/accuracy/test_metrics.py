"""Accuracy metrics against their definitions, and the bounds on them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tftrt_tools.accuracy import metrics, thresholds
from tftrt_tools.base import errors

FLOATS = st.floats(-1e6, 1e6, width=32)


def compare(reference, answer, output="y", epsilon=1e-3):
    entry = metrics.Accumulator("s", output, epsilon)
    entry.add(np.asarray(reference), np.asarray(answer))
    return entry.result()


@settings(max_examples=60, deadline=None)
@given(hnp.arrays(np.float32, (7, 3), elements=FLOATS), hnp.arrays(np.float32, (7, 3), elements=FLOATS))
def test_metrics_are_their_definitions(reference, answer):
    got = compare(reference, answer)
    r, a = reference.astype(np.float64), answer.astype(np.float64)
    gap = np.abs(a - r)
    assert got.max_abs == gap.max()
    assert got.max_rel == pytest.approx((gap / np.maximum(np.abs(r), 1e-3)).max())
    assert got.mean_abs == pytest.approx(gap.mean())
    assert got.rmse == pytest.approx(np.sqrt((gap**2).mean()))
    assert got.top1 == np.mean(r.argmax(-1) == a.argmax(-1))
    if np.linalg.norm(r) and np.linalg.norm(a):
        assert got.cosine == pytest.approx((r * a).sum() / np.linalg.norm(r) / np.linalg.norm(a), abs=1e-9)
    if gap.any() and r.any():
        assert got.snr_db == pytest.approx(10 * math.log10((r**2).sum() / (gap**2).sum()))


@settings(max_examples=30, deadline=None)
@given(
    hnp.arrays(np.float32, (12, 4), elements=FLOATS),
    hnp.arrays(np.float32, (12, 4), elements=FLOATS),
    st.integers(1, 11),
)
def test_several_calls_add_up_to_one(reference, answer, cut):
    entry = metrics.Accumulator("s", "y")
    entry.add(reference[:cut], answer[:cut])
    entry.add(reference[cut:], answer[cut:])
    parts, whole = entry.result(), compare(reference, answer)
    assert parts.elements == whole.elements == 48
    for name in ("max_abs", "max_rel", "mean_abs", "rmse", "cosine", "top1"):
        assert getattr(parts, name) == pytest.approx(getattr(whole, name))


def test_equal_answers_have_infinite_snr_that_json_can_hold():
    got = compare([[1.0, 2.0]], [[1.0, 2.0]])
    assert got.snr_db == math.inf and got.to_dict()["snr_db"] == "inf"


def test_an_all_zero_reference_does_not_pass_for_a_good_answer():
    got = compare([0.0, 0.0], [1.0, 0.0])
    assert got.snr_db == -math.inf and got.cosine == 0.0
    assert compare([0.0], [0.0]).cosine == 1.0


def test_integers_count_the_elements_that_differ():
    got = compare(np.array([1, 2, 2049, 100000]), np.array([1, 2, 2048, 100000]))
    assert got.mismatches == 0.25 and got.snr_db is None


def test_strings_and_booleans_are_compared_whole():
    assert compare(np.array([b"a", b"b"], object), np.array([b"a", b"c"], object)).mismatches == 0.5
    assert compare(np.array([True, False]), np.array([True, True])).mismatches == 0.5


def test_a_changed_shape_or_type_is_an_error():
    with pytest.raises(ValueError, match="shape"):
        compare(np.zeros((2, 3)), np.zeros((3, 2)))
    with pytest.raises(ValueError, match="dtype"):
        compare(np.zeros(2, np.int64), np.zeros(2, np.int32))


def test_probabilities_and_logits_are_classes_and_embeddings_are_not():
    rows = np.array([[0.25, 0.75], [0.5, 0.5]], np.float32)
    assert compare(rows, rows).classes
    assert compare(rows * 3, rows * 3, "logits").classes
    assert not compare(rows * 3, rows * 3, "embedding").classes
    assert not compare(rows[0], rows[0]).classes


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nonfinite_answers_always_miss(bad):
    got = compare([1.0, 2.0], [1.0, bad])
    assert [miss.metric for miss in thresholds.misses(got, {})] == ["nonfinite"]


def test_matching_nonfinite_passes_only_where_allowed():
    got = compare([1.0, -math.inf], [1.0, -math.inf])
    assert "the original has 1 itself" in thresholds.misses(got, {})[0].text()
    assert not thresholds.misses(got, {}, allow_matching_nonfinite=True)
    other = compare([1.0, -math.inf], [1.0, math.inf])
    assert thresholds.misses(other, {}, allow_matching_nonfinite=True)


def test_a_bound_is_kept_at_its_value_and_missed_beyond():
    got = compare([1.0, 1.0], [1.0, 1.5])
    assert not thresholds.misses(got, {"max_abs": 0.5})
    assert thresholds.misses(got, {"max_abs": 0.499})[0].text() == "s/y: max_abs is 0.5, wanted <= 0.499"


def test_own_bounds_replace_the_default_of_the_same_metric_only():
    got = compare([[1.0, 2.0]], [[1.0, 2.1]], "logits")
    bounds = thresholds.bounds(got, "FP16", True, thresholds.parse("snr_db>=5;s/logits:max_abs<=1"))
    assert bounds == {"snr_db": 5.0, "cosine": 0.999, "top1": 0.98, "max_abs": 1.0}
    assert "top1" not in thresholds.bounds(got, "FP16", False, {})


def test_float_bounds_for_every_output_leave_integers_alone():
    got = compare(np.array([1]), np.array([1]))
    assert thresholds.bounds(got, "FP32", True, thresholds.parse("snr_db>=5")) == {"mismatches": 0.0}


@pytest.mark.parametrize(
    "flag", ["snr>=3", "snr_db<=3", "max_abs>=1", "max_abs<=x", "logits:snr_db>=3", "max_abs", "s/y:"]
)
def test_bad_bounds_are_usage_errors(flag):
    with pytest.raises(errors.UsageError, match="--thresholds"):
        thresholds.parse(flag)


@pytest.mark.parametrize(
    ("mode", "precisions", "capability", "wanted"),
    [
        ("native segments", ["FP16"], None, "rewrite"),
        ("gpu", [], "9.0", "rewrite"),
        ("gpu", ["FP32"], "7.5", "FP32"),
        ("gpu", ["FP32"], "8.0", "TF32"),
        ("gpu", ["FP32", "FP16"], "9.0", "FP16"),
        ("gpu", ["INT8", "FP32"], "8.6", "INT8"),
    ],
)
def test_the_coarsest_arithmetic_that_ran_decides_the_bounds(mode, precisions, capability, wanted):
    import types

    from tftrt_tools.accuracy import verify

    answers = types.SimpleNamespace(
        mode=mode, gpu={"name": "a GPU", "compute_capability": capability} if capability else None
    )
    kind = types.SimpleNamespace(arithmetic=lambda path: None)
    original = types.SimpleNamespace(kind=kind, path="a", engines=[])
    model = types.SimpleNamespace(
        kind=kind, path="b", engines=[types.SimpleNamespace(precision=one) for one in precisions]
    )
    assert verify._arithmetic(answers, original, model) == wanted
