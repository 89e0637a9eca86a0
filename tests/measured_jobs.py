"""A stand-in for measurement.measure, which needs a GPU."""

from collections.abc import Callable
from typing import Any

from tftrt_tools.base.process import jobs


@jobs.job
def work() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """It answers, refuses, or dies, as it is asked."""
    from tests.rooms.base import test_child

    return test_child.work
