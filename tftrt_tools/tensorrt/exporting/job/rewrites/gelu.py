"""GELU as one op: x/2 (1 + erf(x/√2)), and its form with tanh, x/2 (1 + tanh(√(2/π) (x + 0.044715 x³)))."""

from __future__ import annotations

import math
from collections.abc import Iterator

import onnx

from tftrt_tools.tensorrt.exporting.job.graph_facts import Facts, name_of
from tftrt_tools.tensorrt.exporting.job.rewrites import editing, products

_CUBE = 0.044715
# {op inside: the attribute approximate of the GELU around it}.
_KINDS = {"Erf": "none", "Tanh": "tanh"}


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


def missed(model: onnx.ModelProto, target: str) -> Iterator[tuple[str, str]]:
    """(node, why it is not a GELU) of each Erf and Tanh of a rewritten graph that 1 is added to."""
    facts = Facts(model)
    for node in facts.nodes:
        if node.op_type not in _KINDS:
            continue
        for plus in facts.readers.get(node.output[0], []):
            for sign in (sign for sign, inner in _one_plus(facts, plus.output[0]) if inner == node.output[0]):
                x, reason = _argument(facts, node, sign)
                reason = reason or _unlike(facts, plus.output[0], x)
                if reason:
                    yield name_of(node), reason


def _unlike(facts: Facts, plus: str, x: str) -> str:
    """Why 1 + erf or 1 + tanh does not become a GELU of x behind it; "" if it does, or if nothing reads it."""
    reason = ""
    for reader in facts.readers.get(plus, []):
        reason = f"its sum with 1 is not multiplied with {x}"
        node: onnx.NodeProto | None = reader
        while node is not None and node.op_type in ("Mul", "Div"):
            product = products.of(facts, node.output[0])
            if product.factors == tuple(sorted((plus, x))) and not product.divisors:
                if _is_half(product):
                    return ""
                reason = f"x (1 + …) is multiplied by {product.number:.6g}, not by 0.5"
            node = facts.alone(node.output[0])
    return reason


def _is_half(product: products.Product) -> bool:
    return math.isclose(product.number, 0.5, rel_tol=1e-5)


def _match(facts: Facts, node: onnx.NodeProto) -> tuple[str, str] | None:
    """(x, the op's attribute approximate) of a node that gives GELU."""
    product = products.of(facts, node.output[0])
    if product.divisors or len(product.factors) != 2 or not _is_half(product):
        return None
    for x, gate in (product.factors, product.factors[::-1]):
        for sign, inner in _one_plus(facts, gate):
            maker = facts.producers.get(inner)
            if maker is not None and maker.op_type in _KINDS and _argument(facts, maker, sign) == (x, ""):
                return (x, _KINDS[maker.op_type]) if facts.same_rank(node.output[0], x) else None
    return None


def _one_plus(facts: Facts, name: str) -> list[tuple[int, str]]:
    """[(1 or -1, inner)] of 1 + inner or 1 - inner."""
    found = [(1, inner) for number, inner in products.sides(facts, name, "Add") if facts.number(number) == 1]
    first = products.sides(facts, name, "Sub")[:1]
    return found + [(-1, inner) for number, inner in first if facts.number(number) == 1]


def _argument(facts: Facts, node: onnx.NodeProto, sign: int) -> tuple[str, str]:
    """(x, "") of the Erf or Tanh in a GELU; ("", why it is none). Args: sign: -1 if it is subtracted from 1."""
    if node.op_type == "Tanh" and sign < 0:
        return "", "it is subtracted from 1, not added"
    wanted = math.sqrt(0.5) if node.op_type == "Erf" else math.sqrt(2 / math.pi)
    product = products.of(facts, node.input[0])
    if len(product.factors) != 1 or product.divisors:
        return "", "its input is not one tensor times a number"
    if not math.isclose(sign * product.number, wanted, rel_tol=1e-5):
        return "", f"its input is multiplied by {product.number:.6g}, not by {sign * wanted:.6g}"
    (inner,) = product.factors
    return (inner, "") if node.op_type == "Erf" else _under_tanh(facts, inner)


def _under_tanh(facts: Facts, name: str) -> tuple[str, str]:
    """(x, "") of x + 0.044715 x³; ("", why it is not that)."""
    reason = "its input is not x + 0.044715 x³"
    for x, cube in products.sides(facts, name, "Add"):
        found = products.of(facts, cube)
        if _cube(facts, found.factors, x):
            if math.isclose(found.number, _CUBE, rel_tol=1e-4):
                return x, ""
            reason = f"x³ is multiplied by {found.number:.6g}, not by {_CUBE}"
    return "", reason


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
