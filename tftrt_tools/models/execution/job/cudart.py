"""The few functions of the CUDA runtime that running and measuring TensorRT need, through ctypes. Every failure raises."""

from __future__ import annotations

import ctypes
import dataclasses
import math
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tftrt_tools.models.execution.job import cuda_libraries

if TYPE_CHECKING:
    import numpy.typing as npt

_TO_DEVICE, _TO_HOST = 1, 2
_NON_BLOCKING = 1
_CAPTURE_THREAD_LOCAL = 1
_MULTIPROCESSORS = 16  # cudaDevAttrMultiProcessorCount
_POINTER = ctypes.c_void_p
_ARGUMENTS: dict[str, list[Any]] = {
    "cudaSetDevice": [ctypes.c_int],
    "cudaFree": [_POINTER],
    "cudaMalloc": [ctypes.POINTER(_POINTER), ctypes.c_size_t],
    "cudaMallocHost": [ctypes.POINTER(_POINTER), ctypes.c_size_t],
    "cudaFreeHost": [_POINTER],
    "cudaMemcpyAsync": [_POINTER, _POINTER, ctypes.c_size_t, ctypes.c_int, _POINTER],
    "cudaDeviceSynchronize": [],
    "cudaStreamCreateWithFlags": [ctypes.POINTER(_POINTER), ctypes.c_uint],
    "cudaStreamSynchronize": [_POINTER],
    "cudaEventCreate": [ctypes.POINTER(_POINTER)],
    "cudaEventRecord": [_POINTER, _POINTER],
    "cudaEventSynchronize": [_POINTER],
    "cudaEventElapsedTime": [ctypes.POINTER(ctypes.c_float), _POINTER, _POINTER],
    "cudaStreamBeginCapture": [_POINTER, ctypes.c_int],
    "cudaStreamEndCapture": [_POINTER, ctypes.POINTER(_POINTER)],
    "cudaGraphInstantiate": [ctypes.POINTER(_POINTER), _POINTER, _POINTER, _POINTER, ctypes.c_size_t],
    "cudaGraphLaunch": [_POINTER, _POINTER],
    "cudaGraphGetNodes": [_POINTER, _POINTER, ctypes.POINTER(ctypes.c_size_t)],
    "cudaMemGetInfo": [ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)],
    "cudaDeviceGetAttribute": [ctypes.POINTER(ctypes.c_int), ctypes.c_int, ctypes.c_int],
    "cudaMemset": [_POINTER, ctypes.c_int, ctypes.c_size_t],
    "cudaMemsetAsync": [_POINTER, ctypes.c_int, ctypes.c_size_t, _POINTER],
}


class CudaError(Exception):
    """A CUDA runtime function that did not return 0."""


@dataclasses.dataclass(frozen=True)
class HostArray:
    """An array of NumPy with its address and bytes: asking an array for its address takes longer than starting a copy."""

    array: npt.NDArray[Any]
    address: int
    size: int

    @classmethod
    def of(cls, array: npt.NDArray[Any]) -> HostArray:
        """Args: array: one piece of memory, in order."""
        return cls(array, array.ctypes.data, array.nbytes)


class Cuda:
    """The runtime on device 0. ctypes lets go of the interpreter lock during each call."""

    def __init__(self, path: str | None = None) -> None:
        self._library = ctypes.CDLL(path or cuda_libraries.runtime())
        for name, arguments in _ARGUMENTS.items():
            getattr(self._library, name).argtypes = arguments
        self._library.cudaGetErrorString.restype = ctypes.c_char_p
        self._copy, self._synchronize = self._library.cudaMemcpyAsync, self._library.cudaStreamSynchronize
        self._call("cudaSetDevice", 0)

    def _call(self, name: str, *arguments: object) -> None:
        if code := getattr(self._library, name)(*arguments):
            raise self._error(name, code)

    def _error(self, name: str, code: int) -> CudaError:
        return CudaError(f"{name}: {self._library.cudaGetErrorString(code).decode()} ({code})")

    def _made(self, name: str, *arguments: object) -> int:
        handle = _POINTER()
        self._call(name, ctypes.byref(handle), *arguments)
        return handle.value or 0

    def malloc(self, size: int) -> int:
        """The address of `size` bytes on the device; they live until the process ends or `free`."""
        return self._made("cudaMalloc", size)

    def free(self, pointer: int) -> None:
        """Give back what `malloc` returned."""
        self._call("cudaFree", pointer)

    def zero(self, pointer: int, size: int) -> None:
        """Fill memory of the device with zeros."""
        self._call("cudaMemset", pointer, 0, size)

    def start_filling(self, pointer: int, byte: int, size: int, stream: int) -> None:
        """Start filling memory of the device with a byte, 0 to 255."""
        self._call("cudaMemsetAsync", pointer, byte, size, stream)

    def free_memory(self) -> int:
        """Bytes that are free on the device now; other processes count, too."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cudaMemGetInfo", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def multiprocessors(self) -> int:
        """The number of streaming multiprocessors of the device."""
        count = ctypes.c_int()
        self._call("cudaDeviceGetAttribute", ctypes.byref(count), _MULTIPROCESSORS, 0)
        return count.value

    def pinned(self, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """A NumPy array in page-locked memory. The memory is freed with the last array that views it."""
        import numpy as np

        count = math.prod(shape)
        size = count * np.dtype(dtype).itemsize
        address = self._made("cudaMallocHost", max(1, size))
        memory = (ctypes.c_char * size).from_address(address)
        # At the end of the process CUDA may be unloaded before the array.
        weakref.finalize(memory, self._library.cudaFreeHost, address).atexit = False
        return np.frombuffer(memoryview(memory).cast("B"), dtype, count).reshape(shape)

    def stream(self) -> int:
        """A new stream that does not wait for the default one."""
        return self._made("cudaStreamCreateWithFlags", _NON_BLOCKING)

    def wait(self, stream: int) -> None:
        """Wait for all work on a stream."""
        if code := self._synchronize(stream):
            raise self._error("cudaStreamSynchronize", code)

    def wait_for_all(self) -> None:
        """Wait for all work on the device."""
        self._call("cudaDeviceSynchronize")

    def to_device(self, pointer: int, array: npt.NDArray[Any], stream: int) -> None:
        """Start copying an array to the device."""
        self.send(pointer, HostArray.of(array), stream)

    def to_host(self, array: npt.NDArray[Any], pointer: int, stream: int) -> None:
        """Start copying from the device into an array."""
        self.fetch(HostArray.of(array), pointer, stream)

    def send(self, pointer: int, host: HostArray, stream: int) -> None:
        """Start copying to the device, as `to_device`, from a HostArray."""
        if code := self._copy(pointer, host.address, host.size, _TO_DEVICE, stream):
            raise self._error("cudaMemcpyAsync", code)

    def fetch(self, host: HostArray, pointer: int, stream: int) -> None:
        """Start copying from the device, as `to_host`, into a HostArray."""
        if code := self._copy(host.address, pointer, host.size, _TO_HOST, stream):
            raise self._error("cudaMemcpyAsync", code)

    def event(self) -> int:
        """A new event."""
        return self._made("cudaEventCreate")

    def record(self, event: int, stream: int) -> None:
        """Put an event on a stream."""
        self._call("cudaEventRecord", event, stream)

    def seconds_between(self, first: int, last: int) -> float:
        """Seconds between two recorded events; waits for the last."""
        self._call("cudaEventSynchronize", last)
        milliseconds = ctypes.c_float()
        self._call("cudaEventElapsedTime", ctypes.byref(milliseconds), first, last)
        return milliseconds.value / 1e3

    def captured(self, enqueue: Callable[[], object], stream: int) -> Captured:
        """Capture what `enqueue()` puts on `stream` as a CUDA graph."""
        self._call("cudaStreamBeginCapture", stream, _CAPTURE_THREAD_LOCAL)
        try:
            enqueue()
        finally:
            graph = self._made_after("cudaStreamEndCapture", stream)
        nodes = ctypes.c_size_t()
        self._call("cudaGraphGetNodes", graph, None, ctypes.byref(nodes))
        executable = self._made("cudaGraphInstantiate", graph, None, None, 0)
        return Captured(lambda: self._call("cudaGraphLaunch", executable, stream), nodes.value)

    def _made_after(self, name: str, *arguments: object) -> int:
        """Make an object as `_made`, with a function whose result is its last argument."""
        handle = _POINTER()
        self._call(name, *arguments, ctypes.byref(handle))
        return handle.value or 0


class Captured:
    """A CUDA graph that can be launched. nodes: how many it has."""

    def __init__(self, launch: Callable[[], None], nodes: int) -> None:
        self.launch, self.nodes = launch, nodes
