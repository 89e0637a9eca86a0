"""A plan in TensorRT, without TensorFlow; the child's side."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Hashable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import tensorrt as trt

from tftrt_tools.base import errors
from tftrt_tools.models.execution import load_job, run_job, runner, trace
from tftrt_tools.models.execution.job.cudart import Cuda, CudaError, HostArray
from tftrt_tools.models.execution.run import Indexed, LoadRequest
from tftrt_tools.models.kinds.plan import profiles
from tftrt_tools.models.kinds.plan.document import ENGINE
from tftrt_tools.models.kinds.plan.job.context import Context, Refused
from tftrt_tools.models.kinds.plan.job.engine import Engine
from tftrt_tools.models.kinds.plan.job.pool import Calls, Pool

if TYPE_CHECKING:
    from tftrt_tools.models.execution.run import Answer, Request
    from tftrt_tools.models.execution.runner import Arrays, Ready, Wanted
    from tftrt_tools.models.execution.trace import CallTrace

# "1" launches calls as CUDA graphs.
GRAPHS = "TFTRT_PLAN_CUDA_GRAPH"
# Shapes for which `answer` keeps page-locked memory.
MOST_KEPT = 16


def job(request: Request) -> Answer:
    """The job run_job.answer, for plans."""
    return run_job.answer(request, load)


def make(request: LoadRequest) -> Indexed:
    """The job load_job.made, for plans."""
    return load_job.made(request, load)


@contextlib.contextmanager
def load(path: str, wanted: Wanted) -> Iterator[Loaded]:
    """As runner.Load. A plan computes as it was built; of `wanted` graphs count alone."""
    yield Loaded(path, os.environ.get(GRAPHS, "0") == "1" if wanted.graphs is None else wanted.graphs)


class Loaded:
    """The runner.Runner of a plan directory. Several threads may make its calls at a time: each gets a context and a stream."""

    def __init__(self, path: str, graphs: bool = False, make: type[Context] = Context) -> None:
        """Args: graphs: launch calls as CUDA graphs, one for each shape. make: the class of contexts. Raises: UsageError, TftrtError."""
        engine = Engine(path)
        self._plan = engine.plan
        # Outputs come as the engine computes them, and go out as the ONNX file has them.
        self._names = [output.name for output in self._plan.outputs]
        self._cast = [
            (output.name, np.dtype(output.dtype))
            for output in self._plan.outputs
            if output.dtype != output.engine_dtype
        ]
        # Calls of `answer` that no thread makes now, with the page-locked memory of their inputs. The shapes that came last are at the end.
        self._kept: dict[Hashable, list[Calls]] = {}
        self._lock = threading.Lock()
        try:
            self._cuda = Cuda()
            self.pool = Pool(self._cuda, engine, graphs, make)
        except CudaError as error:
            raise errors.TftrtError(f"CUDA does not start: {error}", "`tftrt doctor` says what is missing") from None
        self.where = runner.Where(mode="gpu", gpu=engine.gpu, runtime="TensorRT", version=trt.__version__)

    @property
    def captured(self) -> int:
        """As runner.Captures."""
        return self.pool.captured

    def ready(self, signature: str, inputs: Arrays) -> Ready:
        """As Runner.ready; the inputs lie in page-locked memory, and each call copies them to the GPU."""
        calls = self._calls(signature, inputs)
        self._fill(signature, inputs, calls)
        return functools.partial(self._answer, signature, inputs, calls)

    def answer(self, inputs: Arrays) -> Arrays:
        """One call with inputs of its own, as a server makes it. Raises: as `ready` and its calls.

        Page-locked memory, which takes longer to get than many a call takes, is kept for shapes that come again.
        """
        key = tuple((name, np.shape(array)) for name, array in inputs.items())
        with self._lock:
            kept = self._kept.get(key)
            calls = kept.pop() if kept else None
        calls = calls or self._calls("serving_default", inputs)
        self._fill("serving_default", inputs, calls)
        outputs = self._answer("serving_default", inputs, calls)
        with self._lock:
            self._kept[key] = [*self._kept.pop(key, []), calls]
            while len(self._kept) > MOST_KEPT:
                del self._kept[next(iter(self._kept))]
        return outputs

    def _answer(self, signature: str, inputs: Arrays, calls: Calls) -> Arrays:
        try:
            outputs = self.pool.call(calls)
        except (Refused, CudaError) as error:
            raise runner.failed(
                signature,
                inputs,
                f"TensorRT refuses {error}" if isinstance(error, Refused) else str(error),
                "if it is memory, make fewer calls at a time or smaller ones",
            ) from None
        for name, dtype in self._cast:
            outputs[name] = outputs[name].astype(dtype)
        return {name: outputs[name] for name in self._names}

    def _calls(self, signature: str, inputs: Arrays) -> Calls:
        """Calls with inputs of these shapes, whose memory is not filled yet."""
        shapes = {tensor.name: np.shape(inputs[tensor.name]) for tensor in self._plan.inputs if tensor.name in inputs}
        lost = [tensor.name for tensor in self._plan.inputs if tensor.name not in inputs]
        if lost:
            raise runner.failed(signature, inputs, f"it lacks the input {lost[0]!r}", "give every input of the plan")
        profile = profiles.choose(self._plan.profiles, shapes)
        if profile is None:
            raise runner.failed(signature, inputs, *profiles.refusal(self._plan.profiles, shapes))
        held = {
            tensor.name: self._cuda.pinned(shapes[tensor.name], tensor.engine_dtype) for tensor in self._plan.inputs
        }
        return Calls(profile, shapes, {name: HostArray.of(array) for name, array in held.items()})

    def _fill(self, signature: str, inputs: Arrays, calls: Calls) -> None:
        """Put the inputs into page-locked memory, as the engine takes them."""
        for tensor in self._plan.inputs:
            given, held = np.asarray(inputs[tensor.name]), calls.feed[tensor.name].array
            if given.dtype == object:
                raise runner.failed(signature, inputs, f"input {tensor.name!r} takes {tensor.dtype}, and strings came")
            if given.dtype.kind in "iu" and held.dtype.kind in "iu" and given.size:
                limits = np.iinfo(held.dtype)
                if given.min() < limits.min or given.max() > limits.max:
                    raise runner.failed(
                        signature,
                        inputs,
                        f"the plan takes input {tensor.name!r} as {held.dtype}, which cannot hold all of its numbers",
                    )
            held[...] = given

    def watched(self, ready: Ready) -> tuple[Arrays, CallTrace | None]:
        """As Runner.watched: a plan runs, or the call fails."""
        return ready(), trace.CallTrace(engine={ENGINE: 1}, fallback={}, build={}, calibration={})

    def kernels(self, calls: Iterable[Ready]) -> dict[str, float]:
        """As Runner.kernels: not told; the layers of the plan were recorded when it was built."""
        return {}
