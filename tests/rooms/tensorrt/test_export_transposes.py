"""tf2onnx's optimization of transposes, which fails on the sum of a convolution and a scalar; and what becomes of one that fails."""

import logging

import onnx
import pytest
import tensorflow as tf
from tf2onnx.optimizer import transpose_optimizer

from tftrt_tools.command_line import cli
from tftrt_tools.models.savedmodel.job import loading
from tftrt_tools.tensorrt.exporting.job import conversion


@pytest.fixture
def source(tmp_path):
    """Two convolutions without a bias, a hard swish behind each, and the scalar 1 before the end."""
    layers = tf.keras.layers
    x = inputs = tf.keras.Input((8, 8, 3), name="x")
    for _ in range(2):
        x = layers.Conv2D(4, 3, padding="same", use_bias=False)(x)
        x = x * layers.ReLU(6.0)(x + 3.0) / 6.0
    tf.saved_model.save(tf.keras.Model(inputs, x + 1.0), str(tmp_path / "model"))
    return tmp_path / "model"


def exported(source, output, capsys, *flags):
    assert cli.main(["export", str(source), f"--output={output}", "--target=8.5", *flags]) == 0
    return capsys.readouterr().out, [node.op_type for node in onnx.load(output).graph.node]


@pytest.mark.parametrize("flags", [[], ["--rewrite=none"]], ids=["rewritten", "as tf2onnx gives it"])
def test_a_scalar_behind_a_convolution_leaves_no_transposes(source, tmp_path, capsys, flags):
    said, ops = exported(source, tmp_path / "m.onnx", capsys, *flags)
    assert ops.count("Transpose") == 2 and "optimization" not in said, (said, ops)
    if not flags:
        assert ops.count("HardSwish") == 2 and "Clip" not in ops


def test_an_optimization_that_fails_is_told(source, monkeypatch):
    class Fails:
        def optimize(self, graph, iteration):
            raise ValueError("max() arg is an empty sequence")

    root = loading.load(str(source)).root
    listed = conversion.optimizer._get_optimizers()
    monkeypatch.setattr(conversion.optimizer, "_get_optimizers", lambda: {**listed, "optimize_transpose": Fails})
    made = conversion.convert(root, root.signatures["serving_default"], conversion.Asked(opset=16))
    assert made.notes == (
        "tf2onnx's optimization optimize_transpose failed (max() arg is an empty sequence): the file may be slower for it",
    )
    assert [node.op_type for node in made.model.graph.node].count("Transpose") > 2
    assert not logging.getLogger("tf2onnx.optimizer").handlers


def test_tf2onnx_has_its_own_handler_again(source):
    before = transpose_optimizer.TransposeOptimizer._add_handler
    root = loading.load(str(source)).root
    conversion.convert(root, root.signatures["serving_default"], conversion.Asked(opset=16))
    assert transpose_optimizer.TransposeOptimizer._add_handler is before
