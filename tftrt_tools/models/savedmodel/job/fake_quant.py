"""FakeQuant nodes, as tensorflow-model-optimization writes them around weights and activations.

TF-TRT takes no convolution whose weights pass through one. On constants the node is replaced by its own output, with the same answers.
On activations it is a range for INT8; in another precision it stays in TensorFlow, between engines, and rounds to 8 bits.
"""

import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tftrt_tools.models.savedmodel.job import folding

OPS = frozenset({"FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel", "FakeQuantWithMinMaxArgs"})
# With one of these in the graph TF-TRT requires quantization nodes on weights.
_EXPLICIT = "QuantizeAndDequantizeV2"


def fold(graph_def: graph_pb2.GraphDef, kept: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Compute those on constants, in place. Args: graph_def: frozen. kept: names of nodes to leave. Returns: names of the nodes that
    became constants."""
    nodes = {node.name: node for node in graph_def.node}
    fakes = [node for node in graph_def.node if node.op in OPS and node.name not in kept]
    if not fakes or any(node.op == _EXPLICIT for node in graph_def.node):
        return ()
    values = {node.name: folding.value(node.name, nodes, folding.FILTERS | OPS) for node in fakes}
    folded = {name: value for name, value in values.items() if value is not None}
    for name, value in folded.items():
        node = nodes[name]
        # A constant needs no control inputs.
        node.op, node.input[:] = "Const", []
        node.attr.clear()
        node.attr["dtype"].type = tf.float32.as_datatype_enum
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
    return tuple(folded)


def leave_out(graph_def: graph_pb2.GraphDef, kept: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Let the remaining nodes pass their input on, in place. The answers change: nothing is rounded to 8 bits or clipped any more.
    Returns: their names."""
    nodes = [node for node in graph_def.node if node.op in OPS and node.name not in kept]
    for node in nodes:
        controls = [source for source in node.input if source.startswith("^")]
        node.op, node.input[:] = "Identity", [node.input[0], *controls]
        node.attr.clear()
        node.attr["T"].type = tf.float32.as_datatype_enum
    return tuple(node.name for node in nodes)
