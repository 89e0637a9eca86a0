"""Slices that count from the end: written to count from the beginning where an engine would take them wrongly."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tests.prepared_models import answers, open_sizes, prepared, save
from tftrt_tools.models.savedmodel import engine_op
from tftrt_tools.models.savedmodel.job import graph, inferred, segment, slices
from tftrt_tools.tftrt.conversion.job import graph_pass
from tftrt_tools.tftrt.conversion.settings import Settings

# {what: a slice of a tensor of 2 x 7 x 5 elements, whose last two sizes TensorFlow knows and the engine does not}.
SLICES = {
    "end": lambda x: x[:, :-3],
    "begin": lambda x: x[:, -3:],
    "both": lambda x: x[:, -6:-2],
    "last": lambda x: x[:, -1][:, None],
    "steps": lambda x: x[:, -6:-1:2],
    "ellipsis": lambda x: x[..., :-2],
    "new axis": lambda x: x[:, None, :-3][:, 0],
    "beyond": lambda x: x[:, -100:-1],
    "two axes": lambda x: x[:, :-3, -2:],
}


@pytest.mark.parametrize("name", SLICES)
def test_a_slice_counts_from_the_beginning_where_the_graph_tells_the_size_and_answers_the_same(name, tmp_path):
    path = open_sizes(SLICES[name], tmp_path / "model")
    graph_def = prepared(path, use_dynamic_shape=True, minimum_segment_size=10**6).graph_def
    names = {node.name for node in graph_def.node if node.op == slices.OP}
    x = np.random.default_rng(0).normal(size=(2, 35)).astype("f4")
    before = prepared(path, use_dynamic_shape=True, minimum_segment_size=10**6)
    after = prepared(path, use_dynamic_shape=True, minimum_segment_size=10**6)
    changed = slices.rewrite(after.graph_def, names)
    assert changed and set(changed) <= names
    assert np.array_equal(answers(before, x)[0], answers(after, x)[0])
    known = inferred.shapes(after.graph_def)
    assert not any(
        bound is not None and bound < 0
        for one in changed
        for axis in slices._axes(known.get_operation_by_name(one))
        if axis.size is not None
        for bound in (axis.begin, axis.end)
    )


def test_convert_rewrites_what_an_engine_would_take_wrongly_and_says_so(tftrt, tmp_path):
    path = open_sizes(lambda x: x[:, :-3] * x[:, 3:], tmp_path / "model")
    assert len(prepared(path, use_dynamic_shape=True).preparation.slices) == 1
    done = tftrt("convert", f"--model={path}", f"--output={tmp_path / 'out'}", "--use_dynamic_shape")
    assert (
        done.returncode == 0
        and "1 slice counted from the beginning" in done.stdout
        and "would be wrong" not in done.stdout
    ), done.stdout + done.stderr
    done = tftrt("verify", path, tmp_path / "out", "--shapes=x:4x35")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_slice_that_the_engine_takes_rightly_is_left_as_it_is(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec((None, 7, 5), name="x")])
    def serve(x):
        return {"y": tf.nn.relu(x[:, :-3] * 3 - 1) + 1}

    assert prepared(save(serve, tmp_path / "model"), use_dynamic_shape=True).preparation.slices == ()


def test_bounds_that_are_computed_are_left_as_they_are(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec((None, 7), name="x"), tf.TensorSpec((), tf.int32, name="n")])
    def serve(x, n):
        return {"y": x[:, :-n] + 1}

    graph_def = prepared(save(serve, tmp_path / "model"), use_dynamic_shape=True, minimum_segment_size=10**6).graph_def
    assert slices.rewrite(graph_def, {node.name for node in graph_def.node}) == ()


# Slices that TF-TRT's segmenter takes, whatever the size: those that begin from the end it leaves out.
TAKEN = {
    "end": SLICES["end"],
    "ellipsis": SLICES["ellipsis"],
    "crop": lambda x: x[:, 2:-2],
    "steps": lambda x: x[:, 1:-1:2],
    "plane": lambda x: x[:, 1:-2, 1:-1],
}


@pytest.mark.parametrize("name", TAKEN)
def test_an_engine_whose_calls_have_one_size_counts_from_the_beginning(name, tmp_path):
    @tf.function(input_signature=[tf.TensorSpec((None, None, None), name="x")])
    def serve(x):
        return {"y": tf.nn.relu(TAKEN[name](tf.nn.relu(x) + 1) * 3 - 1) + 1}

    frozen = prepared(save(serve, tmp_path / "model"), use_dynamic_shape=True)
    passed = graph_pass.run(frozen, Settings(use_dynamic_shape=True))
    (engine,) = passed.engines

    def function():
        return graph.native_segments(graph_pb2.GraphDef.FromString(passed.graph_def.SerializeToString()))[
            engine.name
        ].function

    fixed = function()
    declared = [one.shape for one in engine.inputs]
    assert len(slices.fix(fixed, declared, [[(1, 9, 5)], [(4, 9, 5)]])) == 1
    x = tf.constant(np.random.default_rng(0).normal(size=(2, 9, 5)).astype("f4"))
    plain, counted = (running(one)(x) for one in (function(), fixed))
    assert np.array_equal(plain, counted)
    # Of another size the engine is not asked; here it shows that something was fixed.
    other = tf.constant(np.random.default_rng(0).normal(size=(2, 12, 8)).astype("f4"))
    assert running(function())(other).shape != running(fixed)(other).shape or not np.array_equal(
        running(function())(other), running(fixed)(other)
    )
    assert slices.fix(function(), declared, [[(1, 9, 5)], [(4, 12, 8)]]) == ()


def running(function):
    """The segment of one input and one output as a function of arrays."""
    body, _ = segment.to_graph(function)
    graph_def = segment.importable(body, [None])

    def run(x):
        return tf.import_graph_def(
            graph_def, input_map={f"{engine_op.INPUT}0:0": x}, return_elements=[f"{engine_op.OUTPUT}0:0"]
        )[0]

    return lambda x: tf.compat.v1.wrap_function(run, [tf.TensorSpec(x.shape, x.dtype)])(x).numpy()
