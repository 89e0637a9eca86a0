"""Histograms of |x| and the scales that each method makes of them."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.conftest import ROOT
from tftrt_tools.tftrt.calibration import methods
from tftrt_tools.tftrt.calibration.job import scales
from tftrt_tools.tftrt.calibration.job.histogram import BINS, Histogram

FINITE = st.floats(-(2.0**40), 2.0**40, width=32).filter(lambda x: x == 0 or abs(x) > 2.0**-40)
VALUES = hnp.arrays(np.float32, st.integers(1, 60), elements=FINITE)
SEEDS = st.integers(0, 2**32 - 1)
SHAPES = ("normal", "relu", "laplace", "uniform", "exponential")


def of(*arrays):
    histogram = Histogram()
    for values in arrays:
        histogram.add(values)
    return histogram


def drawn(shape, seed, size=20_000):
    rng = np.random.default_rng(seed)
    if shape == "relu":
        return np.maximum(rng.normal(size=size), 0).astype(np.float32)
    return getattr(rng, shape)(size=size).astype(np.float32)


def state(histogram):
    return {**vars(histogram), "counts": histogram.counts.tolist()}


# --- the histogram


@given(VALUES)
def test_a_histogram_counts_every_value_in_its_bin(values):
    histogram = of(values)
    assert histogram.counts.sum() == histogram.count == values.size and histogram.zeros == (values == 0).sum()
    assert (histogram.minimum, histogram.maximum) == (values.min(), values.max())
    assert histogram.range == histogram.absmax == np.abs(values).max()
    magnitudes = np.sort(np.abs(values.astype(np.float64)))
    places = np.repeat(np.arange(BINS), histogram.counts) * histogram.width
    # Two float32 roundings lie between a value and its bin, the factor's and the product's, each by 2**-24 of it at most: a value that is
    # nearer to an edge than that may fall on either side.
    slack = 1.0001 * 2.0**-23 * magnitudes
    assert (places - slack <= magnitudes).all() and (magnitudes <= places + histogram.width + slack).all()


@given(VALUES, VALUES)
def test_the_range_is_that_of_the_first_values_and_doubles(first, second):
    assume(first.any())
    histogram, absmax = of(first), float(np.abs(first).max())
    assert histogram.range == absmax
    histogram.add(second)
    largest = max(absmax, float(np.abs(second).max()))
    assert histogram.range == absmax * 2.0 ** max(0, math.ceil(math.log2(largest / absmax) - 1e-12))
    assert histogram.absmax == largest


@pytest.mark.parametrize("method", methods.METHODS)
def test_values_that_all_lie_far_from_zero_keep_their_range(method):
    """The least of them alone in its bin, with all others clipped to it, would have no divergence."""
    values = np.float32(1) + np.float32(0.1) * drawn("normal", 3)
    assert (values > scales.scale(of(values), method) * scales.LEVELS).mean() < 0.01
    counts = of(values).rebinned(scales.BINS).tolist()
    alone = next(place for place, count in enumerate(counts) if count) + 1
    assert scales.QUANTIZED < alone < scales.BINS and plain_divergence(
        counts, alone, Variant(single=True)
    ) == pytest.approx(0.0, abs=1e-12)
    assert plain_divergence(counts, alone, Variant()) == math.inf


def test_doubling_merges_bins_in_pairs():
    values = np.linspace(0, 1, 5000, dtype=np.float32)
    small, grown = of(values), of(values, np.float32([3.0]))
    assert grown.range == 4.0
    expected = small.counts.reshape(-1, 4).sum(axis=1)
    expected = np.concatenate([expected, np.zeros(BINS - expected.size, int)])
    expected[int(3.0 / grown.width)] += 1
    assert grown.counts.tolist() == expected.tolist()


@given(VALUES, VALUES, st.randoms(use_true_random=False), st.integers(0, 60))
def test_after_the_first_batch_neither_order_nor_batches_matter(first, values, random, cut):
    shuffled = values.tolist()
    random.shuffle(shuffled)
    shuffled = np.float32(shuffled)
    assume(first.any())
    one, other = of(first, values), of(first, shuffled[:cut], shuffled[cut:])
    assert {**state(one), "counts": 0} == {**state(other), "counts": 0}
    # Growing before or after a value has come can leave it on either side of the edge that it lies on.
    assert np.abs(np.cumsum(one.counts - other.counts)).max() <= np.sum(on_edges(values, one))


def on_edges(values, histogram):
    places = np.abs(values.astype(np.float64)) / histogram.width
    return np.abs(places - np.round(places)) <= 1e-3 + places * 1e-6


def test_zeros_alone_leave_the_range_open():
    histogram = of(np.zeros(3, np.float32))
    assert histogram.range == 0.0
    histogram.add(np.float32([0.75]))
    assert (histogram.range, histogram.zeros, histogram.counts[0], histogram.counts[-1]) == (0.75, 3, 3, 1)


@given(VALUES, VALUES)
def test_merging_is_counting_together_within_a_bin(a, b):
    together, merged = of(a, b), of(a)
    merged.merge(of(b))
    assert {**state(merged), "counts": 0, "range": 0} == {**state(together), "counts": 0, "range": 0}
    assert merged.counts.sum() == together.counts.sum()
    assume(together.range == merged.range > 0)
    grown, mine = np.repeat(np.arange(BINS), together.counts), np.repeat(np.arange(BINS), merged.counts)
    assert np.abs(grown - mine).max() <= 1 + of(b).width / merged.width


@given(VALUES, VALUES, VALUES)
def test_merging_is_associative_within_a_bin(a, b, c):
    left, inner, right = of(a), of(b), of(a)
    left.merge(of(b))
    left.merge(of(c))
    inner.merge(of(c))
    right.merge(inner)
    assert {**state(left), "counts": 0} == {**state(right), "counts": 0}
    places = [np.repeat(np.arange(BINS), one.counts) for one in (left, right)]
    assert np.abs(places[0] - places[1]).max() <= 2 + 2 * max(of(b).width, of(c).width, inner.width) / (left.width or 1)


def test_many_values_are_counted_in_chunks():
    values = np.random.default_rng(0).normal(size=(3, 100_003)).astype(np.float32)
    histogram = of(values)
    assert histogram.counts.sum() == values.size
    expected, _ = np.histogram(np.abs(values.astype(np.float64)), BINS, (0, histogram.range))
    assert np.abs(np.cumsum(histogram.counts - expected)).max() <= 3


def test_half_precision_is_counted_as_it_is():
    values = np.random.default_rng(0).normal(size=1000).astype(np.float16)
    assert state(of(values)) == state(of(values.astype(np.float32)))


def test_nan_and_infinity_are_counted_apart():
    histogram = of(np.float32([1, np.nan, -np.inf, 2, np.inf, np.nan, np.nan]), np.float32([np.nan]))
    assert (histogram.nan, histogram.infinite, histogram.count, histogram.absmax) == (4, 2, 2, 2.0)


def test_an_empty_array_changes_nothing():
    assert state(of(np.zeros((0, 4), np.float32))) == state(Histogram())
    assert Histogram().absmax == 0.0 and not Histogram().constant


@pytest.mark.parametrize("value", [1e-45, 1e-38, 3.4e38])
def test_the_ends_of_float32_are_counted(value):
    histogram = of(np.float32([value, 0]))
    assert histogram.counts.sum() == 2 and histogram.absmax == np.float32(value)
    assert all(scales.scale(histogram, method) > 0 for method in methods.METHODS)


def test_rebinning_sums_adjacent_bins():
    histogram = of(drawn("normal", 1))
    for bins in (1, 16, 2048, BINS):
        expected, _ = np.histogram(np.arange(BINS), bins, weights=histogram.counts)
        assert histogram.rebinned(bins).tolist() == expected.tolist()


def test_a_histogram_without_range_has_no_edges():
    with pytest.raises(ValueError, match="zero"):
        of(np.zeros(3, np.float32)).edges()


# --- scales


@pytest.mark.parametrize("method", methods.METHODS)
def test_a_tensor_without_range_has_no_scale(method):
    assert scales.scale(of(np.zeros((2, 5), np.float32)), method) is None
    assert scales.scale(Histogram(), method) is None


@pytest.mark.parametrize("method", methods.METHODS)
@pytest.mark.parametrize("value", [3.0, -0.02, 1e30])
def test_a_constant_tensor_has_its_value_as_range(method, value):
    histogram = of(np.full(50, value, np.float32))
    assert histogram.constant
    assert scales.scale(histogram, method) * 127 == pytest.approx(abs(value), rel=0.006)


@given(VALUES, VALUES, st.sampled_from(methods.METHODS))
def test_a_scale_is_positive_and_clips_above_nothing(first, second, method):
    """Above the maximum only entropy goes: half of TensorRT's bins further, or on through empty ones."""
    histogram = of(first, second)
    assume(histogram.absmax)
    highest = histogram.range * (1 + 0.5 / 2048) if method == "entropy" else histogram.absmax
    assert 0 < scales.scale(histogram, method) * 127 <= highest * (1 + 1e-12)


@pytest.mark.parametrize("method", methods.METHODS)
@given(SEEDS, st.integers(-20, 20))
@settings(max_examples=10, deadline=None)
def test_multiplied_by_a_power_of_two_the_scale_is_too(method, seed, exponent):
    values = drawn("normal", seed, 2000)
    assert scales.scale(of(values * np.float32(2.0**exponent)), method) == pytest.approx(
        scales.scale(of(values), method) * 2.0**exponent, rel=1e-12
    )


@pytest.mark.parametrize("method", ["percentile", "max"])
@given(SEEDS, st.floats(0.01, 100))
@settings(max_examples=20, deadline=None)
def test_multiplied_by_any_factor_the_scale_is_too(method, seed, factor):
    values = drawn("laplace", seed)
    assert scales.scale(of(values * np.float32(factor)), method) == pytest.approx(
        scales.scale(of(values), method) * factor, rel=0.002
    )


@given(SEEDS, st.sampled_from(SHAPES), st.floats(0.01, 100))
@settings(max_examples=20, deadline=None)
@example(674, "laplace", 0.9375)  # the scale is 0.2 % off, and as good
def test_multiplied_by_any_factor_the_mse_method_finds_as_good_a_range(seed, shape, factor):
    one, other = of(drawn(shape, seed)), of(drawn(shape, seed) * np.float32(factor))
    mine, theirs = scales.mse_amax(one), scales.mse_amax(other) / factor
    best, chosen = scales.squared_errors(one, [mine, theirs])
    assert chosen <= best * 1.0001 and theirs == pytest.approx(mine, rel=0.005)


@given(SEEDS, st.sampled_from(SHAPES), st.floats(0.01, 100))
@settings(max_examples=20, deadline=None)
def test_multiplied_by_any_factor_the_entropy_method_finds_as_good_a_range(seed, shape, factor):
    """Rounding moves a few values across an edge, and the minimum is flat: the range found costs no more, but may be another."""
    one, other = of(drawn(shape, seed)), of(drawn(shape, seed) * np.float32(factor))
    counts = one.rebinned(2048).astype(float)
    counts[0] = counts[1]
    found = scales.divergences(counts)
    chosen = round(scales.entropy_amax(other) / other.range * 2048 - 0.5) - 128
    assert found[chosen] <= found.min() * 1.01 + 1e-5


@pytest.mark.parametrize("method", methods.METHODS)
@given(SEEDS)
@settings(max_examples=10, deadline=None)
def test_order_and_sign_do_not_matter(method, seed):
    values = drawn("normal", seed)
    expected = scales.scale(of(values), method)
    assert scales.scale(of(np.random.default_rng(seed).permutation(values)), method) == expected
    assert scales.scale(of(-values), method) == scales.scale(of(np.abs(values)), method) == expected


# --- entropy


@dataclasses.dataclass(frozen=True)
class Variant:
    """What public descriptions of the entropy method leave open or differ in; the defaults are what TensorRT 8.5.3 does."""

    # Of the quantized distribution.
    levels: int = scales.QUANTIZED
    # Of i bins to levels: "even" (level g begins at bin ceil(g i / levels)) or "floor" (i // levels bins each, the last also the rest).
    groups: str = "even"
    # Which bins the candidate is shared out over: those with a "count" of their own, or those of the "reference", whose last bin is not
    # empty where anything lies beyond.
    support: str = "count"
    # Whether the candidate is normalised with ("all") or without ("inside") the values that it leaves out.
    outliers: str = "inside"
    # Least probability of the candidate where the reference has any; 0 makes the divergence infinite there.
    tiny: float = 0.0
    # Whether a candidate with one non-empty bin counts.
    single: bool = False


def plain_divergence(counts, bins_kept, variant):
    """The definition, one bin at a time."""
    reference = [float(count) for count in counts[:bins_kept]]
    beyond = float(sum(counts[bins_kept:]))
    reference[-1] += beyond
    support = reference if variant.support == "reference" else counts
    levels = [[] for _ in range(variant.levels)]
    for place in range(bins_kept):
        if variant.groups == "even":
            level = place * variant.levels // bins_kept
        else:
            level = min(place // (bins_kept // variant.levels), variant.levels - 1)
        levels[level].append(place)
    candidate = [0.0] * bins_kept
    for places in levels:
        filled = [place for place in places if support[place] > 0]
        for place in filled:
            candidate[place] = float(sum(counts[p] for p in places)) / len(filled)
    if not variant.single and sum(count > 0 for count in counts[:bins_kept]) < 2:
        return math.inf
    mass = sum(counts[:bins_kept]) + (beyond if variant.outliers == "all" else 0.0)
    total, divergence = sum(reference), 0.0
    for p, q in zip(reference, candidate, strict=True):
        if p > 0:
            q = max(q / mass if mass else 0.0, variant.tiny)
            if q == 0:
                return math.inf
            divergence += p / total * math.log(p / total / q)
    return divergence


@given(st.lists(st.sampled_from([0, 0, 0, 1, 2, 5, 40, 1000]), min_size=19, max_size=19))
def test_divergences_are_those_of_the_definition(counts):
    assume(any(counts))
    got = scales.divergences(np.float64(counts), levels=4)
    expected = [plain_divergence(counts, kept, Variant(levels=4)) for kept in range(4, 20)]
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "changed", [{"groups": "floor"}, {"support": "reference"}, {"outliers": "all"}, {"tiny": 1e-4}, {"single": True}]
)
def test_what_public_descriptions_do_otherwise_would_be_seen(changed):
    """Each of them gives another divergence somewhere: the definition that is tested is TensorRT's and no other."""
    counts = np.random.default_rng(0).choice([0, 0, 0, 1, 2, 5, 40, 1000], (20, 19))
    plain, other = (
        [[plain_divergence(one.tolist(), kept, variant) for kept in range(4, 20)] for one in counts]
        for variant in (Variant(levels=4), Variant(levels=4, **changed))
    )
    assert not np.allclose(plain, other)


@pytest.mark.parametrize("shape", SHAPES)
def test_at_full_size_too(shape):
    counts = of(drawn(shape, 1)).rebinned(2048).astype(float)
    got = scales.divergences(counts)
    variant = Variant()
    for kept in (128, 129, 255, 256, 1000, 1999, 2047, 2048):
        assert got[kept - 128] == pytest.approx(plain_divergence(counts.tolist(), kept, variant), rel=1e-9, abs=1e-12)


@given(st.lists(st.integers(1, 1000), min_size=19, max_size=19))
def test_a_divergence_is_never_negative(counts):
    assert (scales.divergences(np.float64(counts), levels=4) >= -1e-12).all()


def test_entropy_keeps_an_even_distribution_and_clips_a_thin_tail():
    assert scales.scale(of(drawn("uniform", 3, 200_000)), "entropy") * 127 > 0.98
    heavy = np.random.default_rng(3).standard_t(3, 1_000_000).astype(np.float32)
    assert scales.scale(of(heavy), "entropy") * 127 < 0.5 * np.abs(heavy).max()


def test_entropy_keeps_a_lone_outlier_as_tensorrt_does():
    """Where the candidate's last bin is empty and the reference's is not, the divergence is infinite: nothing is cut off there."""
    histogram = of(drawn("normal", 3, 200_000), np.float32([400.0]))
    assert scales.scale(histogram, "entropy") * 127 > 399
    assert scales.scale(histogram, "percentile") * 127 < 5


def test_the_bins_kept_are_those_that_tensorrt_kept():
    """Tensors of digits_cnn (512 images, batches of 32), of dynamic_segmenter's first engine (16 images, batches of 8), of bert_encoder (500
    texts of length 128, batches of 10).

    `kept` is from the tables of TensorRT 8.5.3.1's calibrator on an H100 and an H200, `counts` from the same data: 2,048 bins each, zeros
    included.
    """
    with np.load(ROOT / "tests/data/tensorrt_entropy.npz") as truth:
        tensors, counts, zeros, kept = (truth[name] for name in ("tensors", "counts", "zeros", "kept"))
    found = {}
    for name, row, exact_zeros in zip(tensors, counts, zeros, strict=True):
        histogram = Histogram()
        histogram.counts[:: BINS // 2048] = row
        histogram.range, histogram.zeros, histogram.count = 2048.0, int(exact_zeros), int(row.sum())
        histogram.minimum, histogram.maximum = 0.0, 2048.0
        found[str(name)] = scales.entropy_amax(histogram) - 0.5
    assert found == dict(zip(tensors.tolist(), kept.tolist(), strict=True))


def test_half_a_bin_is_added_to_the_bins_kept():
    assert scales.scale(of(np.float32([1.0, 1.0])), "entropy") == pytest.approx(2048.5 / 2048 / 127, rel=1e-12)


def test_bins_are_those_of_the_first_batch():
    """As TensorRT's: with one batch up to 1 and one up to 1.1 there are 2,048 bins over 2."""
    first, second = drawn("uniform", 9), drawn("uniform", 10) * np.float32(1.1)
    first[0] = 1.0
    amax = scales.entropy_amax(of(first, second))
    assert (amax / (2.0 / 2048) - 0.5) == pytest.approx(round(amax / (2.0 / 2048) - 0.5), abs=1e-6)
    assert amax < 1.2


@pytest.mark.parametrize("rows", [64, 128, 400, 512, 1397])
def test_values_on_few_levels_keep_their_range(rows):
    """Pictures of 4 bits: keeping the first level alone and keeping all have no divergence, and only one of them is a range."""
    from saved_models import digits_cnn

    assert scales.scale(of(digits_cnn.training_images()[0][:rows]), "entropy") == pytest.approx(
        2048.5 / 2048 / 127, rel=1e-9
    )


def test_the_zeros_of_a_relu_do_not_move_its_range():
    positive = np.abs(drawn("normal", 4, 100_000))
    assert scales.scale(of(np.zeros(300_000, np.float32), positive), "entropy") == scales.scale(of(positive), "entropy")


# --- percentile


@given(VALUES, st.floats(1, 100))
def test_a_percentile_is_numpys_within_a_bin(values, percentile):
    values = values[values != 0]
    assume(values.size)
    histogram = of(values)
    magnitudes = np.abs(values.astype(np.float64))
    got = scales.percentile_amax(histogram, percentile)
    expected = np.percentile(magnitudes, percentile, method="inverted_cdf")
    assert abs(got - expected) <= histogram.width * (1 + 1e-9)


@given(VALUES, st.floats(1, 100), st.floats(1, 100))
def test_a_higher_percentile_is_no_lower(values, one, other):
    values = values[values != 0]
    assume(values.size)
    histogram = of(values)
    low, high = sorted((one, other))
    assert scales.percentile_amax(histogram, low) <= scales.percentile_amax(histogram, high) <= histogram.absmax


def test_all_of_it_is_the_maximum():
    histogram = of(drawn("laplace", 5))
    assert scales.percentile_amax(histogram, 100) == pytest.approx(histogram.absmax)


def test_zeros_count_unless_the_percentile_lies_among_them():
    values = np.float32(np.arange(1, 101))
    assert scales.percentile_amax(of(values, np.zeros(100, np.float32)), 75) == pytest.approx(50, abs=0.1)
    assert scales.percentile_amax(of(values, np.zeros(10_000, np.float32)), 75) == pytest.approx(75, abs=0.1)


# --- mse


def plain_error(values, amax):
    step = amax / 127
    return np.mean((values - step * np.clip(np.round(values / step), -127, 127)) ** 2)


@pytest.mark.parametrize("shape", SHAPES)
def test_squared_errors_are_those_of_rounding_and_clipping(shape):
    values = drawn(shape, 6).astype(np.float64)
    histogram = of(values.astype(np.float32))
    amaxes = histogram.absmax * np.float64([1.0, 0.7, 0.3, 0.1, 0.03])
    expected = [plain_error(values, amax) for amax in amaxes]
    np.testing.assert_allclose(scales.squared_errors(histogram, amaxes), expected, rtol=0.02)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("outlier", [0.0, 30.0])
def test_the_mse_method_is_as_good_as_trying_every_range(shape, outlier):
    values = np.append(drawn(shape, 7), np.float32(outlier)).astype(np.float64)
    histogram = of(values.astype(np.float32))
    best = min(plain_error(values, histogram.absmax * part / 1000) for part in range(5, 1001))
    assert plain_error(values, scales.mse_amax(histogram)) <= best * 1.02


def test_exact_zeros_cost_nothing():
    values = drawn("normal", 8)
    once, padded = of(values), of(values, np.zeros(values.size, np.float32))
    assert scales.mse_amax(padded) == scales.mse_amax(once)
    np.testing.assert_allclose(2 * scales.squared_errors(padded, [1.0]), scales.squared_errors(once, [1.0]))
