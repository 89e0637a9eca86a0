"""A Judgement as a sentence, the same for the screen, JUnit, JSON and pages.

"14.0 % faster" means 14.0 % less time, "4.0 % slower" 4.0 % more. From 1.2 on a ratio is told as it is ("1.58 times as fast"), because
"37 % faster" can be read in two ways; of a rate from 2 on.
"""

from tftrt_tools.studies.regression import verdict as verdicts

_TIMES_FROM, _TIMES_FROM_RATE = 1.2, 2.0


def wanted(metric: str, must: bool) -> str:
    """What a metric has to show. Args: must: whether it has to be decided."""
    what = "throughput as high, or higher" if metric == verdicts.THROUGHPUT else f"as fast at {metric}, or faster"
    return what if must else f"{what}, as far as the rounds tell"


def sentence(one: verdicts.Judgement, who: str = "the candidate") -> str:
    """Such as "the candidate is 4.0 % slower at p50 (0.0 to 7.7 %)"."""
    rate = one.higher_is_better
    subject, place = (f"{who}'s throughput", "") if rate else (who, f" at {one.metric}")
    judged = one.judged_interval
    if one.ratio is None or judged is None:
        return f"{subject} is not known{place}: {one.reason}"
    if one.direction:
        too_little = one.verdict == verdicts.SAME
        more = (
            ", which is too little to count"
            if too_little
            else ", and whether that counts is open"
            if one.verdict == verdicts.UNSURE
            else ""
        )
        verb, found, interval = _size(one.ratio, *judged, one.direction, rate)
        return f"{subject} {verb} {found}{place} ({interval}){more}"
    interval = f"{_change(judged[0], rate)} to {_change(judged[1], rate)}"
    if one.verdict == verdicts.SAME:
        return f"{subject} is as {'high' if rate else 'fast'}{place} ({interval})"
    return f"{subject} may be {'lower or higher' if rate else 'faster or slower'}{place} ({interval})"


def _size(ratio: float, low: float, high: float, direction: str, rate: bool) -> tuple[str, str, str]:
    """(verb, the difference, its interval). Args: direction: that was shown."""
    times = {"faster": ("is", "fast"), "slower": ("takes", "long"), "higher": ("is", "high")}.get(direction)
    least = _TIMES_FROM_RATE if rate else _TIMES_FROM
    if times and not 1 / least < ratio < least:
        inverse = direction == "faster"
        values = (1 / ratio, 1 / high, 1 / low) if inverse else (ratio, low, high)
        return times[0], f"{values[0]:.2f} times as {times[1]}", f"{values[1]:.2f} to {values[2]:.2f}"
    if low < 1 < high:
        return "is", f"{abs(100 * (ratio - 1)):.1f} % {direction}", f"{_change(low, rate)} to {_change(high, rate)}"
    ends = sorted(abs(100 * (value - 1)) for value in (low, high))
    return "is", f"{abs(100 * (ratio - 1)):.1f} % {direction}", f"{ends[0]:.1f} to {ends[1]:.1f} %"


def _change(ratio: float, rate: bool) -> str:
    """One end of an interval, such as "5.6 % faster"."""
    more, less = ("higher", "lower") if rate else ("slower", "faster")
    return f"{abs(100 * (ratio - 1)):.1f} % {more if ratio >= 1 else less}"
