"""Calibration data: every source read from real files, every way to fail, and what the record says."""

import gzip
import subprocess
import sys

import numpy as np
import pytest
from absl import flags
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.conftest import ROOT
from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import _calibration_flags
from tftrt_tools.models.inputs.rows import overlap, row_hashes
from tftrt_tools.models.inputs.sources_job import batching, images
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.tftrt.calibration.job import data
from tftrt_tools.tftrt.calibration.job.data import DataOptions, DataRecord

X = InputSpec("x", "float32", (None, 4))
IDS, MASK = InputSpec("ids", "int32", (None, None)), InputSpec("mask", "int32", (None, None))
IMAGE = InputSpec("image", "float32", (None, 6, 8, 3))
BYTES = InputSpec("image", "uint8", (None, 6, 8, 3))


def rows(count, seed=0):
    return np.random.default_rng(seed).standard_normal((count, 4)).astype(np.float32)


def read(source="", specs=(X,), **options):
    """(batches, record) of a source."""
    opened = data.open(DataOptions(source=str(source), **options), "serve", list(specs))
    return list(opened), opened.record


def refused(says, *arguments, mend="", **options):
    """Reading is refused with this cause and this mend."""
    with pytest.raises(errors.UsageError, match=says) as caught:
        read(*arguments, **options)
    assert caught.value.mend and mend in caught.value.mend and "\n" not in caught.value.cause + caught.value.mend
    return caught.value


# arrays


def test_an_npz_is_cut_into_equal_batches_and_the_rest_is_dropped_and_counted(tmp_path):
    given_rows = rows(10)
    np.savez(tmp_path / "d.npz", x=given_rows)
    batches, record = read(tmp_path / "d.npz", batch_size=4)
    assert [batch["x"].shape for batch in batches] == [(4, 4), (4, 4)]
    np.testing.assert_array_equal(np.concatenate([batch["x"] for batch in batches]), given_rows[:8])
    assert (record.kind, record.samples, record.batch_size, record.batches, record.dropped, record.random) == (
        "arrays",
        8,
        4,
        2,
        2,
        False,
    )
    assert record.source == str(tmp_path / "d.npz") and list(record.rows) == row_hashes({"x": given_rows[:8]})
    assert any("2 rows at the end were left out" in one for one in record.warnings)


@pytest.mark.parametrize(("takes", "sizes", "dropped"), [((2,), [4, 4, 2], 0), ((1, 3), [4, 4], 2)])
def test_the_rows_left_over_are_a_last_smaller_batch_where_it_is_of_use(takes, sizes, dropped, tmp_path, module):
    np.savez(tmp_path / "d.npz", x=rows(10))
    function = f"{module('def feed():' + chr(10) + '  for n in (4, 4, 2):' + chr(10) + '    yield np.ones((n, 4), np.float32)' + chr(10))}:feed"
    for source in (tmp_path / "d.npz", function):
        opened = data.open(
            DataOptions(source=str(source), batch_size=4), "serve", [X], rest=lambda count: count in takes
        )
        assert [len(batch["x"]) for batch in opened] == sizes
        record = opened.record
        assert (record.samples, record.batch_size, record.batches, record.dropped) == (
            sum(sizes),
            4,
            len(sizes),
            dropped,
        )
        assert any("were left out" in one for one in record.warnings) == bool(dropped)
    few = data.open(DataOptions(source=str(tmp_path / "d.npz"), batch_size=16), "serve", [X], rest=lambda count: True)
    assert [len(batch["x"]) for batch in few] == [10] and few.record.batch_size == 10


def test_an_npy_is_the_only_input_and_is_cast_to_its_dtype(tmp_path):
    np.save(tmp_path / "d.npy", rows(8).astype(np.float64))
    (batch,), _ = read(tmp_path / "d.npy")
    assert batch["x"].dtype == np.float32


def test_files_of_a_folder_follow_each_other_sorted_and_batches_cross_them(tmp_path):
    (tmp_path / "sub").mkdir()
    parts = {"b.npz": rows(5, 1), "a.npz": rows(3, 2), "sub/c.npz": rows(4, 3)}
    for name, part in parts.items():
        np.savez(tmp_path / name, x=part)
    (tmp_path / "notes.txt").write_text("no data")
    (tmp_path / ".hidden.npz").write_text("no data")
    batches, record = read(tmp_path, batch_size=6)
    np.testing.assert_array_equal(
        np.concatenate([one["x"] for one in batches]),
        np.concatenate([parts["a.npz"], parts["b.npz"], parts["sub/c.npz"]]),
    )
    assert record.dropped == 0 and record.batches == 2


def test_a_link_to_a_folder_is_followed_and_a_loop_ends(tmp_path):
    (tmp_path / "real").mkdir()
    np.savez(tmp_path / "real" / "d.npz", x=rows(4))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "loop").symlink_to(tmp_path / "data")
    assert read(tmp_path / "data", batch_size=4)[1].samples == 4


def test_a_batch_has_memory_of_its_own(tmp_path):
    np.savez(tmp_path / "d.npz", x=rows(4))
    batches, _ = read(tmp_path / "d.npz", batch_size=2)
    assert not np.shares_memory(batches[0]["x"], batches[1]["x"]) and batches[0]["x"].base is None


def test_arrays_named_with_a_signature_win_and_other_signatures_are_skipped(tmp_path):
    np.savez(tmp_path / "d.npz", **{"serve/x": rows(4, 1), "x": rows(4, 2), "other/y": rows(9)})
    (batch,), _ = read(tmp_path / "d.npz", batch_size=4)
    np.testing.assert_array_equal(batch["x"], rows(4, 1))


def test_a_scalar_goes_into_every_batch(tmp_path):
    np.savez(tmp_path / "d.npz", x=rows(4), n=np.int32(7))
    batches, _ = read(tmp_path / "d.npz", (X, InputSpec("n", "int32", ())), batch_size=2)
    assert [int(one["n"]) for one in batches] == [7, 7]


def test_strings_are_bytes(tmp_path):
    np.savez(tmp_path / "d.npz", s=np.array(["a", "bü"]))
    (batch,), record = read(tmp_path / "d.npz", (InputSpec("s", "string", (None,)),), batch_size=2)
    assert batch["s"].tolist() == [b"a", "bü".encode()]
    assert list(record.rows) == row_hashes({"s": np.array(["a", "bü"])})


def test_num_batches_stops_early_and_says_when_there_are_fewer(tmp_path):
    np.savez(tmp_path / "d.npz", x=rows(10))
    batches, record = read(tmp_path / "d.npz", batch_size=2, batches=3)
    assert len(batches) == record.batches == 3 and record.dropped == 0
    record = read(tmp_path / "d.npz", batch_size=2, batches=9)[1]
    assert any("5 batches, and 9 were asked for" in one for one in record.warnings)


def test_every_iteration_reads_anew_and_the_record_comes_at_the_end(tmp_path):
    np.savez(tmp_path / "d.npz", x=rows(8))
    opened = data.open(DataOptions(source=str(tmp_path / "d.npz"), batch_size=4), "serve", [X])
    with pytest.raises(RuntimeError):
        opened.record  # noqa: B018
    assert len(list(opened)) == 2
    first = opened.record
    assert len(list(opened)) == 2 and opened.record == first
    next(iter(opened))
    with pytest.raises(RuntimeError):
        opened.record  # noqa: B018


@pytest.mark.parametrize(
    ("arrays", "says", "mend"),
    [
        ({"y": rows(8)}, "'y' that is no input", "'serve' takes x float32"),
        ({"other/x": rows(8)}, "has arrays other/x, and nothing for input 'x'", "'serve' takes x float32"),
        ({}, "has no array", "'serve' takes x float32"),
        (
            {"x": rows(8)[:, :3]},
            r"in .*d.npz has shape \[8,3\], and 'serve' takes float32\[\?,4\]",
            "as the signature takes it",
        ),
        ({"x": rows(8)[0]}, r"has shape \[4\]", "first dimension counts the rows"),
        ({"x": np.array(["a"] * 8)}, "d.npz is <U1, and the signature takes float32", "convert"),
        ({"x": np.float64([[1e300] * 4])}, "as float32 holds NaN or Inf", "clean"),
        ({"x": rows(0)}, "holds no rows", "8"),
        ({"x": rows(7)}, "holds 7 rows, fewer than one batch of 8", "--calibration_batch_size=7"),
    ],
)
def test_an_npz_that_does_not_fit_is_refused(tmp_path, arrays, says, mend):
    np.savez(tmp_path / "d.npz", **arrays)
    refused(says, tmp_path / "d.npz", mend=mend)


def test_nan_and_inf_are_counted_and_located(tmp_path):
    bad = rows(9)
    bad[5, 1], bad[7, :2] = np.nan, np.inf
    np.savez(tmp_path / "d.npz", x=bad)
    refused(
        r"input 'x' in .*d.npz holds NaN or Inf: 3 of 36 values, in 2 of 9 rows, the first of them row 5",
        tmp_path / "d.npz",
    )


def test_integers_that_the_dtype_cannot_hold_are_refused(tmp_path):
    np.savez(tmp_path / "d.npz", n=np.array([[1], [2**40]]))
    refused(
        "from 1 to 1099511627776, more than int32 holds",
        tmp_path / "d.npz",
        (InputSpec("n", "int32", (None, 1)),),
        batch_size=2,
    )


def test_inputs_of_different_lengths_are_refused(tmp_path):
    np.savez(tmp_path / "d.npz", ids=np.ones((8, 3), np.int32), mask=np.ones((7, 3), np.int32))
    refused("different lengths: ids 8, mask 7", tmp_path / "d.npz", (IDS, MASK))


def test_rows_of_another_length_are_refused_because_tensorrt_would_skip_them(tmp_path):
    for name, length in (("a.npz", 16), ("b.npz", 32)):
        np.savez(tmp_path / name, ids=np.ones((4, length), np.int32))
    refused(
        r"b.npz has rows of 'ids' of shape \[32\], those before it \[16\]",
        tmp_path,
        (IDS,),
        batch_size=4,
        mend="TensorRT skips",
    )


def test_a_scalar_that_changes_is_refused(tmp_path):
    for name, value in (("a.npz", 1), ("b.npz", 2)):
        np.savez(tmp_path / name, x=rows(4), n=np.int32(value))
    refused("input 'n' is 2 in .*b.npz and 1 before it", tmp_path, (X, InputSpec("n", "int32", ())))


def test_inputs_without_rows_are_refused(tmp_path):
    np.savez(tmp_path / "d.npz", n=np.int32(1))
    refused("all inputs are scalars", tmp_path / "d.npz", (InputSpec("n", "int32", ()),))


def test_an_npy_for_two_inputs_is_refused(tmp_path):
    np.save(tmp_path / "d.npy", np.ones((8, 3), np.int32))
    refused("one array without a name, and nothing for input 'ids'", tmp_path / "d.npy", (IDS, MASK))


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "d.npz").write_bytes(b"PK\x03\x04 garbage")
    refused("d.npz is no readable", tmp_path / "d.npz")


def test_memory_holds_one_file_at_a_time(tmp_path):
    import tracemalloc

    for number in range(5):
        np.savez(tmp_path / f"{number}.npz", x=np.ones((500_000, 4), np.float32))
    opened = data.open(DataOptions(source=str(tmp_path), batch_size=50_000), "serve", [X])
    tracemalloc.start()
    # Hashing keeps a string for each row; reading is what is measured.
    assert sum(1 for _ in opened._batches(batching.Tally())) == 50
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * 8e6, "a file has 8 MB; its mask of finite values and two batches come on top"


# what the source names


def test_what_is_not_there_is_refused(tmp_path):
    refused("no such file or folder", tmp_path / "absent.npz")
    refused("holds no file of a known kind", tmp_path)
    refused("matches no file", tmp_path / "*.npz")
    (tmp_path / "d.log").write_text("1,2")
    refused("a file of no known kind \\(d.log\\) needs a signature", tmp_path / "d.log", mend=".npz")


def test_mixed_kinds_are_refused(tmp_path):
    np.savez(tmp_path / "d.npz", x=rows(8))
    (tmp_path / "p.png").write_bytes(b"")
    refused("several kinds: 1 arrays \\(d.npz\\), 1 images \\(p.png\\)", tmp_path, mend="glob")
    assert read(tmp_path / "*.npz")[1].kind == "arrays"


def test_data_is_asked_for_and_random_data_must_be_accepted():
    refused("--calibration_data is missing", "", mend="--calibrate_on_random_data")
    refused("exclude each other", "d.npz", random=True)


def test_a_fixed_batch_dimension_sets_the_batch_size(tmp_path):
    np.savez(tmp_path / "d.npz", x=rows(8))
    spec = InputSpec("x", "float32", (2, 4))
    refused("the calibration batch has 8 rows", tmp_path / "d.npz", (spec,), mend="--calibration_batch_size=2")
    assert read(tmp_path / "d.npz", (spec,), batch_size=2)[1].batches == 4


def test_no_batch_size_is_advised_that_other_inputs_refuse(tmp_path):
    np.savez(tmp_path / "d.npz", x=rows(8), state=rows(8))
    specs = InputSpec("x", "float32", (1, 4)), InputSpec("state", "float32", (2, 1, 4))
    for size in (1, 2, 8):
        told = refused(
            "takes x .*, state .*, and a calibration batch has equally many rows",
            tmp_path / "d.npz",
            specs,
            batch_size=size,
            mend="another precision",
        )
        assert "--calibration_batch_size" not in told.mend


def test_the_shapes_of_random_rows_are_advised_with_the_batch_size():
    """A state whose rows are in its second dimension, as that of an LSTM."""
    specs = X, InputSpec("state", "float32", (2, None, 4))
    refused(
        "takes state",
        "",
        specs,
        random=True,
        shapes="x:1x4;state:2x1x4",
        mend="--calibration_batch_size=2, and --shapes of a batch of 2",
    )
    told = refused("takes state", "", specs, random=True, shapes="x:2x4;state:2x2x4", mend="--calibration_batch_size=2")
    assert "--shapes" not in told.mend
    batches, _ = read("", specs, random=True, shapes="x:2x4;state:2x2x4", batch_size=2)
    assert {name: array.shape for name, array in batches[0].items()} == {"x": (2, 4), "state": (2, 2, 4)}


def test_a_signature_without_inputs_needs_no_calibration(tmp_path):
    refused("has no inputs", "d.npz", ())


# random


def test_random_data_is_the_same_for_the_same_seed_and_says_that_it_is_random():
    batches, record = read(random=True, batch_size=2, seed=3, batches=4)
    again, same = read(random=True, batch_size=2, seed=3, batches=4)
    assert (
        record.random
        and record.kind == "random"
        and record.samples == 8
        and "random data (seed 3)" in record.warnings[0]
    )
    assert same == record and record.digest != read(random=True, batch_size=2, seed=4, batches=4)[1].digest
    assert len(set(record.rows)) == 8 and np.array_equal(batches[0]["x"], again[0]["x"])


def test_random_data_takes_shapes_and_ranges():
    batches, _ = read(
        specs=(IDS, MASK), random=True, shapes="ids:1x16,8x16;mask:1x16,8x16;other/z:3", ranges="ids:5:9", batch_size=3
    )
    ids = np.concatenate([one["ids"] for one in batches])
    assert batches[0]["mask"].shape == (3, 16) and ids.min() >= 5 and ids.max() < 9


def test_random_data_of_unknown_shape_or_input_is_refused():
    refused("unknown dimensions", "", (IDS,), random=True, mend="--shapes")
    refused("no input 'idx'", "", random=True, ranges="idx:0:1")
    refused("--ranges: 'x:1' is not", "", random=True, ranges="x:1")
    refused("--ranges is about random data", "d.npz", ranges="x:0:1")


# functions


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A function that writes a module of calibration functions and returns its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(text):
        name = f"feed_{abs(hash((str(tmp_path), text)))}"
        (tmp_path / f"{name}.py").write_text("import numpy as np\n" + text)
        return name

    return write


@pytest.mark.parametrize("item", ["{'x': a}", "(a,)", "[a]", "a", "{'x': a.tolist()}"])
def test_a_function_yields_batches_in_any_of_the_usual_forms(module, item):
    name = module(f"def feed():\n  for n in range(3):\n    a = np.full((2, 4), n, np.float32)\n    yield {item}\n")
    batches, record = read(f"{name}:feed")
    assert [one["x"][0, 0] for one in batches] == [0, 1, 2] and (record.kind, record.batch_size, record.samples) == (
        "function",
        2,
        6,
    )


def test_a_tuple_is_in_the_order_of_the_arguments_where_the_model_tells_it(module):
    name = module("def feed():\n  yield np.zeros((2, 3), np.int32), np.ones((2, 3), np.int32)\n")
    placed = tuple(one.knowing(None, place) for place, one in enumerate((MASK, IDS)))
    (batch,), _ = read(f"{name}:feed", placed[::-1])
    assert batch["mask"].max() == 0 and batch["ids"].min() == 1
    with pytest.raises(errors.UsageError, match="does not tell the order of its inputs") as caught:
        read(f"{name}:feed", (IDS, MASK))
    assert caught.value.mend == "yield {'ids': array, 'mask': array}"


GRAPHS = "def feed():\n  for n, e in ((2, 5), (6, 1), (3, 3)):\n    yield {'x': np.ones((n, 4), np.float32), 'bank': np.ones((e, 4), np.float32)}\n"


def test_an_item_has_its_own_shapes_unless_tensorrt_calibrates(module):
    specs, source = (X, InputSpec("bank", "float32", (None, 4))), f"{module(GRAPHS)}:feed"
    opened = data.open(DataOptions(source=source), "serve", specs, alike=False, rest=lambda count: True)
    assert [len(one["bank"]) for one in opened] == [5, 1, 3]
    # Two items of unlike rows, and a batch of three.
    assert (opened.record.samples, opened.record.batches, len(opened.record.rows)) == (5, 3, 5)
    refused("the first batch", source, specs, mend="TensorRT skips")


def test_a_function_that_does_not_end_is_cut_and_that_is_said(module, monkeypatch):
    monkeypatch.setattr(data, "MOST_SAMPLES", 10)
    source = f"{module('def feed():' + chr(10) + '  while True:' + chr(10) + '    yield np.ones((4, 4), np.float32)' + chr(10))}:feed"
    batches, record = read(source)
    assert len(batches) == 3 and any(
        "yields more: the first 12 rows were taken; --num_calibration_batches" in one for one in record.warnings
    )
    assert len(read(source, batches=5)[0]) == 5
    refused(
        "item without a row",
        f"{module('def feed():' + chr(10) + '  while True:' + chr(10) + '    yield np.ones((0, 4), np.float32)' + chr(10))}:feed",
    )


def test_what_is_for_other_signatures_is_left_aside_and_said(module, tmp_path):
    other = InputSpec("z", "float32", (None, 2))
    specs = {"serve": (X,), "other": (other,), "third": (InputSpec("t", "float32", (None,)),)}
    elsewhere = data.Elsewhere.of(["serve"], ["serve", "third"], specs)
    np.savez(tmp_path / "d.npz", x=rows(8), z=np.ones((3, 2)), t=np.ones(8))
    source = module(
        "def feed():\n  yield 'serve', {'x': np.ones((8, 4), np.float32)}\n  yield 'other', {'z': np.ones((1, 2), np.float32)}\n"
        "  yield {'z': np.ones((1, 2), np.float32)}\n  yield {'t': np.ones(1, np.float32)}\n"
    )
    for source_of, aside in ((str(tmp_path / "d.npz"), "z"), (f"{source}:feed", "other, z")):
        opened = data.open(DataOptions(source=source_of), "serve", [X], elsewhere=elsewhere)
        assert [len(one["x"]) for one in opened] == [8]
        assert f"left aside, because nobody asked for it: {aside}" in opened.record.warnings
    refused("for signature 'other', which the model does not have", f"{source}:feed")


def test_tensors_and_datasets_are_taken(module):
    name = module(
        "import tensorflow as tf\ndef feed():\n  return tf.data.Dataset.from_tensor_slices({'x': tf.ones([6, 4])}).batch(3)\n"
    )
    batches, record = read(f"{name}:feed")
    assert isinstance(batches[0]["x"], np.ndarray) and record.batches == 2


def test_a_last_shorter_batch_of_a_function_is_dropped_and_counted(module):
    name = module("def feed():\n  for n in (4, 4, 3):\n    yield np.ones((n, 4), np.float32)\n")
    _, record = read(f"{name}:feed")
    assert (record.batches, record.samples, record.dropped) == (2, 8, 3)


@pytest.mark.parametrize(("sizes", "number", "shape"), [("(4, 3, 4)", 2, "[3,4]"), ("(4, 4, 5)", 3, "[5,4]")])
def test_a_batch_of_another_shape_is_refused_with_its_number_and_both_shapes(module, sizes, number, shape):
    name = module(f"def feed():\n  for n in {sizes}:\n    yield np.ones((n, 4), np.float32)\n")
    caught = refused(f"batch {number} of ", f"{name}:feed", mend="TensorRT skips")
    assert f"of shape {shape}, the first batch [4,4]" in caught.cause


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("yield {'y': 1}", "batch 1 of .* has y"),
        ("yield np.ones((2, 4), np.float32), 2", "has 2 arrays in a tuple"),
        ("yield {'x': object()}", "is a object and no array"),
        ("yield {'x': [[1, 2], [3]]}", "is a list and no array"),
        ("yield np.ones((2, 5), np.float32)", r"has shape \[2,5\]"),
        ("yield np.full((2, 4), np.nan)", "batch 1 of .* holds NaN or Inf: 8 of 8 values"),
        ("return iter(())", "yields no rows"),
        ("return 3", "TypeError"),
        ("yield from (1 / 0 for _ in range(1))", "ZeroDivisionError: division by zero .*:3"),
    ],
)
def test_a_function_that_yields_something_else_is_refused(module, body, says):
    refused(says, f"{module(f'def feed():{chr(10)}  {body}{chr(10)}')}:feed")


def test_a_function_that_cannot_be_called_is_refused(module):
    refused("is no function", f"{module('feed = 3')}:feed")
    refused("no attribute", f"{module('other = 3')}:feed")
    refused("No module named", "no_such_module:feed")
    refused(
        "missing 1 required positional argument", f"{module('def feed(n): yield n')}:feed", mend="takes no arguments"
    )
    refused(
        "several inputs|batch 1 of .* is one ndarray",
        f"{module('def feed(): yield np.ones((2, 3), np.int32)')}:feed",
        (IDS, MASK),
    )


# TFRecords


def feature(value):
    import tensorflow as tf

    if isinstance(value, bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
    value = np.asarray(value)
    if value.dtype.kind in "SO":
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=value.reshape(-1).tolist()))
    if value.dtype.kind == "f":
        return tf.train.Feature(float_list=tf.train.FloatList(value=value.reshape(-1)))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=value.reshape(-1)))


def write_records(path, records):
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            if isinstance(record, dict):
                record = tf.train.Example(
                    features=tf.train.Features(feature={k: feature(v) for k, v in record.items()})
                ).SerializeToString()
            writer.write(record)


def test_tfrecords_hold_lists_raw_bytes_and_strings(tmp_path):
    values = rows(6)
    specs = (
        X,
        InputSpec("ids", "int32", (None, 2, 3)),
        InputSpec("raw", "float16", (None, 2)),
        InputSpec("s", "string", (None, 1)),
    )
    write_records(
        tmp_path / "a.tfrecord",
        [
            {
                "x": row,
                "serve/ids": np.arange(6) + n,
                "raw": np.float16([n, 0.5]).tobytes(),
                "s": np.array([f"u{n}".encode()]),
                "label": [n],
            }
            for n, row in enumerate(values)
        ],
    )
    batches, record = read(tmp_path / "a.tfrecord", specs, batch_size=3)
    np.testing.assert_array_equal(np.concatenate([one["x"] for one in batches]), values)
    assert batches[1]["ids"].dtype == np.int32 and batches[1]["ids"][0].tolist() == [[3, 4, 5], [6, 7, 8]]
    assert batches[1]["raw"].tolist() == [[3, 0.5], [4, 0.5], [5, 0.5]] and batches[1]["s"].tolist() == [
        [b"u3"],
        [b"u4"],
        [b"u5"],
    ]
    assert record.kind == "tfrecords" and record.samples == 6


def test_tfrecords_of_a_folder_or_glob_in_shards_with_shapes_from_the_flag(tmp_path):
    for shard in range(2):
        write_records(tmp_path / f"train.tfrecord-0000{shard}-of-00002", [{"ids": [shard, n]} for n in range(2)])
    write_records(tmp_path / "more.tfrecords", [{"ids": [7, 7]}])
    batches, _ = read(tmp_path, (IDS,), batch_size=5, shapes="ids:1x2")
    assert batches[0]["ids"].tolist() == [[7, 7], [0, 0], [0, 1], [1, 0], [1, 1]]
    assert read(tmp_path / "train*", (IDS,), batch_size=2, shapes="ids:1x2")[1].samples == 4
    refused("unknown dimensions", tmp_path, (IDS,), mend="--shapes")


@pytest.mark.parametrize(
    ("record", "says", "mend"),
    [
        ({"y": [1.0] * 4}, "has no feature 'x'; it has y", "x float32"),
        ({"x": [1.0] * 3}, r"feature 'x' of record 2 .* has 3 values, and a row of float32\[\?,4\] has 4", "flat list"),
        ({"x": b"12345"}, "has 5 bytes, and a row of .* has 16 bytes", "tobytes"),
        ({"x": b"\x89PNG...."}, "has 8 bytes", "encoded picture"),
        ({"x": [1.0, 2.0, np.inf, 1.0]}, "record 2 .*bad.tfrecord holds NaN or Inf: 1 of 4", "clean"),
        (b"\xff\xff\xff\xff", "record 2 .* is no tf.train.Example", "module:function"),
    ],
)
def test_a_record_that_does_not_fit_is_named_by_file_and_number(tmp_path, record, says, mend):
    write_records(tmp_path / "a.tfrecord", [{"x": rows(1)[0]}])
    write_records(tmp_path / "bad.tfrecord", [{"x": rows(1)[0]}, {"x": rows(1)[0]}, record])
    assert "bad.tfrecord" in refused(says, tmp_path, batch_size=1, mend=mend).cause


def test_integers_of_a_record_that_do_not_fit_are_refused(tmp_path):
    write_records(tmp_path / "a.tfrecord", [{"n": [300]}])
    refused("uint8", tmp_path, (InputSpec("n", "uint8", (None, 1)),), batch_size=1)
    write_records(tmp_path / "a.tfrecord", [{"n": [0.5]}])
    refused("is float32, and the signature takes int32", tmp_path, (InputSpec("n", "int32", (None, 1)),), batch_size=1)


def test_a_damaged_or_packed_tfrecord_is_named(tmp_path):
    path = tmp_path / "a.tfrecord"
    write_records(path, [{"x": row} for row in rows(3)])
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[-8] ^= 0xFF
    path.write_bytes(damaged)
    refused("record 2 .*a.tfrecord is damaged", path, batch_size=1)
    path.write_bytes(whole[:-3])
    refused("record 2 .*a.tfrecord is damaged", path, batch_size=1)
    path.write_bytes(gzip.compress(whole))
    refused("record 0 .*a.tfrecord is damaged", path, batch_size=1, mend="gzip")
    path.write_bytes(b"")
    refused("holds no rows", path, batch_size=1)


def test_a_scalar_input_cannot_come_from_tfrecords(tmp_path):
    write_records(tmp_path / "a.tfrecord", [{"n": [1]}])
    refused("is a scalar", tmp_path, (InputSpec("n", "int32", ()),))


# pictures


def pixels(seed=0, height=6, width=8):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def save(path, array, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, **options)


def test_pictures_of_all_formats_are_read_sorted_through_sub_folders(tmp_path):
    flat = np.full((6, 8, 3), 100, np.uint8)
    for name in ("b/one.jpg", "b/two.JPEG", "a/one.png", "c.bmp", "d.gif"):
        save(tmp_path / name, flat)
    batches, record = read(tmp_path, (IMAGE,), batch_size=5)
    assert record.kind == "images" and batches[0]["image"].shape == (5, 6, 8, 3)
    np.testing.assert_allclose(batches[0]["image"], 100, atol=2)


def test_pixels_are_scaled_and_normalized_in_this_order(tmp_path):
    save(tmp_path / "p.png", pixels())
    (batch,), _ = read(
        tmp_path, (IMAGE,), batch_size=1, image_scale=1 / 255, image_mean=(0.4, 0.5, 0.6), image_std=(0.2,)
    )
    np.testing.assert_allclose(batch["image"][0], (pixels() / 255 - [0.4, 0.5, 0.6]) / 0.2, atol=1e-5)


def test_bgr_turns_the_channels_before_the_mean_is_taken(tmp_path):
    save(tmp_path / "p.png", pixels())
    (batch,), _ = read(tmp_path, (IMAGE,), batch_size=1, image_channels="BGR", image_mean=(1.0, 2.0, 3.0))
    np.testing.assert_allclose(batch["image"][0], pixels()[..., ::-1] - np.float32([1, 2, 3]))


def test_channels_first_and_float16(tmp_path):
    save(tmp_path / "p.png", pixels())
    (batch,), _ = read(tmp_path, (InputSpec("image", "float16", (None, 3, 6, 8)),), batch_size=1)
    np.testing.assert_array_equal(batch["image"][0], pixels().transpose(2, 0, 1).astype(np.float16))


def test_uint8_inputs_stay_uint8_and_cannot_be_scaled(tmp_path):
    save(tmp_path / "p.png", pixels())
    (batch,), _ = read(tmp_path, (BYTES,), batch_size=1)
    np.testing.assert_array_equal(batch["image"][0], pixels())
    assert batch["image"].dtype == np.uint8
    refused("takes uint8", tmp_path, (BYTES,), batch_size=1, image_scale=0.5, mend="leave them out")


def test_grey_inputs_take_colour_pictures_and_colour_inputs_grey_ones(tmp_path):
    grey = InputSpec("image", "uint8", (None, 6, 8, 1))
    flat = np.full((6, 8), 77, np.uint8)
    for name in ("a.png", "b.bmp", "c.gif", "d.jpg"):
        save(tmp_path / "grey" / name, flat)
        save(tmp_path / "colour" / name, np.full((6, 8, 3), (255, 0, 0), np.uint8))
    assert (
        np.concatenate([one["image"] for one in read(tmp_path / "grey", (grey,), batch_size=1)[0]]).tolist()
        == np.full((4, 6, 8, 1), 77).tolist()
    )
    assert np.unique(read(tmp_path / "grey", (BYTES,), batch_size=4)[0][0]["image"]).tolist() == [77]
    red = read(tmp_path / "colour", (grey,), batch_size=4)[0][0]["image"]
    np.testing.assert_allclose(red, 76, atol=2)


def test_the_three_ways_of_resizing(tmp_path):
    wide = np.zeros((12, 48, 3), np.uint8)
    wide[:, 12:36] = 200
    save(tmp_path / "p.png", wide)

    def resized(how):
        return read(
            tmp_path,
            (InputSpec("image", "float32", (None, None, None, 3)),),
            batch_size=1,
            image_size="12x24",
            image_resize=how,
        )[0][0]["image"][0, :, :, 0]

    assert resized("stretch").shape == (12, 24) and resized("stretch")[0, 0] == 0 and resized("stretch")[6, 12] == 200
    assert np.all(resized("crop") == 200), "the middle fills the picture"
    padded = resized("pad")
    assert np.all(padded[:3] == 0) and np.all(padded[-3:] == 0) and padded[6, 12] == 200 and padded[6, 0] == 0


@pytest.mark.parametrize(("height", "width"), [(6, 8), (8, 6), (5, 31), (31, 5), (1, 1), (7, 9)])
def test_every_picture_comes_to_the_size_of_the_signature(tmp_path, height, width):
    save(tmp_path / "p.png", pixels(0, height, width))
    for how in ("stretch", "crop", "pad"):
        assert read(tmp_path, (IMAGE,), batch_size=1, image_resize=how)[0][0]["image"].shape == (1, 6, 8, 3)


def test_fewer_pictures_than_all_come_from_every_class(tmp_path):
    for name, value in (("ape", 10), ("bee", 100), ("cat", 200)):
        for number in range(8):
            save(tmp_path / name / f"{number}.png", np.full((6, 8, 3), value, np.uint8))
    some, record = read(tmp_path, (IMAGE,), batch_size=3, batches=2)
    assert record.samples == 6 and sorted(np.concatenate([batch["image"] for batch in some])[:, 0, 0, 0]) == [
        10,
        10,
        100,
        100,
        200,
        200,
    ]
    assert [batch["image"][0, 0, 0, 0] for batch in some] == [10, 100]
    for options in ({}, {"batches": 8}, {"batches": 9}):
        whole, _ = read(tmp_path, (IMAGE,), batch_size=3, **options)
        assert [batch["image"][0, 0, 0, 0] for batch in whole] == [10, 10, 10, 100, 100, 100, 200, 200]


def test_pictures_that_do_not_decode_are_replaced_by_others(tmp_path):
    for number in range(8):
        save(tmp_path / f"{number}.png", np.full((6, 8, 3), number, np.uint8))
    for number in (1, 3):
        (tmp_path / f"{number}.png").write_bytes(b"no picture")
    (batch,), record = read(tmp_path, (IMAGE,), batch_size=4, batches=1, image_error_limit=2)
    assert list(batch["image"][:, 0, 0, 0]) == [5, 7, 0, 2] and record.failed_count == 2


@given(st.integers(1, 500), st.integers(1, 600))
def test_chosen_pictures_come_evenly_from_everywhere(total, count):
    order = images.spread([str(number) for number in range(total)], count)
    assert sorted(order, key=int) == [str(number) for number in range(total)]
    chosen = [int(one) for one in order[:count]]
    assert chosen == sorted(chosen)
    below = np.cumsum(np.bincount(chosen, minlength=total))
    assert np.abs(below - min(count, total) * np.arange(1, total + 1) / total).max() <= 0.5 + 1e-9


def test_pictures_that_do_not_decode_are_named_and_counted_up_to_the_limit(tmp_path):
    for number in range(4):
        save(tmp_path / f"good{number}.png", pixels(number))
    (tmp_path / "bad1.jpg").write_bytes(b"no picture")
    (tmp_path / "good1b.png").write_bytes((tmp_path / "good1.png").read_bytes()[:60])
    (tmp_path / "none.png").write_bytes(b"")
    _, record = read(tmp_path, (IMAGE,), batch_size=2, image_error_limit=3)
    assert (
        record.failed_count == 3
        and record.samples == 4
        and [name.rpartition("/")[2] for name in record.failed_files] == ["bad1.jpg", "good1b.png", "none.png"]
    )
    assert any("3 files could not be decoded" in one for one in record.warnings)
    refused(
        "2 of the first 4 pictures cannot be decoded: bad1.jpg, good1b.png",
        tmp_path,
        (IMAGE,),
        batch_size=2,
        image_error_limit=1,
        mend="--image_error_limit",
    )
    refused("the first picture cannot be decoded: bad1.jpg", tmp_path, (IMAGE,), batch_size=2)
    refused(r"holds 4 rows \(3 files could not", tmp_path, (IMAGE,), batch_size=5, image_error_limit=3)


@pytest.mark.parametrize(
    ("specs", "options", "says"),
    [
        ((X,), {}, "one input of rank 4"),
        ((IMAGE, X), {}, "one input of rank 4"),
        ((InputSpec("i", "int32", (None, 6, 8, 3)),), {}, "takes int32"),
        ((InputSpec("i", "float32", (None, 6, 8, 4)),), {}, "which dimension"),
        ((InputSpec("i", "float32", (None, None, None, 3)),), {}, "leaves the size of pictures open"),
        ((IMAGE,), {"image_size": "8x6"}, "does not fit"),
        ((IMAGE,), {"image_size": "224"}, "is no size"),
        ((IMAGE,), {"image_std": (1.0, 0.0, 1.0)}, "holds 0"),
        ((IMAGE,), {"image_mean": (1.0, 0.0)}, "has 2 values"),
        ((InputSpec("i", "float32", (None, 6, 8, 1)),), {"image_mean": (1.0, 0.0, 1.0)}, "1 channels"),
        ((IMAGE,), {"image_resize": "zoom"}, "unknown"),
        ((IMAGE,), {"image_channels": "GBR"}, "unknown"),
    ],
)
def test_what_pictures_cannot_become_is_refused_before_reading(tmp_path, specs, options, says):
    save(tmp_path / "p.png", pixels())
    with pytest.raises(errors.UsageError, match=says):
        data.open(DataOptions(source=str(tmp_path), **options), "serve", list(specs))


def test_picture_flags_for_other_data_are_refused(tmp_path):
    np.savez(tmp_path / "d.npz", x=rows(8))
    refused("--image_scale is about picture files", tmp_path, image_scale=0.5)


# the record


@pytest.mark.parametrize("size", [1, 2, 3, 6, 12])
def test_the_digest_and_the_rows_do_not_depend_on_the_batch_size(tmp_path, size):
    np.savez(tmp_path / "d.npz", x=rows(12))
    one, other = read(tmp_path / "d.npz", batch_size=12)[1], read(tmp_path / "d.npz", batch_size=size)[1]
    assert other.digest == one.digest and other.rows == one.rows and one.digest.startswith("sha256:")


def test_other_rows_have_another_digest(tmp_path):
    np.savez(tmp_path / "d.npz", x=rows(12))
    np.savez(tmp_path / "e.npz", x=rows(12)[::-1])
    assert (
        len(
            {
                read(tmp_path / name, batch_size=size)[1].digest
                for name, size in (("d.npz", 12), ("e.npz", 12), ("d.npz", 5))
            }
        )
        == 3
    )


def test_the_rows_that_are_kept_are_bounded_and_the_digest_is_over_all(tmp_path, monkeypatch):
    np.savez(tmp_path / "d.npz", x=rows(12))
    whole = read(tmp_path / "d.npz", batch_size=4)[1]
    monkeypatch.setattr(data, "ROWS_KEPT", 6)
    short = read(tmp_path / "d.npz", batch_size=4)[1]
    assert short.rows == whole.rows[:6] and short.digest == whole.digest and short.samples == 12


def test_fewer_than_500_samples_are_said(tmp_path):
    np.savez(tmp_path / "few.npz", x=rows(499))
    np.savez(tmp_path / "enough.npz", x=rows(500))
    assert read(tmp_path / "few.npz", batch_size=1)[1].warnings == ("499 samples: 500 or more are usual",)
    assert read(tmp_path / "enough.npz", batch_size=1)[1].warnings == ()


def test_record_and_options_are_read_back_whole(tmp_path):
    import json

    np.savez(tmp_path / "d.npz", x=rows(9))
    record = read(tmp_path / "d.npz")[1]
    assert DataRecord.from_dict(json.loads(json.dumps(record.to_dict()))) == record
    options = DataOptions(source="d", image_mean=(1.0, 2.0, 3.0), image_std=(4.0,), image_size="3x4")
    assert DataOptions.from_dict(json.loads(json.dumps(options.to_dict()))) == options


def test_rows_of_another_data_set_are_found_again(tmp_path):
    np.savez(tmp_path / "d.npz", x=rows(12))
    record = read(tmp_path / "d.npz", batch_size=4)[1]
    assert overlap(set(record.rows), {"x": np.concatenate([rows(12)[3:5], rows(7, 1)])}) == 2
    assert overlap(set(record.rows), {"x": rows(7, 1)}) == 0
    assert overlap(set(record.rows), {"x": rows(12).astype(np.float64)}) == 0, "other bytes"


# row hashes

dtypes = st.sampled_from(["float32", "float16", "int32", "uint8", "bool", "S3", ">f4"])


@given(st.integers(1, 9), st.lists(st.integers(1, 3), max_size=2), dtypes, st.integers(0, 2**31), st.data())
def test_row_hashes_do_not_depend_on_batching_or_memory_layout(count, shape, dtype, seed, draw):
    rng = np.random.default_rng(seed)
    arrays = {"x": rng.integers(0, 9, (count, *shape)).astype(dtype), "y": rng.standard_normal(count), "n": np.int32(3)}
    whole = row_hashes(arrays)
    assert len(whole) == count and all(len(one) == 16 and int(one, 16) >= 0 for one in whole)
    cut = draw.draw(st.integers(0, count))
    parts = [
        {name: array[piece] if np.ndim(array) else array for name, array in arrays.items()}
        for piece in (slice(0, cut), slice(cut, None))
    ]
    assert sum(map(row_hashes, parts), []) == whole
    assert (
        row_hashes({"x": np.asfortranarray(arrays["x"]), "n": arrays["n"], "y": np.repeat(arrays["y"], 2)[::2]})
        == whole
    )


@given(st.lists(st.lists(st.integers(-3, 3), min_size=2, max_size=2), min_size=1, max_size=20))
def test_rows_have_the_same_hash_exactly_where_they_are_equal(values):
    hashes = row_hashes({"x": np.array(values, np.int16)})
    assert [[a == b for b in hashes] for a in hashes] == [[a == b for b in values] for a in values]


@given(st.lists(st.binary(max_size=4), min_size=2, max_size=2), st.lists(st.binary(max_size=4), min_size=2, max_size=2))
def test_strings_are_told_apart_wherever_they_are_cut(one, other):
    first, second = (row_hashes({"s": np.array([value], dtype=object)}) for value in (one, other))
    assert (first == second) == (one == other)


def test_name_dtype_and_shape_are_part_of_a_row():
    array = np.zeros((1, 4), np.float32)
    others = [{"y": array}, {"x": array.view(np.int32)}, {"x": array.reshape(1, 2, 2)}, {"x": array, "n": np.int32(1)}]
    assert len({row_hashes(one)[0] for one in [{"x": array}, *others]}) == 5


def test_arrays_of_different_lengths_are_one_item():
    item = {"x": np.zeros(3), "y": np.zeros(4)}
    assert len(row_hashes(item)) == 1 and row_hashes(item) != row_hashes({**item, "y": np.ones(4)})
    with pytest.raises(ValueError):
        row_hashes({"n": np.int32(1)})


# flags


def options_of(*arguments):
    values = flags.FlagValues()
    flags.DEFINE_string("shapes", "", "", flag_values=values)
    _calibration_flags.define(values)
    values(["tftrt", *arguments])
    return _calibration_flags.read(values)


def test_flags_become_options():
    assert options_of("--calibration_data=d") == DataOptions(source="d")
    assert options_of(
        "--calibration_data=d",
        "--calibration_batch_size=4",
        "--num_calibration_batches=9",
        "--image_size=3x4",
        "--image_resize=crop",
        "--image_scale=1/255",
        "--image_mean=0.5,1e-1,2",
        "--image_std=3",
        "--image_channels=BGR",
        "--image_error_limit=2",
    ) == DataOptions(
        source="d",
        batch_size=4,
        batches=9,
        image_size="3x4",
        image_resize="crop",
        image_scale=1 / 255,
        image_mean=(0.5, 0.1, 2.0),
        image_std=(3.0,),
        image_channels="BGR",
        image_error_limit=2,
    )
    assert options_of("--calibrate_on_random_data", "--seed=3", "--ranges=x:0:1", "--shapes=x:1x4") == DataOptions(
        random=True, seed=3, ranges="x:0:1", shapes="x:1x4"
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "--calibration_data is missing"),
        (("--calibration_data=d", "--calibrate_on_random_data"), "exclude"),
        (("--calibration_data=d", "--image_mean=a"), "--image_mean: 'a' is no number"),
        (("--calibration_data=d", "--image_scale=1/0"), "--image_scale: '1/0' is no number"),
        (("--calibration_data=d", "--image_std=nan"), "is no number"),
    ],
)
def test_flags_that_cannot_work_are_refused(arguments, says):
    with pytest.raises(errors.UsageError, match=says):
        options_of(*arguments)


def test_the_module_is_imported_and_arrays_are_read_without_tensorflow(tmp_path):
    np.savez(tmp_path / "d.npz", x=rows(8))
    code = (
        "import sys\nfrom tftrt_tools.tftrt.calibration.job import data\nfrom tftrt_tools.command_line.commands import _calibration_flags\n"
        "from tftrt_tools.models.savedmodel.shapes import InputSpec\n"
        f"print(len(list(data.open(data.DataOptions(source={str(tmp_path)!r}), 's', [InputSpec('x', 'float32', (None, 4))]))), 'tensorflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["1", "False"], done.stderr
