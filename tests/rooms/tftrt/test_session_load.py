"""Variables that tf.saved_model.load finds and a session, as TensorFlow Serving has it, does not."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.prepared_models import save
from tftrt_tools.models.savedmodel.job import protos, session_load
from tftrt_tools.tftrt.conversion.job import planner
from tftrt_tools.tftrt.conversion.settings import Settings

v1 = tf.compat.v1


class Variable(tf.__internal__.tracking.AutoTrackable):
    """A variable around tf.Variable, saved as Keras 3 saves its own: as a copy."""

    _should_act_as_resource_variable = True

    def __init__(self, value):
        self.__dict__["value"] = value

    def __getattr__(self, name):
        return getattr(self.__dict__["value"], name)

    def _export_to_saved_model_graph(self, object_map, tensor_map, options, **kwargs):
        resources = self.value._export_to_saved_model_graph(object_map, tensor_map, options, **kwargs)
        object_map[self] = tf.Variable(object_map[self.value])
        return resources

    def _serialize_to_tensors(self):
        return {"VARIABLE_VALUE": self.value}

    def _restore_from_tensors(self, restored):
        return self.value.assign(restored["VARIABLE_VALUE"])

    def _write_object_proto(self, proto, options):
        self.value._write_object_proto(proto, options)


def saved(path, around):
    """A model that keeps its variables in a list, as `around` makes them."""
    kernel = tf.Variable(np.random.default_rng(0).normal(size=(4, 3)).astype("f4"), name="kernel")
    module = tf.Module()
    module.kept = [around(kernel)]

    @tf.function(input_signature=[tf.TensorSpec((None, 4), name="x")])
    def serve(x):
        return {"y": tf.nn.softmax(tf.nn.relu(x @ kernel) + 1)}

    module.serve = serve
    tf.saved_model.save(module, str(path), signatures=serve)
    return path


def in_a_session(path):
    """The answer of the model as the development server loads it."""
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        signature = v1.saved_model.load(session, ["serve"], str(path)).signature_def["serving_default"]
        return session.run(signature.outputs["y"].name, {signature.inputs["x"].name: np.ones((1, 4), "f4")})


def test_the_check_agrees_with_a_session(tmp_path):
    good, bad = saved(tmp_path / "good", lambda one: one), saved(tmp_path / "bad", Variable)
    assert in_a_session(good).shape == (1, 3)
    assert session_load.lost(protos.meta_graph(protos.read(good))) == ()
    with pytest.raises(tf.errors.FailedPreconditionError):
        in_a_session(bad)
    assert session_load.lost(protos.meta_graph(protos.read(bad))) == ("kernel",)


def test_publish_and_inspect_name_the_variable(tmp_path, tftrt):
    bad = saved(tmp_path / "bad", Variable)
    done = tftrt("publish", bad, "--model_name=m", f"--base_path={tmp_path / 'models'}")
    assert (
        done.returncode == 3 and "kernel: TensorFlow Serving does not find the value of this variable" in done.stderr
    ), done.stderr
    assert "one.value for one in model.variables" in done.stderr and not (tmp_path / "models/m").exists()
    assert planner.plan(str(bad), Settings()).signatures[0].findings[0].about == "kernel"
    done = tftrt("inspect", bad, "--check", "--minimum_segment_size=1")
    assert done.returncode == 3 and "kernel: TensorFlow Serving does not find the value" in done.stdout, done.stderr


@pytest.mark.parametrize("command", ["bench {0} {0}", "regress --in_process --native={0} --candidate={0}"])
def test_what_runs_models_as_a_server_does_names_the_variable(command, tmp_path, tftrt):
    bad = saved(tmp_path / "bad", Variable)
    done = tftrt(*command.format(bad).split())
    cause, mend = done.stderr.splitlines()[-2:]
    assert done.returncode == 1 and cause.startswith("tftrt: error: "), done.stderr
    assert cause.endswith(
        f"{bad}: kernel: TensorFlow Serving does not find the value of this variable, only tf.saved_model.load does"
    )
    assert "one.value for one in model.variables" in mend


@pytest.mark.skipif(int(keras.__version__.split(".")[0]) < 3, reason="Keras 2 saves its variables themselves")
@pytest.mark.parametrize(
    ("save", "found"),
    [
        (lambda model, path: model.export(path, verbose=False), True),
        (lambda model, path: tf.saved_model.save(model, path), False),
    ],
    ids=["export", "save"],
)
def test_the_check_agrees_with_a_session_on_what_keras_3_writes(save, found, tmp_path, tftrt):
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Input((4,)), layers.Dense(3, name="scores"), layers.BatchNormalization()])
    save(model, str(tmp_path / "model"))
    meta_graph = protos.meta_graph(protos.read(tmp_path / "model"))
    (output,) = (one.name for one in meta_graph.signature_def["serving_default"].outputs.values())
    (x,) = (one.name for one in meta_graph.signature_def["serving_default"].inputs.values())
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        v1.saved_model.load(session, ["serve"], str(tmp_path / "model"))
        if found:
            assert session.run(output, {x: np.ones((1, 4), "f4")}).shape == (1, 3)
        else:
            with pytest.raises(tf.errors.FailedPreconditionError):
                session.run(output, {x: np.ones((1, 4), "f4")})
    assert len(session_load.lost(meta_graph)) == (0 if found else 6)
    done = tftrt("publish", tmp_path / "model", "--model_name=m", f"--base_path={tmp_path / 'models'}", "--nowarmup")
    assert (done.returncode, (tmp_path / "models/m/1").is_dir()) == (0 if found else 3, found), done.stderr
    assert found or "does not find the value of this variable (and of 5 more)" in done.stderr


def test_tf1_and_models_without_variables_are_found(tmp_path):
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, (None, 4), "x")
        y = x @ v1.get_variable("w", (4, 3)) + v1.Variable(1.0, use_resource=False)
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, str(tmp_path / "tf1"), {"x": x}, {"y": y})
    plain = save(
        tf.function(lambda x: {"y": x + 1}, input_signature=[tf.TensorSpec((None, 4), name="x")]), tmp_path / "plain"
    )
    for path in (tmp_path / "tf1", plain):
        assert session_load.lost(protos.meta_graph(protos.read(path))) == ()
