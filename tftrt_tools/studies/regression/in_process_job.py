"""The worker's side of `side_by_side`."""

from __future__ import annotations

from tftrt_tools.base.process import jobs
from tftrt_tools.models.execution.run import Indexed
from tftrt_tools.studies.regression.side_by_side import Request


def make(request: Request) -> Indexed:
    """As side_by_side.make."""
    made: list[Indexed] = [jobs.named(one.job).load()(one.load) for one in request.sides]
    count = made[0][1]

    def infer(index: int) -> None:
        made[index // count][0](index % count)

    return infer, len(made) * count
