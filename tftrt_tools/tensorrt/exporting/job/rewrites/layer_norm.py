"""LayerNormalization over the last axis, however a framework has written it: as ONNX's op, or, for TensorRT 8.5, with ops that its parser
takes.

Forms that are known, of x, its mean m and its variance v:

  (x - m) / √(v + ε) · γ + β                          as written by hand
  x · (γ / √(v + ε)) + (β - m · γ / √(v + ε))         tf.nn.batch_normalization of tf.nn.moments, in Keras with ε below 0.001
  x · (γ / √(v + ε)) + (-m · (γ / √(v + ε)) + β)      Keras 3
  BatchNormalization of x as (1, rows, width, 1)      Keras with ε from 0.001 on; the number of channels depends on a tensor
  InstanceNormalization with scales that are computed what tf2onnx makes of some of the first form; 8.5 takes constants alone
  LayerNormalization                                  PyTorch's exporter; 8.5 has no such op
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from tftrt_tools.tensorrt.exporting.job.graph_facts import Facts, attributes, name_of
from tftrt_tools.tensorrt.exporting.job.rewrites import editing, products

_OPSET = 17
# The target whose parser has no such op.
_WITHOUT_OP = "8.5"
# ReduceMean takes its axes as an input from then on.
_AXES_AS_INPUT = 18
_MEANS = frozenset({"ReduceMean", "GlobalAveragePool"})
_BATCH_NORM_AXES = [0, 2, 3]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Site:
    """A layer normalization. node: gives its result; x: its input; scale, shift: γ and β, None for 1 and 0; apart: whether it is written
    with ops that every parser takes."""

    node: onnx.NodeProto
    x: str
    epsilon: float
    scale: npt.NDArray[np.float32] | None = None
    shift: npt.NDArray[np.float32] | None = None
    apart: bool = False


def rewrite(model: onnx.ModelProto, target: str) -> int:
    """Write them in place. Returns: how many."""
    opset, facts = _opset(model), Facts(model)
    whole = target != _WITHOUT_OP and opset >= _OPSET
    found = (one for one in _sites(facts) if not (one.node.op_type == "LayerNormalization" if whole else one.apart))
    sites = {site.node.output[0]: site for site in found if not whole or facts.same_rank(site.node.output[0], site.x)}
    written = []
    for site in sites.values():
        writer = editing.Writer(site.node)
        (_one_op if whole else _apart)(facts, site, writer, opset)
        written.append((site.node, writer))
    editing.replace(model, written)
    return len(written)


def missed(model: onnx.ModelProto, target: str) -> Iterator[tuple[str, str]]:
    """(node, why it stayed) of what resembles a layer normalization in a rewritten graph: square roots of a variance that something is
    divided by, or, where the target has no LayerNormalization, nodes of that op."""
    opset, facts = _opset(model), Facts(model)
    if target == _WITHOUT_OP:
        for node in facts.nodes:
            reason = _no_own_op(facts, node) if node.op_type == "LayerNormalization" else ""
            if reason:
                yield name_of(node), reason
        return
    for node in facts.nodes:
        readers = facts.readers.get(node.output[0], [])
        if node.op_type != "Sqrt" or not any(one.op_type in ("Div", "Reciprocal") for one in readers):
            continue
        below = _deviation(facts, node)
        if isinstance(below, str):
            reason = below
        elif opset < _OPSET:
            reason = f"opset {opset} has no LayerNormalization, {_OPSET} has"
        else:
            reason = (
                f"what is divided by it is not {below.x} less its mean, or the scale is no constant of the last axis"
            )
        if reason:
            yield name_of(node), reason


def _opset(model: onnx.ModelProto) -> int:
    result: int = next(one.version for one in model.opset_import if one.domain in ("", "ai.onnx"))
    return result


def _one_op(facts: Facts, site: _Site, writer: editing.Writer, opset: int) -> None:
    ones = np.ones(_width(facts, site.x), np.float32)
    given = [writer.constant("scale", ones if site.scale is None else site.scale)]
    given += [writer.constant("shift", site.shift)] if site.shift is not None else []
    writer.node("LayerNormalization", [site.x, *given], "normalized", last=True, axis=-1, epsilon=site.epsilon)


def _apart(facts: Facts, site: _Site, writer: editing.Writer, opset: int) -> None:
    def mean(tensor: str, name: str) -> str:
        if opset >= _AXES_AS_INPUT:
            return writer.node(
                "ReduceMean", [tensor, writer.constant(f"{name}_axes", [-1], np.int64)], name, keepdims=1
            )
        return writer.node("ReduceMean", [tensor], name, axes=[-1], keepdims=1)

    centred = writer.node("Sub", [site.x, mean(site.x, "mean")], "centred")
    variance = mean(writer.node("Mul", [centred, centred], "squared"), "variance")
    deviation = writer.node(
        "Sqrt", [writer.node("Add", [variance, writer.constant("epsilon", site.epsilon)], "above_zero")], "deviation"
    )
    steps = [("Div", deviation, "normalized")]
    steps += [("Mul", writer.constant("gamma", site.scale), "scaled")] if site.scale is not None else []
    steps += [("Add", writer.constant("beta", site.shift), "shifted")] if site.shift is not None else []
    tensor = centred
    for op, other, name in steps:
        tensor = writer.node(op, [tensor, other], name, last=(op, other, name) == steps[-1])


def _sites(facts: Facts) -> Iterator[_Site]:
    """All of them; where two forms end in one node, the last one counts."""
    for node in facts.nodes:
        if node.op_type == "Sqrt":
            yield from _by_hand(facts, node)
        elif node.op_type in ("BatchNormalization", "InstanceNormalization"):
            site = _batch_norm(facts, node) if node.op_type == "BatchNormalization" else _instance_norm(facts, node)
            if site:
                yield _with_affine(facts, site)
        elif node.op_type == "LayerNormalization":
            site = _own_op(facts, node)
            if site:
                yield site


def _width(facts: Facts, name: str) -> int:
    """Of the last axis; 0 if it is not known."""
    shape = facts.shape(name)
    return shape[-1] if shape and isinstance(shape[-1], int) else 0


def _vector(facts: Facts, name: str, width: int) -> npt.NDArray[np.float32] | None:
    """A constant that has a value for each place of the last axis; None for other tensors."""
    values = facts.constant(name)
    if (
        values is None
        or values.dtype != np.float32
        or values.size not in (1, width)
        or values.size != (values.shape or (1,))[-1]
    ):
        return None
    return np.broadcast_to(values.reshape(-1), (width,)).copy()


def _mean_of(facts: Facts, name: str) -> str:
    """x, if the tensor is its mean over the last axis, which stays with the size 1; else ""."""
    node = facts.producers.get(name)
    if node is None or node.op_type not in _MEANS or _no_mean(facts, node):
        return ""
    return str(node.input[0])


def _no_mean(facts: Facts, node: onnx.NodeProto) -> str:
    """Why what a mean gives is not that over the last axis, with the size 1; "" if it is."""
    rank = len(facts.shape(node.input[0]) or ())
    if not rank:
        return "the number of dimensions is not known"
    given = attributes(node)
    axes = facts.constant(node.input[1]) if len(node.input) > 1 else given.get("axes")
    if node.op_type == "GlobalAveragePool":
        over = [2]
    elif axes is not None:
        over = [int(axis) % rank for axis in axes]
    else:
        return "the mean's axes are not known, or are all"
    if over != [rank - 1]:
        return f"the mean is over {_counted(over)} of 0 to {rank - 1}, not over the last alone"
    return "" if given.get("keepdims", 1) else "the mean drops its axis (keepdims=0)"


def _counted(axes: Sequence[int]) -> str:
    return f"{'axis' if len(axes) == 1 else 'axes'} {', '.join(map(str, axes)) or 'none'}"


def _square_of(facts: Facts, name: str) -> str:
    """d, if the tensor is its square; else ""."""
    node = facts.producers.get(name)
    if node is None:
        return ""
    squared = (
        node.op_type == "Mul"
        and node.input[0] == node.input[1]
        or node.op_type == "Pow"
        and facts.number(node.input[1]) == 2
    )
    return str(node.input[0]) if squared else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Deviation:
    """√(v + ε) of x. mean: the tensor that is m."""

    x: str
    mean: str
    epsilon: float


def _deviation(facts: Facts, root: onnx.NodeProto) -> _Deviation | str:
    """What a square root is taken of; why that is no v + ε over the last axis; "" if it has nothing of a variance."""
    reason = ""
    for variance, number in products.sides(facts, root.input[0], "Add"):
        averaged = facts.producers.get(variance)
        if averaged is None or averaged.op_type not in _MEANS:
            continue
        centred = facts.producers.get(_square_of(facts, averaged.input[0]))
        if centred is None or centred.op_type != "Sub":
            continue
        x, mean = centred.input
        subtracted = facts.producers.get(mean)
        epsilon = facts.number(number)
        if reason := _no_mean(facts, averaged):
            continue
        if subtracted is None or subtracted.op_type not in _MEANS or subtracted.input[0] != x:
            reason = f"what is subtracted from {x} is not its mean"
        elif reason := _no_mean(facts, subtracted):
            continue
        elif epsilon is None:
            reason = "epsilon is not a constant of one element"
        elif not facts.is_float(x):
            reason = f"{x} is not known to be float32"
        elif not _width(facts, x):
            reason = f"the size of the last axis of {x} is open"
        else:
            return _Deviation(x=x, mean=mean, epsilon=epsilon)
    return reason


def _by_hand(facts: Facts, root: onnx.NodeProto) -> Iterator[_Site]:
    """The first three forms. Args: root: the node that takes the square root."""
    below = _deviation(facts, root)
    if isinstance(below, str):
        return
    x, mean, epsilon = below.x, below.mean, below.epsilon
    differences = {
        node.output[0] for node in facts.readers[x] if node.op_type == "Sub" and list(node.input) == [x, mean]
    }
    for node in facts.nodes:
        site = (
            _first_form(facts, node, x, differences, root.output[0], epsilon)
            or _second_form(facts, node, x, mean, root.output[0], epsilon)
            or _third_form(facts, node, x, mean, root.output[0], epsilon)
        )
        if site:
            yield site


def _factor(
    facts: Facts, product: products.Product, wanted: str, root: str, width: int
) -> npt.NDArray[np.float32] | None:
    """γ, if a product is wanted · γ / root; else None. Args: wanted: "" for none."""
    if product.divisors != (root,):
        return None
    factors = list(product.factors)
    if wanted:
        if wanted not in factors:
            return None
        factors.remove(wanted)
    scale = _vector(facts, factors[0], width) if len(factors) == 1 else np.ones(width, np.float32)
    if len(factors) > 1 or scale is None:
        return None
    return np.asarray(scale * np.float32(product.number), np.float32)


def _first_form(
    facts: Facts, node: onnx.NodeProto, x: str, differences: set[str], root: str, epsilon: float
) -> _Site | None:
    width = _width(facts, x)

    def scale_of(name: str) -> npt.NDArray[np.float32] | None:
        product = products.of(facts, name)
        return next(
            (found for one in differences if (found := _factor(facts, product, one, root, width)) is not None), None
        )

    if node.op_type == "Add":
        for name, number in products.sides(facts, node.output[0], "Add"):
            shift = _vector(facts, number, width)
            scale = scale_of(name) if shift is not None else None
            if scale is not None:
                return _Site(node=node, x=x, epsilon=epsilon, scale=scale, shift=shift, apart=True)
    if node.op_type in ("Mul", "Div") and not _goes_on(facts, node.output[0], width):
        scale = scale_of(node.output[0])
        if scale is not None:
            return _Site(node=node, x=x, epsilon=epsilon, scale=scale, apart=True)
    return None


def _goes_on(facts: Facts, name: str, width: int) -> bool:
    """Whether a constant is multiplied with the tensor, or added to it, behind it: then the normalization ends there."""
    reader = facts.alone(name)
    return (
        reader is not None
        and reader.op_type in ("Mul", "Add")
        and any(
            other == name and _vector(facts, number, width) is not None
            for other, number in (tuple(reader.input), tuple(reader.input)[::-1])
        )
    )


def _second_form(facts: Facts, node: onnx.NodeProto, x: str, mean: str, root: str, epsilon: float) -> _Site | None:
    width = _width(facts, x)
    for first, second in products.sides(facts, node.output[0], "Add"):
        rest = facts.producers.get(second)
        if rest is None or rest.op_type not in ("Sub", "Neg"):
            continue
        # Of β = 0 only the sign is left.
        shift = _vector(facts, rest.input[0], width) if rest.op_type == "Sub" else np.zeros(width, np.float32)
        scale, less = _through(facts, first, x, root, width), _through(facts, rest.input[-1], mean, root, width)
        if scale is not None and shift is not None and less is not None and np.array_equal(scale, less):
            return _Site(node=node, x=x, epsilon=epsilon, scale=scale, shift=shift, apart=True)
    return None


def _third_form(facts: Facts, node: onnx.NodeProto, x: str, mean: str, root: str, epsilon: float) -> _Site | None:
    width = _width(facts, x)
    for first, second in products.sides(facts, node.output[0], "Add"):
        scale = _through(facts, first, x, root, width)
        if scale is None:
            continue
        shifted = ((one, _vector(facts, number, width)) for one, number in products.sides(facts, second, "Add"))
        for rest, shift in ((second, np.zeros(width, np.float32)), *shifted):
            less = _through(facts, rest, mean, root, width, times=-1) if shift is not None else None
            if less is not None and np.array_equal(scale, less):
                return _Site(node=node, x=x, epsilon=epsilon, scale=scale, shift=shift, apart=True)
    return None


def _through(
    facts: Facts, name: str, wanted: str, root: str, width: int, times: float = 1
) -> npt.NDArray[np.float32] | None:
    """γ, if the tensor is times · wanted · (γ / root)."""
    outer = products.of(facts, name)
    if wanted not in outer.factors or len(outer.factors) != 2 or outer.divisors or outer.number != times:
        return None
    (inner,) = (one for one in outer.factors if one != wanted) if outer.factors.count(wanted) == 1 else ("",)
    return _factor(facts, products.of(facts, inner), "", root, width) if inner else None


def _with_affine(facts: Facts, site: _Site) -> _Site:
    """The same with the constants that are multiplied and added behind it."""
    width = _width(facts, site.x)
    for op in ("Mul", "Add"):
        reader = facts.alone(site.node.output[0])
        if reader is None or reader.op_type != op:
            continue
        number = next((one for one in reader.input if one != site.node.output[0]), "")
        vector = _vector(facts, number, width)
        if vector is not None:
            site = dataclasses.replace(
                site,
                node=reader,
                scale=vector if op == "Mul" else site.scale,
                shift=vector if op == "Add" else site.shift,
            )
    return site


def _filled(facts: Facts, name: str, value: float) -> bool:
    """Whether all elements of a tensor, constant or of a computed shape, are this number."""
    node = facts.producers.get(name)
    if node is not None and node.op_type == "Expand":
        return facts.number(node.input[0]) == value
    if node is not None and node.op_type == "ConstantOfShape":
        filling = next((helper.get_attribute_value(one) for one in node.attribute if one.name == "value"), None)
        return (float(onnx.numpy_helper.to_array(filling).reshape(-1)[0]) if filling is not None else 0.0) == value
    values = facts.constant(name)
    return values is not None and bool(np.all(values == value))


def _same_form(facts: Facts, name: str, x: str) -> bool:
    """Whether a tensor that a Reshape gives has the shape of x, because it asks for that."""
    node = facts.producers[name]
    shape = facts.producers.get(node.input[1])
    while shape is not None and shape.op_type == "Cast":
        shape = facts.producers.get(shape.input[0])
    if shape is not None and shape.op_type == "Shape":
        return str(shape.input[0]) == x
    mine, theirs = facts.shape(name), facts.shape(x)
    return bool(mine) and mine == theirs and sum(not isinstance(one, int) or one <= 0 for one in mine or ()) <= 1


def _batch_norm(facts: Facts, node: onnx.NodeProto) -> _Site | None:
    """Keras' LayerNormalization with ε from 0.001 on: rows are channels, whose mean and variance are computed."""
    form = facts.producers.get(node.input[0])
    back = facts.alone(node.output[0])
    if form is None or form.op_type != "Reshape" or back is None or back.op_type != "Reshape":
        return None
    x, sizes = form.input[0], facts.constant(form.input[1])
    width = _width(facts, x)
    if sizes is None or not width or sizes.tolist() != [1, -1, width, 1] or not _same_form(facts, back.output[0], x):
        return None
    if not (_filled(facts, node.input[1], 1) and _filled(facts, node.input[2], 0)):
        return None
    if not _moments(facts, form.output[0], node.input[3], node.input[4]):
        return None
    return _Site(node=back, x=x, epsilon=next((one.f for one in node.attribute if one.name == "epsilon"), 1e-5))


def _moments(facts: Facts, rows: str, mean: str, variance: str) -> bool:
    """Whether two tensors are the mean and the variance over all axes but the second, as tf2onnx writes them."""
    squeezed, divided = facts.producers.get(mean), facts.producers.get(variance)
    if squeezed is None or squeezed.op_type != "Squeeze" or divided is None or divided.op_type != "Div":
        return False
    summed = facts.producers.get(divided.input[0])
    centred = (
        facts.producers.get(summed.input[0]) if summed is not None and summed.op_type == "ReduceSumSquare" else None
    )
    return (
        centred is not None
        and summed is not None
        and centred.op_type == "Sub"
        and list(centred.input) == [rows, squeezed.input[0]]
        and _over(facts, squeezed.input[0], "ReduceMean") == rows
        and _axes(facts, summed) == _BATCH_NORM_AXES
        and _counts(facts, divided.input[1], rows)
    )


def _over(facts: Facts, name: str, op: str) -> str:
    node = facts.producers.get(name)
    return (
        str(node.input[0]) if node is not None and node.op_type == op and _axes(facts, node) == _BATCH_NORM_AXES else ""
    )


def _axes(facts: Facts, node: onnx.NodeProto) -> list[int]:
    given = next((list(one.ints) for one in node.attribute if one.name == "axes"), None)
    values = facts.constant(node.input[1]) if len(node.input) > 1 else None
    return given if given is not None else values.tolist() if values is not None else []


def _counts(facts: Facts, name: str, rows: str) -> bool:
    """Whether a tensor is how many values a channel has: the product of the sizes of all other axes."""
    path = ("Cast", "ReduceProd", "Gather", "Shape")
    for op in path:
        node = facts.producers.get(name)
        if node is None or node.op_type != op:
            return False
        if op == "Gather":
            indices = facts.constant(node.input[1])
            if indices is None or indices.reshape(-1).tolist() != _BATCH_NORM_AXES:
                return False
        name = node.input[0]
    return name == rows


def _instance_norm(facts: Facts, node: onnx.NodeProto) -> _Site | None:
    """What tf2onnx makes of a layer normalization of three dimensions: rows are channels."""
    x = node.input[0]
    plain = _filled(facts, node.input[1], 1) and _filled(facts, node.input[2], 0)
    if len(facts.shape(x) or ()) != 3 or not _width(facts, x) or not plain:
        return None
    return _Site(node=node, x=x, epsilon=next((one.f for one in node.attribute if one.name == "epsilon"), 1e-5))


def _own_op(facts: Facts, node: onnx.NodeProto) -> _Site | None:
    if _no_own_op(facts, node):
        return None
    given, width = attributes(node), _width(facts, node.input[0])
    scale = _vector(facts, node.input[1], width)
    shift = _vector(facts, node.input[2], width) if len(node.input) > 2 else None
    return _Site(node=node, x=node.input[0], epsilon=given.get("epsilon", 1e-5), scale=scale, shift=shift)


def _no_own_op(facts: Facts, node: onnx.NodeProto) -> str:
    """Why a LayerNormalization cannot be taken apart; "" if it can."""
    x, axis = node.input[0], attributes(node).get("axis", -1)
    rank, width = len(facts.shape(x) or ()), _width(facts, x)
    if len([one for one in node.output if one]) > 1:
        return "its mean or its deviation is read, too"
    if not rank:
        return f"the number of dimensions of {x} is not known"
    if axis not in (-1, rank - 1):
        return f"it is over axis {axis} and those behind it of 0 to {rank - 1}, not over the last alone"
    if not width:
        return f"the size of the last axis of {x} is open"
    for name, one in zip(("the scale", "the shift"), node.input[1:3], strict=False):
        if _vector(facts, one, width) is None:
            return f"{name} is no float32 constant of {width} elements"
    return ""
