"""Attention with its scale before the product: softmax(s Q Kᵀ + mask) V as softmax((s Q) Kᵀ + mask) V.

TensorRT fuses attention of four dimensions if Q or K is scaled before the product (NVIDIA's documentation of TensorRT, "Fused Attention").
"""

from __future__ import annotations

import onnx

from tftrt_tools.tensorrt.exporting.job.graph_facts import Facts
from tftrt_tools.tensorrt.exporting.job.rewrites import editing, products

_RANK = 4


def rewrite(model: onnx.ModelProto, target: str) -> int:
    """Write them in place. Returns: how many."""
    facts, written = Facts(model), []
    for node in model.graph.node:
        scaled = _scaled(facts, node) if node.op_type == "Softmax" else None
        if scaled is None:
            continue
        product = products.of(facts, scaled.output[0])
        inner = facts.producers[product.factors[0]]
        writer = editing.Writer(scaled)
        query = writer.node("Mul", [inner.input[0], writer.constant("scale", product.number)], "query")
        writer.node("MatMul", [query, inner.input[1]], "product", last=True)
        written.append((scaled, writer))
    editing.replace(model, written)
    return len(written)


def _scaled(facts: Facts, softmax: onnx.NodeProto) -> onnx.NodeProto | None:
    """The node that scales the product of a softmax that a product with V reads; None if it is not such a one."""
    reader = facts.alone(softmax.output[0])
    if reader is None or reader.op_type != "MatMul" or reader.input[0] != softmax.output[0]:
        return None
    places = [softmax.input[0], *(one for one, _ in products.sides(facts, softmax.input[0], "Add"))]
    for name in places:
        node = facts.producers.get(name)
        if node is None or node.op_type not in ("Mul", "Div") or not facts.alone(name):
            continue
        product = products.of(facts, name)
        inner = facts.producers.get(product.factors[0]) if len(product.factors) == 1 and not product.divisors else None
        if (
            inner is not None
            and inner.op_type == "MatMul"
            and facts.alone(inner.output[0])
            and len(facts.shape(name) or ()) == _RANK
            and facts.is_float(name)
        ):
            return node
    return None
