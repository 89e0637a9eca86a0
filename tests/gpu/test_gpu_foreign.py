"""Kinds of models that were refused before, with engines: ids in floats, TF1's defaults and sequence lengths. `make gpu-test`."""

import json

import pytest
import tensorflow as tf

from tests import stacks
from tests.conftest import run_tftrt
from tests.gpu.test_gpu_plans import build
from tests.gpu_commands import convert, engines_of, report, verify
from tests.rooms.models import test_drawn_values as drawn
from tests.rooms.models import test_unnamed
from tests.rooms.tftrt import test_thrown

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(560)]
v1 = tf.compat.v1


def embedding(path):
    """Ids in floats. Of Keras 3 TensorFlow Serving loads what `model.export` writes, and `regress` loads as it does."""
    model = drawn.embedding()
    if stacks.SAVED_INPUT:
        model.export(str(path), verbose=False)
    else:
        tf.saved_model.save(model, str(path))


def shown(test, model, said, result, error, **more):
    """Keep the row, then fail where the check did."""
    code, found = result
    report(
        test=test,
        model=model,
        engines=len(engines_of(said)) if said else None,
        snr_db=found and found["comparisons"][0]["snr_db"],
        passed=code == 0,
        evidence=found and found["evidence"],
        **more,
    )
    assert code == 0, error or found["problems"]
    assert "engines watched on" in found["evidence"] or "TensorRT" in found["runtimes"]["converted"], found["evidence"]


def test_ids_in_floats_are_drawn_inside_the_table_for_engines(tmp_path):
    embedding(tmp_path / "in")
    said = convert(
        tmp_path / "in", tmp_path / "out", "--precision=FP16", "--shapes=ids:1x20,8x20", "--minimum_segment_size=1"
    )
    code, result, error = verify(tmp_path / "in", tmp_path / "out")
    shown("random ids", "embedding, FP16", said, (code, result), error)
    done = run_tftrt(
        "regress",
        f"--native={tmp_path / 'in'}",
        f"--candidate={tmp_path / 'out'}",
        "--batch_size=8",
        "--metrics=p50",
        "--rounds=12",
        "--max_rounds=12",
        "--requests=32",
        f"--json={tmp_path / 'r.json'}",
        timeout=500,
    )
    assert (tmp_path / "r.json").exists(), done.stdout[-2000:] + done.stderr[-2000:]
    checks = {one["name"]: one["verdict"] for one in json.loads((tmp_path / "r.json").read_text())["checks"]}
    report(
        test="random ids", model="embedding, FP16, regress", passed=checks["answers"] == "pass", code=done.returncode
    )
    assert checks["answers"] == "pass", done.stdout[-2000:]


@stacks.needs_bindings
def test_ids_in_floats_are_drawn_inside_the_table_for_a_plan(tmp_path):
    embedding(tmp_path / "in")
    build(tmp_path / "in", tmp_path / "plan", "--precision=FP16", "--shapes=ids:min=1x20,opt=8x20,max=8x20")
    code, result, error = verify(tmp_path / "in", tmp_path / "plan")
    shown("random ids", "embedding, FP16 plan", None, (code, result), error)


def test_a_default_that_nobody_feeds_costs_no_engine(tmp_path):
    test_unnamed.saved(tmp_path / "in", test_unnamed.batch_normalization, (None, 16, 16, 3))
    said = convert(tmp_path / "in", tmp_path / "out", "--precision=FP16", "--shapes=x:1x16x16x3,8x16x16x3")
    code, result, error = verify(tmp_path / "in", tmp_path / "out")
    shown(
        "unnamed default",
        "TF1 batch normalization, FP16",
        said,
        (code, result),
        error,
        coverage=said["signatures"][0]["coverage"],
    )
    assert len(engines_of(said)) == 1


@stacks.needs_bindings
def test_a_default_that_nobody_feeds_costs_no_plan(tmp_path):
    test_unnamed.saved(tmp_path / "in", test_unnamed.batch_normalization, (None, 16, 16, 3))
    build(
        tmp_path / "in", tmp_path / "plan", "--precision=FP16", "--shapes=x:min=1x16x16x3,opt=8x16x16x3,max=8x16x16x3"
    )
    code, result, error = verify(tmp_path / "in", tmp_path / "plan")
    shown("unnamed default", "TF1 batch normalization, FP16 plan", None, (code, result), error)


def test_rows_chosen_by_a_vector_stay_in_tensorflow_and_the_rest_runs_in_engines(tmp_path):
    source = test_thrown.selecting(tmp_path / "in")
    said = convert(source, tmp_path / "out", "--precision=FP32", "--shapes=x:1x8,8x8;n:1,8")
    code, result, error = verify(source, tmp_path / "out")
    shown("thrown converters", "Select of rows", said, (code, result), error)
    assert engines_of(said)


@stacks.needs_keras_2  # its cells
def test_sequence_lengths_of_tensorflow_1_run_beside_engines(tmp_path):
    v1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default(), v1.Session() as session:
            x, n = v1.placeholder(tf.float32, (None, 6, 8), "x"), v1.placeholder(tf.int32, (None,), "n")
            h = tf.nn.relu(v1.layers.conv1d(x, 16, 3, padding="same"))
            y, _ = v1.nn.dynamic_rnn(v1.nn.rnn_cell.GRUCell(8), h, sequence_length=n, dtype=tf.float32)
            session.run(v1.global_variables_initializer())
            v1.saved_model.simple_save(session, str(tmp_path / "in"), {"x": x, "n": n}, {"y": y})
    finally:
        v1.enable_control_flow_v2()
    said = convert(tmp_path / "in", tmp_path / "out", "--precision=FP16", "--shapes=x:1x6x8,8x6x8;n:1,8")
    code, result, error = verify(tmp_path / "in", tmp_path / "out")
    shown("thrown converters", "dynamic_rnn, FP16", said, (code, result), error)


def test_a_model_that_builds_engines_in_its_first_calls_is_no_hang(zoo_model, tmp_path):
    convert(zoo_model("digits_cnn"), tmp_path / "model", "--precision=FP16", "--use_dynamic_shape")
    done = run_tftrt(
        "regress",
        f"--native={zoo_model('digits_cnn')}",
        f"--candidate={tmp_path / 'model'}",
        "--batch_size=8",
        "--metrics=p50",
        "--rounds=12",
        "--max_rounds=12",
        "--requests=32",
        "--timeout_seconds=2",
        f"--json={tmp_path / 'r.json'}",
        timeout=500,
    )
    said = json.loads((tmp_path / "r.json").read_text()) if (tmp_path / "r.json").exists() else None
    report(
        test="no hang",
        model="digits_cnn, engines built in the first call",
        passed=bool(said),
        code=done.returncode,
        said=done.stderr[-300:],
    )
    assert said and done.returncode in (0, 3, 4), done.stderr[-2000:]
    assert said["failed"] == {"native": 0, "candidate": 0}
