"""A GPU of host memory: contexts, pools and runners of plans run on it without TensorRT's engines. Copies are real, and done when they are
started; a call of the engine writes 2 * x + 1 into y."""

import ctypes
import threading
import time

import numpy as np
import tensorrt as trt

from tftrt_tools.models.execution.job.cudart import Captured, CudaError
from tftrt_tools.models.kinds.plan import document
from tftrt_tools.models.kinds.plan.profiles import Profile, Range


class Device:
    """In place of cudart.Cuda."""

    def __init__(self):
        self.held, self.launched, self.may_capture = {}, 0, True

    def malloc(self, size):
        memory = ctypes.create_string_buffer(size)
        self.held[ctypes.addressof(memory)] = memory
        return ctypes.addressof(memory)

    def free(self, pointer):
        del self.held[pointer]

    def stream(self):
        return 1

    def pinned(self, shape, dtype):
        return np.zeros(shape, dtype)

    def send(self, pointer, host, stream):
        ctypes.memmove(pointer, host.address, host.size)

    def fetch(self, host, pointer, stream):
        ctypes.memmove(host.address, pointer, host.size)

    def to_host(self, array, pointer, stream):
        ctypes.memmove(array.ctypes.data, pointer, array.nbytes)

    def wait(self, stream):
        time.sleep(1e-4)  # other threads go on meanwhile

    def captured(self, enqueue, stream):
        enqueue()
        if not self.may_capture:
            raise CudaError("cudaStreamEndCapture: operation failed (901)")

        def launch():
            self.launched += 1
            enqueue()

        return Captured(launch, 1)


class Execution:
    """In place of trt.IExecutionContext. Two calls of it at a time are counted as wrong."""

    active_optimization_profile = 0

    def __init__(self, engine):
        self._engine, self._at, self._shape, self._allocator, self._busy = engine, {}, None, None, threading.Lock()

    def set_optimization_profile_async(self, profile, stream):
        return True

    def set_input_shape(self, name, shape):
        self._shape = shape
        return True

    def set_tensor_address(self, name, address):
        self._at[name] = address
        return True

    def set_output_allocator(self, name, allocator):
        self._allocator = allocator
        return True

    def infer_shapes(self):
        return []

    def get_tensor_shape(self, name):
        return (-1, *self._shape[1:]) if self._engine.by_values else self._shape

    def execute_async_v3(self, stream):
        if not self._busy.acquire(blocking=False):
            self._engine.clashes.append(stream)
        count = int(np.prod(self._shape))
        if self._engine.failing and self._engine.failing.pop():
            return False
        if self._engine.by_values:
            self._at["y"] = self._allocator.reallocate_output("y", 0, 4 * count, 256)
            self._allocator.notify_shape("y", self._shape)
        x, y = (np.ctypeslib.as_array((ctypes.c_float * count).from_address(self._at[name])) for name in ("x", "y"))
        y[:] = 2 * x + 1
        self._busy.release()
        return True


class FakeEngine:
    """In place of trt.ICudaEngine: x [batch, 3] to y [batch, 3]."""

    num_io_tensors = 2

    def __init__(self, owner):
        self._owner = owner
        self.by_values, self.failing, self.clashes = owner.by_values, owner.failing, owner.clashes

    def get_tensor_name(self, index):
        return ("x", "y")[index]

    def get_tensor_mode(self, name):
        return trt.TensorIOMode.INPUT if name == "x" else trt.TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name):
        return trt.float32

    def get_tensor_shape(self, name):
        return (-1, 3)

    def create_execution_context(self):
        if len(self._owner.contexts) >= self._owner.most:
            return None
        self._owner.contexts.append(Execution(self))
        return self._owner.contexts[-1]


class Engine:
    """In place of engine.Engine. most: contexts that its GPU has memory for. by_values: whether y's shape depends on values. failing: the
    next calls fail where it is True, the last item first."""

    def __init__(self, path="plan", most=100, by_values=False, failing=(), out="float32"):
        tensors = [
            document.Tensor(name=name, dtype=dtype, shape=(None, 3), engine_dtype="float32")
            for name, dtype in (("x", "float32"), ("y", out))
        ]
        batches = [((1, 3), (8, 3), (64, 3))]
        self.plan = document.PlanFile(
            tensorrt="8.5.3.1",
            compute_capability="9.0",
            gpu="none",
            precision="FP32",
            inputs=(tensors[0],),
            outputs=(tensors[1],),
            profiles=tuple(Profile({"x": Range(*one)}) for one in batches),
            bytes=0,
            digest="sha256:0",
        )
        self.gpu, self.most, self.by_values, self.failing = {}, most, by_values, list(failing)
        self.contexts, self.clashes, self.copies = [], [], 0

    def copy(self):
        self.copies += 1
        return FakeEngine(self)
