"""A plan in TensorRT, without TensorFlow; the child's side."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import tensorrt as trt

from tftrt_tools import errors
from tftrt_tools.execution import load_job, run_job, runner, trace
from tftrt_tools.execution.job.cudart import Cuda, CudaError, HostArray
from tftrt_tools.models.plan import profiles
from tftrt_tools.models.plan.document import ENGINE, Tensor
from tftrt_tools.models.plan.job.context import Context, Refused
from tftrt_tools.models.plan.job.engine import Engine
from tftrt_tools.models.plan.job.pool import Calls, Pool

if TYPE_CHECKING:
    from tftrt_tools.execution.runner import Arrays, Ready, Wanted
    from tftrt_tools.execution.trace import CallTrace

# "1" launches calls as CUDA graphs.
GRAPHS = "TFTRT_PLAN_CUDA_GRAPH"


def job(request: dict[str, Any]) -> dict[str, Any]:
    """As run_job.answer."""
    return run_job.answer(request, load)


def make(request: dict[str, Any]) -> tuple[Callable[[int], object], int]:
    """As load_job.made."""
    return load_job.made(request, load)


@contextlib.contextmanager
def load(path: str, wanted: Wanted) -> Iterator[Loaded]:
    """As runner.Load. A plan computes as it was built, whatever `wanted` says."""
    yield Loaded(path, os.environ.get(GRAPHS, "0") == "1")


class Loaded:
    """The runner.Runner of a plan directory. Several threads may make its calls at a time: each gets a context and a stream."""

    def __init__(self, path: str, graphs: bool = False, make: type[Context] = Context) -> None:
        """Args: graphs: launch calls as CUDA graphs, one for each shape. make: the class of contexts. Raises: UsageError, TftrtError."""
        engine = Engine(path)
        self._plan = engine.plan
        try:
            self._cuda = Cuda()
            self.pool = Pool(self._cuda, engine, graphs, make)
        except CudaError as error:
            raise errors.TftrtError(f"CUDA does not start: {error}", "`tftrt doctor` says what is missing") from None
        self.where = runner.Where(mode="gpu", gpu=engine.gpu, runtime="TensorRT", version=trt.__version__)

    def ready(self, signature: str, inputs: Arrays) -> Ready:
        """As Runner.ready; the inputs lie in page-locked memory, and each call copies them to the GPU."""
        shapes = {one.name: tuple(inputs[one.name].shape) for one in self._plan.inputs if one.name in inputs}
        lost = [one.name for one in self._plan.inputs if one.name not in inputs]
        if lost:
            raise runner.failed(signature, inputs, f"it lacks the input {lost[0]!r}", "give every input of the plan")
        profile = profiles.choose(self._plan.profiles, shapes)
        if profile is None:
            raise runner.failed(signature, inputs, *profiles.refusal(self._plan.profiles, shapes))
        calls = Calls(profile, shapes, {one.name: HostArray.of(self._pinned(signature, inputs, one)) for one in self._plan.inputs})
        # Outputs come as the engine computes them, and go out as the ONNX file has them.
        names = [one.name for one in self._plan.outputs]
        cast = [(one.name, np.dtype(one.dtype)) for one in self._plan.outputs if one.dtype != one.engine_dtype]

        def call() -> Arrays:
            try:
                found = self.pool.call(calls)
            except (Refused, CudaError) as error:
                raise runner.failed(signature, inputs, f"TensorRT refuses {error}" if isinstance(error, Refused) else str(error),
                                    "if it is memory, make fewer calls at a time or smaller ones") from None
            for name, dtype in cast:
                found[name] = found[name].astype(dtype)
            return {name: found[name] for name in names}

        return call

    def _pinned(self, signature: str, inputs: Arrays, tensor: Tensor) -> npt.NDArray[Any]:
        """An input as the engine takes it, in page-locked memory."""
        given = np.asarray(inputs[tensor.name])
        if given.dtype == object:
            raise runner.failed(signature, inputs, f"input {tensor.name!r} takes {tensor.dtype}, and strings came")
        dtype = np.dtype(tensor.engine_dtype)
        if given.dtype.kind in "iu" and dtype.kind in "iu" and given.size:
            limits = np.iinfo(dtype)
            if given.min() < limits.min or given.max() > limits.max:
                raise runner.failed(signature, inputs,
                                    f"the plan takes input {tensor.name!r} as {dtype}, which cannot hold all of its numbers")
        held = self._cuda.pinned(given.shape, dtype)
        held[...] = given
        return held

    def watched(self, ready: Ready) -> tuple[Arrays, CallTrace | None]:
        """As Runner.watched: a plan runs, or the call fails."""
        return ready(), trace.CallTrace(engine={ENGINE: 1}, fallback={}, build={}, calibration={})

    def kernels(self, calls: Iterable[Ready]) -> dict[str, float]:
        """As Runner.kernels: not told; the layers of the plan were recorded when it was built."""
        return {}
