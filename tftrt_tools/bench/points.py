"""The points of a sweep: each product of scenario, concurrency, rate and batch size is one."""

import dataclasses

from tftrt_tools import errors

CLOSED, OPEN, OFFLINE = "closed", "open", "offline"
SCENARIOS = (CLOSED, OPEN, OFFLINE)
SCHEDULE = "schedule file"
# Requests under way where nothing is said. Offline asks for all that the server can do.
_DEFAULT = {CLOSED: 1, OFFLINE: 16}
_TOO_MUCH = 1e9


@dataclasses.dataclass(frozen=True)
class Point:
    """What is offered. concurrency: requests under way at once, None in the open loop; rate: requests a second, only in the open loop;
    distribution: "constant", "poisson" or "schedule file"; batch_size: rows a request as asked for, None where the inputs say it."""

    scenario: str
    concurrency: int | None = None
    rate: float | None = None
    distribution: str | None = None
    batch_size: int | None = None

    def text(self, batch=True):
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

    def to_dict(self):
        return dataclasses.asdict(self)


def product(scenario, concurrencies, rates, distribution, batch_sizes, schedule_file=""):
    """The Points of a sweep, batch sizes outermost.

    Args: concurrencies: [int], also how many requests offline has under way. rates: [float]. batch_sizes: [int] or [].
    Raises: UsageError for flags that do not go with the scenario.
    """
    if scenario not in SCENARIOS:
        raise errors.UsageError(f"--scenario={scenario} is unknown", "choose " + ", ".join(SCENARIOS))
    sizes = batch_sizes or [None]
    if scenario == OPEN:
        if concurrencies:
            raise errors.UsageError("--concurrency does not go with --scenario=open: arrivals do not wait for answers", "sweep --rate")
        if schedule_file:
            if rates:
                raise errors.UsageError("--rate and --schedule_file exclude each other", "the schedule says when each request is sent")
            return [Point(OPEN, distribution=SCHEDULE, batch_size=size) for size in sizes]
        return [Point(OPEN, rate=rate, distribution=distribution, batch_size=size) for size in sizes for rate in rates]
    if rates or schedule_file:
        flag = "rate" if rates else "schedule_file"
        raise errors.UsageError(f"--{flag} goes with --scenario=open", f"{scenario} sends as fast as it can")
    return [Point(scenario, concurrency=number, batch_size=size) for size in sizes for number in concurrencies or [_DEFAULT[scenario]]]


def integers(flag, listed, lowest=1):
    """[int] of a list flag. Raises: UsageError."""
    return [_number(flag, text, int, lowest) for text in listed if text.strip()]


def rates(flag, listed):
    """[float] of a list flag, each above 0. Raises: UsageError."""
    return [_number(flag, text, float, None) for text in listed if text.strip()]


def _number(flag, text, kind, lowest):
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is not None and value >= _TOO_MUCH:
        raise errors.UsageError(f"--{flag}: {text} is more than any server sees", f"it has to be below {_TOO_MUCH:g}")
    if value is None or not value > 0 or (lowest is not None and value < lowest):
        raise errors.UsageError(f"--{flag}: {text!r} is no number above 0", f"such as --{flag}=1,2,4")
    return value
