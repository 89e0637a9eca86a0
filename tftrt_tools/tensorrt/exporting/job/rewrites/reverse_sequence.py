"""Sequences of their own lengths in the opposite order: ReverseSequence as one GatherElements.

TensorRT 8.5's parser writes a ReverseSequence as slices of each sequence, and refuses it where their number, the batch, is
open (builtin_op_importers.cpp of onnx-tensorrt, tag release/8.5-GA: "does not support dynamic ReverseSequence lengths"). What
stands at step t of a sequence of length n comes from step n - 1 - t, and from step t itself behind its end:

    index[b, t] = n[b] - 1 - t if t < n[b] else t
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx

from tftrt_tools.tensorrt.exporting.job import opsets
from tftrt_tools.tensorrt.exporting.job.graph_facts import Facts, attributes, name_of
from tftrt_tools.tensorrt.exporting.job.rewrites import editing


def rewrite(model: onnx.ModelProto, target: str) -> int:
    """Write them in place. Returns: how many."""
    facts, written = Facts(model), []
    for node in model.graph.node:
        shape = facts.shape(node.input[0]) if _reverses(node) else None
        if shape is not None:
            written.append((node, _written(node, len(shape))))
    editing.replace(model, written)
    return len(written)


def missed(model: onnx.ModelProto, target: str) -> Iterator[tuple[str, str]]:
    """Those whose data has no known rank."""
    facts = Facts(model)
    for node in model.graph.node:
        if _reverses(node) and facts.shape(node.input[0]) is None:
            yield name_of(node), "how many dimensions its data has is not known"


def _reverses(node: onnx.NodeProto) -> bool:
    """Whether it is ONNX's op, not one of the same name in another domain."""
    return node.op_type == "ReverseSequence" and node.domain in opsets.OWN


def _written(node: onnx.NodeProto, rank: int) -> editing.Writer:
    writer = editing.Writer(node)
    data, lengths = node.input
    # The two axes are 0 and 1, says ONNX.
    time = int(attributes(node).get("time_axis", 0))

    def number(value: int | list[int], name: str) -> str:
        return writer.constant(name, value, np.int64)

    sizes = writer.node("Shape", [data], "sizes")
    steps = writer.node("Gather", [sizes, number(time, "time_axis")], "steps", axis=0)
    step = writer.node("Range", [number(0, "first"), steps, number(1, "one")], "step")
    step = writer.node("Unsqueeze", [step, number([0], "of_all")], "step_of_all")
    length = writer.node("Unsqueeze", [lengths, number([1], "in_all")], "length")
    last = writer.node("Sub", [length, number(1, "one_less")], "last")
    back = writer.node("Sub", [last, step], "back")
    index = writer.node("Where", [writer.node("Less", [step, length], "inside"), back, step], "index")
    if time == 0:
        index = writer.node("Transpose", [index], "index_by_time", perm=[1, 0])
    if rank > 2:
        index = writer.node("Unsqueeze", [index, number(list(range(2, rank)), "others")], "index_of_all")
    index = writer.node("Expand", [index, sizes], "places")
    writer.node("GatherElements", [data, index], "reversed", last=True, axis=time)
    return writer
