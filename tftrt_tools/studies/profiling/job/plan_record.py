"""Records whole calls of a plan directory in one process, without TensorFlow; see `recorder`."""

from __future__ import annotations

import contextlib
import gzip
import json
import time
from collections.abc import Callable
from typing import Any, TypeVar

import tensorrt as trt

from tftrt_tools.base.files import plain_file
from tftrt_tools.models.execution.runner import Arrays
from tftrt_tools.models.kinds.plan import document, runner_job
from tftrt_tools.studies.profiling.job import host, plan_cupti, plan_trace, recorder
from tftrt_tools.studies.profiling.job.plan_calls import MARKS, Marked, PlanCalls
from tftrt_tools.studies.profiling.recording import Facts, Recorded, Request

T = TypeVar("T")


def record(request: Request) -> Facts:
    """Record."""
    return _Recorder(request).all()


class _Recorder(recorder.Recorder[runner_job.Loaded]):
    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self._warm = False

    def machine(self) -> dict[str, Any]:
        said = document.read(self._request.models[0].path)
        return host.machine({"tensorrt": trt.__version__}, tf32="TF32" in said.builder_flags)

    def load(self, stack: contextlib.ExitStack, model: Recorded) -> tuple[runner_job.Loaded, dict[str, Any]]:
        runner = runner_job.Loaded(model.path, make=Marked)
        return runner, {"where": runner.where.to_dict()}

    def whole(self, loaded: runner_job.Loaded, signature: str, given: Arrays) -> PlanCalls:
        return PlanCalls(loaded, signature, given)

    def captured(self, name: str, function: Callable[[], T]) -> tuple[T, dict[str, Any]]:
        result, recorded, marks, complaints = self._watched(function)
        path = self._folder / f"{name}.trace.json.gz"
        plain_file.write_bytes(
            path,
            gzip.compress(json.dumps(plan_trace.of(recorded, marks, complaints), separators=(",", ":")).encode(), 6),
        )
        return result, {
            "trace": path.name,
            "trace_bytes": path.stat().st_size,
            "complaints": complaints,
            "trace_log": [],
        }

    def _watched(self, function: Callable[[], T]) -> tuple[T, dict[str, Any], list[list[Any]], list[str]]:
        """(Its result, what CUPTI saw, the marks, why CUPTI saw nothing). Without CUPTI the host's marks are there all the same."""
        try:
            if not self._warm:
                # CUPTI itself warms up.
                with plan_cupti.cupti().tracing():
                    function()
                self._warm = True
            with plan_cupti.cupti().tracing() as recorded:
                MARKS.trace(plan_cupti.cupti().now)
                try:
                    result = function()
                finally:
                    marks = MARKS.trace(None)
            return result, recorded, marks, []
        except (RuntimeError, OSError, AttributeError) as error:
            MARKS.trace(time.perf_counter_ns)
            try:
                result = function()
            finally:
                marks = MARKS.trace(None)
            return result, {}, marks, [f"CUPTI: {error}"]
