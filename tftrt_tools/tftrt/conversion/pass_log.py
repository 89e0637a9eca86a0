"""Reads TF-TRT's log of the segmentation of a graph.

The pass reports only text: with TF_CPP_VMODULE=segment=2 it names every node it takes or leaves, and why (TF 2.14.1).
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator

from tftrt_tools.base import records
from tftrt_tools.base.logs import heads, segment_lines

VMODULE = "segment=2,trt_engine_op=1"
# The environment of a child whose log is read here.
ENV = {"TF_CPP_VMODULE": VMODULE, "TF_CPP_MIN_LOG_LEVEL": "0"}
# The reason of a node on which a converter fails; what it says follows.
FAILS = "TF-TRT's converter fails on this node"
# The reason of a node that TensorRT refused when an engine was built.
REFUSED = "TensorRT refuses this node"
_TAKEN = re.compile(r"Accepted as a TF-TRT candidate, \(Op type: (.*?)\), \(Op name: (.*?)\)?\s*$", re.DOTALL)
_SEGMENT = re.compile(r"Nodes in segment (\d+) with parent=.*?:\n(.*)", re.DOTALL)
_NODE = re.compile(r"^\[Op type: (.*?)\] (.*)$", re.MULTILINE)
_DROPPED = re.compile(r"Segment (\d+) has only (\d+) effective nodes, dropping")


@dataclasses.dataclass(frozen=True)
class LeftOut(records.Record):
    """A node that stays in TensorFlow, and TF-TRT's reason (or ours, where a segment was too small)."""

    node: str
    op: str
    reason: str


def failing(left_out: Iterable[LeftOut]) -> list[LeftOut]:
    """The nodes on which a converter or TensorRT fails."""
    return [one for one in left_out if one.reason.startswith((FAILS, REFUSED))]


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Nodes that TF-TRT would put together. effective: for a dropped one, how many nodes count towards minimum_segment_size, else None."""

    nodes: tuple[str, ...]
    effective: int | None


@dataclasses.dataclass(frozen=True)
class PassLog:
    """left_out: by the node's name; taken: {node: op}; clusters: as TF-TRT listed them."""

    left_out: dict[str, LeftOut]
    taken: dict[str, str]
    clusters: tuple[Cluster, ...]


def parse(text: str) -> PassLog:
    """Read the log of a pass (native_log.captured). Returns: PassLog."""
    left_out: dict[str, LeftOut] = {}
    taken: dict[str, str] = {}
    clusters: list[Cluster] = []
    for entry in _entries(text):
        if match := segment_lines.LEFT.match(entry):
            verb, op, node, reason = match.groups()
            denied = verb == "Denylisted as" or "TF_TRT_OP_DENYLIST" in (reason or "")
            left_out[node] = LeftOut(
                node, op, "kept native by --keep_native_ops" if denied else " ".join(reason.split())
            )
        elif match := _TAKEN.match(entry):
            taken[match.group(2)] = match.group(1)
        elif match := _SEGMENT.match(entry):
            clusters.append(Cluster(tuple(name for _, name in _NODE.findall(match.group(2))), None))
        elif (match := _DROPPED.match(entry)) and match.group(2) != "0":
            # Segments emptied by the batch analysis are "dropped" too, without a list of nodes before.
            clusters[-1] = dataclasses.replace(clusters[-1], effective=int(match.group(2)))
    for ghost in ("_SOURCE", "_SINK"):
        left_out.pop(ghost, None)
    return PassLog(left_out, taken, tuple(clusters))


def last_words(text: str) -> str:
    """The last message of a log that ended the process (a failed check), "" for none."""
    fatal = [head.text for head in map(heads.read, text.splitlines()) if head and head.level == "F"]
    return fatal[-1] if fatal else ""


def _entries(text: str) -> Iterator[str]:
    """Log messages of segment.cc, continuation lines joined."""
    entry: list[str] = []
    ours = False
    for line in text.splitlines():
        head = heads.read(line)
        if head:
            if ours:
                yield "\n".join(entry)
            ours = "/segment.cc:" in head.place
            entry = [head.text]
        else:
            entry.append(line)
    if ours:
        yield "\n".join(entry)
