"""How long a call takes, one call at a time."""

import dataclasses
import math
import statistics
from collections.abc import Sequence

from tftrt_tools.base import records

# From one load of a model to the next, latencies drift by this share; the spread within a run does not show it.
DRIFT = 0.02
_ERRORS = 3
# Standard error of a median of normal values, from their median absolute deviation: 1.2533 * 1.4826 * MAD / sqrt(n).
_MEDIAN_ERROR = 1.858


@dataclasses.dataclass(frozen=True)
class Latency(records.Record):
    """The latency of one call at a time: of TensorFlow with the input on the GPU, of a plan with it in page-locked memory, of ONNX Runtime
    with it on the host; the answer is copied to the host. ms: median; mad_ms: median absolute deviation; calls: timed."""

    ms: float
    mad_ms: float
    calls: int

    @property
    def error_ms(self) -> float:
        """Standard error of the median."""
        return _MEDIAN_ERROR * self.mad_ms / math.sqrt(max(self.calls, 1))

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Latency":
        """From the times of single calls. Args: seconds: of each."""
        median = statistics.median(seconds)
        return cls(1e3 * median, 1e3 * statistics.median(abs(one - median) for one in seconds), len(seconds))


def tied(one: Latency, other: Latency, drift: float = DRIFT) -> bool:
    """Whether two Latencies cannot be told apart: their medians differ by less than the drift, or than three standard errors."""
    noise = _ERRORS * math.hypot(one.error_ms, other.error_ms)
    return abs(one.ms - other.ms) <= max(drift * min(one.ms, other.ms), noise)
