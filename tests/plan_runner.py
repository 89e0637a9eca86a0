"""Runs the model.onnx of a plan directory in ONNX Runtime, and says of each call what a plan's runner says. For what measures plans, on a
machine where no plan runs."""

import contextlib
import functools
from collections.abc import Callable

from tftrt_tools.base.process import jobs
from tftrt_tools.models.execution.trace import CallTrace
from tftrt_tools.models.kinds.onnx import runner_job
from tftrt_tools.models.kinds.plan.document import ENGINE
from tftrt_tools.studies.tuning.measuring import Answer, Request


@contextlib.contextmanager
def load(path, wanted):
    assert wanted.graphs is not None, "what is measured depends on the environment"
    yield Loaded(runner_job.opened(f"{path}/model.onnx"))


@jobs.job
def measure() -> Callable[[Request], Answer]:
    """measuring.measure, with these plans."""
    from tftrt_tools.studies.tuning import measure_job

    return functools.partial(measure_job.job, load_made=load)


class Loaded(runner_job.Loaded):
    def watched(self, ready):
        return ready(), CallTrace(engine={ENGINE: 1}, fallback={}, build={}, calibration={})
