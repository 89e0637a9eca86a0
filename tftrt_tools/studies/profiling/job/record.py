"""Records whole calls of SavedModels in one process with TensorFlow; see `recorder`."""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Callable
from typing import Any, TypeVar

from tftrt_tools.base import errors
from tftrt_tools.base.files import plain_file
from tftrt_tools.base.process import native_log
from tftrt_tools.base.stack import memory_job
from tftrt_tools.models.execution.job import gpu, profiling
from tftrt_tools.models.execution.runner import Arrays, Wanted
from tftrt_tools.models.kinds.savedmodel import runner_job
from tftrt_tools.studies.profiling.job import call_graph, compact, recorder
from tftrt_tools.studies.profiling.job import machine as machines
from tftrt_tools.studies.profiling.job.whole import Whole
from tftrt_tools.studies.profiling.recording import Facts, Recorded, Request

T = TypeVar("T")
# A trace takes so many times its bytes while it is read.
_TIMES_IN_MEMORY = 20


def record(request: Request) -> Facts:
    """Record. Raises: TftrtError."""
    if request.gpu and not gpu.seen():
        raise errors.TftrtError(
            "TensorFlow sees no GPU here", "`tftrt doctor` says why; --without_gpu measures TensorFlow on the CPU"
        )
    return _Recorder(request).all()


class _Recorder(recorder.Recorder[runner_job.Loaded]):
    def machine(self) -> dict[str, Any]:
        return machines.machine()

    def load(self, stack: contextlib.ExitStack, model: Recorded) -> tuple[runner_job.Loaded, dict[str, Any]]:
        runner = stack.enter_context(runner_job.load(model.path, Wanted(label=model.name)))
        return runner, {
            "where": runner.where.to_dict(),
            **(self._try(f"reading the {model.name}", machines.model, model.path) or {}),
            "graph": self._try(f"reading the {model.name}", call_graph.read, model.path) or {},
        }

    def whole(self, loaded: runner_job.Loaded, signature: str, given: Arrays) -> Whole:
        return Whole(loaded, signature, given)

    def captured(self, name: str, function: Callable[[], T]) -> tuple[T, dict[str, Any]]:
        with native_log.captured() as log:
            free = memory_job.available()
            result, raw = profiling.recorded(function, free // _TIMES_IN_MEMORY if free else None)
        lines = [line for line in log[0].splitlines() if "cupti" in line.lower()]
        if self._request.raw:
            plain_file.write_bytes(self._folder / f"{name}.xplane.pb.gz", gzip.compress(raw))
        size, complaints = compact.write(raw, self._folder / f"{name}.trace.json.gz")
        return result, {
            "trace": f"{name}.trace.json.gz",
            "trace_bytes": size,
            "complaints": complaints,
            "trace_log": lines[:20],
        }
