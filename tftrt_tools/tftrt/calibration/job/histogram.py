"""The distribution of |x| of one tensor, collected in one pass with bounded memory. NumPy alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

# 16 in each of the entropy method's 2,048 bins.
BINS = 1 << 15
# Elements at a time: the buffers stay in a core's cache.
_CHUNK = 1 << 17
# With a smaller range the factor from values to bins would overflow float32; such a tensor is practically zero.
_LEAST_RANGE = 2.0**-110


class Histogram:
    """Counts of |x| in BINS equal bins over [0, range].

    The range is that of the first values that are not all zero; when a larger value comes, it doubles and bins are merged in pairs.
    TensorRT does the same with its 2,048 bins (found by comparing its tables with their data). The bins' edges decide the result of the
    entropy method, so the first batch matters, and the order of all later values does not.

    counts: int64 [BINS]; range: 0.0 before the first value that is not zero; count: finite values; zeros: exact zeros among them;
    nan, infinite: values that are in no bin; minimum, maximum: of the finite values (inf, -inf where there are none).
    """

    def __init__(self) -> None:
        self.counts = np.zeros(BINS, np.int64)
        self.range = 0.0
        self.count = self.zeros = self.nan = self.infinite = 0
        self.minimum, self.maximum = math.inf, -math.inf

    @property
    def absmax(self) -> float:
        """The largest |x|; 0.0 for an empty or all-zero tensor."""
        return float(max(-self.minimum, self.maximum, 0.0)) if self.count else 0.0

    @property
    def width(self) -> float:
        """Width of a bin."""
        return self.range / BINS

    @property
    def constant(self) -> bool:
        """Whether all values are the same."""
        return self.count > 0 and self.minimum == self.maximum

    def add(self, values: npt.NDArray[Any]) -> None:
        """Count the elements of `values`: float16 or float32 of any shape."""
        values = np.asarray(values).reshape(-1)
        if values.size == 0:
            return
        low, high = float(values.min()), float(values.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            values = self._finite(values)
            if values.size == 0:
                return
            low, high = float(values.min()), float(values.max())
        self.minimum, self.maximum = min(self.minimum, low), max(self.maximum, high)
        self._grow(max(-low, high))
        self.count += values.size
        scale = np.float32(BINS / self.range if self.range else 0.0)
        magnitudes = np.empty(min(_CHUNK, values.size), np.float32)
        indices = np.empty(magnitudes.size, np.intp)  # what bincount takes without a copy
        for start in range(0, values.size, _CHUNK):
            chunk = values[start : start + _CHUNK]
            magnitude, index = magnitudes[: chunk.size], indices[: chunk.size]
            np.abs(chunk, out=magnitude)
            self.zeros += chunk.size - np.count_nonzero(magnitude.view(np.int32))  # of floats it would be slow
            np.multiply(magnitude, scale, out=magnitude)
            np.copyto(index, magnitude, casting="unsafe")
            counted = np.bincount(index, minlength=BINS)
            self.counts += counted[:BINS]
            self.counts[-1] += counted[BINS:].sum()  # the range itself is in the last bin

    def _finite(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        nan = int(np.isnan(values).sum())
        finite = values[np.isfinite(values)]
        self.nan += nan
        self.infinite += values.size - finite.size - nan
        result: npt.NDArray[Any] = finite
        return result

    def _grow(self, absmax: float) -> None:
        if not self.range and absmax:
            self.range = max(absmax, _LEAST_RANGE)
        while self.range < absmax:
            self.range *= 2
            merged = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts = np.concatenate([merged, np.zeros_like(merged)])

    def merge(self, other: Histogram) -> None:
        """Add the counts of Histogram `other`, each of its bins by its centre; `other` stays as it is."""
        self.range = self.range or other.range
        self._grow(other.absmax)
        if self.range:
            centres = (np.arange(BINS) + 0.5) * other.width / self.width
            index = np.minimum(centres.astype(np.intp), BINS - 1)
            np.add.at(self.counts, index, other.counts)
        else:
            self.counts += other.counts
        self.count, self.zeros = self.count + other.count, self.zeros + other.zeros
        self.nan, self.infinite = self.nan + other.nan, self.infinite + other.infinite
        self.minimum, self.maximum = min(self.minimum, other.minimum), max(self.maximum, other.maximum)

    def edges(self) -> npt.NDArray[np.float64]:
        """Upper edges of the bins up to the one that holds `absmax`, the last cut off there. Returns: float64 [n].

        Raises: ValueError for a histogram without range.
        """
        if not self.range:
            raise ValueError("all values are zero: no range")
        last = int(np.nonzero(self.counts)[0][-1])
        upper = np.arange(1, last + 2) * self.width
        upper[-1] = self.absmax
        return upper

    def rebinned(self, bins: int) -> npt.NDArray[np.int64]:
        """The counts in `bins` equal bins over [0, range]. Args: bins: a divisor of BINS. Returns: int64 [bins]."""
        result: npt.NDArray[np.int64] = self.counts.reshape(bins, -1).sum(axis=1)
        return result
