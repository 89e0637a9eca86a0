"""The plan of each generator, as pure functions: together they are the whole load, and nothing of it twice."""

import dataclasses

import numpy as np
import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.servers.load.load_plan import Plan, shared

# A closed loop that nobody ends goes on for so long after its end.
UNTOLD_SECONDS = 10.0


def split(plan: Plan, of: int) -> list[Plan]:
    """The plan of each of `of` generators.

    Requests under way, and those of a bound, are shared out as equally as can be. Instant k of an open schedule is that of generator
    k % of: the parts together are the schedule. Each has `processes` of its own, and warms up by the same rule.

    Raises: UsageError where a generator would have nothing to send.
    """
    check(plan.concurrency if plan.kind != "open" else len(plan.scheduled), of, plan.kind)
    if plan.max_queries is not None:
        check(plan.max_queries, of, "exact")
    # Each ends by itself where nobody can tell it to.
    timed = plan.kind != "open" and plan.max_seconds is None and not plan.min_queries and plan.max_queries is None
    outstanding = max(plan.max_outstanding, of)
    warming = max(plan.warm_up_concurrency, of)
    return [
        dataclasses.replace(
            plan,
            concurrency=shared(max(plan.concurrency, of), of)[number],
            schedule=None if plan.schedule is None else instants(plan.schedule, number, of),
            max_queries=None if plan.max_queries is None else shared(plan.max_queries, of)[number],
            # The whole load has as many, whichever generator sends them.
            min_queries=0 if plan.max_queries is None else shared(plan.max_queries, of)[number],
            max_seconds=plan.seconds + UNTOLD_SECONDS if timed else plan.max_seconds,
            max_outstanding=shared(outstanding, of)[number],
            warm_up_concurrency=shared(warming, of)[number],
        )
        for number in range(of)
    ]


def instants(schedule: npt.NDArray[np.int64], number: int, of: int) -> npt.NDArray[np.int64]:
    """The instants of one generator of a schedule, int64 ns."""
    return schedule[number::of]


def check(units: int, of: int, kind: str) -> None:
    """Refuse more generators than there is to send. Args: units: requests under way, of a bound ("exact") or of a schedule ("open").
    Raises: UsageError."""
    if units >= of:
        return
    counted = f"{units} request{'s' * (units != 1)}"
    if kind == "open":
        raise errors.UsageError(
            f"--generators={of}: the schedule has {counted}, fewer than one for each",
            "raise --rate or --duration_seconds, or take fewer generators",
        )
    if kind == "exact":
        raise errors.UsageError(
            f"--generators={of}: {counted} are sent, fewer than one for each",
            "raise --min_queries, or take fewer generators",
        )
    raise errors.UsageError(
        f"--generators={of}: {counted} under way, fewer than one for each",
        f"--concurrency={of} or more, or fewer generators",
    )
