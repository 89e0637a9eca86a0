"""The clocks of machines, compared by round trips, as NTP does it.

CLOCK_MONOTONIC of two machines counts from different instants. One round trip asks another machine for its clock: the answer was read
between the instants of asking and of hearing, so its clock is ahead by

    offset = there - (asked + heard) / 2,    within ± (heard - asked) / 2.

The trip that took least time bounds it best. The bound holds whatever the ways there and back take; what it leaves out is that one clock
goes faster than the other meanwhile (by 0.05 % at most where NTP slews it), so the clocks are compared again after each run.
"""

import dataclasses
from collections.abc import Iterable

from tftrt_tools.base import errors, records
from tftrt_tools.servers.load import run_record
from tftrt_tools.servers.load.load_plan import Plan

# Trips of one comparison: at least so many, and more until one was this short or they took so long together.
FEWEST, MOST, SHORT_NS, LONG_NS = 8, 40, 500_000, 1_000_000_000
# The share of a run's length by which its parts may begin apart. Up to that share a row counts as having had the rate that was asked for.
APART = 0.05


@dataclasses.dataclass(frozen=True)
class Clock(records.Record):
    """offset_ns: a clock less that of the machine that asks; uncertainty_ns: what it may be off by, either way."""

    offset_ns: int
    uncertainty_ns: int


def of_trips(trips: Iterable[tuple[int, int, int]]) -> Clock:
    """The Clock by round trips. Args: trips: (asked, there, heard), ns: the first and last by the clock here. One at least."""
    asked, there, heard = min(trips, key=lambda trip: trip[2] - trip[0])
    # Rounded up: half a nanosecond less would be no bound.
    return Clock(there - (asked + heard) // 2, (heard - asked + 1) // 2 + 1)


def seconds(plan: Plan) -> float | None:
    """The length of a run as it is planned; None where only its requests end it."""
    if plan.kind == "open":
        return float(plan.scheduled[-1]) / 1e9
    return None if plan.max_queries else plan.seconds


def check(plan: Plan, worst: Clock, whose: str) -> None:
    """Refuse a run that is too short for what is known of the clocks. Args: worst: the least known one; whose: for the message.
    Raises: TftrtError."""
    length = seconds(plan)
    if length and 2 * worst.uncertainty_ns > APART * length * 1e9:
        needed = 2 * worst.uncertainty_ns / 1e9 / APART
        raise errors.TftrtError(
            f"the clock of {whose} is known to ± {worst.uncertainty_ns / 1e6:.1f} ms, too little to begin a run of {length:g} s together",
            f"measure {needed:.1f} s or more (--duration_seconds), or take machines that are nearer",
        )


def apart(rate: float | None, uncertainty_ns: int) -> str:
    """A line that says that the order of a schedule's requests is not known across generators, "" where it is. Args: rate: offered."""
    if not rate or uncertainty_ns <= max(1e9 / rate, run_record.LATE_NS):
        return ""
    return (
        f"clocks are known to ± {uncertainty_ns / 1e6:.1f} ms, and requests are {1e3 / rate:.3g} ms apart: those of different "
        "generators may have gone out in another order than the schedule's"
    )
