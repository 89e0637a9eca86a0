"""A padding with zeros before a pooling: the pooling pads.

Keras' ResNets have one. TensorRT 8.5 runs it as a layer of its own: 0.11 of the 1.33 ms that ResNet-50's FP16 plan computes at batch 32 on
an H100 (2026-11-25). An average may count zeros as its own padding does (count_include_pad). A maximum pads with nothing, so its input may
have no number below zero: it comes out of a Relu or the like.
"""

from __future__ import annotations

import numpy as np
import onnx

from tftrt_tools.tensorrt.exporting.job.graph_facts import Facts, attributes
from tftrt_tools.tensorrt.exporting.job.rewrites import editing

_POOLS = ("MaxPool", "AveragePool")
# Without Abs and Sqrt: the least integer has no absolute value, and the root of a number below zero is none.
_NEVER_BELOW_ZERO = frozenset({"Relu", "Sigmoid", "Softmax", "Softplus", "HardSigmoid", "Exp"})
# Since that opset ONNX Runtime (1.23.2) divides an average at the edges by a wrong count, where the pads differ.
_MISCOUNTED = 19
_CLIP = "Clip"
_PADS, _VALUE, _AXES = 1, 2, 3
# Dimensions in front: rows and channels.
_FRONT = 2


def rewrite(model: onnx.ModelProto, target: str) -> int:
    """Write them in place. Returns: how many."""
    facts, written = Facts(model), []
    opset = next((one.version for one in model.opset_import if not one.domain), 0)
    for node in model.graph.node:
        pads = _pads(facts, node, opset) if node.op_type in _POOLS else None
        if pads:
            writer, given = editing.Writer(node), attributes(node) | {"pads": pads}
            # The pads need auto_pad to be NOTSET, which it is where none is given.
            given.pop("auto_pad", None)
            if node.op_type == "AveragePool":
                given["count_include_pad"] = 1
            writer.node(node.op_type, [facts.producers[node.input[0]].input[0]], "pooled", last=True, **given)
            written.append((node, writer))
    editing.replace(model, written)
    return len(written)


def _pads(facts: Facts, node: onnx.NodeProto, opset: int) -> list[int] | None:
    """The pads of a pooling that takes over the padding before it; None for one that stays."""
    padding = facts.producers.get(node.input[0])
    given = attributes(node)
    if (
        padding is None
        or padding.op_type != "Pad"
        or len(node.output) > 1
        or given.get("ceil_mode")
        or given.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID")
    ):
        return None
    # The pooling's own places beside the input are no zeros.
    if any(given.get("pads", ())) or not _zeros(facts, padding):
        return None
    found = _of_places(facts, padding)
    if found is None or any(one != 1 for one in given.get("dilations", ())):
        return None
    # Each window has to hold a place of the input.
    if any(pad >= size for size, pad in zip(2 * given["kernel_shape"], found, strict=True)):
        return None
    if node.op_type == "MaxPool":
        return found if _never_below_zero(facts, padding.input[0]) else None
    return found if opset < _MISCOUNTED or len(set(found)) == 1 else None


def _zeros(facts: Facts, padding: onnx.NodeProto) -> bool:
    value = padding.input[_VALUE] if len(padding.input) > _VALUE else ""
    return attributes(padding).get("mode", b"constant") == b"constant" and (not value or facts.number(value) == 0)


def _of_places(facts: Facts, padding: onnx.NodeProto) -> list[int] | None:
    """The pads of the dimensions behind rows and channels, all before, then all behind; None if others are padded, or any is cut."""
    pads = facts.constant(padding.input[_PADS]) if len(padding.input) > _PADS else None
    if pads is None or len(padding.input) > _AXES and padding.input[_AXES]:
        return None
    before, behind = np.split(pads, 2)
    if (pads < 0).any() or before[:_FRONT].any() or behind[:_FRONT].any():
        return None
    return [int(one) for one in (*before[_FRONT:], *behind[_FRONT:])]


def _never_below_zero(facts: Facts, name: str) -> bool:
    node = facts.producers.get(facts.source(name))
    if node is None:
        return False
    if node.op_type == _CLIP:
        # Its least and its largest value; where the least is the larger one, it gives the largest.
        limits = [facts.number(one) for one in node.input[1:] if one]
        return any(node.input[1:2]) and all(one is not None and one >= 0 for one in limits)
    return node.op_type in _NEVER_BELOW_ZERO
