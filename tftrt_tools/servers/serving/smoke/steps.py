"""The steps of a smoke test that need TensorFlow; they run in one child, without a GPU, to leave the server's GPU alone."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator

from tftrt_tools.base.process import child, jobs
from tftrt_tools.models.execution import run
from tftrt_tools.models.kinds.savedmodel import kind as saved_model
from tftrt_tools.models.savedmodel import describe
from tftrt_tools.models.savedmodel.describe import Description
from tftrt_tools.servers.serving.smoke import version_on_disk

_ENV = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "1"}


@contextlib.contextmanager
def worker() -> Iterator[Steps]:
    """Yields: Steps. The child starts with the context and loads TensorFlow with the first step."""
    with jobs.process(env=_ENV) as one:
        yield Steps(one)


class Steps:
    """The calls to the child. All methods raise TftrtError."""

    def __init__(self, process: jobs.Process) -> None:
        self._process = process

    def read_version(self, path: str | pathlib.Path) -> version_on_disk.Contents:
        """What lies in a version directory."""
        return self._process.call(version_on_disk.contents, str(path)).result

    def describe(self, path: str | pathlib.Path) -> Description:
        """describe.Description of a SavedModel."""
        return self._process.call(describe.read, [str(path)]).result[0]

    def call(self, request: run.Request) -> child.Outcome[run.Answer]:
        """For run.run(started=…)."""
        return self._process.call(saved_model.answer, request)
