"""Rows that are scaled differently, and integers in float inputs: what is told, and that ordinary data is left alone."""

import numpy as np
import pytest
import sklearn.datasets

from saved_models import NAMES
from tests.zoo import zoo_inputs
from tftrt_tools.models.inputs.value_ranges import Integers, Ranges, ValueRange, combined, differing, read
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.tftrt.calibration import merge


def ranges(array):
    found = Ranges()
    found.add("s", {"x": np.asarray(array, np.float32)})
    return found.found


def photos(count, seed=0):
    """Pictures from 0 to 1, of any brightness."""
    rng = np.random.default_rng(seed)
    return np.clip(rng.uniform(0.2, 0.8, (count, 1, 1, 1)) + rng.normal(scale=0.2, size=(count, 8, 8, 3)), 0, 1)


@pytest.mark.parametrize(
    "scaled",
    [
        lambda x: 255 * x,
        lambda x: x / 255,
        lambda x: 16 * x,
        lambda x: 2 * x - 1,
        lambda x: 255 * x - 120,
        lambda x: 32768 * x,
    ],
)
def test_another_scale_is_told_with_the_numbers(scaled):
    (line,) = differing(ranges(scaled(photos(64))), ranges(photos(64, seed=1)))
    assert (
        line.startswith("s/x: the calibration's values go from ")
        and "those of --data from 0 to 1" in line
        and "scaled differently?" in line
    )
    assert list(differing(ranges(photos(64, seed=1)), ranges(scaled(photos(64)))))


@pytest.mark.parametrize("rows", [1, 4, 8, 32])
@pytest.mark.parametrize("name", ["digits", "breast_cancer", "wine", "iris", "diabetes"])
def test_some_rows_of_a_data_set_are_no_other_scale(name, rows):
    table = getattr(sklearn.datasets, f"load_{name}")().data
    for seed in range(50):
        order = np.random.default_rng(seed).permutation(len(table))
        assert not list(differing(ranges(table[order[rows:]]), ranges(table[order[:rows]])))


@pytest.mark.parametrize("name", NAMES)
def test_the_sample_models_give_no_false_alarm(name):
    one, other = Ranges(), Ranges()
    for seen, batch, seed in ((one, 64, 0), (other, 2, 1)):
        for signature, inputs in zoo_inputs(name, batch=batch, seed=seed).items():
            seen.add(signature, {key: np.asarray(value) for key, value in inputs.items()})
            integers = Integers()
            for key, value in inputs.items():
                integers.add(np.asarray(value), InputSpec(key, np.asarray(value).dtype.name, None))
            assert not integers.lines()
    assert not list(differing(one.found, other.found))


def test_ranges_of_several_records_are_those_of_all_rows():
    one, other = ranges([[1.0], [2.0]]), ranges([[-3.0]])
    assert combined([one, other])["s/x"] == ranges([[1.0], [2.0], [-3.0]])["s/x"]
    records = [{"ranges": {name: value.to_dict() for name, value in each.items()}} for each in (one, other)]
    assert read(merge.combined(records)) == combined([one, other])
    assert (
        read({}) == read({"ranges": None}) == read({"ranges": {"s/x": {"minimum": 0}}}) == read({"ranges": [1]}) == {}
    )
    assert ValueRange.from_dict(one["s/x"].to_dict()) == one["s/x"]


@pytest.mark.parametrize(
    ("dtype", "array", "kind", "told"),
    [
        ("float32", np.array([[0, 255]], np.uint8), "arrays", True),
        ("float16", np.array([[-32768, 9]], np.int16), "function", True),
        ("bfloat16", np.array([[0, 7]], np.int64), "", True),
        ("float32", np.array([[0, 1]], np.uint8), "arrays", False),
        ("float32", np.array([[-1, 1]], np.int8), "arrays", False),
        ("float32", np.array([[3.0, 255.0]]), "arrays", False),
        ("int32", np.array([[0, 255]], np.uint8), "arrays", False),
        ("float32", np.array(7), "arrays", False),
        ("float32", np.array([[0, 255]], np.uint8), "tables", False),
    ],
)
def test_integers_in_a_float_input_are_told(dtype, array, kind, told):
    found = Integers()
    found.add(array, InputSpec("x", dtype, None))
    found.add(array, InputSpec("x", dtype, None))
    assert bool(found.lines(kind)) == told
    assert not told or f"from {array.min()} to {array.max()} fill input x, which takes {dtype}" in found.lines(kind)[0]
