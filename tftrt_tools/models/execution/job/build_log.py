"""Reads from TF-TRT's log why it has no engine, because TF-TRT does not tell the caller (TF 2.14.1)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

from tftrt_tools.base.logs import heads
from tftrt_tools.base.logs.known import builds, calibration

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
