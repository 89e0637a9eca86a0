"""Reads from TF-TRT's log why it has no engine, because TF-TRT does not tell the caller (TF 2.14.1)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tftrt_tools.base.logs import heads
from tftrt_tools.base.logs.known import builds, calibration

if TYPE_CHECKING:
    from tensorflow.core.framework import node_def_pb2

_REASONS = (builds.CREATION_FAILED, calibration.FAILED)
# The second line of a reason: the place in TensorFlow's source, and the node that TensorRT refuses.
_NODE = re.compile(r"\S+:\d+ (failed to add TRT layer, at: .+)")


def reason(text: str) -> str:
    """Args: text: of a log. Returns: the first reason in it, with TensorRT's last error before it, or ""."""
    errors = ""
    for line, following in itertools.pairwise([*text.splitlines(), ""]):
        head = heads.read(line)
        if head and head.tensorrt and head.level == "E":
            errors = f" (TensorRT: {head.text.strip()})"
        for message in _REASONS:
            if refusal := (message.find(line) or {}).get("reason"):
                node = _NODE.match(following.strip())
                return refusal + (f" {node[1]}" if node else "") + errors
    return ""


def node(reason: str, names: Iterable[str]) -> str:
    """The node that a reason names; TensorRT calls a layer "ENGINE/NODE-part:TYPE".

    Args: names: of the nodes that may be meant. Returns: the longest one in it, or "".
    """
    return max(
        (name for name in names if re.search(rf"(?:^|[\s/(\[]){re.escape(name)}(?=[-\s:.,;)\]]|$)", reason)),
        key=len,
        default="",
    )


def node_of_segment(reason: str, nodes: Sequence[node_def_pb2.NodeDef]) -> str:
    """As `node`, of a segment's nodes. For a constant the one node that reads it: TF-TRT copies constants into engines, even if they
    are kept."""
    name = node(reason, [one.name for one in nodes])
    if not any(one.name == name and one.op == "Const" for one in nodes):
        return name
    readers = [one.name for one in nodes if name in {source.lstrip("^").split(":")[0] for source in one.input}]
    return readers[0] if len(readers) == 1 else ""
