"""The few functions of the CUDA runtime that timing TensorRT needs, through ctypes. Every failure raises."""

import ctypes
import pathlib
import sysconfig

_TO_DEVICE, _TO_HOST = 1, 2
_NON_BLOCKING = 1
_CAPTURE_THREAD_LOCAL = 1
_POINTER = ctypes.c_void_p
_ARGUMENTS = {
    "cudaSetDevice": [ctypes.c_int], "cudaFree": [_POINTER], "cudaMalloc": [ctypes.POINTER(_POINTER), ctypes.c_size_t],
    "cudaMallocHost": [ctypes.POINTER(_POINTER), ctypes.c_size_t], "cudaFreeHost": [_POINTER],
    "cudaMemcpyAsync": [_POINTER, _POINTER, ctypes.c_size_t, ctypes.c_int, _POINTER], "cudaDeviceSynchronize": [],
    "cudaStreamCreateWithFlags": [ctypes.POINTER(_POINTER), ctypes.c_uint], "cudaStreamSynchronize": [_POINTER],
    "cudaEventCreate": [ctypes.POINTER(_POINTER)], "cudaEventRecord": [_POINTER, _POINTER], "cudaEventSynchronize": [_POINTER],
    "cudaEventElapsedTime": [ctypes.POINTER(ctypes.c_float), _POINTER, _POINTER],
    "cudaStreamBeginCapture": [_POINTER, ctypes.c_int], "cudaStreamEndCapture": [_POINTER, ctypes.POINTER(_POINTER)],
    "cudaGraphInstantiate": [ctypes.POINTER(_POINTER), _POINTER, _POINTER, _POINTER, ctypes.c_size_t],
    "cudaGraphLaunch": [_POINTER, _POINTER],
}


class CudaError(Exception):
    """A CUDA runtime function that did not return 0."""


def library_path():
    """Where the CUDA 11 runtime of the environment's wheels lies, or its bare name for the loader."""
    wheel = pathlib.Path(sysconfig.get_paths()["purelib"]) / "nvidia/cuda_runtime/lib/libcudart.so.11.0"
    if wheel.is_file():
        return str(wheel)
    try:
        import nvidia.cuda_runtime

        return str(pathlib.Path(next(iter(nvidia.cuda_runtime.__path__))) / "lib/libcudart.so.11.0")
    except ImportError:
        return "libcudart.so.11.0"


class Cuda:
    """The runtime on device 0. ctypes lets go of the interpreter lock during each call."""

    def __init__(self, path=None):
        self._library = ctypes.CDLL(path or library_path())
        for name, arguments in _ARGUMENTS.items():
            getattr(self._library, name).argtypes = arguments
        self._library.cudaGetErrorString.restype = ctypes.c_char_p
        self._call("cudaSetDevice", 0)

    def _call(self, name, *arguments):
        code = getattr(self._library, name)(*arguments)
        if code:
            raise CudaError(f"{name}: {self._library.cudaGetErrorString(code).decode()} ({code})")

    def _made(self, name, *arguments):
        handle = _POINTER()
        self._call(name, ctypes.byref(handle), *arguments)
        return handle.value

    def malloc(self, size):
        return self._made("cudaMalloc", size)

    def pinned(self, shape, dtype):
        """A NumPy array in page-locked memory; it lives until the process ends."""
        import numpy as np

        count = int(np.prod(shape))
        size = count * np.dtype(dtype).itemsize
        address = self._made("cudaMallocHost", size)
        return np.frombuffer((ctypes.c_char * size).from_address(address), dtype, count).reshape(shape)

    def stream(self):
        return self._made("cudaStreamCreateWithFlags", _NON_BLOCKING)

    def wait(self, stream):
        self._call("cudaStreamSynchronize", stream)

    def to_device(self, pointer, array, stream):
        self._call("cudaMemcpyAsync", pointer, array.ctypes.data, array.nbytes, _TO_DEVICE, stream)

    def to_host(self, array, pointer, stream):
        self._call("cudaMemcpyAsync", array.ctypes.data, pointer, array.nbytes, _TO_HOST, stream)

    def event(self):
        return self._made("cudaEventCreate")

    def record(self, event, stream):
        self._call("cudaEventRecord", event, stream)

    def seconds_between(self, first, last):
        """Seconds between two recorded events; waits for the last."""
        self._call("cudaEventSynchronize", last)
        milliseconds = ctypes.c_float()
        self._call("cudaEventElapsedTime", ctypes.byref(milliseconds), first, last)
        return milliseconds.value / 1e3

    def captured(self, enqueue, stream):
        """Capture what `enqueue()` puts on `stream` as a CUDA graph. Returns: a function that launches it."""
        self._call("cudaStreamBeginCapture", stream, _CAPTURE_THREAD_LOCAL)
        try:
            enqueue()
        finally:
            graph = self._made_after("cudaStreamEndCapture", stream)
        executable = self._made("cudaGraphInstantiate", graph, None, None, 0)
        return lambda: self._call("cudaGraphLaunch", executable, stream)

    def _made_after(self, name, *arguments):
        """As _made, for functions whose result is the last argument."""
        handle = _POINTER()
        self._call(name, *arguments, ctypes.byref(handle))
        return handle.value
