"""TensorRT alone: engines from ONNX or out of a TF-TRT SavedModel, and the ways of calling them that are timed."""

import pathlib
import time

import numpy as np
import tensorrt as trt

from benchmarks import _loop, _stats
from tftrt_tools.models.execution.job import cudart
from tftrt_tools.models.savedmodel import engine_assets
from tftrt_tools.studies.profiling.job import plan_context

LOGGER = trt.Logger(trt.Logger.ERROR)
_DTYPES = {trt.float32: np.float32, trt.float16: np.float16, trt.int32: np.int32}
_IN_A_ROW = 50


def build(onnx_file, batch, target, precision):
    """Build an engine for exactly `batch` images from ONNX and write it to `target`. Returns: seconds."""
    builder = trt.Builder(LOGGER)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
    parser = trt.OnnxParser(network, LOGGER)
    if not parser.parse(pathlib.Path(onnx_file).read_bytes()):
        raise RuntimeError("ONNX: " + "; ".join(str(parser.get_error(index)) for index in range(parser.num_errors)))
    # A fixed shape is the best that TensorRT is offered, and lets several contexts share the engine (8.5: one context a profile).
    image = network.get_input(0)
    image.shape = (batch, *tuple(image.shape)[1:])
    config = builder.create_builder_config()
    if precision == "FP16":
        config.set_flag(trt.BuilderFlag.FP16)
    start = time.monotonic()
    serialized = builder.build_serialized_network(network, config)
    if serialized is None:
        raise RuntimeError(f"TensorRT built no engine for batch {batch}")
    pathlib.Path(target).write_bytes(bytes(serialized))
    return time.monotonic() - start


def saved_engines(model):
    """The serialized engines inside a TF-TRT SavedModel, in file order."""
    files = sorted((pathlib.Path(model) / "assets").glob(engine_assets.PREFIX + "*"))
    return [plan for path in files for _, plan in engine_assets.plans(path)]


class Context:
    """One execution context with a stream and buffers of its own: what one caller needs.

    Args:
      cuda: cudart.Cuda. engine: an engine with one input and one output.
      shape: of the input.
      like_tftrt: give shape and scratch memory anew in every call, as TF-TRT's op does.
    """

    def __init__(self, cuda, engine, shape, like_tftrt=False):
        self._cuda, self._engine, self._like_tftrt = cuda, engine, like_tftrt
        self._stream = cuda.stream()
        self._input, self._output = _names(engine)
        self._shape = tuple(shape)
        if like_tftrt:
            self._context = engine.create_execution_context_without_device_memory()
            self._scratch = cuda.malloc(max(1, engine.device_memory_size))
            self._context.device_memory = self._scratch
        else:
            self._context = engine.create_execution_context()
        if self._context is None:
            raise RuntimeError("TensorRT gives no further execution context of this engine")
        self._choose_profile()
        self._make_buffers()
        self.enqueue()
        cuda.wait(self._stream)

    def _choose_profile(self):
        if -1 not in tuple(self._engine.get_tensor_shape(self._input)):
            if tuple(self._engine.get_tensor_shape(self._input)) != self._shape:
                raise RuntimeError(f"the engine takes {tuple(self._engine.get_tensor_shape(self._input))} only")
            return
        for profile in range(self._engine.num_optimization_profiles):
            least, _, most = (tuple(one) for one in self._engine.get_tensor_profile_shape(self._input, profile))
            if all(low <= want <= high for low, want, high in zip(least, self._shape, most, strict=True)):
                _check(
                    self._context.set_optimization_profile_async(profile, self._stream),
                    "set_optimization_profile_async",
                )
                self._cuda.wait(self._stream)
                _check(self._context.set_input_shape(self._input, self._shape), "set_input_shape")
                return
        raise RuntimeError(f"no profile for {self._shape}")

    def _make_buffers(self):
        self._host, self._pinned, self._device = {}, {}, {}
        rng = np.random.default_rng(0)
        for name in (self._input, self._output):
            shape = self._shape if name == self._input else tuple(self._context.get_tensor_shape(name))
            dtype = _DTYPES[self._engine.get_tensor_dtype(name)]
            self._host[name] = rng.uniform(-1, 1, shape).astype(dtype)
            self._pinned[name] = self._cuda.pinned(shape, dtype)
            self._pinned[name][...] = self._host[name]
            self._device[name] = self._cuda.malloc(self._host[name].nbytes)
            _check(self._context.set_tensor_address(name, self._device[name]), "set_tensor_address")
        self._cuda.to_device(self._device[self._input], self._host[self._input], self._stream)
        self._cuda.wait(self._stream)

    def enqueue(self):
        """Put one call on the stream."""
        if self._like_tftrt:
            _check(self._context.set_input_shape(self._input, self._shape), "set_input_shape")
            self._context.device_memory = self._scratch
        _check(self._context.execute_async_v3(self._stream), "execute_async_v3")

    def on_gpu(self):
        """One whole call, input and output on the GPU."""
        self.enqueue()
        self._cuda.wait(self._stream)

    def answer_to_host(self):
        """One whole call, input on the GPU, output copied to pageable memory."""
        self.enqueue()
        self._cuda.to_host(self._host[self._output], self._device[self._output], self._stream)
        self._cuda.wait(self._stream)

    def from_host(self, arrays):
        self._cuda.to_device(self._device[self._input], arrays[self._input], self._stream)
        self.enqueue()
        self._cuda.to_host(arrays[self._output], self._device[self._output], self._stream)
        self._cuda.wait(self._stream)

    def pageable(self):
        """One whole call from and to ordinary memory."""
        self.from_host(self._host)

    def pinned(self):
        """One whole call from and to page-locked memory."""
        self.from_host(self._pinned)

    def answer(self, image):
        """The output for `image`, as NumPy."""
        self._host[self._input][...] = image
        self.pageable()
        return self._host[self._output].copy()

    def device_seconds(self, repeats):
        """Seconds between CUDA events around each of `repeats` calls, each awaited before the next."""
        first, last = self._cuda.event(), self._cuda.event()
        return [self._between(first, last, self.enqueue) for _ in range(repeats)]

    def seconds_in_a_row(self, repeats):
        """Seconds for each call where the GPU always has the next one waiting; `repeats` results, of 50 calls each."""
        first, last = self._cuda.event(), self._cuda.event()

        def row():
            for _ in range(_IN_A_ROW):
                self.enqueue()

        return [self._between(first, last, row) / _IN_A_ROW for _ in range(repeats)]

    def graph_call(self):
        """A whole call, as `on_gpu`, whose launches were captured as one CUDA graph."""
        launch = self._cuda.captured(self.enqueue, self._stream).launch

        def call():
            launch()
            self._cuda.wait(self._stream)

        return call

    def _between(self, first, last, work):
        self._cuda.record(first, self._stream)
        work()
        self._cuda.record(last, self._stream)
        return self._cuda.seconds_between(first, last)


def _names(engine):
    names = plan_context.names(engine)
    inputs = [name for name in names if plan_context.is_input(engine, name)]
    outputs = [name for name in names if name not in inputs]
    if len(inputs) != 1 or len(outputs) != 1:
        raise RuntimeError(f"expected one input and one output, not {inputs} and {outputs}")
    return inputs[0], outputs[0]


def _check(done, what):
    if not done:
        raise RuntimeError(f"TensorRT refused {what}")


def timed(context, batch, repeats):
    """Rows of one context's own times: of each call on the device, and with the next call always waiting."""
    _loop.warm(context.on_gpu)
    rows = [
        ("device time (CUDA events)", context.device_seconds(repeats)),
        ("calls in a row (CUDA events)", context.seconds_in_a_row(max(5, repeats // _IN_A_ROW))),
    ]
    return [
        {
            "way": way,
            "workers": 1,
            **_stats.summary(seconds),
            "images_s": batch / (_stats.summary(seconds)["p50_ms"] / 1e3),
        }
        for way, seconds in rows
    ]


def closed_loops(contexts, batch, seconds, ways):
    """Rows of the closed loop with all `contexts` at work, for each of `ways` (method names of Context)."""
    return [
        {"way": label, **_loop.measure([getattr(one, method) for one in contexts], batch, seconds)}
        for method, label in ways.items()
    ]


def cuda():
    """The CUDA runtime; raises where there is none."""
    return cudart.Cuda()
