"""Finds reasons why an engine cannot be built, at any shape and on any GPU, or would be wrong. Needs no GPU.

TF-TRT's segmenter asks its converters whether they take a node. They answer with the sizes that the whole graph gives, and check less
than the build does. A segment that only the build refuses runs natively for ever, and the user learns that after the wait for the build.
Each rule here is one such refusal, by TF-TRT's converters for 2.14 or by TensorRT's header NvInfer.h (docs/dev/decisions/graph.md).

If sizes are open in the segment by TensorFlow's own inference, they are open for TensorRT, too: a reshape whose sizes come from a tensor
(as in Keras' LayerNormalization with the default epsilon) leaves sizes open that the whole graph gives.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tftrt_tools.models.savedmodel import engine_op
from tftrt_tools.models.savedmodel.inspection import Finding
from tftrt_tools.models.savedmodel.job import graph, inferred, resized, segment, slices
from tftrt_tools.models.savedmodel.preparation import NEAREST

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2

    from tftrt_tools.models.savedmodel.engine_op import EngineOp, Shape
    from tftrt_tools.models.savedmodel.job.graph import Segment

# Of NvInfer.h: Dims::MAX_DIMS, "Currently only values up to 3840 are supported" for ITopKLayer's k, and "The volume of the tensor must be
# less than 2^31 elements" for ITensor.
MOST_DIMENSIONS, MOST_K, MOST_ELEMENTS = 8, 3840, 2**31 - 1
# Ops with channels, and which of their inputs has them.
_CONVOLUTIONS = {
    "Conv2D": 0,
    "DepthwiseConv2dNative": 0,
    "Conv2DBackpropInput": 2,
    "Conv3D": 0,
    "Conv3DBackpropInputV2": 2,
}
_NORMALIZATIONS = dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), 0)
# Findings that a successful build does not disprove.
_WRONG = "its answers would be wrong"
_WRONG_IF_OPEN = f"{_WRONG}, unless it is built for one shape alone"
_POOLS = frozenset({"MaxPool", "AvgPool"})
# Ops whose operand with fewer dimensions is reshaped in the build.
_BROADCAST = frozenset(
    {
        "Add",
        "AddV2",
        "Mul",
        "Sub",
        "Div",
        "FloorDiv",
        "RealDiv",
        "Minimum",
        "Maximum",
        "Pow",
        "Greater",
        "Less",
        "Equal",
        "GreaterEqual",
        "LessEqual",
        "LogicalOr",
        "LogicalAnd",
        "SquaredDifference",
    }
)


# The usual consequence: TensorRT builds no engine. {ops}: the engine's number of ops.
_UNBUILT = "no GPU builds it, and its {ops} ops run in TensorFlow"


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Rule:
    """Why TF-TRT cannot build a segment or builds it wrong. ops: the op types that the rule is about, None for all."""

    ops: frozenset[str] | None
    # Whether the rule applies to a tf.Operation of a segment.
    holds: Callable[[Any], bool]
    # For a Finding, with the nodes' names at {nodes}.
    text: str
    # Whether the rule holds only in explicit batch mode: in the other mode all sizes but the batch are known when an engine is built.
    explicit: bool = False
    # The consequence, with the engine's number of ops at {ops}.
    outcome: str = _UNBUILT


def find(graph_def: graph_pb2.GraphDef) -> tuple[Finding, ...]:
    """Findings on the engine ops of a converted graph, about each by its name."""
    return tuple(
        finding for name, one in graph.native_segments(graph_def).items() for finding in _of_segment(name, one)
    )


def standing(findings: Iterable[Finding], built: Container[str], fixed: Container[str] = ()) -> tuple[Finding, ...]:
    """The Findings that no engine disproves: a profile of one shape gives the sizes that the graph leaves open. Args: built: names
    of the engine ops that have one. fixed: those whose slices count from the beginning."""
    return tuple(
        finding
        for finding in findings
        if finding.about not in built
        or finding.text.startswith(_WRONG)
        and not (finding.about in fixed and finding.text.startswith(_WRONG_IF_OPEN))
    )


def open_slices(graph_def: graph_pb2.GraphDef) -> frozenset[str]:
    """Names of the slices in engine ops of a converted graph that count from an end whose size is open there."""
    segments = [
        native_segment
        for native_segment in graph.native_segments(graph_def).values()
        if not native_segment.engine.implicit_batch
        and any(node.op == slices.OP for node in native_segment.function.node_def)
    ]
    return frozenset(
        op.name
        for native in segments
        for op in _operations(native)
        if op.type == slices.OP and (slices.begins_from_open_end(op) or slices.ends_from_open_end(op))
    )


def _operations(one: Segment) -> list[tf.Operation]:
    """The tf.Operations of a segment, without those that stand for its inputs and outputs."""
    body, arguments = segment.to_graph(one.function)
    operations = inferred.shapes(segment.importable(body, one.shapes)).get_operations()
    return [op for op in operations if op.name not in arguments and not op.name.startswith(engine_op.OUTPUT)]


def _of_segment(name: str, native: Segment) -> Iterator[Finding]:
    types = {node.op for node in native.function.node_def}
    rules = [
        rule
        for rule in _RULES
        if (rule.ops is None or rule.ops & types) and not (rule.explicit and native.engine.implicit_batch)
    ]
    operations = _operations(native)
    for rule in rules:
        broken = [op for op in operations if (rule.ops is None or op.type in rule.ops) and rule.holds(op)]
        if broken:
            yield _finding(name, native.engine, rule.outcome, rule.text, [(op.name, op.type) for op in broken])


def too_large(
    before: graph_pb2.GraphDef, after: graph_pb2.GraphDef, calls: Mapping[str, Mapping[str, Shape]]
) -> tuple[Finding, ...]:
    """Findings on the engine ops of a converted graph that hold a tensor of more elements than TensorRT has numbers for.

    Args: before: the frozen graph. after: what the pass made of it; nodes kept their names. calls: {its text: {placeholder: shape}} for
      which engines are to be built; none for the shapes that are declared.
    """
    findings: dict[str, Finding] = {}
    for call_text, call in (calls or {"": {}}).items():
        try:
            inferred_shapes = inferred.shapes(before, dict(call))
        except ValueError:
            continue  # the graph refuses the shapes; the call that collects them will report that
        sizes = {op.name: (op.type, _elements(op)) for op in inferred_shapes.get_operations()}
        for name, native in graph.native_segments(after).items():
            nodes = [
                (node.name, node.op)
                for node in native.function.node_def
                if sizes.get(node.name, ("", 0))[1] > MOST_ELEMENTS
            ]
            if nodes:
                text = f"TensorRT's tensors have less than 2^31 elements, and {{nodes}} has {sizes[nodes[0][0]][1]:,}"
                text += f" at {call_text}" if call_text else ""
                findings.setdefault(name, _finding(name, native.engine, _UNBUILT, text, nodes))
    return tuple(findings.values())


def _elements(op: tf.Operation) -> int:
    """The number of elements of an op's largest output; outputs with open sizes do not count."""
    return max((math.prod(tensor.shape) for tensor in op.outputs if tensor.shape.is_fully_defined()), default=0)


def _finding(name: str, engine: EngineOp, outcome: str, text: str, nodes: Sequence[tuple[str, str]]) -> Finding:
    more = f" (and of {len(nodes) - 1} more)" if len(nodes) > 1 else ""
    pattern = "|".join(re.escape(node) for node, _ in nodes)
    mend = f"--keep_native_nodes='{pattern}' " + (
        "leaves out of the engine what keeps it from being built" if outcome == _UNBUILT else "leaves it to TensorFlow"
    )
    if outcome == _WRONG_IF_OPEN:
        mend += "; --shapes of one size, or --fix_sizes, make it right (for several sizes, one conversion for each)"
    return Finding(
        name,
        f"{outcome.format(ops=engine.compute_ops)}: {text.format(nodes=f'{nodes[0][0]} ({nodes[0][1]}){more}')}",
        mend,
        tuple(node for node, _ in nodes) if outcome == _UNBUILT else (),
    )


def _open(shape: tf.TensorShape) -> int:
    """The number of open sizes; 0 if the rank is unknown."""
    return 0 if shape.rank is None else list(shape).count(None)


def _open_channels(op: tf.Operation) -> bool:
    shape = op.inputs[(_CONVOLUTIONS | _NORMALIZATIONS)[op.type]].shape
    return shape.rank is None or shape[_axis(op, "C")] is None


def _axis(op: tf.Operation, letter: str) -> int:
    result: int = op.get_attr("data_format").decode().index(letter)
    return result


def _open_picture(op: tf.Operation) -> bool:
    shape = op.inputs[2].shape
    return shape.rank is not None and None in (shape[_axis(op, "H")], shape[_axis(op, "W")])


def _too_small(op: tf.Operation) -> bool:
    """A transposed convolution whose result is smaller than TensorRT's, to which TF-TRT can only add."""
    if op.get_attr("padding") != b"SAME" or (dims := tf.get_static_value(op.inputs[0])) is None:
        return False
    picture, filters, strides = op.inputs[2].shape, op.inputs[1].shape, op.get_attr("strides")
    for number, letter in enumerate("HW"):
        axis = _axis(op, letter)
        if picture.rank is None or None in (picture[axis], filters[number]):
            continue
        given = min(picture[axis] * strides[axis], (picture[axis] - 1) * strides[axis] + filters[number])
        if dims[axis if len(dims) == len(picture) else number] < given:
            return True
    return False


def _pools_channels(op: tf.Operation) -> bool:
    sides = [_axis(op, letter) for letter in "NC"]
    return any(op.get_attr(name)[side] != 1 for name in ("ksize", "strides") for side in sides)


def _broadcast(op: tf.Operation) -> bool:
    first, second = (tensor.shape for tensor in op.inputs[:2])
    if None in (first.rank, second.rank) or first.rank == second.rank:
        return False
    return _open(first if first.rank < second.rank else second) > 1


_RULES = (
    _Rule(
        ops=frozenset(_CONVOLUTIONS),
        holds=_open_channels,
        explicit=True,
        text="TensorRT has to know how many channels a convolution reads, and those of {nodes} depend on a tensor",
    ),
    _Rule(
        ops=frozenset(_NORMALIZATIONS),
        holds=_open_channels,
        explicit=True,
        text="TensorRT has to know how many channels a batch normalization reads, and those of {nodes} depend on a tensor",
    ),
    _Rule(
        ops=frozenset({"Conv2DBackpropInput"}),
        holds=_open_picture,
        explicit=True,
        text="TF-TRT has to know the height and width that a transposed convolution reads, and those of {nodes} are open",
    ),
    _Rule(
        ops=frozenset({"Conv2DBackpropInput"}),
        holds=_too_small,
        text="the result of {nodes} is smaller than TensorRT's (input times stride), and TF-TRT does not crop it",
    ),
    _Rule(
        ops=_BROADCAST,
        holds=_broadcast,
        explicit=True,
        text="TF-TRT adds missing dimensions to an operand with at most one open size, and that of {nodes} has more",
    ),
    _Rule(
        ops=frozenset({"Pow", "Square"}),
        holds=lambda op: op.outputs[0].dtype == tf.int32,
        text="TensorRT has no power of integers, and {nodes} is one",
    ),
    _Rule(
        ops=frozenset({"TopKV2"}),
        holds=lambda op: bool((tf.get_static_value(op.inputs[1]) or 0) > MOST_K),
        text=f"TensorRT's TopK gives at most {MOST_K}, and {{nodes}} asks for more",
    ),
    _Rule(
        ops=None,
        holds=lambda op: any((tensor.shape.rank or 0) > MOST_DIMENSIONS for tensor in op.outputs),
        explicit=True,
        text=f"TensorRT's tensors have at most {MOST_DIMENSIONS} dimensions, and the result of {{nodes}} has more",
    ),
    _Rule(
        ops=frozenset({slices.OP}),
        holds=slices.ends_from_open_end,
        explicit=True,
        outcome=_WRONG_IF_OPEN,
        text="TF-TRT takes an end that is counted back from an open size for a length, and {nodes} has one",
    ),
    _Rule(
        ops=_POOLS,
        holds=_pools_channels,
        outcome=_WRONG,
        text="TF-TRT pools height and width alone, and {nodes} pools channels or rows, too",
    ),
    _Rule(
        ops=frozenset({NEAREST}),
        holds=resized.takes_other_pixels,
        outcome=_WRONG,
        text="TF-TRT ignores half_pixel_centers and the rounding of align_corners, and {nodes} takes other pixels with them",
    ),
)
