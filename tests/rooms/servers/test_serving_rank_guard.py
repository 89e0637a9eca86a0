"""Requests of the wrong rank to a convolution: the development server answers as TensorFlow does without oneDNN, and stays up."""

import numpy as np
import pytest

from tests.conformance import address, launch

WAIT = 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    import tensorflow as tf

    class Convolution(tf.Module):
        def __init__(self):
            super().__init__()
            self.kernel = tf.Variable(tf.ones([3, 3, 3, 8]))

        @tf.function(input_signature=[tf.TensorSpec([None, None, None, 3], tf.float32, name="x")])
        def declared(self, x):
            return {"y": tf.nn.conv2d(x, self.kernel, 1, "SAME")}

        @tf.function(input_signature=[tf.TensorSpec(None, tf.float32, name="x")])
        def open(self, x):
            return {"y": tf.nn.conv2d(x, self.kernel, 1, "SAME")}

    path = tmp_path_factory.mktemp("convolution")
    module = Convolution()
    tf.saved_model.save(module, str(path / "1"), signatures={"serving_default": module.declared, "open": module.open})
    return path


@pytest.fixture(scope="module", params=["with oneDNN", "without"])
def process(request, folder, tmp_path_factory):
    flags = ["--model_name=convolution", f"--model_base_path={folder}"]
    env = {"CUDA_VISIBLE_DEVICES": "", "TF_ENABLE_ONEDNN_OPTS": str(int(request.param == "with oneDNN"))}
    with launch.LocalServer(flags, tmp_path_factory.mktemp("log") / "log.txt", env=env) as process:
        yield process


@pytest.mark.parametrize("signature", ["serving_default", "open"])
def test_a_wrong_rank_is_an_invalid_argument(process, signature):
    server = address.Server(process.grpc_address, process.rest_address)
    for _ in range(2):
        for shape in ((), (3,), (8, 3), (8, 8, 3), (2, 8, 8, 8, 3)):
            inputs = {"x": address.tensor(np.ones(shape, np.float32))}
            code, text = address.refusal(
                server.prediction.Predict, address.predict_request("convolution", inputs, signature=signature), WAIT
            )
            assert code == "INVALID_ARGUMENT"
            assert text.startswith(f"convolution input must be 4-dimensional: [{','.join(map(str, shape))}]\n\t [[{{{{")
        good = server.predict(
            "convolution", {"x": address.tensor(np.ones((1, 3, 3, 3), np.float32))}, WAIT, signature=signature
        )
        assert good.outputs["y"].float_val[4 * 8] == 27
    assert process.process.poll() is None
    server.close()
