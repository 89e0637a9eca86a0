"""Runs calls on a SavedModel in a child process; the parent's side. No TensorFlow here."""

import contextlib
import dataclasses
import pathlib

from tftrt_tools import child
from tftrt_tools.execution import npz
from tftrt_tools.execution.trace import CallTrace
from tftrt_tools.savedmodel import shapes as shape_grammar

# Every engine execution writes its engine's name to the log.
_ENV = {"TF_CPP_VMODULE": "trt_engine_op=1", "TF_CPP_MIN_LOG_LEVEL": "0"}


@dataclasses.dataclass(frozen=True)
class Call:
    """One call. inputs: {name: np.ndarray}."""

    signature: str
    inputs: dict

    @property
    def shapes(self):
        """{input: shape}."""
        return {name: tuple(value.shape) for name, value in self.inputs.items()}

    @property
    def rows(self):
        """How many rows its inputs have; 1 where all are scalars."""
        return max((len(array) for array in self.inputs.values() if array.ndim), default=1)

    def text(self):
        """For people: serving_default(x 1x8x8x1)."""
        return f"{self.signature}({shape_grammar.call_text(self.shapes)})"


@dataclasses.dataclass(frozen=True)
class Run:
    """What a model answered. answers: .npz path for each call; mode: "gpu" (engines may run), "cpu" (no engine op in the model) or
    "native segments" (engine ops replaced, no engine arithmetic); seconds: of each call; traces: CallTrace of each call, or None; kernels:
    {arithmetic: seconds of the GPU's kernels}, of one more call at each shape that engines served, where they were asked for."""

    answers: tuple
    mode: str
    gpu: dict | None
    replaced: tuple
    seconds: tuple
    traces: tuple
    kernels: dict = dataclasses.field(default_factory=dict)

    def answer(self, index):
        """{output: np.ndarray} of call `index`."""
        return npz.load(self.answers[index])


def save_calls(calls, folder):
    """Write the inputs of `calls` (iterable of Call) to `folder`. Returns: [(signature, path)]."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    saved = []
    for number, call in enumerate(calls):
        path = folder / f"{number}.npz"
        npz.save(path, call.inputs)
        saved.append((call.signature, str(path)))
    return saved


def worker(env=None, log_file=None):
    """A process for `run`, which loads TensorFlow while its caller does something else. A context manager; see child.worker."""
    return child.worker("tftrt_tools.execution.runner:job", {**_ENV, **(env or {})}, log_file)


def run(model, saved_calls, folder, label, trace=False, tf32=True, env=None, log_file=None, started=None, kernels=False):
    """Run `saved_calls` (of `save_calls`) on SavedModel `model`, the answers in `folder`.

    Args: trace: record what each engine op did (GPU only); kernels: with it, in which arithmetic the GPU computed. tf32: allow TF32 in
      matrix products (Ampere and later). env, log_file: for the child. started: what `worker` yields, for a child that was started before.
    Returns: Run. Raises: TftrtError; child.ChildDied where native code aborted.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    calls = [{"signature": signature, "inputs": path, "output": str(folder / f"{number}.npz")}
             for number, (signature, path) in enumerate(saved_calls)]
    request = {"model": str(model), "tags": [], "calls": calls, "trace": trace, "kernels": kernels, "tf32": tf32, "label": label}
    with contextlib.nullcontext(started) if started else worker(env, log_file) as one:
        done = one.call(request).result
    traces = tuple(CallTrace.from_dict(one["trace"]) if one["trace"] else None for one in done["calls"])
    return Run(tuple(call["output"] for call in calls), done["mode"], done["gpu"], tuple(done["replaced"]),
               tuple(one["seconds"] for one in done["calls"]), traces, done["kernels"])
