"""Statistics of timings, as pure functions."""

import math
import statistics


def quantile(values, share):
    """The smallest value that at least `share` of `values` do not exceed (nearest rank: a value that was measured)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def summary(seconds):
    """{"n", "p50_ms", "p99_ms", "mean_ms", "min_ms"} of call times in seconds. p99_ms is None for fewer than 100 calls: with
    those it would be the slowest call or next to it, and say nothing about a hundredth."""
    return {
        "n": len(seconds),
        "p50_ms": 1e3 * statistics.median(seconds),
        "p99_ms": 1e3 * quantile(seconds, 0.99) if len(seconds) >= 100 else None,
        "mean_ms": 1e3 * statistics.fmean(seconds),
        "min_ms": 1e3 * min(seconds),
    }


def ratios(ours, theirs):
    """Ratios of paired measurements. Returns: {"median", "min", "max", "of_medians", "n"}."""
    each = [one / other for one, other in zip(ours, theirs, strict=True)]
    return {
        "median": statistics.median(each),
        "min": min(each),
        "max": max(each),
        "of_medians": statistics.median(ours) / statistics.median(theirs),
        "n": len(each),
    }


def union_seconds(spans):
    """Length of the union of (start, end) spans: time in which at least one of them ran."""
    total, reached = 0.0, -math.inf
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
