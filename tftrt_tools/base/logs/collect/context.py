"""Where a log comes from: who wrote it, with which TensorRT, on which GPU; and which ops a conversion left in TensorFlow."""

from __future__ import annotations

import dataclasses
import re

from tftrt_tools.base import records
from tftrt_tools.base.choices import LOG_LEVELS, LogLevel
from tftrt_tools.base.logs import heads, segment_lines
from tftrt_tools.base.logs.bounded import Counts
from tftrt_tools.base.logs.entries import Entry

_MOST = 200
_TENSORRT = (
    re.compile(r"TensorRT\.\w+ \[TensorRT v(\d+)\]"),
    re.compile(r"(?<!Linked )TensorRT version: (\(\d+, \d+, \d+\)|[\d.]+)"),
    re.compile(r"libnvinfer_builder_resource\.so\.([\d.]+)"),
)
_GPU = (
    re.compile(r"name: ([^,]+), pci bus id: [^,]+, compute capability: ([\d.]+)"),
    re.compile(r"Selected Device: (.+)()"),
)
_PERFORMANCE = ("Throughput: ", "Latency: ", "GPU Compute Time: ", "Enqueue Time: ", "H2D Latency: ", "D2H Latency: ")
_LONGEST = 200
# Ops that compute nothing: inputs, outputs, and TensorFlow's own.
_BORDERS = ("NoOp", "Placeholder", "Identity", "Arg", "_Arg", "_Retval")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context(records.Record):
    """Where the messages come from."""

    # {"F", "E", "W", "I", "V", "" for lines without a head: lines}.
    levels: dict[str, int]
    # {container, pod, process or thread: its messages}, "" where the log does not say.
    sources: dict[str, int]
    sources_left_out: int
    # As the log has them, and {name, compute capability: how often}.
    tensorrt: dict[str, int]
    gpus: dict[str, int]
    # {op: nodes} that the last conversion left in TensorFlow; {"op: reason": times}, of those that compute, in all conversions, where the
    # log says it (TF_CPP_VMODULE=segment=2).
    left: dict[str, int]
    left_because: dict[str, int]
    # What trtexec measured, in its own words.
    performance: dict[str, str]


class Contexts:
    """Collects a `Context` from the messages of logs."""

    def __init__(self) -> None:
        self._levels: dict[LogLevel, int] = {}
        self._sources, self._tensorrt, self._gpus, self._because = (
            Counts(_MOST),
            Counts(_MOST),
            Counts(_MOST),
            Counts(_MOST),
        )
        self._left: dict[str, int] = {}
        self._performance: dict[str, str] = {}

    def take(self, entry: Entry) -> None:
        """Take a message."""
        level, text = entry.level, entry.text
        self._levels[level] = self._levels.get(level, 0) + 1
        if entry.headed:
            self._sources.add(entry.source)
        if level in ("I", ""):
            self._quiet(text)
        elif level == "W" and "non-converted OP Report" in text:
            self._left = {op: heads.whole(count) for op, count in segment_lines.REPORTED.findall(text)}

    def _quiet(self, text: str) -> None:
        if text.startswith(("Not a TF-TRT", "Denylisted as")):
            if (match := segment_lines.LEFT.match(text)) and match[2] not in _BORDERS:
                self._because.add(f"{match[2]}: {' '.join((match[4] or 'kept native').split())[:_LONGEST]}")
            return
        if "TensorRT" in text or "libnvinfer_b" in text:
            for form in _TENSORRT:
                if match := form.search(text):
                    self._tensorrt.add(match[1])
        elif "compute capability: " in text or text.startswith("Selected Device: "):
            for form in _GPU:
                if match := form.search(text):
                    self._gpus.add(", ".join(filter(None, match.groups())))
        elif text.startswith(_PERFORMANCE):
            name, _, reason = text.partition(": ")
            self._performance[name] = reason[:_LONGEST]

    def result(self) -> Context:
        """The Context of all messages so far."""
        levels: dict[str, int] = {level: self._levels[level] for level in LOG_LEVELS if level in self._levels}
        return Context(
            levels=levels,
            sources=self._sources.sorted(),
            sources_left_out=self._sources.left_out,
            tensorrt=self._tensorrt.sorted(),
            gpus=self._gpus.sorted(),
            left=self._left,
            left_because=self._because.sorted(),
            performance=self._performance,
        )
