"""Pow(x, 2) written as x * x.

ONNX Runtime 1.23.2 casts FP16 exponents on a CPU, and its SimplifiedLayerNormFusion then fails on a layer norm: the file does not load.
"""

from __future__ import annotations

import onnx

from tftrt_tools.tensorrt.exporting.job.graph_facts import Facts


def as_products(model: onnx.ModelProto) -> int:
    """Write the squares of the outermost graph as products, in place. Returns: how many there were."""
    facts = Facts(model)
    found = [node for node in facts.nodes if node.op_type == "Pow" and facts.number(node.input[1]) == 2]
    for node in found:
        node.op_type = "Mul"
        node.input[1] = node.input[0]
    read = {name for node in facts.nodes for name in node.input}
    for tensor in [one for one in model.graph.initializer if one.name not in read and facts.readers.get(one.name)]:
        model.graph.initializer.remove(tensor)
    return len(found)
