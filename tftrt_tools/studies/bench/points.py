"""The points of a sweep: each product of scenario, concurrency, rate and batch size is one."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeVar

from tftrt_tools.base import errors, records

CLOSED, OPEN, OFFLINE = "closed", "open", "offline"
SCENARIOS = (CLOSED, OPEN, OFFLINE)
SCHEDULE = "schedule file"
# Requests under way by default. Offline asks for all that a server with default flags can do: it refuses calls when its gRPC threads are
# busy, on two cores from 6 under way.
_DEFAULT = {CLOSED: 1, OFFLINE: 4}
_TOO_MUCH = 1e9


Number = TypeVar("Number", int, float)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point(records.Record):
    """The load of one point."""

    # One of SCENARIOS.
    scenario: str
    # Requests under way at once; None in an open loop.
    concurrency: int | None = None
    # Requests a second, in an open loop.
    rate: float | None = None
    # "constant", "poisson" or "schedule file".
    distribution: str | None = None
    # Rows of a request, None to take them from the inputs.
    batch_size: int | None = None

    def text(self, batch: bool = True) -> str:
        """Such as "open, 200/s poisson, batch 8"."""
        parts = [self.scenario]
        if self.rate is not None:
            parts.append(f"{self.rate:g}/s {self.distribution}")
        elif self.distribution:
            parts.append(self.distribution)
        if self.concurrency is not None:
            parts.append(f"concurrency {self.concurrency}")
        if batch and self.batch_size is not None:
            parts.append(f"batch {self.batch_size}")
        return ", ".join(parts)


def product(
    scenario: str,
    concurrencies: Sequence[int],
    rates: Sequence[float],
    distribution: str,
    batch_sizes: Sequence[int],
    schedule_file: str = "",
) -> list[Point]:
    """The Points of a sweep, batch sizes outermost.

    Args: concurrencies: [int], also how many requests offline has under way. rates: [float]. batch_sizes: [int] or [].
    Raises: UsageError for flags that do not go with the scenario.
    """
    if scenario not in SCENARIOS:
        raise errors.UsageError(f"--scenario={scenario} is unknown", "choose " + ", ".join(SCENARIOS))
    sizes: Sequence[int | None] = batch_sizes or [None]
    if scenario == OPEN:
        if concurrencies:
            raise errors.UsageError(
                "--concurrency does not go with --scenario=open: arrivals do not wait for answers", "sweep --rate"
            )
        if schedule_file:
            if rates:
                raise errors.UsageError(
                    "--rate and --schedule_file exclude each other", "the schedule says when each request is sent"
                )
            return [Point(scenario=OPEN, distribution=SCHEDULE, batch_size=size) for size in sizes]
        return [
            Point(scenario=OPEN, rate=rate, distribution=distribution, batch_size=size)
            for size in sizes
            for rate in rates
        ]
    if rates or schedule_file:
        flag = "rate" if rates else "schedule_file"
        raise errors.UsageError(f"--{flag} goes with --scenario=open", f"{scenario} sends as fast as it can")
    return [
        Point(scenario=scenario, concurrency=number, batch_size=size)
        for size in sizes
        for number in concurrencies or [_DEFAULT[scenario]]
    ]


def integers(flag: str, listed: Sequence[str], lowest: int = 1) -> list[int]:
    """[int] of a list flag. Raises: UsageError."""
    return [_number(flag, text, int, lowest) for text in listed if text.strip()]


def rates(flag: str, listed: Sequence[str]) -> list[float]:
    """[float] of a list flag, each above 0. Raises: UsageError."""
    return [_number(flag, text, float, None) for text in listed if text.strip()]


def _number(flag: str, text: str, kind: Callable[[str], Number], lowest: int | None) -> Number:
    value: Number | None
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is not None and value >= _TOO_MUCH:
        raise errors.UsageError(f"--{flag}: {text} is more than any server sees", f"it has to be below {_TOO_MUCH:g}")
    if value is None or not value > 0 or (lowest is not None and value < lowest):
        raise errors.UsageError(f"--{flag}: {text!r} is no number above 0", f"such as --{flag}=1,2,4")
    return value
