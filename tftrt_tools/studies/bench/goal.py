"""The goal of --slo that a service has to keep, such as p99<20ms,errors<=0.1%."""

import dataclasses
import re

from tftrt_tools.base import errors

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_FORM = re.compile(
    r"(?P<what>p[0-9]+(?:\.[0-9]+)?|mean|max|errors)\s*(?P<sign><=?)\s*(?P<value>[0-9.]+)\s*(?P<unit>us|ms|s|%)$"
)
_EXAMPLE = "write such as --slo='p99<20ms' or --slo='p99<20ms,p50<=5ms,errors<=0.1%'"


@dataclasses.dataclass(frozen=True)
class Bound:
    """what: a percentile ("p99"), "mean" or "max" of the response time, or "errors". limit: in seconds, or a share of 1 for errors.
    inclusive: whether the limit itself is kept."""

    what: str
    limit: float
    inclusive: bool
    text: str

    @property
    def percentile(self) -> float | None:
        """Such as 99.0, None for a bound on something else."""
        return float(self.what[1:]) if re.match(r"p[0-9]", self.what) else None

    def kept(self, value: float) -> bool:
        """Whether a value keeps the bound. Args: value: in the unit of `limit`."""
        return value <= self.limit if self.inclusive else value < self.limit


@dataclasses.dataclass(frozen=True)
class Goal:
    """bounds: all have to hold. There is always a bound on errors; by default no error is allowed."""

    bounds: tuple[Bound, ...]

    @property
    def text(self) -> str:
        return ", ".join(bound.text for bound in self.bounds)

    @property
    def percentiles(self) -> list[float]:
        """[float] that it bounds."""
        return [bound.percentile for bound in self.bounds if bound.percentile is not None]

    @property
    def shares(self) -> dict[str, float]:
        """{text of a bound: share of the requests that has to keep it}, for the bounds that need many requests to decide."""
        errors_ = {
            bound.text: 1 - bound.limit for bound in self.bounds if bound.what == "errors" and 0 < bound.limit < 1
        }
        return {f"p{one:g}": one / 100 for one in self.percentiles} | errors_


def parse(text: str) -> Goal | None:
    """The Goal of the text of --slo, or None for "". Raises: UsageError."""
    if not text:
        return None
    bounds: dict[str, Bound] = {}
    for item in text.split(","):
        bound = _bound(item.strip())
        if bound.what in bounds:
            raise errors.UsageError(f"--slo bounds {bound.what} twice", _EXAMPLE)
        bounds[bound.what] = bound
    return Goal(tuple(bounds.values()))


def _bound(text: str) -> Bound:
    match = _FORM.match(text)
    if match is None:
        raise errors.UsageError(f"--slo: {text!r} is no bound", _EXAMPLE)
    what, unit = match["what"], match["unit"]
    try:
        value = float(match["value"])
    except ValueError:
        raise errors.UsageError(f"--slo: {match['value']!r} of {text!r} is no number", _EXAMPLE) from None
    if (what == "errors") != (unit == "%"):
        raise errors.UsageError(f"--slo: {text!r} has the wrong unit", "errors are given in %, times in us, ms or s")
    if what.startswith("p") and not 0 < float(what[1:]) < 100:
        raise errors.UsageError(f"--slo: there is no {what}", "a percentile lies between 0 and 100")
    if what == "errors" and value > 100:
        raise errors.UsageError(f"--slo: {text!r} bounds nothing", "a share of errors lies between 0 and 100 %")
    if value <= 0 and what != "errors":
        raise errors.UsageError(f"--slo: nothing answers within {match['value']}{unit}", _EXAMPLE)
    limit = value / 100 if unit == "%" else value * _SECONDS[unit]
    return Bound(what, limit, match["sign"] == "<=", text)
