"""Latency statistics as pure functions."""

import dataclasses

import numpy as np

_RESAMPLES = 2000
# A ratio of latencies counts as faster from here on; the frozen graph of a converted model gains a little without any engine.
CLEARLY_FASTER = 1.2
# And as not faster up to here.
NOT_FASTER = 1.1


@dataclasses.dataclass(frozen=True)
class Ratio:
    """How many times faster: median of the first over that of the second, with its confidence interval. medians: in seconds."""

    value: float
    low: float
    high: float
    first: float
    second: float
    blocks: int

    def to_dict(self):
        return {key: round(value, 6) if isinstance(value, float) else value for key, value in dataclasses.asdict(self).items()}


def ratio(blocks, confidence=0.95, seed=0):
    """Compare the latencies of two models that were called in turn.

    Args: blocks: float (N, 2), seconds of the first and the second in each block of calls. confidence: of the interval.
    Returns: Ratio, the interval by the percentile bootstrap over whole blocks (Efron and Tibshirani 1993, chapter 13), so that what
      disturbed both in a block stays together. Raises: ValueError for fewer than two blocks.
    """
    blocks = np.asarray(blocks, float)
    if blocks.ndim != 2 or blocks.shape[1] != 2 or len(blocks) < 2:
        raise ValueError("a ratio needs two columns and two blocks or more")
    drawn = blocks[np.random.default_rng(seed).integers(0, len(blocks), (_RESAMPLES, len(blocks)))]
    medians = np.median(drawn, axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(medians[:, 0] / medians[:, 1], (tail, 1 - tail))
    first, second = np.median(blocks, axis=0)
    return Ratio(float(first / second), float(low), float(high), float(first), float(second), len(blocks))


def p50(seconds):
    """The median, in the unit given; None for no values."""
    return float(np.median(seconds)) if len(seconds) else None
