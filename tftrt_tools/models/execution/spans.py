"""Stretches of time: sets of instants, as pairs of start and end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

# (start, end) in seconds.
Span = tuple[float, float]


def union(spans: Iterable[Span]) -> list[Span]:
    """Sorted spans without overlaps that cover the same instants."""
    gaps: list[Span] = []
    for start, end in sorted(spans):
        if gaps and start <= gaps[-1][1]:
            gaps[-1] = (gaps[-1][0], max(end, gaps[-1][1]))
        else:
            gaps.append((start, end))
    return gaps


def inside(spans: Sequence[Span], windows: Sequence[Span]) -> list[Span]:
    """The parts of `spans` in `windows`; both are unions."""
    merged, at = [], 0
    for start, end in spans:
        while at < len(windows) and windows[at][1] <= start:
            at += 1
        next_one = at
        while next_one < len(windows) and windows[next_one][0] < end:
            merged.append((max(start, windows[next_one][0]), min(end, windows[next_one][1])))
            next_one += 1
    return merged


def outside(spans: Sequence[Span], holes: Sequence[Span]) -> list[Span]:
    """The parts of `spans` that are not in `holes`; both are unions."""
    if not spans:
        return []
    ends = [
        spans[0][0],
        *(edge for hole in holes for edge in hole),
        max(spans[-1][1], holes[-1][1]) if holes else spans[-1][1],
    ]
    return inside(spans, [(low, high) for low, high in zip(ends[::2], ends[1::2], strict=True) if low < high])


def length(spans: Iterable[Span]) -> float:
    """The sum of the spans' seconds; for a union, the seconds that it covers."""
    return sum(end - start for start, end in spans)
