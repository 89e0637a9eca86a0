"""What makes a spectrum whose magnitude goes into a logarithm: there small values count as much as large ones.

8 bits do not hold them beside each other. FP16 does, but a sum over a loud signal that was rounded has its error in every frequency, the
quiet ones, too. So the products and what lies between them stay in FP32, and TensorRT takes the fastest of its wider types.
"""

from __future__ import annotations

import onnx

from tftrt_tools.tensorrt.exporting.job.graph_facts import SAME_VALUES, Facts, name_of

_PRODUCTS = frozenset({"Conv", "Gemm", "MatMul"})
# What lies between a product and the logarithm: sums, parts and scales, and what keeps from zero.
_BETWEEN = SAME_VALUES | frozenset(
    {
        "Abs",
        "Add",
        "AveragePool",
        "Clip",
        "Concat",
        "Div",
        "Gather",
        "Max",
        "MaxPool",
        "Min",
        "Mul",
        "Neg",
        "Pad",
        "ReduceMax",
        "ReduceMean",
        "ReduceSum",
        "Slice",
        "Split",
        "Sqrt",
        "Sub",
        "Sum",
        "Where",
    }
)
_SQUARES = frozenset({"ReduceL2", "ReduceSumSquare"})
_LOG = "Log"
# How far a chain of nodes is followed: a spectrum in octaves is joined of many.
_DEEPEST = 60


def products(facts: Facts) -> dict[str, str]:
    """{name of a product: why it stays}."""
    found = nodes(facts)
    named = [name_of(node) for node in facts.nodes if node.op_type in _PRODUCTS]
    return {name: found[name] for name in named if name in found}


def nodes(facts: Facts) -> dict[str, str]:
    """{name of a node from the first product to the logarithm: why it stays}."""
    found: dict[str, str] = {}
    seen: dict[tuple[str, bool], bool] = {}
    for node in facts.nodes:
        if node.op_type == _LOG:
            name = name_of(node)
            why = f"{name} takes the logarithm of its squares"
            if _behind(facts, node.input[0], False, why, found, seen, 0):
                found.setdefault(name, "it takes the logarithm of a spectrum")
    return found


def _behind(
    facts: Facts,
    tensor: str,
    squared: bool,
    why: str,
    found: dict[str, str],
    seen: dict[tuple[str, bool], bool],
    depth: int,
) -> bool:
    """Note the nodes that a tensor comes from. Args: squared: whether a square lies between it and the logarithm.

    Returns: whether one does, or lies behind.
    """
    node = facts.producers.get(tensor)
    if node is None or depth > _DEEPEST:
        return squared
    key = (tensor, squared)
    if key in seen:
        return seen[key]
    seen[key] = squared
    square = _is_square(facts, node)
    if square or node.op_type in _PRODUCTS:
        # What is squared, with the filters behind it; or a filter bank, which sums squares.
        reached = _behind(facts, node.input[0], squared or square, why, found, seen, depth + 1) or squared or square
    elif node.op_type in _BETWEEN:
        reached = any(
            [
                _behind(facts, one, squared, why, found, seen, depth + 1)
                for one in dict.fromkeys(filter(None, node.input))
            ]
        )
    else:
        return squared
    if reached:
        found.setdefault(name_of(node), why)
    seen[key] = reached
    return reached


def _is_square(facts: Facts, node: onnx.NodeProto) -> bool:
    if node.op_type == "Mul":
        return bool(node.input[0] == node.input[1])
    return node.op_type in _SQUARES or node.op_type == "Pow" and facts.number(node.input[1]) == 2
