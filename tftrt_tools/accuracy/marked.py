"""Inner tensors that two models both compute, and the jobs that find those of two SavedModels and fetch them. No TensorFlow here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tftrt_tools.base import records
from tftrt_tools.base.process import jobs
from tftrt_tools.models.execution import run


@dataclasses.dataclass(frozen=True, kw_only=True)
class SharedTensor(records.Record):
    """A tensor of floats that both compute."""

    # The tensor's name in messages.
    tensor: str
    # The node or engine that computes it in the second model, as messages name it.
    node: str
    # The tensor's name as an output of each model.
    first: str
    second: str
    # Whether it lies behind a tensor that the second model has not: it may hold something else there.
    doubtful: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chunk(records.Record):
    """A file for each of two models, with some of the tensors as outputs."""

    first: str
    second: str
    tensors: tuple[SharedTensor, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chunks(records.Record):
    """All chunks. computed: how many tensors of floats the second model computes."""

    chunks: tuple[Chunk, ...]
    computed: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChunksRequest(records.Record):
    """Which tensors of two SavedModels."""

    # Their directories: of the original, and of its conversion.
    models: tuple[str, str]
    signature: str
    # Names of tensors, () for all.
    names: tuple[str, ...] = ()
    # Where the files go.
    folder: str
    # Tensors of a run on a GPU, where engines are built anew with them; and of a run without one.
    chunk: int
    whole: int
    # Whether engines may be built anew, with tensors inside as outputs.
    inside: bool


@jobs.job
def find() -> Callable[[ChunksRequest], Chunks]:
    """Find the tensors that both compute, and write files for runs with some of them each."""
    from tftrt_tools.accuracy import marked_job

    return marked_job.chunks


@jobs.job
def answer() -> Callable[[run.Request], run.Answer]:
    """Run calls on SavedModels with inner tensors as outputs, by the files that `find` writes."""
    from tftrt_tools.accuracy import marked_job

    return marked_job.job
