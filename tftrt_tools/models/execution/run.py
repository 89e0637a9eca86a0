"""Runs calls on a model, of whatever kind, in a child process; the parent's side. No runtime is imported here."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from tftrt_tools.base import records
from tftrt_tools.base.process import child
from tftrt_tools.base.process.jobs import Job, Worker
from tftrt_tools.models.execution.runner import Mode, Where
from tftrt_tools.models.execution.trace import CallTrace
from tftrt_tools.models.savedmodel import shapes as shape_grammar

if TYPE_CHECKING:
    import os

    import numpy.typing as npt

# (signature, .npz path of its inputs) of each call.
SavedCalls = Sequence[tuple[str, str]]
# A loaded model as (function that makes the call of an index, number of calls).
Indexed: TypeAlias = tuple[Callable[[int], object], int]


@dataclasses.dataclass(frozen=True)
class Call:
    """One call. inputs: {name: np.ndarray}. count: how many rows it has, where its maker knows (shapes.rows). whole: its inputs have unlike
    rows, so that all of it is one item."""

    signature: str
    inputs: dict[str, npt.NDArray[Any]]
    count: int | None = None
    whole: bool = False

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """{input: shape}."""
        return {name: tuple(value.shape) for name, value in self.inputs.items()}

    @property
    def rows(self) -> int:
        """The number of rows of its inputs; 1 where all are scalars, and for an item whose inputs have different numbers of rows."""
        if self.count is not None:
            return self.count
        lengths = {len(array) for array in self.inputs.values() if array.ndim}
        return lengths.pop() if len(lengths) == 1 else 1

    def text(self) -> str:
        """The call as messages show it, such as serving_default(x 1x8x8x1)."""
        return f"{self.signature}({shape_grammar.call_text(self.shapes)})"


@dataclasses.dataclass(frozen=True)
class Renamed(records.Record):
    """How a child turns the names of a call into the model's own, and back. inputs: {name in the call: the model's}. outputs: {the model's:
    name in the call}; only names that differ."""

    inputs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    outputs: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NamedCall(records.Record):
    """A saved call, as a child gets it."""

    # The signature's name in the model.
    signature: str
    # The .npz of its inputs.
    inputs: str
    renamed: Renamed = Renamed()
    # The .npz for its answers; "" where none are kept.
    output: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request(records.Record):
    """What `run_job.answer` does."""

    # The path that the runtime loads.
    model: str
    calls: tuple[NamedCall, ...]
    # Whether to record what the engines did in each call, and in which arithmetic the GPU computed.
    trace: bool = False
    kernels: bool = False
    # Whether float32 is computed without TF32.
    exact: bool = False
    # The model's name in messages.
    label: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answered(records.Record):
    """A call that was made. trace: None if it was not watched, or there are no engines."""

    seconds: float
    trace: CallTrace | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer(records.Record):
    """What `run_job.answer` did; the answers are in the files of the request's calls."""

    calls: tuple[Answered, ...]
    where: Where
    # {arithmetic: seconds of the GPU's kernels}, of one more call at each shape that engines served.
    kernels: dict[str, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadRequest(records.Record):
    """What `load_job.made` does. answers: a folder for the first answers; "" where they are not kept."""

    model: str
    # The calls, all of one signature.
    calls: tuple[NamedCall, ...]
    answers: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Runtime:
    """The runtime of a kind of models, in child processes."""

    # Runs calls: run_job.answer with the kind's own `load`.
    job: Job[Request, Answer]
    # Name of the module of the child's side, which has `load`.
    jobs: str
    # For load in process: load_job.made with the kind's own `load`. None where another job stands for the kind.
    under_load: Job[LoadRequest, Indexed] | None = None
    # Environment variables of its processes.
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # The package that the interpreter of another environment needs for it; "" where it runs in this one alone.
    package: str = ""
    # The interpreter of another environment; None for this one.
    python: str | None = None


class Runnable(Protocol):
    """A model that can be run."""

    @property
    def path(self) -> str:
        """The path that its runtime loads."""

    @property
    def runtime(self) -> Runtime:
        """The runtime that runs it."""


@dataclasses.dataclass(frozen=True)
class Placed:
    """The simplest Runnable: a path with its runtime."""

    path: str
    runtime: Runtime


@dataclasses.dataclass(frozen=True)
class Names:
    """The names of a signature of one model in another. inputs, outputs: {name here: name there}, only names that differ."""

    signature: str
    inputs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    outputs: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def renamed(self) -> Renamed:
        """The names as the child needs them: it turns them into the model's own for the call, and back for the answers."""
        return Renamed(dict(self.inputs), {there: here for here, there in self.outputs.items()})


def named(saved_calls: SavedCalls, names: Mapping[str, Names] | None = None) -> list[NamedCall]:
    """Saved calls as children get them. Args: names: {signature of a call: its names in the model}, only if they differ."""
    lines = []
    for signature, path in saved_calls:
        there = (names or {}).get(signature, Names(signature))
        lines.append(NamedCall(signature=there.signature, inputs=path, renamed=there.renamed()))
    return lines


class Started(Protocol):
    """A child process that runs models, such as the one of `worker`."""

    def call(self, request: Request) -> child.Outcome[Answer]:
        """Send a Request to the child's `run_job.answer`, and return its Answer."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """The answers of a model."""

    # An .npz path for each call.
    answers: tuple[str, ...]
    # The place where it ran.
    where: Where
    # The seconds of each call.
    seconds: tuple[float, ...]
    # What the engines did in each call; None if it was not watched, or there are no engines.
    traces: tuple[CallTrace | None, ...]
    # If requested: {arithmetic: seconds of the GPU's kernels}, of one more call at each shape that engines served.
    kernels: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def mode(self) -> Mode:
        """As Where.mode."""
        return self.where.mode

    @property
    def gpu(self) -> dict[str, str] | None:
        """As Where.gpu."""
        return self.where.gpu

    @property
    def replaced(self) -> tuple[str, ...]:
        """As Where.replaced."""
        return self.where.replaced

    def answer(self, index: int) -> dict[str, npt.NDArray[Any]]:
        """{output: np.ndarray} of call `index`."""
        from tftrt_tools.models.execution import npz  # NumPy is not needed for a command's help

        return npz.load(self.answers[index])


def save_calls(calls: Iterable[Call], folder: str | os.PathLike[str]) -> list[tuple[str, str]]:
    """Write the inputs of calls to `folder`. Returns: [(signature, path)]."""
    from tftrt_tools.models.execution import npz

    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    saved = []
    for number, call in enumerate(calls):
        path = folder / f"{number}.npz"
        npz.save(path, call.inputs)
        saved.append((call.signature, str(path)))
    return saved


def worker(
    runtime: Runtime, env: Mapping[str, str | None] | None = None, log_file: str | None = None
) -> AbstractContextManager[Worker[Request, Answer]]:
    """A process for `run` that loads the runtime while its caller does other work. See child.worker."""
    return runtime.job.worker({**runtime.env, **(env or {})}, log_file, runtime.python)


def run(
    model: Runnable,
    saved_calls: SavedCalls,
    folder: str | os.PathLike[str],
    label: str,
    *,
    trace: bool = False,
    exact: bool = False,
    env: Mapping[str, str | None] | None = None,
    log_file: str | None = None,
    started: Started | None = None,
    kernels: bool = False,
    names: Mapping[str, Names] | None = None,
    silence: child.Silence | None = None,
) -> Run:
    """Run saved calls (of `save_calls`) on a model, the answers in `folder`.

    Args: label: what the model is called in messages. trace: record what each engine did; kernels: with it, in which arithmetic the GPU
      computed. exact: compute float32 without TF32 (GPUs of Ampere and later). env, log_file: for the child. started: the result of
      `worker`, for a child that was started before. names: {signature of a call: its names in this model}, of those that differ.
      silence: how long a call may take before the child is killed; without it, and in one that was started before, for ever.
    Returns: Run; its answers have the names of the calls. Raises: TftrtError; child.ChildDied where native code aborted.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    calls = tuple(
        dataclasses.replace(call, output=str(folder / f"{number}.npz"))
        for number, call in enumerate(named(saved_calls, names))
    )
    request = Request(model=str(model.path), calls=calls, trace=trace, kernels=kernels, exact=exact, label=label)
    if started:
        done = started.call(request).result
    else:
        with worker(model.runtime, env, log_file) as process:
            done = process.call(request, silence=silence).result
    return Run(
        answers=tuple(call.output for call in calls),
        where=done.where,
        seconds=tuple(call.seconds for call in done.calls),
        traces=tuple(call.trace for call in done.calls),
        kernels=done.kernels,
    )
