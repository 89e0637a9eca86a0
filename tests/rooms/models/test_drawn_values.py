"""Drawn values lie in what a model takes: the rows of its tables, the keys of its lookups, the sizes of its inputs."""

import functools

import numpy as np
import onnx
import pytest
import tensorflow as tf
from onnx import TensorProto, helper, numpy_helper

from tests import stacks
from tftrt_tools.models.execution import inputs as execution_inputs
from tftrt_tools.models.inputs import calls, drawing
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.kinds.onnx import index_limits, runner_job
from tftrt_tools.models.savedmodel import limits
from tftrt_tools.models.savedmodel.job import input_facts, loading, protos
from tftrt_tools.models.savedmodel.limits import Limit, Size
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.tftrt.calibration.job import data

v1 = tf.compat.v1


def spec(shape, name, dtype=tf.float32):
    return tf.TensorSpec(shape, dtype, name)


def table(*shape):
    return tf.Variable(tf.random.stateless_normal(shape, (1, 2)))


def save(path, function, *specs, **held):
    module = tf.Module()
    for name, value in held.items():
        setattr(module, name, value)
    module.f = tf.function(function, input_signature=specs)
    tf.saved_model.save(module, str(path), signatures=module.f)


def embedding():
    i = tf.keras.Input((20,), name="ids")
    h = tf.keras.layers.GlobalAveragePooling1D()(tf.keras.layers.Embedding(64, 4, name="words")(i))
    return tf.keras.Model(i, tf.keras.layers.Dense(2)(h))


def floats(path):
    tf.saved_model.save(embedding(), str(path))


def doubles(path):
    w = table(50, 4)
    save(path, lambda i: {"y": tf.gather(w, tf.cast(tf.floor(i), tf.int32))}, spec((None, 6), "i", tf.float64), w=w)


def two_tables(path):
    a, b = table(100, 4), table(30, 4)
    save(
        path,
        lambda i: {"y": tf.nn.embedding_lookup(a, i) * tf.gather(b, tf.squeeze(tf.expand_dims(i, 0), 0))},
        spec((None,), "i", tf.int64),
        a=a,
        b=b,
    )


def depth(path):
    save(path, lambda i: {"y": tf.one_hot(tf.clip_by_value(i, 0, 11), 12)}, spec((None,), "i", tf.int32))


def second_axis(path):
    w = table(4, 40)
    save(path, lambda i: {"y": tf.gather(w, i, axis=1)}, spec((None,), "i", tf.int32), w=w)


def offsets(path):
    w, first = table(300, 4), tf.constant([[0, 100, 250]], tf.int64)
    save(path, lambda i: {"y": tf.gather(w, i + first)}, spec((None, 3), "i", tf.int64), w=w)


def brightness(path):
    w = table(256, 4)
    save(path, lambda i: {"y": tf.gather(w, tf.cast(i * 255.0, tf.int32))}, spec((None, 8), "i"), w=w)


def coordinates(path):
    w = table(7, 9, 4)
    save(path, lambda i: {"y": tf.gather_nd(w, i)}, spec((None, 2), "i", tf.int32), w=w)


def in_a_loop(path):
    w = table(20, 4)

    def summed(i):
        def body(k, h):
            return k + 1, h + tf.gather(w, i[:, k])

        return {
            "y": tf.while_loop(
                lambda k, h: k < 3,
                body,
                [0, tf.zeros((tf.shape(i)[0], 4))],
                shape_invariants=[tf.TensorShape(()), tf.TensorShape((None, 4))],
            )[1]
        }

    save(path, summed, spec((None, 3), "i", tf.int32), w=w)


def asserted(path):
    i = tf.keras.Input((1,), dtype="int64", name="i")
    tf.saved_model.save(tf.keras.Model(i, tf.keras.layers.CategoryEncoding(6)(i)), str(path))


def session(path):
    """As TensorFlow 1 saves: a variable that is no resource."""
    with tf.Graph().as_default(), v1.Session() as opened:
        i, w = v1.placeholder(tf.int32, (None, 5), "i"), v1.get_variable("words", (77, 4), use_resource=False)
        y = tf.nn.embedding_lookup(w, i)
        opened.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(opened, str(path), {"i": i}, {"y": y})


WHOLE = {
    floats: 64,
    doubles: 50,
    two_tables: 30,
    depth: 12,
    second_axis: 40,
    offsets: 50,
    coordinates: 7,
    in_a_loop: 20,
    asserted: 6,
    session: 77,
}


def drawn(path, signature="serving_default", batches=(1, 8)):
    """(the loaded model, the InputSpecs of its signature, drawn calls)."""
    model = loading.load(str(path))
    specs = model.specs(signature)
    shapes = [
        {one.name: tuple(batch if dim is None else dim for dim in one.shape) for one in specs} for batch in batches
    ]
    return model, specs, drawing.calls(signature, specs, shapes, 0)


def answered(model, made):
    return [
        loading.answers(
            model.root.signatures[one.signature],
            {
                name: tf.constant(value, tf.string if value.dtype == object else None)
                for name, value in one.inputs.items()
            },
        )
        for one in made
    ]


@pytest.mark.parametrize(
    "make",
    [pytest.param(one, marks=[stacks.needs_keras_2] if one is asserted else [], id=one.__name__) for one in WHOLE],
)
def test_an_index_is_drawn_from_the_size_of_what_it_chooses_from(make, tmp_path):
    make(tmp_path / "m")
    model, (only,), made = drawn(tmp_path / "m", batches=(1, 200))
    values = made[1].inputs[only.name]
    assert only.limit.high == WHOLE[make] and (values == np.floor(values)).all()
    assert values.min() == 0 and WHOLE[make] * 0.9 - 1 <= values.max() < WHOLE[make], "the values reach both ends"
    answered(model, made)


def test_a_share_of_a_table_is_drawn_as_a_fraction(tmp_path):
    brightness(tmp_path / "m")
    model, (only,), made = drawn(tmp_path / "m")
    assert (only.limit.low, only.limit.high, only.limit.whole) == (0, 1, False)
    assert len(np.unique(made[1].inputs["i"])) == 64
    answered(model, made)


def test_any_number_is_an_index_behind_a_hash(tmp_path):
    w = table(10, 4)
    save(
        tmp_path / "m",
        lambda i: {"y": tf.gather(w, tf.strings.to_hash_bucket_fast(tf.strings.as_string(i), 10))},
        spec((None,), "i", tf.int64),
        w=w,
    )
    model, (only,), made = drawn(tmp_path / "m")
    assert only.limit is None and answered(model, made)


@pytest.mark.parametrize("words", [True, False])
def test_keys_are_those_of_the_lookup(words, tmp_path):
    layers = tf.keras.layers
    lookup = (
        layers.StringLookup(vocabulary=["cat", "dog", "bird"], num_oov_indices=0, mask_token=None)
        if words
        else layers.IntegerLookup(vocabulary=[10, 20, 30], num_oov_indices=0)
    )
    i = tf.keras.Input((1,), dtype="string" if words else "int64", name="k")
    tf.keras.Model(i, layers.Embedding(4, 2)(lookup(i))).export(str(tmp_path / "m"))
    model, (only,), made = drawn(tmp_path / "m")
    assert set(made[1].inputs["k"].reshape(-1)) <= ({b"cat", b"dog", b"bird"} if words else {10, 20, 30})
    assert limits.text("k", only.dtype, only.limit, []).startswith("k: among the 3 keys of ")
    answered(model, made)


def test_a_lookup_of_tensorflow_1(tmp_path):
    with tf.Graph().as_default(), v1.Session() as opened:
        k = v1.placeholder(tf.string, (None,), "k")
        known = v1.lookup.StaticHashTable(v1.lookup.KeyValueTensorInitializer(["p", "q"], [0, 1]), -1)
        y = tf.gather(tf.constant([[1.0], [2.0]]), known.lookup(k))
        opened.run(v1.tables_initializer())
        v1.saved_model.simple_save(
            opened, str(tmp_path / "m"), {"k": k}, {"y": y}, legacy_init_op=v1.tables_initializer()
        )
    model, (only,), made = drawn(tmp_path / "m")
    assert only.limit.keys == ("p", "q") and answered(model, made)


def test_sizes_of_a_call_limit_what_refers_to_its_inputs(tmp_path):
    w, u = table(4, 8), table(8, 3)

    def graph(nodes, senders, receivers):
        messages = tf.gather(tf.nn.relu(nodes @ w), senders)
        return {"y": tf.math.unsorted_segment_sum(messages, receivers, tf.shape(nodes)[0]) @ u}

    save(
        tmp_path / "m",
        graph,
        spec((None, 4), "nodes"),
        spec((None,), "senders", tf.int32),
        spec((None,), "receivers", tf.int32),
        w=w,
        u=u,
    )
    model = loading.load(str(tmp_path / "m"))
    specs = model.specs("serving_default")
    by_name = {one.name: one for one in specs}
    assert by_name["senders"].limit.sizes == by_name["receivers"].limit.sizes == (Size("nodes", 0),)
    made = drawing.calls("serving_default", specs, [{"nodes": (3, 4), "senders": (50,), "receivers": (50,)}], 0)
    assert made[0].inputs["senders"].max() == 2 and answered(model, made)
    assert [one.name for one in sorted(specs, key=lambda one: one.place)] == ["nodes", "senders", "receivers"]


def test_lengths_and_segments(tmp_path):
    def both(x, n, ids):
        return {
            "y": tf.reverse_sequence(x, n, seq_axis=1),
            "last": tf.gather(x, n - 1, batch_dims=1),
            "sum": tf.math.segment_sum(x, ids),
        }

    save(tmp_path / "m", both, spec((None, 9, 4), "x"), spec((None,), "n", tf.int32), spec((None,), "ids", tf.int32))
    model, specs, made = drawn(tmp_path / "m", batches=(1, 60))
    lengths, ids = made[1].inputs["n"], made[1].inputs["ids"]
    assert (lengths.min(), lengths.max()) == (1, 9) and (np.diff(ids) >= 0).all() and ids.max() < 60
    answered(model, made)
    assert drawing.drew(specs, [one.shapes for one in made]) == (
        "ids: rising whole numbers from 0 to 59, which SegmentSum takes",
        "n: whole numbers from 1 to 9, which ReverseSequence takes",
    )


def test_a_table_of_another_signature_says_nothing(tmp_path):
    module = tf.Module()
    module.a, module.b, taken = table(100, 2), table(5, 2), [spec((None,), "i", tf.int32)]
    large = tf.function(lambda i: {"y": tf.gather(module.a, i)}, input_signature=taken)
    small = tf.function(lambda i: {"y": tf.gather(module.b, i)}, input_signature=taken)
    none = tf.function(lambda i: {"y": i * 2}, input_signature=taken)
    module.functions = [large, small, none]
    tf.saved_model.save(module, str(tmp_path / "m"), signatures={"large": large, "none": none, "small": small})
    found = input_facts.specs(protos.meta_graph(protos.read(tmp_path / "m")))
    assert {name: one.limit and one.limit.high for name, (one,) in found.items()} == {
        "large": 100,
        "none": None,
        "small": 5,
    }


def test_what_the_user_says_wins_and_what_was_drawn_is_said(tmp_path):
    only = InputSpec("ids", "int64", (None, 3)).knowing(Limit(low=0, high=64, of="words"))
    takes = calls.Takes.of({"s": (only,)})
    found = calls.choose(takes, calls.Asked(), tmp_path, (1,))
    assert found.drew == ("ids: whole numbers from 0 to 63, which words takes",)
    own = calls.choose(takes, calls.Asked(ranges="ids:5:7"), tmp_path, (1,))
    assert own.drew == () and {*own.all[1].inputs["ids"].flat} == {5, 6}


def test_random_calibration_data_keeps_to_it_too():
    only = InputSpec("ids", "float32", (None, 3)).knowing(Limit(low=0, high=64, of="words"))
    read = functools.partial(data.open, signature_name="s", specs=(only,))
    batches = read(DataOptions(random=True, batch_size=50))
    values = np.concatenate([one["ids"] for one in batches])
    assert (
        values.max() == 63 and "random: ids: whole numbers from 0 to 63, which words takes" in batches.record.warnings
    )
    own = read(DataOptions(random=True, ranges="ids:0:2"))
    assert max(one["ids"].max() for one in own) < 2 and not any(
        one.startswith("random: ") for one in own.record.warnings
    )


@pytest.mark.parametrize(("dtype", "high"), [("float16", 5000), ("int8", 500), ("uint8", 500), ("bfloat16", 500)])
def test_no_value_leaves_the_limit_by_the_rounding_of_its_type(dtype, high):
    only = InputSpec("i", dtype, (None,)).knowing(Limit(low=0, high=high, of="w"))
    values = execution_inputs.random([only], {"i": (4000,)}, 0)["i"].astype(float)
    assert 0 <= values.min() and values.max() < high and values.max() > 100


def test_limits_of_several_readers_are_taken_together():
    one, other = Limit(high=64, of="a"), Limit(low=1, sizes=(Size("x", 1, 1),), of="b")
    both = one.both(other)
    assert both.ends({"x": (2, 9)}) == (1, 10) and both.ends({"x": (2, 100)}) == (1, 64) and both.of == "a"
    assert Limit(low=5, high=5).ends({}) is None and Limit().ends({}) is None
    spec_of = InputSpec("i", "int32", (None,)).knowing(both)
    assert InputSpec.from_dict(spec_of.to_dict()).limit == both
    assert InputSpec("i", "int32", (None,)).to_dict() == {"name": "i", "dtype": "int32", "shape": [None]}, (
        "files stay as they were"
    )


# ONNX


def node(op, ins, outs, **attributes):
    return helper.make_node(op, ins, outs, **attributes)


def f32(name, *shape):
    return numpy_helper.from_array(np.ones(shape, np.float32), name)


def i64(name, value):
    return numpy_helper.from_array(np.asarray(value, np.int64), name)


def value(name, shape, dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


INTS, SIZES = TensorProto.INT64, {"b": 7, "n": 7, "e": 9, "t": 5}
FILES = {
    "cast": (
        [node("Cast", ["i"], ["k"], to=INTS), node("Gather", ["W", "k"], ["y"])],
        [value("i", ["b", 6])],
        [f32("W", 50, 4)],
        {"i": (0, 50)},
    ),
    "axis": ([node("Gather", ["W", "i"], ["y"], axis=1)], [value("i", ["b"], INTS)], [f32("W", 4, 9)], {"i": (0, 9)}),
    "elements": (
        [node("GatherElements", ["W", "i"], ["y"], axis=1)],
        [value("i", [4, 2], INTS)],
        [f32("W", 4, 9)],
        {"i": (0, 9)},
    ),
    "depth": (
        [node("OneHot", ["i", "d", "v"], ["y"])],
        [value("i", ["b"], INTS)],
        [i64("d", 13), f32("v", 2)],
        {"i": (0, 13)},
    ),
    "scatter": (
        [node("ScatterND", ["W", "i", "u"], ["y"])],
        [value("i", ["b", 1], INTS), value("u", ["b", 4])],
        [f32("W", 11, 4)],
        {"i": (0, 11)},
    ),
    "two": (
        [node("Gather", ["W", "i"], ["e"]), node("Gather", ["V", "i"], ["f"]), node("Add", ["e", "f"], ["y"])],
        [value("i", ["b"], INTS)],
        [f32("W", 50, 4), f32("V", 5, 4)],
        {"i": (0, 5)},
    ),
    "offset": (
        [node("Add", ["i", "o"], ["k"]), node("Gather", ["W", "k"], ["y"])],
        [value("i", ["b", 2], INTS)],
        [f32("W", 50, 4), i64("o", [0, 30])],
        {"i": (0, 20)},
    ),
    "graph": ([node("Gather", ["x", "i"], ["y"])], [value("x", ["n", 4]), value("i", ["e"], INTS)], [], {"i": (0, 7)}),
    "lengths": (
        [node("ReverseSequence", ["x", "i"], ["y"], time_axis=1, batch_axis=0)],
        [value("x", ["b", "t", 4]), value("i", ["b"], INTS)],
        [],
        {"i": (1, 6)},
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_an_onnx_file_tells_its_limits(name, tmp_path):
    nodes, taken, constants, wanted = FILES[name]
    made = helper.make_model(
        helper.make_graph(nodes, "g", taken, [value("y", None)], constants),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    path = str(tmp_path / "m.onnx")
    onnx.save(made, path)
    (contents,) = runner_job.read([path])
    specs = contents.signatures["serving_default"].inputs
    shapes = {
        one.name: tuple(dim.dim_value or SIZES[dim.dim_param] for dim in one.type.tensor_type.shape.dim)
        for one in taken
    }
    assert {one.name: one.limit.ends(shapes) for one in specs if one.limit} == wanted
    call = execution_inputs.random(specs, shapes, 0)
    loaded = runner_job.Loaded(runner_job.opened(path))
    loaded.ready("serving_default", call)()


def test_a_file_that_cannot_be_followed_has_no_limits(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"\x08\x08nonsense")
    assert index_limits.find(str(tmp_path / "m.onnx"), [InputSpec("i", "int64", (None,))]) == {}


# the whole way


def test_verify_draws_ids_in_floats_from_the_table(tftrt, tmp_path):
    floats(tmp_path / "m")
    done = tftrt("verify", tmp_path / "m", tmp_path / "m", "--nowrite")
    assert done.returncode == 0, done.stderr
    assert (
        f"random: {stacks.SAVED_INPUT or 'ids'}: whole numbers from 0 to 63, which words/embeddings takes"
        in done.stdout
        and "PASSED" in done.stdout
    )


def test_a_call_that_a_model_refuses_says_that_it_was_drawn(tftrt, tmp_path):
    save(tmp_path / "m", lambda x: {"y": tf.reshape(x, (-1, 6))}, spec((None, 4), "x"))
    done = tftrt("verify", tmp_path / "m", tmp_path / "m", "--nowrite")
    assert (
        done.returncode == 1
        and "its values were random, and so were its shapes: give others by --shapes, --ranges or --data" in done.stderr
    )


def test_takes_gets_limits_and_places_from_files():
    plain = InputSpec("i", "int64", (None,))
    known = plain.knowing(Limit(high=9, of="w"), 0)
    (found,) = calls.Takes.of({"s": (plain,)}).limited_by({"s": (known,)}).specs["s"]
    assert found.limit == known.limit and found.place == 0
