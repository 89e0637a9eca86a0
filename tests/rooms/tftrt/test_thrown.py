"""Nodes on which a converter of TF-TRT fails stay in TensorFlow, and are named."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tests import stacks, thrown_jobs
from tests.prepared_models import answers, prepared, save
from tftrt_tools.base import errors
from tftrt_tools.base.process import child
from tftrt_tools.tftrt.conversion import pass_apart, pass_log
from tftrt_tools.tftrt.conversion.job import graph_pass, planner, thrown
from tftrt_tools.tftrt.conversion.settings import Settings

v1 = tf.compat.v1


def selecting(path, selects=1):
    """Rows chosen by a condition of one value each, as TF1's dynamic_rnn does; TF-TRT's converter throws a C++ exception on it."""

    @tf.function(input_signature=[tf.TensorSpec((None, 8), name="x"), tf.TensorSpec((None,), tf.int32, name="n")])
    def serve(x, n):
        for number in range(selects):
            x = tf.raw_ops.Select(condition=n > number, x=tf.nn.relu(x) * 2.0, y=tf.exp(-x) + 1.0, name="choose")
        return {"y": tf.nn.softmax(x * 2.0 - 1.0)}

    return save(serve, path)


@pytest.mark.parametrize("selects", [1, 3])
def test_a_select_of_rows_stays_in_tensorflow_and_is_named(tmp_path, selects):
    frozen = prepared(selecting(tmp_path / "m", selects), use_dynamic_shape=True)
    passed = graph_pass.run(frozen, Settings(use_dynamic_shape=True))
    found = [one for one in passed.left_out if one.op == "Select"]
    assert len(found) == selects and all(
        one.reason.startswith(pass_log.FAILS) and "max_size()" in one.reason for one in found
    )
    assert passed.engines and passed.coverage >= 0.5
    fed = {"x": np.ones((3, 8), "f4"), "n": np.array([0, 2, 9], "i4")}
    expected = frozen.original(**{name: tf.constant(value) for name, value in fed.items()})["y"].numpy()
    np.testing.assert_allclose(answers(frozen, *(fed[name] for name in frozen.input_names))[0], expected, rtol=1e-5)


def test_the_other_batch_mode_is_told_too(tmp_path):
    plan = planner.plan(str(selecting(tmp_path / "m")), Settings())
    assert plan.signatures[0].other.dynamic and plan.signatures[0].other.engines


@stacks.needs_keras_2  # its cells
def test_a_select_inside_a_loop(tmp_path):
    v1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default(), v1.Session() as session:
            x, n = v1.placeholder(tf.float32, (None, None, 8), "x"), v1.placeholder(tf.int32, (None,), "n")
            y, _ = v1.nn.dynamic_rnn(v1.nn.rnn_cell.GRUCell(8), x, sequence_length=n, dtype=tf.float32)
            session.run(v1.global_variables_initializer())
            v1.saved_model.simple_save(session, str(tmp_path / "m"), {"x": x, "n": n}, {"y": y})
    finally:
        v1.enable_control_flow_v2()
    frozen = prepared(tmp_path / "m", use_dynamic_shape=True)
    passed = graph_pass.run(frozen, Settings(use_dynamic_shape=True))
    assert [one.node for one in passed.left_out if one.reason.startswith(pass_log.FAILS)] and passed.engines


def test_a_node_that_gives_a_type_without_engines_stays_in_tensorflow(tmp_path, tftrt):
    @tf.function(input_signature=[tf.TensorSpec((None, 8), name="x")])
    def serve(x):
        x = tf.nn.relu(x) * 2 + 1
        return {"y": tf.raw_ops.Cumsum(x=tf.shape(x, out_type=tf.int64), axis=0) - 3, "z": x}

    save(serve, tmp_path / "m")
    frozen = prepared(tmp_path / "m", use_dynamic_shape=True)
    passed = graph_pass.run(frozen, Settings(use_dynamic_shape=True))
    assert {one.op: one.reason for one in passed.left_out}[
        "Shape"
    ] == "TensorRT has no int64, which this node gives to TensorFlow"
    assert passed.engines and all(one.dtype != "int64" for engine in passed.engines for one in engine.outputs)
    done = tftrt("convert", f"--model={tmp_path / 'm'}", f"--output={tmp_path / 'out'}", "--use_dynamic_shape")
    assert done.returncode == 0, done.stderr
    assert tftrt("verify", tmp_path / "m", tmp_path / "out").returncode == 0


def test_convert_names_it(tmp_path, tftrt):
    done = tftrt(
        "convert", f"--model={selecting(tmp_path / 'm')}", f"--output={tmp_path / 'out'}", "--use_dynamic_shape"
    )
    assert (
        done.returncode == 0
        and "PartitionedCall/choose (Select) stays in TensorFlow: TF-TRT's converter fails on this node" in done.stdout
    ), done.stdout + done.stderr
    assert tftrt("verify", tmp_path / "m", tmp_path / "out").returncode == 0


def one_pass(*names):
    graph_def = graph_pb2.GraphDef()
    for name in names:
        graph_def.node.add(name=name, op="Relu")
    return thrown.Pass(
        graph_def=graph_def, preserved=(), parameters={"use_dynamic_shape": True}, variables={"nodes": ",".join(names)}
    )


class Failing(thrown.Pass):
    """A pass that fails on nodes named "bad…"."""

    def __call__(self, kept):
        for node in self.graph_def.node:
            if node.name.startswith("bad") and node.name not in kept:
                raise ValueError(f"{node.name} will not do")
        return self.graph_def


def failing(*names):
    one = one_pass(*names)
    return Failing(graph_def=one.graph_def, preserved=(), parameters=one.parameters, variables={})


def test_many_of_one_type_are_given_up_together():
    known = {}
    thrown.run(failing("good", *(f"bad{number}" for number in range(30)), "fine"), known)
    assert len(known[True]) == 32 and known[True]["bad3"] == f"{pass_log.FAILS}: bad3 will not do"
    few = {}
    thrown.run(failing("good", "bad1", "fine", "bad2"), few)
    assert set(few[True]) == {"bad1", "bad2"}


def test_a_pass_that_fails_whatever_it_is_offered_is_an_error_in_a_line():
    class Broken(thrown.Pass):
        def __call__(self, kept):
            raise ValueError("no such device")

    one = one_pass("a", "b")
    with pytest.raises(errors.TftrtError, match="graph pass fails, whatever it is offered: no such device"):
        thrown.run(Broken(graph_def=one.graph_def, preserved=(), parameters=one.parameters, variables={}), {})


def test_a_node_that_ends_the_process_is_found_in_another_one(monkeypatch):
    monkeypatch.setattr(thrown, "single_pass", thrown_jobs.graph_pass)
    known = {}
    with thrown._apart(one_pass("a", "bad1", "b", "c")) as trial:
        thrown._find(trial, one_pass("a", "bad1", "b", "c").graph_def, known)
    assert known == {"bad1": f"{pass_log.FAILS}: Check failed: rank >= 0"}


def test_a_job_that_dies_in_a_pass_runs_again_with_care():
    assert pass_apart.run(thrown_jobs.whole, False, {}).result is True
    with pytest.raises(child.ChildDied):
        pass_apart.run(thrown_jobs.whole, True, {})
