"""A hard swish, x · clip(x + 3, 0, 6) / 6, and a hard sigmoid, clip(x + 3, 0, 6) / 6, as one op each.

Exporters write them as four ops and three ops. TensorRT 8.5 compiles kernels for chains of such ops, for each choice of formats anew: a
text detector with 24 hard swishes spent 624 of 897 s of its build on that.
"""

from __future__ import annotations

import math

import onnx

from tftrt_tools.tensorrt.exporting.job.graph_facts import Facts
from tftrt_tools.tensorrt.exporting.job.rewrites import editing, products

_SHIFT, _LIMIT = 3.0, 6.0


def rewrite(model: onnx.ModelProto, target: str) -> int:
    """Write them in place. Returns: how many."""
    return _written(model, swish=True) + _written(model, swish=False)


def _written(model: onnx.ModelProto, swish: bool) -> int:
    facts, written = Facts(model), []
    for node in model.graph.node:
        x = _argument(facts, node, swish) if node.op_type in ("Mul", "Div") else ""
        if x:
            writer = editing.Writer(node)
            if swish:
                writer.node("HardSwish", [x], "hard_swish", last=True)
            else:
                writer.node("HardSigmoid", [x], "hard_sigmoid", last=True, alpha=1 / _LIMIT, beta=_SHIFT / _LIMIT)
            written.append((node, writer))
    editing.replace(model, written)
    return len(written)


def _argument(facts: Facts, node: onnx.NodeProto, swish: bool) -> str:
    """x of a node that gives the hard swish or the hard sigmoid of it; "" of another node."""
    product = products.of(facts, node.output[0])
    if (
        product.divisors
        or len(product.factors) != 1 + swish
        or not math.isclose(product.number, 1 / _LIMIT, rel_tol=1e-4)
    ):
        return ""
    for gate in product.factors:
        x = _clipped(facts, gate)
        if x and (not swish or sorted((x, gate)) == list(product.factors)):
            return x if facts.same_rank(node.output[0], x) else ""
    return ""


def _clipped(facts: Facts, name: str) -> str:
    """x of clip(x + 3, 0, 6), a float32 tensor; "" of another one."""
    node = facts.producers.get(name)
    if node is None or node.op_type != "Clip" or [facts.number(one) for one in node.input[1:]] != [0, _LIMIT]:
        return ""
    for number, x in products.sides(facts, node.input[0], "Add"):
        if facts.number(number) == _SHIFT and facts.is_float(x):
            return x
    return ""
