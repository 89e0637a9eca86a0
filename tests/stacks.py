"""What differs between the stacks that the tests run on, as data: TensorFlow 2.14 with Keras 2, and TensorFlow 2.17 with Keras 3."""

import dataclasses
import functools
import importlib.metadata
import importlib.util
import re
import sys

import pytest


@dataclasses.dataclass(frozen=True)
class Stack:
    tensorflow: str
    linked: str
    """The TensorRT that TensorFlow is linked with."""
    loaded: tuple[str, ...]
    heads: dict[str, str]
    """{what their engines say of them: what is said of an engine whose second number is 4}."""
    """Those that may be installed for it."""
    compared: int
    """Tensors of the digits CNN that an export compares up to its second convolution: Keras 2 has the batch normalization for one of them."""
    first: str
    """Its first convolution after the graph pass, for `node`: TensorFlow folds Keras 3's normalization into it, and it gets that one's name."""
    inner: tuple[str, ...]
    """The last parts of the names of the first tensors that it shares with its engine, and below how many of its 14 they share."""
    shared: int
    einsums: int
    """Those of two layers EinsumDense and a MultiHeadAttention between them. Keras 3 writes products of matrices for most."""
    exported_einsums: int
    """Those of a MultiHeadAttention that an export writes otherwise."""


STACKS = {
    "2.14": Stack(
        "2.14.1",
        linked="8.4.3",
        loaded=("8.5.3",),
        heads={"8.5.3.1": "8.4.3.1"},
        compared=3,
        first="conv1/Conv2D",
        inner=("Conv2D:0", "FusedBatchNormV3:0", "Relu:0", "BiasAdd:0"),
        shared=14,
        einsums=8,
        exported_einsums=6,
    ),
    "2.17": Stack(
        "2.17.1",
        linked="8.6.1",
        loaded=("8.6.0", "8.6.1"),
        heads={"8.6.0.12": "8.4.0.12", "8.6.1.6": "8.4.1.6"},
        compared=2,
        first="norm1/batchnorm/mul_1",
        inner=("add_1:0", "Relu:0", "convolution:0", "BiasAdd:0"),
        shared=12,
        einsums=2,
        exported_einsums=2,
    ),
}


@functools.cache
def here() -> Stack:
    """The stack of this Python. Another TensorFlow is a KeyError: its row is missing."""
    return STACKS[".".join(importlib.metadata.version("tensorflow").split(".")[:2])]


# What commands advise depends on the Python alone: TensorFlow 2.14's TensorRT has no wheels for later ones.
EXPORT, INSTALL = (
    ("export", '"tensorflow[and-cuda]==2.14.1"')
    if sys.version_info[:2] == (3, 10)
    else ("export-tensorflow", '"tensorflow[and-cuda]==2.17.1"')
)

needs_bindings = pytest.mark.skipif(
    importlib.util.find_spec("tensorrt") is None,
    reason="TensorRT's Python package is not installed: 8.6 has none for Python 3.12",
)

# Why no plan can be built on a machine without a GPU.
NO_PLAN = "no plan can be built here" if importlib.util.find_spec("tensorrt") is None else "no GPU is visible here"

needs_older_onnxruntime = pytest.mark.skipif(
    importlib.util.find_spec("onnxruntime") is not None
    and int(importlib.metadata.version("onnxruntime").split(".")[1]) >= 32,
    reason="ONNX Runtime 1.23.2 refuses it, and 1.32.0 does not",
)

_KERAS_3 = importlib.util.find_spec("tensorflow") is not None and here().tensorflow != STACKS["2.14"].tensorflow
needs_keras_2 = pytest.mark.skipif(_KERAS_3, reason="it states nodes of Keras 2's graph, and Keras 3 writes others")
needs_keras_3 = pytest.mark.skipif(
    not _KERAS_3, reason="Keras 2 saves a subclass with its own variables, which a session finds"
)
needs_keras_2_optimizers = pytest.mark.skipif(
    _KERAS_3,
    reason="Keras 3 has no legacy optimizers, and tells TensorFlow of no class that restores one: it is loaded as any object",
)
needs_image = pytest.mark.skipif(_KERAS_3, reason="it publishes for the project's image, which has TensorRT 8.5.3")

# The worst nodes of the CNN with badly spread channels: with Keras 3 TensorFlow folds a normalization into a convolution, which gets its name.
WORST = (
    {"spread_cnn_1/spread_depthwise_1/depthwise", "spread_project_norm_1/batchnorm/mul_1"}
    if _KERAS_3
    else {"spread_cnn/spread_depthwise/depthwise", "spread_cnn/spread_project/Conv2D"}
)

# Messages that TensorRT 8.6 has and 8.5 has not, or the other way round.
OTHER_WORDS = {"engine_of_other_nvrtc", "layernorm_in_fp16"} if _KERAS_3 else set()

# Whether TensorRT's engines leave their kernels in the library. Seen on an H200: a MobileNetV2 of 8.6 has 11.1 MB in FP32 and 12.1 MB in FP16.
KERNELS_OUTSIDE = not _KERAS_3

# The last tensor of the digits CNN.
PROBABILITIES = (
    "StatefulPartitionedCall/digits_cnn_1/probabilities_1/Softmax"
    if _KERAS_3
    else "StatefulPartitionedCall/digits_cnn/probabilities/Softmax"
)

# Tensors of the digits CNN that have a range: Keras 3 writes its batch normalization as a product and a sum, with a constant each.
RANGES = 25 if _KERAS_3 else 24

# A word of Python as the name of an input, which TensorFlow 2.17 does not save.
KEYWORD = "class" if not _KERAS_3 else "Class"
# The types of nodes that Keras names otherwise; Keras 2 names them after their type.
TYPES = {"add_1": "AddV2", "convolution": "Conv2D", "MaxPool2d": "MaxPool"} if _KERAS_3 else {}
# What Keras calls the op of a MaxPooling2D.
POOL = "MaxPool2d" if _KERAS_3 else "MaxPool"
# The next major version of Keras, whose files this one cannot read.
NEWER_KERAS = 4 if _KERAS_3 else 3

# Keras 3 gives these ops names of its own.
_OPS = {
    "Conv2D": "(Conv2D|convolution)",
    "conv2d_transpose": "conv(2d)?_transpose",
    "PartitionedCall": "(Stateful)?PartitionedCall",
}

# tf.saved_model.save calls the only input of a Keras 3 model so, whatever the model calls it.
SAVED_INPUT = "inputs" if _KERAS_3 else None


def node(name: str) -> str:
    """A regular expression for a node that Keras 2 gives this name, such as conv1/Conv2D. Keras 3 puts a number behind each layer's name when
    it saves a model: conv1_1/convolution."""
    *layers, op = name.split("/")
    return "/".join([*(rf"{re.escape(layer)}(_\d+)?" for layer in layers), _OPS.get(op, re.escape(op))])
