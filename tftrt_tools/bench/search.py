"""The highest rate that keeps a goal: brackets it by doubling, then halves the bracket. A pure function of its probe."""

import dataclasses

# A rate found by halving down from the start is one this many times lower at least.
_HALVINGS = 6
MOST_PROBES = 40
_DIGITS = 4  # of a rate; finer than any resolution that is allowed


@dataclasses.dataclass(frozen=True)
class Found:
    """rate: the highest that was seen to keep the goal, None where none did. above: the lowest seen not to, None where none was seen.
    ended: why it stopped, in words. Where both are there, rate >= above / (1 + resolution), unless `ended` says otherwise."""

    rate: float | None
    above: float | None
    ended: str


def highest(probe, start, lowest=None, ceiling=None, resolution=0.05):
    """Search.

    Args:
      probe: function of a rate; returns True (kept), False (not kept) or None (not kept, and maybe not by the server's fault).
      start: rate to begin with. lowest: where the search gives up; by default start / 2**6, or start where that is given as lowest.
      ceiling: rate above which nothing is tried; None for no end. resolution: (above - rate) / rate at which it stops.

    Returns: Found. It assumes that a rate below one that keeps the goal keeps it too.
    """
    lowest = start / 2 ** _HALVINGS if lowest is None else min(lowest, start)
    kept, above, probes, unoffered = None, None, 0, False

    def asked(rate):
        nonlocal kept, above, probes, unoffered
        rate = float(f"{rate:.{_DIGITS}g}")
        probes += 1
        answer = probe(rate)
        if answer:
            kept = rate
        else:
            above, unoffered = rate, answer is None
        return answer

    rate = start if ceiling is None else min(start, ceiling)
    while not asked(rate) and rate > lowest * 1.001 and probes < MOST_PROBES:
        rate = max(rate / 2, lowest)
    if kept is None:
        return Found(None, above, f"the lowest rate tried, {above:g}/s, does not keep it")
    while above is None and probes < MOST_PROBES:
        if ceiling is not None and kept >= ceiling * 0.999:
            return Found(kept, None, f"the highest rate allowed, {ceiling:g}/s, keeps it")
        asked(kept * 2 if ceiling is None else min(kept * 2, ceiling))
    while above is not None and above > kept * (1 + resolution) and probes < MOST_PROBES:
        asked((kept + above) / 2)
    if probes >= MOST_PROBES and (above is None or above > kept * (1 + resolution)):
        return Found(kept, above, f"it stopped after {probes} probes")
    if unoffered:
        return Found(kept, above, f"{above:g}/s does not keep it, but there the load generator was the limit: the server may keep more")
    return Found(kept, above, f"within {resolution:.0%}: {above:g}/s does not keep it")
