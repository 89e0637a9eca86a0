"""Arguments of Python as flags, and arrays as files."""

import pathlib
import re

import ml_dtypes
import numpy as np
import pytest

from tftrt_tools.api import calling, given
from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import _calling, _flags
from tftrt_tools.models.execution import arrays as reader
from tftrt_tools.models.savedmodel.shapes import InputSpec

IMAGES = np.arange(24, dtype=np.float32).reshape(6, 4)


def values_of(command, **arguments):
    """The flags of a command after a call with these arguments."""
    module = _calling.module(command)
    words = given.words(command, _flags.defaults(module), arguments)
    return _flags.parse(command, module, words)[0]


@pytest.mark.parametrize(
    "arguments",
    [
        {"thresholds": "snr_db>=40,max_abs<=0.01;a/b:top1>=0.9"},
        {"signature_keys": ["a", "b, with a comma", 'with "quotes"']},
        {"signature_keys": ("only",)},
        {"output_kind": ["x:ids", "y:scores"]},
        {"output_kind": "x:ids"},
        {"write": False},
        {"allow_builds": True},
        {"seed": np.int64(7)},
        {"epsilon": 1e-300},
        {"epsilon": np.float32(0.25)},
        {"data": "--labels=x"},
        {"data": ""},
        {"seed": None},
        {"html": pathlib.Path("/nowhere/x.html").parent / "y"},
    ],
    ids=str,
)
def test_values_arrive_as_they_were_given(arguments, tmp_path):
    if "html" in arguments:
        arguments = {"html": tmp_path / "report.html"}
    got = values_of("verify", **arguments)
    for name, value in arguments.items():
        wanted = got[name].default if value is None else value
        wanted = [wanted] if name == "output_kind" and isinstance(wanted, str) else wanted
        wanted = list(wanted) if isinstance(wanted, tuple) else wanted
        wanted = str(wanted) if isinstance(wanted, pathlib.Path) else wanted
        assert got[name].value == wanted and bool(got[name].present) == (value is not None), name


def test_an_empty_list_is_the_flag_s_empty_list():
    assert values_of("verify", signature_keys=[]).signature_keys == []


def test_flags_override_those_of_a_file(tmp_path):
    (tmp_path / "some.flags").write_text("--seed=3\n--batch_size=4\n")
    got = values_of("verify", seed=5, flagfile=tmp_path / "some.flags")
    assert (got.seed, got.batch_size) == (5, 4)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"precison_mode": "FP16"}, "did you mean 'precision'"),
        ({"thresold": ""}, "did you mean 'thresholds'"),
        ({"help": True}, "no argument 'help'"),
        ({"": 1}, "no argument ''"),
    ],
)
def test_a_name_that_is_no_flag_is_refused_with_the_nearest(arguments, said):
    command = "inspect" if "precison_mode" in arguments else "verify"
    with pytest.raises(errors.UsageError) as error:
        calling.result(command, ["nowhere", "nowhere"], {}, arguments)
    assert said in str(error.value)


def test_a_flag_has_one_value_whatever_it_is_called():
    with pytest.raises(errors.UsageError, match="precision= and precision_mode=, which are one flag"):
        calling.result("convert", ["nowhere"], {"precision": "FP16"}, {"precision_mode": "INT8"})
    with pytest.raises(errors.UsageError, match="nowhere"):
        calling.result("convert", ["nowhere", "out"], {"precision": None}, {"precision_mode": "FP16"})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"seed": "x"}, "--seed=x is no whole number"),
        ({"seed": 1.5}, "--seed=1.5 is no whole number"),
        ({"seed": True}, "--seed=True is no whole number"),
        ({"seed": -1}, "seed"),
        ({"write": "perhaps"}, "write"),
        ({"epsilon": float("nan")}, "--epsilon=nan is no number"),
        ({"thresholds": ["a", "b"]}, "verify(thresholds=…) takes one value, and a list came"),
        ({"thresholds": {"a": 1}}, "verify(thresholds=…) takes a text or a number, and a dict came"),
        pytest.param({"seed": object()}, "and a object came", id="an object"),
        ({"json": "-"}, "json='-' is stdout"),
    ],
    ids=str,
)
def test_a_value_that_no_flag_takes_is_refused_by_name(arguments, said):
    with pytest.raises(errors.UsageError, match=re.escape(said)):
        values_of("verify", **arguments)


def read(path):
    """{name: array} as `--data` reads a file."""
    return reader.load(path)


def spec(dtype, shape=(None, 4)):
    return InputSpec("image", dtype, shape)


def test_a_mapping_becomes_a_file_that_data_reads(tmp_path):
    path = given.write_rows("data", {"image": IMAGES, "score/image": IMAGES[:2].tolist(), "n": 3}, tmp_path, 0)
    got = read(path)
    assert got["image"].dtype == np.float32 and (got["image"] == IMAGES).all()
    assert got["score/image"].shape == (2, 4) and got["n"].shape == ()


@pytest.mark.parametrize(
    "array",
    [
        np.array(["é", "long text"]),
        np.array([b"\xff\x00\xfe", b"a"], object),
        np.array(["é", ""], object),
        np.array([1.5, 2], ml_dtypes.bfloat16),
        np.array([True, False]),
        np.array([1, 2], np.uint8),
    ],
    ids=lambda array: str(array.dtype),
)
def test_each_kind_of_value_survives_the_file(array, tmp_path):
    got = read(given.write_rows("data", {"image": array}, tmp_path, 0))["image"]
    dtype = "string" if array.dtype.kind in "USO" else str(array.dtype)
    prepared = reader.prepared(got, spec(dtype, (None,)))
    wanted = [one.encode() if isinstance(one, str) else one for one in array.tolist()]
    assert prepared.tolist() == wanted


def test_an_array_alone_is_that_of_an_only_input(tmp_path):
    assert (read(given.write_rows("data", IMAGES, tmp_path, 0))[""] == IMAGES).all()


@pytest.mark.parametrize(
    "make", [iter, list, lambda batches: (one for one in batches)], ids=["iter", "list", "generator"]
)
def test_batches_are_joined_in_their_order(make, tmp_path):
    path = given.write_rows("data", make([{"image": IMAGES[:4]}, {"image": IMAGES[4:]}]), tmp_path, 0)
    assert (read(path)["image"] == IMAGES).all()


def test_batches_may_say_their_signature(tmp_path):
    path = given.write_rows("data", [("a", {"x": [1, 2]}), ("b", {"x": [3]}), ("a", {"x": [4]})], tmp_path, 0)
    assert {name: array.tolist() for name, array in read(path).items()} == {"a/x": [1, 2, 4], "b/x": [3]}


def test_no_more_is_taken_of_a_generator_than_is_used(tmp_path):
    taken = []

    def endless():
        while True:
            taken.append(1)
            yield {"image": IMAGES}

    path = given.write_rows("calibration_data", endless(), tmp_path, 13)
    assert len(taken) == 3 and len(read(path)["image"]) == 18


def test_what_a_generator_raises_comes_through_as_it_is(tmp_path):
    class Mine(Exception):
        pass

    def broken():
        yield {"image": IMAGES}
        raise Mine("in the third row of my data")

    with pytest.raises(Mine, match="in the third row"):
        given.write_rows("data", broken(), tmp_path, 0)

    def system():
        raise FileNotFoundError(2, "No such file", "mine.csv")
        yield

    # An OSError of the user's code is no trouble of this package.
    with pytest.raises(FileNotFoundError):
        calling.result("verify", ["a", "b"], {"data": system()}, {})


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (3, "data= takes a path, arrays or what yields them, and a int came"),
        ({}, "the mapping has no arrays"),
        ({"image": {"a": 1}}, "array of Python objects (dict)"),
        ({"image": [[1], [2, 3]]}, "'image' is no array"),
        ({3: IMAGES}, "3 is no name of an input"),
        ([], "data= yields nothing"),
        ([IMAGES], "item 0 is a ndarray, and batches are {input: array}"),
        ([{"image": IMAGES}, {"image": IMAGES[:, :2]}], "'image' of batch 1 has rows of float32[2]"),
        ([{"image": IMAGES}, {"image": IMAGES.astype(int)}], "'image' of batch 1 has rows of int64[4]"),
        ([{"image": IMAGES, "mask": IMAGES[:, 0]}, {"image": IMAGES}], "unlike numbers of rows: image 12, mask 6"),
        ([{"image": 3.0}], "'image' of batch 0 has no rows"),
        ([{}], "batch 0 has no arrays"),
        ({"image": np.array([b"ends in zero\0"], object)}, "end in a zero byte"),
    ],
    ids=str,
)
def test_data_that_is_none_is_told_in_a_line(value, said, tmp_path):
    with pytest.raises(errors.UsageError) as error:
        given.write_rows("data", value, tmp_path, 0)
    assert said in error.value.cause and "\n" not in error.value.cause


@pytest.mark.parametrize(
    ("command", "name", "arguments", "most"),
    [
        ("calibrate", "calibration_data", {}, 0),
        ("calibrate", "calibration_data", {"calibration_batch_size": 4, "num_calibration_batches": 3}, 12),
        ("calibrate", "calibration_data", {"num_calibration_batches": 0}, 0),
        ("calibrate", "calibration_data", {"calibration_batch_size": "x"}, 0),
        ("verify", "data", {}, 0),
        ("verify", "data", {"data_rows": 5}, 5),
        ("publish", "warmup_data", {}, 0),
    ],
)
def test_how_many_rows_a_command_uses(command, name, arguments, most):
    known = _flags.defaults(_calling.module(command))
    assert calling._most(command, known, name, arguments) == most


def test_labels_may_be_an_array_or_a_list(tmp_path):
    assert np.load(given.write_answers("labels", [3, 1, 2], tmp_path)).tolist() == [3, 1, 2]
    assert np.load(given.write_answers("labels", np.array(["cat", "dog"], object), tmp_path)).tolist() == ["cat", "dog"]
    boxes = given.write_answers("labels", {"boxes": np.zeros((1, 4)), "classes": np.zeros(1)}, tmp_path)
    assert set(np.load(boxes).files) == {"boxes", "classes"}
    with pytest.raises(errors.UsageError, match="takes a path or an array of labels, and a int came"):
        given.write_answers("labels", 3, tmp_path)
