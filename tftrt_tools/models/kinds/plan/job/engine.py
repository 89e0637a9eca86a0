"""A plan directory, deserialized behind the guard. The API is the one by names, which TensorRT 8.5 to 11 share."""

from __future__ import annotations

import ctypes
import functools
import pathlib
import time
from typing import Any

import numpy as np
import tensorrt as trt

from tftrt_tools.base import errors
from tftrt_tools.models.execution.job import device
from tftrt_tools.models.kinds.plan import document
from tftrt_tools.models.kinds.plan.job import differences, guard

# The levels as TensorRT's own Python logger writes them.
_LETTERS = {"INTERNAL_ERROR": "F"}


class Engine:
    """A plan that can be deserialized many times: a copy for each context, where a profile serves one context at a time."""

    def __init__(self, path: str) -> None:
        """Args: path: plan directory. Raises: UsageError, TftrtError where it does not fit this process."""
        self.path, self.plan = path, document.read(path)
        self.gpu = device.seen()
        guard.check(path, self.plan, trt.__version__, self.gpu)
        load_plugins([str(pathlib.Path(path) / plugin.file) for plugin in self.plan.plugins])
        self._bytes = (pathlib.Path(path) / document.PLAN).read_bytes()

    def copy(self) -> trt.ICudaEngine:
        """A deserialized engine of its own. Raises: TftrtError."""
        engine = runtime().deserialize_cuda_engine(self._bytes)
        if engine is None:
            raise errors.TftrtError(
                f"TensorRT {trt.__version__} does not read {self.path}: {said() or 'its log does not say why'}",
                "free memory of the GPU, or build the plan here again",
            )
        return engine


class Log(trt.ILogger):  # type: ignore[misc]
    """Prints what TensorRT says to the log of the process, and keeps its errors. verbose: also what it says of each tactic. heard: where
    (time, text) of everything is kept, None for nowhere."""

    def __init__(self) -> None:
        trt.ILogger.__init__(self)
        self.errors: list[str] = []
        self.verbose = False
        self.heard: list[tuple[float, str]] | None = None

    def log(self, severity: trt.ILogger.Severity, msg: str) -> None:
        """Take a message; TensorRT calls this."""
        if severity in (trt.ILogger.Severity.INTERNAL_ERROR, trt.ILogger.Severity.ERROR):
            self.errors.append(msg)
        if self.heard is not None:
            self.heard.append((time.time(), msg))
        if self.verbose or severity != trt.ILogger.Severity.VERBOSE:
            print(
                f"[{time.strftime('%m/%d/%Y-%H:%M:%S')}] [TRT] [{_LETTERS.get(severity.name, severity.name[:1])}] {msg}"
            )


@functools.cache
def logger() -> Log:
    """The logger of this process: TensorRT keeps the first logger that it gets."""
    return Log()


def said(count: int = 2) -> str:
    """The first of the errors that TensorRT has logged since the last call, in a line; "" for none."""
    found = logger().errors[:count]
    logger().errors.clear()
    return "; ".join(errors.first_line(one) for one in found)


@functools.cache
def runtime() -> trt.Runtime:
    """The runtime of this process, which it keeps: engines must not outlive it. Raises: TftrtError without a GPU."""
    if device.seen() is None:
        # TensorRT 8.6 would end the process.
        raise errors.TftrtError(
            f"TensorRT {trt.__version__} does not start here: no GPU is visible", "`tftrt doctor` says what is missing"
        )
    try:
        return trt.Runtime(logger())
    except TypeError:  # TensorRT 8.5 returns a null pointer
        raise errors.TftrtError(
            f"TensorRT {trt.__version__} does not start here: {said()}", "`tftrt doctor` says what is missing"
        ) from None


@functools.cache
def _load_own_plugins() -> None:
    trt.init_libnvinfer_plugins(logger(), "")


def load_plugins(paths: list[str]) -> None:
    """Load TensorRT's own plugins and those of libraries. Raises: TftrtError for a library that does not load."""
    _load_own_plugins()
    for path in paths:
        try:
            ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise errors.TftrtError(
                f"the plugins of {path} do not load: {error}",
                f"`ldd` names a library that is missing; it has to be built for TensorRT {trt.__version__}",
            ) from None


def creators() -> set[str]:
    """ "name version" of each creator in TensorRT's registry."""
    return {f"{one.name} {one.plugin_version}" for one in differences.creators(trt.get_plugin_registry())}


def names(engine: trt.ICudaEngine, inputs: bool) -> list[str]:
    """The names of the inputs, or of the outputs, in the engine's order."""
    wanted = trt.TensorIOMode.INPUT if inputs else trt.TensorIOMode.OUTPUT
    listed = (engine.get_tensor_name(index) for index in range(engine.num_io_tensors))
    return [name for name in listed if engine.get_tensor_mode(name) == wanted]


def dtype_name(dtype: trt.DataType) -> str:
    """NumPy's name of the engine's type."""
    result: str = {"FLOAT": "float32", "HALF": "float16", "BF16": "bfloat16"}.get(dtype.name, dtype.name.lower())
    return result


def numpy_dtype(dtype: trt.DataType) -> np.dtype[Any]:
    """Raises: TftrtError for a type that NumPy has not."""
    name = dtype_name(dtype)
    try:
        return np.dtype(name)
    except TypeError:
        raise errors.TftrtError(
            f"an input or output of the plan is {name}, which arrays cannot hold",
            "build it from an ONNX file whose inputs and outputs are float32 or float16",
        ) from None
