"""GELU as one op: x/2 (1 + erf(x/√2)), and its form with tanh, x/2 (1 + tanh(√(2/π) (x + 0.044715 x³)))."""

from __future__ import annotations

import math

import onnx

from tftrt_tools.tensorrt.exporting.job.graph_facts import Facts
from tftrt_tools.tensorrt.exporting.job.rewrites import editing, products

_CUBE = 0.044715


def rewrite(model: onnx.ModelProto, target: str) -> int:
    """Write them in place. Returns: how many."""
    facts, written = Facts(model), []
    for node in model.graph.node:
        found = _match(facts, node) if node.op_type in ("Mul", "Div") else None
        if found:
            writer = editing.Writer(node)
            writer.node("Gelu", [found[0]], "gelu", last=True, approximate=found[1])
            written.append((node, writer))
    editing.replace(model, written)
    return len(written)


def _match(facts: Facts, node: onnx.NodeProto) -> tuple[str, str] | None:
    """(x, the op's attribute approximate) of a node that gives GELU."""
    product = products.of(facts, node.output[0])
    if product.divisors or len(product.factors) != 2 or not math.isclose(product.number, 0.5, rel_tol=1e-5):
        return None
    for x, gate in (product.factors, product.factors[::-1]):
        for sign, inner in _one_plus(facts, gate):
            kind = _of_erf(facts, inner, x, sign) or (_of_tanh(facts, inner, x) if sign > 0 else "")
            if kind:
                return x, kind
    return None


def _one_plus(facts: Facts, name: str) -> list[tuple[int, str]]:
    """[(1 or -1, inner)] of 1 + inner or 1 - inner."""
    found = [(1, inner) for number, inner in products.sides(facts, name, "Add") if facts.number(number) == 1]
    first = products.sides(facts, name, "Sub")[:1]
    return found + [(-1, inner) for number, inner in first if facts.number(number) == 1]


def _of_erf(facts: Facts, name: str, x: str, sign: int) -> str:
    node = facts.producers.get(name)
    if node is None or node.op_type != "Erf":
        return ""
    inner = products.of(facts, node.input[0])
    alone = inner.factors == (x,) and not inner.divisors
    return "none" if alone and math.isclose(sign * inner.number, math.sqrt(0.5), rel_tol=1e-5) else ""


def _of_tanh(facts: Facts, name: str, x: str) -> str:
    node = facts.producers.get(name)
    if node is None or node.op_type != "Tanh":
        return ""
    outer = products.of(facts, node.input[0])
    if (
        len(outer.factors) != 1
        or outer.divisors
        or not math.isclose(outer.number, math.sqrt(2 / math.pi), rel_tol=1e-5)
    ):
        return ""
    cubes = [products.of(facts, cube) for one, cube in products.sides(facts, outer.factors[0], "Add") if one == x]
    return (
        "tanh"
        if any(math.isclose(one.number, _CUBE, rel_tol=1e-4) and _cube(facts, one.factors, x) for one in cubes)
        else ""
    )


def _cube(facts: Facts, factors: tuple[str, ...], x: str) -> bool:
    """Whether the factors are x³."""
    count = 0
    for name in factors:
        node = facts.producers.get(name)
        if name == x:
            count += 1
        elif node is not None and node.op_type == "Pow" and node.input[0] == x:
            count += int(facts.number(node.input[1]) or 0)
        elif node is not None and node.op_type == "Mul" and list(node.input) == [x, x]:
            count += 2
        else:
            return False
    return count == 3
