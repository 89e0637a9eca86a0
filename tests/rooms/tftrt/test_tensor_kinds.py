"""Outputs that are no dense tensors are named by inspect, verify, export and publish."""

import pytest
import tensorflow as tf

from tests.command_line import assert_clear
from tests.prepared_models import save
from tftrt_tools.models.savedmodel.job import protos
from tftrt_tools.tftrt.conversion.job import planner
from tftrt_tools.tftrt.conversion.settings import Settings

X = tf.TensorSpec((None, 4), name="x")
# {kind: (made of the input, what is said, the mend)}.
KINDS = {
    "ragged": (lambda x: tf.RaggedTensor.from_tensor(x), "is a ragged tensor", ".to_tensor()"),
    "sparse": (lambda x: tf.sparse.from_dense(tf.nn.relu(x)), "is a sparse tensor", "tf.sparse.to_dense"),
    "slices": (
        lambda x: tf.IndexedSlices(x * 2.0, tf.range(tf.shape(x)[0])),
        "is IndexedSlices",
        "tf.convert_to_tensor",
    ),
    "optional": (lambda x: tf.experimental.Optional.from_value(x), "is an optional", ".get_value()"),
    "variant": (
        lambda x: tf.raw_ops.TensorListFromTensor(tensor=x, element_shape=[4]),
        "is a variant",
        "the tensors that it holds",
    ),
    "float8": (lambda x: tf.cast(x, tf.dtypes.experimental.float8_e5m2), "is of float8_e5m2", "tf.cast"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_command_says_yes(kind, tmp_path, tftrt):
    made, said, mend = KINDS[kind]
    path = save(tf.function(lambda x: {"odd": made(x), "y": x * 2.0}, input_signature=[X]), tmp_path / "m")
    (finding,) = planner.plan(str(path), Settings()).signatures[0].findings
    assert f"output 'odd' {said}" in finding.text and mend in finding.mend
    for words in (
        ("verify", path, path),
        ("export", path, f"--output={tmp_path / 'm.onnx'}"),
        ("publish", path, "--model_name=m", f"--base_path={tmp_path / 'models'}"),
    ):
        done = tftrt(*words)
        assert done.returncode in (1, 3) and f"output 'odd' {said}" in done.stderr and mend in done.stderr, (
            done.stdout + done.stderr
        )
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "m.onnx").exists() and not (tmp_path / "models/m").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_the_check_of_inspect_says_no_and_a_conversion_names_it(kind, tmp_path, tftrt):
    made, said, mend = KINDS[kind]

    def layers(x):
        hidden = tf.nn.relu(tf.matmul(tf.nn.relu(x + 1.0), tf.ones((4, 4))))
        return {"odd": made(hidden), "y": hidden * 2.0}

    path = save(tf.function(layers, input_signature=[X]), tmp_path / "m")
    done = tftrt("inspect", path, "--check")
    assert done.returncode == 3 and f"output 'odd' {said}" in done.stdout and "next:" not in done.stdout, done.stdout
    assert tftrt("inspect", path).returncode == 0
    done = tftrt("convert", path, tmp_path / "converted", "--precision=FP16")
    assert done.returncode == 0 and f"output 'odd' {said}" in done.stdout and mend in done.stdout, done.stderr


def test_a_type_that_this_tensorflow_does_not_know_is_told(tmp_path, tftrt):
    path = save(tf.function(lambda x: {"y": tf.nn.relu(x)}, input_signature=[X]), tmp_path / "m")
    proto = protos.read(path)
    proto.meta_graphs[0].signature_def["serving_default"].outputs["y"].dtype = 99
    (path / "saved_model.pb").write_bytes(proto.SerializeToString())
    assert_clear(tftrt("verify", path, path), 1, "output 'y' is of a type that this TensorFlow does not know")


@pytest.mark.parametrize("dtype", [tf.qint8, tf.dtypes.experimental.float8_e5m2])
def test_an_input_of_a_type_that_no_array_has_is_told(dtype, tmp_path, tftrt):
    path = save(
        tf.function(lambda x: {"y": tf.identity(x)}, input_signature=[tf.TensorSpec((None, 4), dtype, name="x")]),
        tmp_path / "m",
    )
    assert_clear(tftrt("verify", path, path), 1, f"is of {dtype.name}")


def test_a_sparse_input_is_named(tmp_path, tftrt):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.sparse_placeholder(tf.float32, (None, 4), name="x")
        tf.compat.v1.saved_model.simple_save(
            session, str(tmp_path / "m"), {"x": x}, {"y": tf.sparse.to_dense(x) * 2.0 + 1.0}
        )
    for words in (
        ("verify", tmp_path / "m", tmp_path / "m"),
        ("publish", tmp_path / "m", "--model_name=m", f"--base_path={tmp_path / 'models'}"),
    ):
        done = tftrt(*words)
        assert done.returncode in (1, 3) and "input 'x' is a sparse tensor: no request holds it" in done.stderr, (
            done.stderr
        )
