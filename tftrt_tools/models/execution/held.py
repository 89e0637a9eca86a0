"""A model of any kind that stays loaded in a child process while it is called; the parent's side. No runtime is imported here."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from tftrt_tools.base import records
from tftrt_tools.base.files import scratch
from tftrt_tools.base.process import jobs
from tftrt_tools.models.execution import npz
from tftrt_tools.models.execution.runner import Where

if TYPE_CHECKING:
    from tftrt_tools.models.execution.run import Runnable
    from tftrt_tools.models.execution.runner import Arrays


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked(records.Record):
    """A call."""

    # The model: its path, the module that loads it, and its name in messages.
    path: str
    loader: str
    label: str
    # Of this loading: a process that holds another one lets it go first.
    token: str
    # "" to load only.
    signature: str = ""
    # .npz paths.
    inputs: str = ""
    output: str = ""


@jobs.job
def call() -> Callable[[Asked], Where]:
    """Load the model where that has not been done, and make the call."""
    from tftrt_tools.models.execution import held_job

    return held_job.call


class Held:
    """A loaded model; made by `loaded`. Attributes: where: where it runs."""

    def __init__(self, worker: jobs.Worker[Asked, Where], asked: Asked, folder: pathlib.Path) -> None:
        self._worker, self._asked, self._folder = worker, asked, folder
        self.where = worker.call(asked).result

    @property
    def alive(self) -> bool:
        """Whether its process runs and can be called."""
        return self._worker.alive

    def call(self, signature: str, inputs: Arrays) -> Arrays:
        """{output: array} of a call. Raises: CallFailed where the model does not answer it, after which it can be called again; ChildDied,
        after which it cannot."""
        given, answer = self._folder / "inputs.npz", self._folder / "answer.npz"
        npz.save(given, inputs)
        try:
            self._worker.call(
                dataclasses.replace(self._asked, signature=signature, inputs=str(given), output=str(answer))
            )
            return npz.load(answer)
        finally:
            for path in (given, answer):
                path.unlink(missing_ok=True)


@contextlib.contextmanager
def loaded(
    model: Runnable, label: str, env: Mapping[str, str] | None = None, log_file: str | os.PathLike[str] | None = None
) -> Iterator[Held]:
    """Load a model in a child process of its own, which ends with the context, and leaves the GPU then.

    Args: label: its name in messages. env: further environment variables of the process. log_file: where to keep what its runtime logs.
    Yields: Held. Raises: TftrtError where it cannot be loaded.
    """
    request = Asked(path=str(model.path), loader=model.runtime.jobs, label=label, token=uuid.uuid4().hex)
    env = {**model.runtime.env, **(env or {})}
    with scratch.folder("held") as folder, call.worker(env, log_file, model.runtime.python) as worker:
        yield Held(worker, request, pathlib.Path(folder))
