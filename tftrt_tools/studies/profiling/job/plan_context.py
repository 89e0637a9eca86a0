"""An engine out of a model, ready to be called: a context of one profile, its stream and its buffers.

It stands beside models.kinds.plan.job.context, which answers a user's arrays. Here the inputs are drawn and stay on the GPU, and the engine
may be one of TF-TRT: with an implicit batch, or with inputs whose values are shapes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorrt as trt

from tftrt_tools.models.execution.job import cudart, device
from tftrt_tools.models.kinds.plan.job import differences
from tftrt_tools.models.kinds.plan.job import engine as plan_engine

Shape = tuple[int, ...]


@functools.cache
def runtime() -> trt.Runtime:
    """Lives as long as the process: engines must not outlive it. Raises: RuntimeError without a GPU, where TensorRT 8.6 would end the
    process."""
    if device.seen() is None:
        raise RuntimeError("no GPU is visible here")
    logger = trt.Logger(trt.Logger.ERROR)
    # Engines with plugins (NMS) do not deserialize without it.
    trt.init_libnvinfer_plugins(logger, "")
    return trt.Runtime(logger)


def load(plan: bytes) -> trt.ICudaEngine:
    """An engine from its bytes. Raises: RuntimeError."""
    engine = runtime().deserialize_cuda_engine(plan)
    if engine is None:
        raise RuntimeError("TensorRT does not read this engine here")
    return engine


def names(engine: trt.ICudaEngine) -> list[str]:
    """The names of the inputs and outputs, without the copies that further profiles have."""
    return [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]


def is_input(engine: trt.ICudaEngine, name: str) -> bool:
    """Whether it is an input of the engine."""
    return bool(engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT)


def opt_shapes(engine: trt.ICudaEngine, profile: int) -> dict[str, Shape]:
    """{input: the shape that a profile was tuned for}, of an explicit-batch engine."""
    return {
        name: tuple(engine.get_tensor_profile_shape(name, profile)[1])
        for name in names(engine)
        if is_input(engine, name) and not engine.is_shape_inference_io(name)
    } | {
        name: tuple(engine.get_tensor_shape(name))
        for name in names(engine)
        if is_input(engine, name) and engine.is_shape_inference_io(name)
    }


def serving(engine: trt.ICudaEngine, rows: int) -> int | None:
    """The profile that serves inputs of this batch and was tuned for another; None if a profile was tuned for it, or none serves it, or
    the inputs do not all begin with one batch."""
    chosen = None
    for profile in range(0 if differences.implicit_batch(engine) else engine.num_optimization_profiles):
        if any(not shape for shape in opt_shapes(engine, profile).values()) or shape_values(engine, profile):
            return None
        least, best, most = (
            {engine.get_tensor_profile_shape(name, profile)[place][0] for name in opt_shapes(engine, profile)}
            for place in range(3)
        )
        if len(best) != 1 or rows in best:
            return None
        if chosen is None and max(least) <= rows <= min(most):
            chosen = profile
    return chosen


def shape_values(engine: trt.ICudaEngine, profile: int) -> dict[str, list[list[int]]]:
    """{input whose values are shapes: its least, best and largest values in a profile}."""
    return {
        name: differences.profile_values(engine, profile, name)
        for name in names(engine)
        if is_input(engine, name) and engine.is_shape_inference_io(name)
    }


class Context:
    """One caller of an engine.

    Args:
      cuda: the CUDA runtime.
      engine: a deserialized engine.
      shapes: {input: shape}, with the batch in an implicit-batch engine, too.
      profile: of an explicit-batch engine.
      values: {input whose values are shapes: values}.
    """

    def __init__(
        self,
        cuda: cudart.Cuda,
        engine: trt.ICudaEngine,
        shapes: dict[str, Shape],
        profile: int = 0,
        values: dict[str, list[int]] | None = None,
    ) -> None:
        self.cuda, self.engine, self.stream = cuda, engine, cuda.stream()
        self.implicit = differences.implicit_batch(engine)
        self.batch = next(iter(shapes.values()))[0] if shapes else 1
        free = cuda.free_memory()
        self.context = engine.create_execution_context()
        if self.context is None:
            raise RuntimeError("TensorRT gives no further context of this engine")
        if engine.profiling_verbosity == trt.ProfilingVerbosity.DETAILED:
            # The ranges of a plan's layers would hold all that TensorRT tells of them, and take longer to launch.
            self.context.nvtx_verbosity = trt.ProfilingVerbosity.LAYER_NAMES_ONLY
        # What it took of the device's memory, in the steps in which CUDA gives it out.
        self.context_bytes = free - cuda.free_memory()
        self._bindings: list[int] = []
        self._held: list[npt.NDArray[Any]] = []
        self._allocated: list[int] = []
        self.buffer_bytes: dict[str, int] = {}
        if self.implicit:
            self._bind_by_index()
        else:
            self._bind_by_name(shapes, profile, values or {})

    def _bind_by_index(self) -> None:
        for one in differences.bindings(self.engine):
            self._bindings.append(self._buffer(one.name, (self.batch, *one.shape), one.dtype, one.is_input))

    def _bind_by_name(self, shapes: dict[str, Shape], profile: int, values: dict[str, list[int]]) -> None:
        if profile:
            _check(self.context.set_optimization_profile_async(profile, self.stream), "set_optimization_profile_async")
            self.cuda.wait(self.stream)
        inputs = [name for name in names(self.engine) if is_input(self.engine, name)]
        for name in inputs:
            if -1 in tuple(self.engine.get_tensor_shape(name)):
                _check(self.context.set_input_shape(name, shapes[name]), f"the shape {shapes[name]} of {name}")
        for name in inputs:
            if self.engine.get_tensor_location(name) == trt.TensorLocation.HOST:
                self._on_host(name, values.get(name, []))
            else:
                shape = tuple(self.context.get_tensor_shape(name))
                given = values.get(name) if self.engine.is_shape_inference_io(name) else None
                address = self._buffer(name, shape, self.engine.get_tensor_dtype(name), True, given)
                _check(self.context.set_tensor_address(name, address), f"the address of {name}")
        missing = self.context.infer_shapes()
        if missing:
            raise RuntimeError(f"TensorRT does not know the shapes of {missing}")
        for name in names(self.engine):
            if name not in inputs:
                self._output(name)

    def _on_host(self, name: str, values: Sequence[int]) -> None:
        self._held.append(np.array(list(values) + [0] * 8, plan_engine.numpy_dtype(self.engine.get_tensor_dtype(name))))
        _check(self.context.set_tensor_address(name, self._held[-1].ctypes.data), f"the values of {name}")

    def _output(self, name: str) -> None:
        shape = tuple(self.context.get_tensor_shape(name))
        if self.engine.get_tensor_location(name) == trt.TensorLocation.HOST:
            self._held.append(np.zeros(max(64, math.prod(max(size, 1) for size in shape)), np.int64))
            address = self._held[-1].ctypes.data
        elif -1 in shape:
            # The output's size depends on values: there is room for the largest.
            self.buffer_bytes[name] = max(1, self.context.get_max_output_size(name))
            address = self._memory(name)
        else:
            address = self._buffer(name, shape, self.engine.get_tensor_dtype(name), False)
        _check(self.context.set_tensor_address(name, address), f"the address of {name}")

    def _buffer(
        self, name: str, shape: Shape, dtype: trt.DataType, filled: bool, values: Sequence[int] | None = None
    ) -> int:
        """Memory on the device; inputs are uniform in [-1, 1), integers 0."""
        kind = plan_engine.numpy_dtype(dtype)
        self.buffer_bytes[name] = max(1, math.prod(shape) * kind.itemsize)
        address = self._memory(name)
        self.cuda.zero(address, self.buffer_bytes[name])
        array: npt.NDArray[Any] | None = None
        if values is not None:
            array = np.array(values, kind)
        elif filled and kind.kind == "f":
            array = np.random.default_rng(0).uniform(-1, 1, shape).astype(kind)
        if array is not None:
            self.cuda.to_device(address, array, self.stream)
            self.cuda.wait(self.stream)
        return address

    def _memory(self, name: str) -> int:
        self._allocated.append(self.cuda.malloc(self.buffer_bytes[name]))
        return self._allocated[-1]

    def close(self) -> None:
        """Give back the context and the buffers."""
        self.cuda.wait_for_all()
        del self.context
        for address in self._allocated:
            self.cuda.free(address)

    def shapes(self) -> dict[str, list[int]]:
        """{input or output: its shape in these calls}."""
        if self.implicit:
            return {one.name: [self.batch, *one.shape] for one in differences.bindings(self.engine)}
        return {name: list(self.context.get_tensor_shape(name)) for name in names(self.engine)}

    def enqueue(self) -> None:
        """Put one call on the stream."""
        if self.implicit:
            _check(differences.call_implicit(self.context, self.batch, self._bindings, self.stream), "the call")
        else:
            _check(self.context.execute_async_v3(self.stream), "the call")

    def call(self) -> None:
        """Make one whole call."""
        self.enqueue()
        self.cuda.wait(self.stream)


def _check(done: object, what: str) -> None:
    if not done:
        raise RuntimeError(f"TensorRT refused {what}")
