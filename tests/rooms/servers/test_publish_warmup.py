"""The requests of a warm-up: which shapes, which values, in which order."""

import math

import numpy as np
import pytest

from tests.publish_facts import declared, engine_op, facts, spec
from tftrt_tools.base import errors
from tftrt_tools.models.savedmodel.limits import Limit
from tftrt_tools.servers.serving.warmup import allowed_batch_sizes, warmup_requests
from tftrt_tools.servers.serving.warmup.allowed_batch_sizes import BatchSizes

SIZES = BatchSizes(32, True, (1, 8, 32))


def planned(given, tmp_path, **options):
    return warmup_requests.plan(given, warmup_requests.Options(**options), tmp_path / "user")


def shapes(given, tmp_path, **options):
    """The shapes of the only input, in order."""
    return [next(iter(one.call.shapes.values())) for one in planned(given, tmp_path, **options).requests]


# Which shapes


def test_without_anything_said_the_larger_batch_comes_first_and_a_note_says_that_it_is_a_guess(tmp_path):
    found = planned(facts(), tmp_path)
    assert [one.call.shapes["x"] for one in found.requests] == [(8, 8), (1, 8)]
    assert {one.source for one in found.requests} == {"generated"} and "--warmup_shapes" in found.notes[0]


@pytest.mark.parametrize("inputs", [[spec(shape=(4, 8))], [spec("n", shape=())], []])
def test_a_batch_that_is_no_guess_is_not_called_one(inputs, tmp_path):
    found = planned(facts(signatures={"serving_default": inputs}), tmp_path)
    assert len(found.requests) == 1 and found.notes == ()


def test_what_was_drawn_in_a_limit_is_said(tmp_path):
    ids = spec("ids", "float32").knowing(Limit(high=64, of="words"))
    found = planned(facts(signatures={"serving_default": [ids]}), tmp_path)
    assert "random for serving_default: ids: whole numbers from 0 to 63, which words takes" in found.notes
    assert max(one.call.inputs["ids"].max() for one in found.requests) > 1


def test_the_shapes_that_engines_were_built_for_largest_first(tmp_path):
    manifest = declared(serving_default=[{"x": (1, 8)}, {"x": (32, 8)}, {"x": (4, 8)}])
    assert shapes(facts(manifest=manifest), tmp_path) == [(32, 8), (4, 8), (1, 8)]


def test_calls_of_the_manifest_that_do_not_fit_the_signature_are_passed_by(tmp_path):
    assert shapes(facts(manifest=declared(serving_default=[{"x": (1, 9)}, {"y": (1, 8)}])), tmp_path) == [
        (8, 8),
        (1, 8),
    ]


def test_the_allowed_batch_sizes_of_the_server(tmp_path):
    found = planned(facts(), tmp_path, batching=SIZES)
    assert [one.call.shapes["x"] for one in found.requests] == [(32, 8), (8, 8), (1, 8)] and found.notes == ()


def test_the_allowed_batch_sizes_come_in_every_shape_that_engines_were_built_for(tmp_path):
    given = facts(
        signatures={"serving_default": [spec(shape=(None, None))]},
        manifest=declared(serving_default=[{"x": (4, 8)}, {"x": (4, 16)}]),
    )
    found = shapes(given, tmp_path, batching=BatchSizes(4, True, (1, 4)))
    assert found == [(4, 16), (4, 8), (1, 16), (1, 8)]


def test_a_stated_max_batch_size_alone_is_the_largest_that_will_come(tmp_path):
    assert shapes(facts(), tmp_path, batching=BatchSizes(64, True, ())) == [(64, 8)]
    assert shapes(facts(), tmp_path, batching=BatchSizes(1000, False, ())) == [(8, 8), (1, 8)]


def test_what_a_batching_server_would_refuse_is_left_out_with_a_note(tmp_path):
    given = facts(
        signatures={"a": [spec()], "b": [spec("x"), spec("n", shape=())]},
        manifest=declared(a=[{"x": (64, 8)}, {"x": (8, 8)}]),
    )
    found = planned(given, tmp_path, batching=BatchSizes(8, True, (8,)))
    assert [(one.call.signature, one.call.shapes["x"]) for one in found.requests] == [("a", (8, 8))]
    assert any("max_batch_size is 8" in note for note in found.notes) and any("scalars" in note for note in found.notes)


def test_shapes_of_the_user_win_for_the_signatures_they_name(tmp_path):
    given = facts(signatures={"a": [spec("x")], "b": [spec("y")]}, manifest=declared(a=[{"x": (1, 8)}]))
    found = planned(given, tmp_path, shapes="x:2x8,3x8")
    assert [(one.call.signature, *one.call.shapes.values()) for one in found.requests] == [
        ("b", (8, 8)),
        ("a", (3, 8)),
        ("a", (2, 8)),
        ("b", (1, 8)),
    ]


def test_fixed_shapes_and_scalars_are_taken_as_they_are(tmp_path):
    given = facts(signatures={"serving_default": [spec(shape=(4, 8)), spec("n", shape=())]})
    found = planned(given, tmp_path).requests
    assert [one.call.shapes for one in found] == [{"x": (4, 8), "n": ()}]


@pytest.mark.parametrize("shape", [(None, None, 3), None])
def test_unknown_dimensions_need_a_word_of_the_user(shape, tmp_path):
    given = facts(signatures={"serving_default": [spec(shape=shape)]})
    with pytest.raises(errors.UsageError, match="unknown dimensions") as caught:
        planned(given, tmp_path)
    assert "--warmup_shapes" in caught.value.mend and "--nowarmup" in caught.value.mend
    assert shapes(given, tmp_path, shapes="x:2x5x3") == [(2, 5, 3)]


@pytest.mark.parametrize(
    ("flag", "words"),
    [("x:2x9", "refuses"), ("y:2x8", "no input 'y'"), ("x:0x8", "dimension of 0"), ("x", "names no input")],
)
def test_shapes_that_can_never_work(flag, words, tmp_path):
    with pytest.raises(errors.UsageError, match=words):
        planned(facts(), tmp_path, shapes=flag)


def test_signatures_can_be_chosen(tmp_path):
    given = facts(signatures={"a": [spec()], "b": [spec()]})
    assert {one.call.signature for one in planned(given, tmp_path, signature_keys=("b",)).requests} == {"b"}
    with pytest.raises(errors.UsageError, match="no signature 'c'"):
        planned(given, tmp_path, signature_keys=("c",))


def test_a_signature_of_examples_needs_data(tmp_path):
    given = facts(
        signatures={"classify": [spec("inputs", "string", (None,))]},
        methods={"classify": "tensorflow/serving/classify"},
    )
    found = planned(given, tmp_path)
    assert found.requests == () and "tf.Examples" in found.notes[0]
    np.save(tmp_path / "examples.npy", np.array([b"", b"\n\x00"], "S"))
    assert shapes(given, tmp_path, data=str(tmp_path / "examples.npy")) == [(8,), (1,)]


def test_no_more_records_than_a_server_takes(tmp_path):
    flag = "x:" + ",".join(f"{rows}x8" for rows in range(1, 1002))
    with pytest.raises(errors.UsageError, match="1001 warm-up records"):
        planned(facts(), tmp_path, shapes=flag)
    assert len(planned(facts(), tmp_path, shapes=flag.removesuffix(",1001x8")).requests) == warmup_requests.MOST_RECORDS


def test_several_row_shapes_and_a_small_engine_cache_are_noted(tmp_path):
    given = facts(engines=[engine_op(cached=1)], signatures={"serving_default": [spec(shape=(None, None))]})
    assert any("--maximum_cached_engines=2" in note for note in planned(given, tmp_path, shapes="x:4x8,4x16").notes)
    assert planned(given, tmp_path, shapes="x:4x8,2x8").notes == ()


# Which values


def test_generated_values_are_those_of_verify_and_the_same_each_time(tmp_path):
    given = facts(
        signatures={"s": [spec(), spec("ids", "int64"), spec("text", "string", (None,)), spec("flag", "bool")]}
    )
    one, other = (planned(given, tmp_path).requests[0].call.inputs for _ in range(2))
    assert all(np.array_equal(one[name], other[name]) for name in one)
    assert set(np.unique(one["ids"])) <= {0, 1} and one["text"].dtype == object and one["flag"].dtype == bool


def test_data_fills_the_shapes_and_repeats_where_it_is_short(tmp_path):
    rows = np.arange(24, dtype=np.float32).reshape(3, 8)
    np.savez(tmp_path / "data.npz", x=rows)
    found = planned(facts(), tmp_path, data=str(tmp_path / "data.npz"), shapes="x:5x8,2x8").requests
    assert [one.source for one in found] == ["data", "data"]
    assert np.array_equal(found[0].call.inputs["x"], rows[[0, 1, 2, 0, 1]]) and np.array_equal(
        found[1].call.inputs["x"], rows[:2]
    )


def test_data_decides_the_dimensions_that_are_unknown(tmp_path):
    np.save(tmp_path / "data.npy", np.zeros((3, 5, 7), np.float32))
    given = facts(signatures={"serving_default": [spec(shape=(None, None, None))]})
    assert shapes(given, tmp_path, data=str(tmp_path / "data.npy")) == [(8, 5, 7), (1, 5, 7)]


@pytest.mark.parametrize(
    ("array", "options", "words"),
    [
        ({"x": np.zeros((3, 9), np.float32)}, {"shapes": "x:2x8"}, "rows of input 'x' are 9"),
        ({"y": np.zeros((3, 8))}, {}, "no input"),
        ({"x": np.zeros((0, 8))}, {}, "no rows"),
        ({"x": np.full((3, 8), np.nan)}, {}, "NaN"),
        ({"x": np.full((3, 8), "a")}, {}, "takes float32"),
    ],
)
def test_data_that_does_not_fit(array, options, words, tmp_path):
    np.savez(tmp_path / "data.npz", **array)
    with pytest.raises(errors.UsageError, match=words):
        planned(facts(), tmp_path, data=str(tmp_path / "data.npz"), **options)


def test_the_larger_requests_come_first_over_all_signatures(tmp_path):
    given = facts(signatures={"a": [spec(shape=(None, 2))], "b": [spec(shape=(None, 100))]})
    found = [sum(math.prod(shape) for shape in one.call.shapes.values()) for one in planned(given, tmp_path).requests]
    assert found == sorted(found, reverse=True) and len(found) == 4


# The batching parameters file


def test_the_batching_file_is_read_with_all_its_other_fields(tmp_path):
    path = tmp_path / "batching.txt"
    path.write_text(
        "# comment\nmax_batch_size { value: 32 }\nbatch_timeout_micros { value: 0 }\nallowed_batch_sizes: 1\nallowed_batch_sizes: [8, 32]\n"
    )
    assert allowed_batch_sizes.read(path) == SIZES
    path.write_text("num_batch_threads { value: 2 }")
    assert allowed_batch_sizes.read(path) == BatchSizes(1000, False, ())


@pytest.mark.parametrize(
    "text",
    [
        "allowed_batch_sizes: 8",
        "max_batch_size { value: 8 } allowed_batch_sizes: 8 allowed_batch_sizes: 4",
        "max_batch_size: 8",
        "max_batch_sise { value: 8 }",
        "max_batch_size { value: 0 }",
        None,
    ],
)
def test_a_file_that_a_server_would_not_take_is_refused(text, tmp_path):
    path = tmp_path / "batching.txt"
    if text is not None:
        path.write_text(text)
    with pytest.raises(errors.UsageError, match="batching_parameters_file"):
        allowed_batch_sizes.read(path)


def test_allowed_sizes_without_an_engine_are_named():
    assert "allowed batch sizes 8, 32 (why)" in warmup_requests.uncovered(SIZES, [1, 2], "why")
    assert warmup_requests.uncovered(SIZES, [1, 8, 32], "why") == warmup_requests.uncovered(SIZES, None, "why") == ""
