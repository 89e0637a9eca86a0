"""One caller of a plan: an execution context of one profile with a stream and buffers of its own."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorrt as trt

from tftrt_tools.base import errors
from tftrt_tools.models.execution.job.cudart import Captured, Cuda, CudaError, HostArray
from tftrt_tools.models.kinds.plan.job import engine as engines

# {input: an array in page-locked memory}, with the engine's types.
Feed = Mapping[str, HostArray]
Shapes = dict[str, tuple[int, ...]]

# One thread at a time makes contexts, sets their shapes and puts calls on streams; the GPU works at them side by side. Contexts of two
# profiles share an engine, and with four threads on an H100 TensorRT 8.5.3 once refused a shape that its profile has.
HOST = threading.RLock()


class Refused(Exception):
    """TensorRT refused something; the text says what."""


class Context:
    """Args: cuda: the CUDA runtime. engine: of Engine.copy. profile: its number; no other context of this engine may have it."""

    def __init__(self, cuda: Cuda, engine: trt.ICudaEngine, profile: int) -> None:
        self.cuda, self.profile, self.stream = cuda, profile, cuda.stream()
        self._engine = engine
        self._context = engine.create_execution_context()
        if self._context is None:
            raise Refused("a further execution context")
        # The first context of an engine has profile 0.
        if self._context.active_optimization_profile != profile:
            try:
                _check(self._context.set_optimization_profile_async(profile, self.stream), f"profile {profile}")
            except RuntimeError as error:
                raise Refused(f"profile {profile} ({errors.first_line(str(error))})") from None
            cuda.wait(self.stream)
        self.inputs = engines.names(engine, inputs=True)
        self.outputs = engines.names(engine, inputs=False)
        self._dtypes = {
            name: engines.numpy_dtype(engine.get_tensor_dtype(name)) for name in (*self.inputs, *self.outputs)
        }
        self._memory = {name: _Memory(cuda) for name in (*self.inputs, *self.outputs)}
        self._shapes: Shapes = {}
        # Page-locked memory of the outputs whose shapes follow from those of the inputs. _host has all of it, of which _pinned are parts:
        # getting more takes long.
        self._pinned: dict[str, HostArray] = {}
        self._host = {name: np.empty(0, np.uint8) for name in self.outputs}
        # Of the others, whose shapes depend on values; for good, once they are known.
        self._allocators: dict[str, _Allocator] = {}
        self._graph: Captured | None = None

    def shaped(self, shapes: Shapes) -> None:
        """Get ready for calls of these shapes. Raises: Refused, CudaError."""
        if shapes != self._shapes:
            with HOST:
                self._reshape(shapes)

    def _reshape(self, shapes: Shapes) -> None:
        self._shapes, self._graph = {}, None
        for name in self.inputs:
            if -1 in tuple(self._engine.get_tensor_shape(name)):
                _check(self._context.set_input_shape(name, shapes[name]), f"the shape {shapes[name]} of {name}")
            self._place(name, shapes[name])
        missing = self._context.infer_shapes()
        if missing:
            raise Refused(f"a call without the shapes of {', '.join(missing)}")
        self._pinned = {}
        for name in self.outputs:
            if name not in self._allocators:
                self._prepare_output(name, tuple(self._context.get_tensor_shape(name)))
        self._shapes = dict(shapes)

    def _place(self, name: str, shape: tuple[int, ...]) -> None:
        address = self._memory[name].of(math.prod(shape) * self._dtypes[name].itemsize)
        _check(self._context.set_tensor_address(name, address), f"the address of {name}")

    def _prepare_output(self, name: str, shape: tuple[int, ...]) -> None:
        # TensorRT 8.5.3 tells -1 before the first call alone; later it tells what the last call had, so an output that once depended on
        # values keeps its allocator.
        if -1 in shape:
            self._allocators[name] = _Allocator(self._memory[name])
            _check(self._context.set_output_allocator(name, self._allocators[name]), f"the allocator of {name}")
            return
        self._place(name, shape)
        dtype = self._dtypes[name]
        size = math.prod(shape) * dtype.itemsize
        if size > self._host[name].nbytes:
            self._host[name] = self.cuda.pinned((size,), np.uint8)
        self._pinned[name] = HostArray.of(self._host[name][:size].view(dtype).reshape(shape))

    def upload(self, feed: Feed) -> None:
        """Start copying the inputs. Args: feed: with the shapes of `shaped`."""
        for name in self.inputs:
            self.cuda.send(self._memory[name].address, feed[name], self.stream)

    def enqueue(self) -> None:
        """Put one call on the stream. Raises: Refused."""
        for allocator in self._allocators.values():
            allocator.shape = None
        with HOST:
            if not self._context.execute_async_v3(self.stream):
                raise Refused(f"the call ({engines.said() or 'its log does not say why'})")

    def download(self) -> dict[str, npt.NDArray[Any]]:
        """Wait for the call. Returns: {output: a new array}. Raises: Refused, CudaError."""
        for name, host in self._pinned.items():
            self.cuda.fetch(host, self._memory[name].address, self.stream)
        self.cuda.wait(self.stream)
        outputs = {name: host.array.copy() for name, host in self._pinned.items()}
        if not self._allocators:
            return outputs
        for name, allocator in self._allocators.items():
            if allocator.shape is None:
                raise Refused(f"the shape of {name}")
            outputs[name] = np.empty(allocator.shape, self._dtypes[name])
            if outputs[name].size:
                self.cuda.to_host(outputs[name], self._memory[name].address, self.stream)
        self.cuda.wait(self.stream)
        return {name: outputs[name] for name in self.outputs}

    def capture(self, feed: Feed) -> bool:
        """Let further calls of the present shapes be launches of a CUDA graph. Returns: False for a call that asks for memory in the
        middle, which cannot be one. Raises: Refused, CudaError; then this context is of no use any more."""
        if self._allocators:
            return False
        # The first call of a shape makes what a capture cannot hold.
        self.upload(feed)
        self.enqueue()
        self.cuda.wait(self.stream)
        self._graph = self.cuda.captured(self.enqueue, self.stream)
        return True

    @property
    def captured(self) -> bool:
        """Whether calls of the present shapes are launches of a CUDA graph."""
        return self._graph is not None

    def launch(self) -> None:
        """Put one call on the stream, as a graph if it is captured. Raises: Refused, CudaError."""
        if self._graph:
            self._graph.launch()
        else:
            self.enqueue()

    def close(self) -> None:
        """Give back the context and its memory, as far as CUDA still takes it."""
        with contextlib.suppress(CudaError):
            self.cuda.wait(self.stream)
        self._context = self._graph = None
        for memory in self._memory.values():
            with contextlib.suppress(CudaError):
                memory.close()

    def call(self, feed: Feed) -> dict[str, npt.NDArray[Any]]:
        """Make one whole call, with copies from and to the host. Raises: Refused, CudaError."""
        self.upload(feed)
        self.launch()
        return self.download()


class _Memory:
    """Memory of the device that grows."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda, self.address, self._bytes = cuda, 0, 0

    def of(self, size: int) -> int:
        """The address of at least `size` bytes; what was there is lost where it grows. Raises: CudaError."""
        if size > self._bytes or not self.address:
            self.close()
            self.address, self._bytes = self._cuda.malloc(max(1, size)), size
        return self.address

    def close(self) -> None:
        """Free the memory. This waits for all work on the device."""
        if self.address:
            address, self.address, self._bytes = self.address, 0, 0
            self._cuda.free(address)


class _Allocator(trt.IOutputAllocator):  # type: ignore[misc]
    """Gives an output memory when its size is known."""

    def __init__(self, memory: _Memory) -> None:
        trt.IOutputAllocator.__init__(self)
        self._own = memory
        # Of the call that runs or ran last; None until TensorRT tells it.
        self.shape: tuple[int, ...] | None = None

    def reallocate_output(self, tensor_name: str, memory: int, size: int, alignment: int) -> int | None:
        """The address to write to; TensorRT calls this before it writes."""
        try:
            return self._own.of(size)
        except CudaError:
            return None

    def notify_shape(self, tensor_name: str, shape: trt.Dims) -> None:
        """TensorRT calls it with the shape of this call's output."""
        self.shape = tuple(shape)


def _check(done: object, what: str) -> None:
    if not done:
        raise Refused(f"{what} ({engines.said() or 'its log does not say why'})")
