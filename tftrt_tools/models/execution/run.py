"""Runs calls on a model, of whatever kind, in a child process; the parent's side. No runtime is imported here."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from tftrt_tools.base.process import child
from tftrt_tools.models.execution.runner import Mode, Where
from tftrt_tools.models.execution.trace import CallTrace
from tftrt_tools.models.savedmodel import shapes as shape_grammar

if TYPE_CHECKING:
    import os

    import numpy.typing as npt

# (signature, .npz path of its inputs) of each call.
SavedCalls = Sequence[tuple[str, str]]


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
        """How many rows its inputs have; 1 where all are scalars, and of an item whose inputs have unlike rows."""
        if self.count is not None:
            return self.count
        lengths = {len(array) for array in self.inputs.values() if array.ndim}
        return lengths.pop() if len(lengths) == 1 else 1

    def text(self) -> str:
        """For people: serving_default(x 1x8x8x1)."""
        return f"{self.signature}({shape_grammar.call_text(self.shapes)})"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Runtime:
    """The runtime of a kind of models, in child processes."""

    # Name of the module of the child's side. Its function `job` is run_job.answer with the kind's own `load`.
    jobs: str
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
        """What its runtime loads."""

    @property
    def runtime(self) -> Runtime:
        """What runs it."""


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

    def renamed(self) -> dict[str, dict[str, str]]:
        """Its form in requests to the child, which turns names into the model's own for the call, and back for the answers."""
        return {"inputs": dict(self.inputs), "outputs": {there: here for here, there in self.outputs.items()}}


def named(saved_calls: SavedCalls, names: Mapping[str, Names] | None = None) -> list[dict[str, Any]]:
    """Saved calls as requests to the child have them: {"signature", "inputs": .npz path, "renamed": Names.renamed()} each.

    Args: names: {signature of a call: its names in the model}, only if they differ.
    """
    found = []
    for signature, path in saved_calls:
        there = (names or {}).get(signature, Names(signature))
        found.append({"signature": there.signature, "inputs": path, "renamed": there.renamed()})
    return found


class Started(Protocol):
    """A child process that runs models, such as child.Worker."""

    def call(self, request: dict[str, Any]) -> child.Outcome[Any]:
        """What `run_job.answer` takes and returns."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """The answers of a model."""

    # An .npz path for each call.
    answers: tuple[str, ...]
    # The place where it ran.
    where: Where
    # Of each call.
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
) -> AbstractContextManager[child.Worker]:
    """A process for `run` that loads the runtime while its caller does other work. See child.worker."""
    return child.worker(f"{runtime.jobs}:job", {**runtime.env, **(env or {})}, log_file, runtime.python)


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
    calls = [{**call, "output": str(folder / f"{number}.npz")} for number, call in enumerate(named(saved_calls, names))]
    request = {
        "model": str(model.path),
        "calls": calls,
        "trace": trace,
        "kernels": kernels,
        "exact": exact,
        "label": label,
    }
    if started:
        done: Any = started.call(request).result
    else:
        with worker(model.runtime, env, log_file) as one:
            done = one.call(request, silence=silence).result
    traces = tuple(CallTrace.from_dict(one["trace"]) if one["trace"] else None for one in done["calls"])
    return Run(
        answers=tuple(call["output"] for call in calls),
        where=Where.from_dict(done["where"]),
        seconds=tuple(one["seconds"] for one in done["calls"]),
        traces=traces,
        kernels=done["kernels"],
    )
