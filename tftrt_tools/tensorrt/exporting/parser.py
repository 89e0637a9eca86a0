"""What a target's parser refuses of a graph, by node and with the reason; pure functions over data."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from tftrt_tools.base import records
from tftrt_tools.models.savedmodel.engine_op import Shape
from tftrt_tools.tensorrt.exporting import advice
from tftrt_tools.tensorrt.exporting.onnx_graph import INPUT, OUTPUT, Node
from tftrt_tools.tensorrt.exporting.targets import Parser, Target

# The input whose type the parser's list speaks of; of other ops it is the first.
_TYPED_INPUT = {"Where": 1}
# Or it is the output, because the inputs are sizes.
_TYPED_OUTPUT = frozenset({"ConstantOfShape", "RandomNormal", "RandomUniform"})
_ENDS = frozenset({INPUT, OUTPUT})
# The parsers compute in FP32 what is of these types. Callers would get another type than they ask for.
_NARROWED = frozenset({"float64"})
# Their limits may be the largest INT64, which becomes the largest INT32 and means the same: to the end; as often as the condition holds.
_CLAMPED_WELL = frozenset({"Slice", "Loop"})

# How the reason ends of what an older opset says otherwise (`job.misread`).
_NEWER = "axes that are an input, and would reduce over all"


@dataclasses.dataclass(frozen=True)
class Finding(records.Record):
    """A node that the parser refuses; or, if it is not certain, that it may refuse."""

    node: str
    op: str
    reason: str
    certain: bool


def findings(nodes: Iterable[Node], target: Target) -> tuple[Finding, ...]:
    """What the target's parser refuses, one Finding for a node, in the order of the nodes."""
    if target.parser is None:
        return ()
    found = []
    for node in nodes:
        certain = next(_refusals(node, target, target.parser), "")
        doubt = certain or _doubt(node, target, target.parser)
        if doubt:
            found.append(Finding(node.name, node.op, doubt, bool(certain)))
    return tuple(found)


def lines(found: Sequence[Finding], most: int = 3) -> list[str]:
    """Findings for people, those of one op and one reason in a line. Args: most: nodes to name."""
    return grouped([(f"{one.op}: {one.reason}", one.node) for one in found], most)


def grouped(said: Iterable[tuple[str, str]], most: int = 3) -> list[str]:
    """(text, node) for people, the nodes of one text in a line. Args: most: nodes to name."""
    groups: dict[str, list[str]] = {}
    for text, node in said:
        groups.setdefault(text, []).append(node)
    return [
        f"{text} ({', '.join(names[:most])}{f' and {len(names) - most} more' if len(names) > most else ''})"
        for text, names in groups.items()
    ]


def mends(found: Sequence[Finding], outputs: int) -> list[str]:
    """What to do about refused nodes, a line each. Args: outputs: how many the files have."""
    lines = []
    ends = [one.node for one in found if one.op == OUTPUT]
    if 0 < len(ends) < outputs:
        lines.append(f"--outputs exports the model without {', '.join(ends)}: name those that are needed")
    if any(one.reason.endswith(f"no {dtype} tensors") for one in found for dtype in _NARROWED):
        lines.append("tf.cast(x, tf.float32) in the model, or x.float() in PyTorch, gives the type that it has")
    if any("string" in one.reason for one in found):
        lines.append("leave strings and tables to what comes before or behind the model")
    newer = [one for one in found if one.reason.endswith(_NEWER)]
    if newer:
        lines.append("leave --opset out: in the target's own opset the parser reads it")
    unknown = [one.op for one in found if one.op not in _ENDS and "tensors" not in one.reason and one not in newer]
    advised = advice.of_onnx(unknown)
    lines += advised or ["leave that part out of the model that is exported"] * bool(unknown)
    return [*dict.fromkeys(lines), "choose another --target, or write the file nevertheless with --allow_refused"]


def _refusals(node: Node, target: Target, parser: Parser) -> Iterator[str]:
    if node.op in _ENDS:
        yield from _of_end(node, target, parser)
        return
    if node.op not in parser.ops:
        yield f"{target.title}'s parser does not take it"
        return
    for value in (*node.inputs, *node.outputs):
        if value.dtype and value.dtype not in parser.types:
            yield f"{target.title} has no {value.dtype} tensors"
    for index, name in parser.constants.get(node.op, ()):
        if len(node.inputs) > index and node.inputs[index].name and not node.inputs[index].constant:
            yield f"its {name} has to be a constant, and is computed"
    if node.op == "EyeLike" and (node.inputs[0].shape is None or None in node.inputs[0].shape):
        yield "its shape has to be known, and depends on the inputs"
    if target.narrow and node.op == "ReverseSequence" and _open_batch(node):
        yield "how many sequences there are (the batch) has to be known, and is open"
    if target.narrow and node.half_pixels:
        yield "to the nearest pixel by half pixels it is taken with the rounding round_prefer_floor alone"
    if node.unread and (target.narrow or node.unread_newer):
        yield node.unread
    if node.op == "MaxPool" and len(node.outputs) > 1:
        yield "the places of the largest (Indices) are not given"
    if target.narrow and node.beyond_int32 is not None and node.op not in _CLAMPED_WELL:
        yield f"the constant {node.beyond_int32} does not fit into INT32, which is what INT64 becomes in {target.title}"


def _open_batch(node: Node) -> bool:
    """Whether neither the lengths nor the data of a ReverseSequence tell how many sequences there are. Its batch is axis 0 or 1."""
    data, lengths = (one.shape for one in node.inputs[:2])
    return (not lengths or lengths[0] is None) and (not data or None in data[:2])


def _of_end(node: Node, target: Target, parser: Parser) -> Iterator[str]:
    """Why an input or output of the graph is refused."""
    (dtype,) = (value.dtype for value in node.inputs)
    if dtype and dtype not in parser.types or dtype in _NARROWED:
        yield f"{target.title} has no {dtype} tensors"
    if target.narrow and node.beyond_int32 is not None:
        yield f"the constant {node.beyond_int32} does not fit into INT32, which is what INT64 becomes in {target.title}"


def _open_length(shape: Shape) -> bool:
    return not shape or shape[0] is None


def _doubt(node: Node, target: Target, parser: Parser) -> str:
    """Why the parser may refuse the node, or ""."""
    if node.op in _ENDS:
        return ""
    if node.other_ranks:
        # Of the lists' restriction, and https://docs.nvidia.com/deeplearning/tensorrt/latest/_static/operators/If.html.
        return "its branches give tensors of different ranks, and TensorRT takes that only where known sizes decide between them"
    if node.op == "Pad" and len(node.inputs) > 1 and not node.inputs[1].constant and _open_length(node.inputs[1].shape):
        return "how many paddings it computes (two for each dimension) is not known"
    if (
        node.op == "Squeeze"
        and not any(one.name for one in node.inputs[1:])
        and None in (node.inputs[0].shape or (None,))
    ):
        return "it names no axes, and the sizes of its input are not known"
    index = _TYPED_INPUT.get(node.op, 0)
    values = node.outputs if node.op in _TYPED_OUTPUT else node.inputs[index:]
    if not values or values[0].constant:
        return ""
    dtype = values[0].dtype
    became = parser.types.get(dtype, "")
    if not became or became in parser.ops[node.op]:
        return ""
    return f"the parser's list does not name {dtype} for it" + (
        f" ({became} in {target.title})" if became.lower() != dtype else ""
    )
