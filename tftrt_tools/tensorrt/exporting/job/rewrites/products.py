"""Products in a graph, however their factors are nested: what a pattern looks for is then one set of factors."""

from __future__ import annotations

import dataclasses

from tftrt_tools.tensorrt.exporting.job.graph_facts import Facts


@dataclasses.dataclass(frozen=True)
class Product:
    """number: the constants, multiplied; factors: tensors, sorted by name; divisors: tensors that it is divided by."""

    number: float
    factors: tuple[str, ...]
    divisors: tuple[str, ...] = ()

    def times(self, other: Product) -> Product:
        """Both, multiplied."""
        factors, divisors = sorted(self.factors + other.factors), sorted(self.divisors + other.divisors)
        return Product(self.number * other.number, tuple(factors), tuple(divisors))


def of(facts: Facts, name: str, whole: bool = True) -> Product:
    """The product that a tensor is. Args: whole: look into the tensor even if several nodes read it; into those behind it only if the
    product alone does."""
    number = facts.number(name)
    if number is not None:
        return Product(number, ())
    node = facts.producers.get(name)
    if node is None or not (whole or facts.alone(name)):
        return Product(1.0, (name,))
    if node.op_type == "Neg":
        return Product(-1.0, ()).times(of(facts, node.input[0], False))
    if node.op_type == "Mul":
        if node.input[0] == node.input[1]:
            return Product(1.0, (node.input[0], node.input[0]))
        return of(facts, node.input[0], False).times(of(facts, node.input[1], False))
    if node.op_type == "Div":
        divisor = facts.number(node.input[1])
        below = Product(1 / divisor, ()) if divisor else Product(1.0, (), (node.input[1],))
        return of(facts, node.input[0], False).times(below)
    if node.op_type == "Reciprocal":
        return Product(1.0, (), (node.input[0],))
    return Product(1.0, (name,))


def sides(facts: Facts, name: str, op: str) -> list[tuple[str, str]]:
    """The operands of the node that makes a tensor, in both orders; [] if it is not of the op."""
    node = facts.producers.get(name)
    if node is None or node.op_type != op:
        return []
    return [(node.input[0], node.input[1]), (node.input[1], node.input[0])]
