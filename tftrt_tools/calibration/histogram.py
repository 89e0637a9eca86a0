"""The distribution of |x| of one tensor, collected in one pass with bounded memory. NumPy alone."""

import math

import numpy as np

# Enough for 8 to 16 bins in each of the 2,048 that the entropy method looks at.
BINS = 1 << 15
# Elements at a time: the buffers stay in a core's cache.
_CHUNK = 1 << 17
# Below this the scale that spreads the range over the bins would leave float32; such a tensor is all but zero.
_LOWEST_EXPONENT = -110


class Histogram:
    """Counts of |x| in BINS equal bins over [0, 2**exponent), the smallest such range that holds every value.

    When a larger value comes, adjacent bins are merged. Scaling by powers of two is exact, so the counts depend on the values alone,
    not on their order nor on how they were split among `add` and `merge`.

    counts: int64 [BINS]; count: finite values; zeros: exact zeros among them; nan, infinite: values that are in no bin;
    minimum, maximum: of the finite values (0.0 where there are none).
    """

    def __init__(self):
        self.counts = np.zeros(BINS, np.int64)
        self.exponent = _LOWEST_EXPONENT
        self.count = self.zeros = self.nan = self.infinite = 0
        self.minimum, self.maximum = math.inf, -math.inf

    @property
    def absmax(self):
        """The largest |x|; 0.0 for an empty or all-zero tensor."""
        return float(max(-self.minimum, self.maximum, 0.0)) if self.count else 0.0

    @property
    def width(self):
        """Width of a bin."""
        return math.ldexp(1.0, self.exponent) / BINS

    @property
    def constant(self):
        """Whether all values are the same."""
        return self.count > 0 and self.minimum == self.maximum

    def add(self, values):
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
        self._grow(_exponent(max(-low, high)))
        self.count += values.size
        scale = np.float32(math.ldexp(BINS, -self.exponent))
        magnitudes = np.empty(min(_CHUNK, values.size), np.float32)
        indices = np.empty(magnitudes.size, np.intp)  # what bincount takes without a copy
        for start in range(0, values.size, _CHUNK):
            chunk = values[start:start + _CHUNK]
            magnitude, index = magnitudes[:chunk.size], indices[:chunk.size]
            np.abs(chunk, out=magnitude)
            self.zeros += chunk.size - np.count_nonzero(magnitude.view(np.int32))  # of floats it would be slow
            np.multiply(magnitude, scale, out=magnitude)
            np.copyto(index, magnitude, casting="unsafe")
            self.counts += np.bincount(index, minlength=BINS)

    def _finite(self, values):
        nan = int(np.isnan(values).sum())
        finite = values[np.isfinite(values)]
        self.nan += nan
        self.infinite += values.size - finite.size - nan
        return finite

    def _grow(self, exponent):
        shift = exponent - self.exponent
        if shift <= 0:
            return
        self.exponent = exponent
        merged = self.counts.reshape(-1, min(1 << shift, BINS)).sum(axis=1)
        self.counts = np.zeros(BINS, np.int64)
        self.counts[:merged.size] = merged

    def merge(self, other):
        """Count in what Histogram `other` has counted; it is left as it is."""
        self._grow(other.exponent)
        merged = other.counts.reshape(-1, min(1 << (self.exponent - other.exponent), BINS)).sum(axis=1)
        self.counts[:merged.size] += merged
        self.count, self.zeros = self.count + other.count, self.zeros + other.zeros
        self.nan, self.infinite = self.nan + other.nan, self.infinite + other.infinite
        self.minimum, self.maximum = min(self.minimum, other.minimum), max(self.maximum, other.maximum)

    def edges(self):
        """Upper edges of the bins up to the one that holds `absmax`, the last cut off there. Returns: float64 [n].

        Raises: ValueError for a histogram without range.
        """
        if not self.absmax:
            raise ValueError("all values are zero: no range")
        last = min(int(self.absmax / self.width), BINS - 1)
        upper = np.arange(1, last + 2) * self.width
        upper[-1] = self.absmax
        return upper

    def rebinned(self, bins):
        """The counts in `bins` equal bins over [0, absmax]; a bin that lies across an edge is shared out by length.

        Returns: float64 [bins]. Raises: ValueError for a histogram without range.
        """
        upper = self.edges()
        cumulative = np.cumsum(self.counts[:upper.size], dtype=np.float64)
        wanted = self.absmax * np.arange(1, bins + 1) / bins
        wanted[-1] = upper[-1]
        # Exact zeros lie at the left end of the first bin, not along it.
        got = np.interp(wanted, np.concatenate([[0.0], upper]), np.concatenate([[self.zeros], cumulative]))
        return np.diff(got, prepend=0.0)


def _exponent(absmax):
    """The least e with absmax < 2**e, but no less than _LOWEST_EXPONENT."""
    return max(math.frexp(absmax)[1], _LOWEST_EXPONENT) if absmax else _LOWEST_EXPONENT
