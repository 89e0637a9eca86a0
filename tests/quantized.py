"""Small quantization-aware models for tests: each kind of quantization node that exporters write, around activations and weights.

Signature serving_default: image float32 (N, 8, 8, 3) -> logits float32 (N, 5). Two convolutions and a dense layer, whose names in
the frozen graph end in conv1, conv2 and dense; quantization nodes end in quant_a0, quant_w0, … (activations, weights).
"""

import numpy as np

# Which Python calls write which op (TF 2.14.1): tf.quantization.quantize_and_dequantize, deprecated, writes V2; its successor
# quantize_and_dequantize_v2 writes V4; V3 comes from tf.raw_ops or old graphs; tf.quantization.fake_quant_with_min_max_vars, _args
# and _vars_per_channel write FakeQuant…; Keras' model optimisation toolkit writes FakeQuantWithMinMaxVars and …PerChannel.
KINDS = (
    "QuantizeAndDequantizeV2",
    "QuantizeAndDequantizeV3",
    "QuantizeAndDequantizeV4",
    "FakeQuantWithMinMaxVars",
    "FakeQuantWithMinMaxArgs",
    "FakeQuantWithMinMaxVarsPerChannel",
)


def build(output_dir, activations, weights=None, *, dense=True):
    """Write the SavedModel.

    Args:
      activations, weights: one of KINDS, or "" for no such node; weights: None is the same as `activations`.
      dense: whether the dense layer's input and weights are quantized too.
    """
    import tensorflow as tf

    rng = np.random.default_rng(0)
    weights = activations if weights is None else weights

    values = [rng.normal(scale=0.3, size=shape).astype("float32") for shape in ((3, 3, 3, 8), (3, 3, 8, 8), (8, 5))]
    ranges = [np.abs(value).reshape(-1, value.shape[-1]).max(axis=0) for value in values]

    class Model(tf.Module):
        def __init__(self):
            self.kernels = [tf.Variable(value) for value in values]

        @tf.function(input_signature=[tf.TensorSpec((None, 8, 8, 3), tf.float32, name="image")])
        def serve(self, image):
            quantize = _Quantize(activations, weights)
            x = quantize.activation(image, 4.0)
            for index, name in enumerate(("conv1", "conv2")):
                x = tf.nn.conv2d(x, quantize.weight(self.kernels[index], ranges[index]), 1, "SAME", name=name)
                x = quantize.activation(tf.nn.relu(x), 6.0)
            x = tf.reduce_mean(x, axis=(1, 2))
            kernel = self.kernels[2]
            if dense:
                x, kernel = quantize.activation(x, 6.0), quantize.weight(kernel, ranges[2])
            return {"logits": tf.matmul(x, kernel, name="dense")}

    model = Model()
    tf.saved_model.save(model, str(output_dir), signatures={"serving_default": model.serve})


class _Quantize:
    def __init__(self, activations, weights):
        self._kinds, self._counts = {"a": activations, "w": weights}, {"a": 0, "w": 0}

    def activation(self, tensor, largest):
        return self._node("a", tensor, np.float32(largest))

    def weight(self, kernel, largest):
        return self._node("w", kernel, largest)

    def _node(self, letter, tensor, largest):
        kind = self._kinds[letter]
        name = f"quant_{letter}{self._counts[letter]}"
        self._counts[letter] += 1
        return node(kind, tensor, largest, name) if kind else tensor


def node(kind, tensor, largest, name):
    """A symmetric quantization node of `kind` over -largest to largest. Args: largest: a number, or one for each channel."""
    import tensorflow as tf

    raw, whole = tf.raw_ops, np.float32(np.max(largest))
    if kind in ("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV4"):
        return getattr(raw, kind)(input=tensor, input_min=-whole, input_max=whole, range_given=True, name=name)
    if kind == "QuantizeAndDequantizeV3":
        return raw.QuantizeAndDequantizeV3(
            input=tensor, input_min=-whole, input_max=whole, num_bits=8, range_given=True, name=name
        )
    if kind == "FakeQuantWithMinMaxVars":
        return raw.FakeQuantWithMinMaxVars(inputs=tensor, min=-whole, max=whole, narrow_range=True, name=name)
    if kind == "FakeQuantWithMinMaxArgs":
        return raw.FakeQuantWithMinMaxArgs(
            inputs=tensor, min=float(-whole), max=float(whole), narrow_range=True, name=name
        )
    largest = np.broadcast_to(np.float32(largest), tensor.shape[-1])
    return raw.FakeQuantWithMinMaxVarsPerChannel(inputs=tensor, min=-largest, max=largest, narrow_range=True, name=name)
