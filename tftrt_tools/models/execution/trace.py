"""Which engines ran, fell back or were built inside a call, from the profiler's trace and the op's log.

TF-TRT answers a request natively without telling the caller, and its warnings stop after five. Each execution leaves two traces
that do not stop: profiler events `TRTEngineOp::…` (the count), and, with TF_CPP_VMODULE=trt_engine_op=1, a line with the engine's
name. Seen with TF 2.14.1 on an H100; see docs/dev/decisions/answers.md.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping

from tftrt_tools.base import errors, records
from tftrt_tools.base.logs import engine_lines
from tftrt_tools.base.logs.known import fallback

# {plane, as "/device:GPU:0" or "/host:CPU": [(event, start, end in seconds)]}.
Events = dict[str, list[tuple[str, float, float]]]

EVENTS = {
    "TRTEngineOp::ExecuteTrtEngine": "engine",
    "TRTEngineOp::ExecuteNativeSegment": "fallback",
    "TRTEngineOp::BuildEngine": "build",
    "TRTEngineOp::ExecuteCalibration": "calibration",
}
_LINES = (
    ("engine", engine_lines.EXECUTED),
    ("fallback", engine_lines.NATIVE),
    ("build", engine_lines.BUILDING),
    ("calibration", engine_lines.CALIBRATED),
)


class TooLarge(errors.TftrtError):
    """A trace that does not fit into memory."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CallTrace(records.Record):
    """What the engine ops of one call did: {engine name: times}. "?" stands for an engine the log did not name."""

    # How often each engine ran.
    engine: dict[str, int]
    # How often its native segment ran instead.
    fallback: dict[str, int]
    # How often each engine was built.
    build: dict[str, int]
    # How often each engine calibrated.
    calibration: dict[str, int]
    # The lines of the log in which TF-TRT gives its reasons.
    reasons: tuple[str, ...] = ()


def combine(counts: Mapping[str, int], log: str) -> CallTrace:
    """A CallTrace from the profiler's counts and the log's names; where they differ, the larger count is kept."""
    named = {kind: collections.Counter(map(engine_lines.name, form.all(log, "engine"))) for kind, form in _LINES}
    for kind, total in counts.items():
        missing = total - sum(named[kind].values())
        if missing > 0:
            named[kind]["?"] += missing
    reasons = tuple(
        dict.fromkeys(
            line.split("] ", 1)[-1].strip()[:300]
            for line in log.splitlines()
            if any(message.find(line) is not None for message in fallback.REASONS)
        )
    )
    return CallTrace(reasons=reasons, **{kind: dict(reasons_of) for kind, reasons_of in named.items()})
