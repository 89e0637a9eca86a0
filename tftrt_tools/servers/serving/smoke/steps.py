"""The steps of a smoke test that need TensorFlow; they run in one child, `smoke_job`, without a GPU, to leave the server's GPU alone."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator
from typing import Any

from tftrt_tools.base.process import child
from tftrt_tools.models.savedmodel.describe import Description

_ENV = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "1"}


@contextlib.contextmanager
def worker() -> Iterator[Steps]:
    """Yields: Steps. The child starts with the context and loads TensorFlow with the first step."""
    with child.worker("tftrt_tools.servers.serving.smoke.smoke_job:job", env=_ENV) as one:
        yield Steps(one)


class Steps:
    """The calls to the child. All methods raise TftrtError."""

    def __init__(self, worker: child.Worker) -> None:
        self._worker = worker

    def read_model(self, path: str | pathlib.Path) -> dict[str, Any]:
        """What version_on_disk.from_step takes."""
        result: dict[str, Any] = self._worker.call({"step": "read_model", "model": str(path)}).result
        return result

    def describe(self, path: str | pathlib.Path) -> Description:
        """describe.Description of a SavedModel."""
        return Description.from_dict(self._worker.call({"step": "describe", "model": str(path)}).result)

    def call(self, request: Any) -> child.Outcome[Any]:
        """For run.run(started=…): what execution.run_job.answer takes and returns, as an Outcome."""
        return self._worker.call({"step": "run", "request": request})
