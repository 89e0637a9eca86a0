"""The highest rate that keeps a goal: brackets it by doubling, then halves the bracket. A pure function of its probe."""

import dataclasses
from collections.abc import Callable

# By default the search gives up below the first rate halved this many times.
_HALVINGS = 6
MOST_PROBES = 40
_DIGITS = 4  # of a rate; finer than any resolution that is allowed
KEPT, MISSED, UNDECIDED, UNOFFERED, REFUSED = "kept", "missed", "undecided", "unoffered", "refused"
_WHY = {
    MISSED: "does not keep it",
    UNDECIDED: "may keep it or miss it: measure longer",
    UNOFFERED: "does not keep it, but there the load generator was the limit: the server may keep more",
    REFUSED: "does not keep it: the server had no gRPC thread left (--grpc_max_threads, by default 4 for each core), and may keep more "
    "with more of them",
}


@dataclasses.dataclass(frozen=True)
class Found:
    """rate: the highest that was shown to keep the goal, or None. above: the lowest that was not, or None. ended: why it stopped, in
    words. If both are there, rate >= above / (1 + resolution), unless `ended` says otherwise."""

    rate: float | None
    above: float | None
    ended: str


def highest(
    probe: Callable[[float], str],
    start: float,
    lowest: float | None = None,
    ceiling: float | None = None,
    resolution: float = 0.05,
) -> Found:
    """Search.

    Args:
      probe: function of a rate; returns KEPT, MISSED, UNDECIDED (too few requests to say) or UNOFFERED (not kept, and maybe not by the
        server's fault) or REFUSED (not kept, because the server had no gRPC thread left).
      start: rate to begin with. lowest: where the search gives up; by default start / 2**6, or start where that is given as lowest.
      ceiling: rate above which nothing is tried; None for no end. resolution: (above - rate) / rate at which it stops.

    Returns: Found. It assumes that a rate below one that keeps the goal keeps it too.
    """
    lowest = start / 2**_HALVINGS if lowest is None else min(lowest, start)
    kept: float | None = None
    above: float | None = None
    probes, why = 0, ""

    def asked(rate: float) -> bool:
        nonlocal kept, above, probes, why
        rate = float(f"{rate:.{_DIGITS}g}")
        probes += 1
        answer = probe(rate)
        if answer == KEPT:
            kept = rate
        else:
            above, why = rate, _WHY[answer]
        return answer == KEPT

    rate = start if ceiling is None else min(start, ceiling)
    while not asked(rate) and rate > lowest * 1.001 and probes < MOST_PROBES:
        rate = max(rate / 2, lowest)
    if kept is None:
        return Found(None, above, f"the lowest rate tried, {above:g}/s, {why}")
    while above is None and probes < MOST_PROBES:
        if ceiling is not None and kept >= ceiling * 0.999:
            return Found(kept, None, f"the highest rate allowed, {ceiling:g}/s, keeps it")
        asked(kept * 2 if ceiling is None else min(kept * 2, ceiling))
    while above is not None and above > kept * (1 + resolution) and probes < MOST_PROBES:
        asked((kept + above) / 2)
    if probes >= MOST_PROBES and (above is None or above > kept * (1 + resolution)):
        return Found(kept, above, f"it stopped after {probes} probes")
    return Found(kept, above, f"within {resolution:.0%}: {above:g}/s {why}")
