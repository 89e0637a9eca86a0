"""A task, and what becomes of it; and what goes to and fro where a process is held."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from tftrt_tools.base import errors, records
from tftrt_tools.base.process import jobs
from tftrt_tools.fleet.content import Packed

# done: the job answered. failed: the job raised, which it would anywhere. died: its worker died, in each try. refused: every worker that
# could take it has another stack. not placeable: the fleet has no machine for it. left out: it had not begun when no more were to begin.
Status = Literal["done", "failed", "died", "refused", "not placeable", "left out"]

_UUID = len("GPU-acc98c76")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Given(records.Record):
    """What a job of a fleet is called with, on the machine where it runs. request: Task.request; content: the path of what travelled, ""
    for nothing; output: a path where nothing is yet. What the job makes there travels back."""

    request: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    content: str = ""
    output: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """One piece of work that needs no other. name: unique in a run. job: what is done. request: plain values."""

    name: str
    job: jobs.Job[Given, Any]
    request: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    content: Packed | None = None
    # GPUs: 1, or 0 for a task that sees none.
    gpus: int = 1
    # Kind of GPU, as the fleet calls it; "" for any.
    gpu_type: str = ""
    # The most seconds of a try; None for no bound.
    seconds: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Where(records.Record):
    """A place of a try. node: Ray's name of the machine. gpus: CUDA_VISIBLE_DEVICES of the task."""

    node: str
    host: str
    gpus: str = ""

    def text(self) -> str:
        """For people; of a GPU's UUID the beginning."""
        if not self.gpus:
            return self.host
        return f"{self.host}, " + (self.gpus[:_UUID] if self.gpus.startswith("GPU-") else f"GPU {self.gpus}")


@dataclasses.dataclass(frozen=True)
class Said:
    """What goes to a post that is held (`holding`), and what comes from it. facts: plain values; content: bytes beside them."""

    facts: Mapping[str, Any]
    content: bytes = b""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Post:
    """A process that is held on a machine. boot: equal for posts of one machine; cores: that it may use; process: its number there."""

    where: Where
    boot: str
    cores: int
    process: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a task, once. answer: of the job. output: what it made, an open file of this process. error: where it is not done.
    where: of the last try, None where none began. seconds: of the last try."""

    task: Task
    status: Status
    tries: int
    seconds: float = 0.0
    answer: Any = None
    output: Packed | None = None
    error: errors.TftrtError | None = None
    where: Where | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A line of the live table. state: a Status, "waiting", or what the job says that it does."""

    name: str
    state: str
    where: Where | None = None
    tries: int = 1
    seconds: float | None = None
