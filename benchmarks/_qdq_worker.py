"""One engine on a GPU: built from an ONNX file in one of the ways of `benchmarks.qdq`, scored and timed. A process of its own.

python -m benchmarks._qdq_worker REQUEST.json     prints the result as JSON in the last line
"""

import json
import pathlib
import statistics
import sys
import time

import numpy as np
import tensorrt as trt

from benchmarks import _loop
from benchmarks._qdq_make import as_pictures
from tftrt_tools.models.execution.job import cudart
from tftrt_tools.studies.profiling.job import plan_context

# {way: (ONNX file, builder flags, whether the ranges are set on its tensors)}.
WAYS = {
    "qdq": ("qdq", ("INT8", "FP16"), False),
    "implicit": ("fp32", ("INT8", "FP16"), True),
    "fp16 flag": ("fp32", ("FP16",), False),
    "fp16 graph": ("fp16", ("FP16",), False),
    "fp32": ("fp32", (), False),
    "qdq alone": ("qdq", ("INT8",), False),
    "chosen": ("chosen", ("INT8", "FP16"), False),
}
_DTYPES = {trt.float32: np.float32, trt.float16: np.float16, trt.int32: np.int32, trt.int8: np.int8, trt.bool: np.bool_}
_IN_A_ROW, _ROUNDS, _SINGLE = 20, 15, 100
_LEVELS = 127


def main(path):
    """Args: path: of {"folder", "way", "batches", "cache", "layers", "rows", "pictures", "scales"}."""
    request = json.loads(pathlib.Path(path).read_text())
    folder = pathlib.Path(request["folder"])
    logger = _Logger()
    engine, built = _build(request, folder, logger)
    with np.load(folder / "rows.npz") as file:
        rows = {key: file[key] for key in file.files}
    rows = {key: as_pictures(array) if array.dtype == np.uint8 else array for key, array in rows.items()}
    result = {**built, "warnings": logger.warnings[:20]}
    cuda = cudart.Cuda()
    for profile, batch in enumerate(request["batches"]):
        context = _Context(cuda, engine, profile, {key: _tiled(array, batch) for key, array in rows.items()})
        result |= {
            f"ms_{batch}": 1e3 * context.in_a_row(),
            f"call_ms_{batch}": 1e3 * context.alone(),
            f"graph_ms_{batch}": 1e3 * context.as_graph(),
        }
        if batch == max(request["batches"]):
            result |= _scored(context, rows, batch, folder)
    print(json.dumps(result))


class _Logger(trt.ILogger):
    """Keeps warnings and errors."""

    def __init__(self):
        trt.ILogger.__init__(self)
        self.warnings = []

    def log(self, severity, message):
        if severity <= trt.ILogger.Severity.WARNING:
            self.warnings.append(message)


def _build(request, folder, logger):
    """(engine, facts)."""
    file, flags, implicit = WAYS[request["way"]]
    trt.init_libnvinfer_plugins(logger, "")
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(folder / f"{file}.onnx")):
        raise RuntimeError("ONNX: " + "; ".join(str(parser.get_error(index)) for index in range(parser.num_errors)))
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    for flag in flags:
        config.set_flag(getattr(trt.BuilderFlag, flag))
    for batch in request["batches"]:
        profile = builder.create_optimization_profile()
        for index in range(network.num_inputs):
            one = network.get_input(index)
            shape = tuple(batch if size == -1 and axis == 0 else size for axis, size in enumerate(one.shape))
            shape = tuple(
                known if size == -1 else size for size, known in zip(shape, request["shapes"][one.name], strict=True)
            )
            profile.set_shape(one.name, shape, shape, shape)
        config.add_optimization_profile(profile)
    ranged = _set_ranges(network, request["scales"]) if implicit else None
    cache = pathlib.Path(request["cache"])
    timings = config.create_timing_cache(cache.read_bytes() if cache.exists() else b"")
    config.set_timing_cache(timings, False)
    start = time.monotonic()
    serialized = builder.build_serialized_network(network, config)
    if serialized is None:
        raise RuntimeError("TensorRT built no engine: " + " | ".join(logger.warnings[-3:]))
    seconds = time.monotonic() - start
    cache.write_bytes(bytes(timings.serialize()))
    engine = plan_context.load(bytes(serialized))
    layers = json.loads(engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON))[
        "Layers"
    ]
    pathlib.Path(request["layers"]).write_text(json.dumps(layers, indent=1))
    return engine, {
        "build_s": seconds,
        "mb": len(bytes(serialized)) / 1e6,
        "layers": len(layers),
        "int8_layers": _in_int8(layers),
        "tensors_with_range": ranged,
    }


def _set_ranges(network, scales):
    """Set the ranges of all tensors that the table names. Returns: how many."""
    tensors = [network.get_input(index) for index in range(network.num_inputs)]
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        tensors += [layer.get_output(number) for number in range(layer.num_outputs)]
    count = 0
    for tensor in tensors:
        if tensor.name in scales:
            edge = scales[tensor.name] * _LEVELS
            tensor.set_dynamic_range(-edge, edge)
            count += 1
    return count


def _in_int8(layers):
    """How many layers read 8 bits."""
    return sum(
        isinstance(one, dict) and any("Int8" in each.get("Format/Datatype", "") for each in one.get("Inputs", ()))
        for one in layers
    )


def _tiled(array, batch):
    """`batch` rows, from the beginning again where they are too few."""
    return np.ascontiguousarray(np.resize(array, (batch, *array.shape[1:])) if len(array) < batch else array[:batch])


class _Context:
    """An execution context of one profile with its buffers on the GPU."""

    def __init__(self, cuda, engine, profile, inputs):
        self._cuda, self._engine, self._stream = cuda, engine, cuda.stream()
        self._context = engine.create_execution_context()
        if not self._context.set_optimization_profile_async(profile, self._stream):
            raise RuntimeError(f"TensorRT refuses profile {profile}")
        cuda.wait(self._stream)
        names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
        self._inputs = [name for name in names if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT]
        self._outputs = [name for name in names if name not in self._inputs]
        for name in self._inputs:
            if not self._context.set_input_shape(name, inputs[name].shape):
                raise RuntimeError(f"TensorRT refuses the shape {inputs[name].shape} of {name}")
        self._host, self._device = {}, {}
        for name in names:
            shape = inputs[name].shape if name in inputs else tuple(self._context.get_tensor_shape(name))
            self._host[name] = np.zeros(shape, _DTYPES[engine.get_tensor_dtype(name)])
            self._device[name] = cuda.malloc(max(1, self._host[name].nbytes))
            self._context.set_tensor_address(name, self._device[name])
        self.answer(inputs)

    def answer(self, inputs):
        """{output: array}."""
        for name in self._inputs:
            self._host[name][...] = inputs[name]
            self._cuda.to_device(self._device[name], self._host[name], self._stream)
        self._enqueue()
        for name in self._outputs:
            self._cuda.to_host(self._host[name], self._device[name], self._stream)
        self._cuda.wait(self._stream)
        return {name: self._host[name].copy() for name in self._outputs}

    def _enqueue(self):
        if not self._context.execute_async_v3(self._stream):
            raise RuntimeError("TensorRT refused a call")

    def _alone(self):
        self._enqueue()
        self._cuda.wait(self._stream)

    def in_a_row(self):
        """Seconds of a call in a row of calls, median: of a small network, the time that the host takes to launch it."""
        _loop.warm(self._alone)
        return self._row(self._enqueue)

    def as_graph(self):
        """The same with CUDA graphs, which one launch starts: the GPU's own time."""
        return self._row(self._cuda.captured(self._enqueue, self._stream).launch)

    def _row(self, call):
        first, last = self._cuda.event(), self._cuda.event()
        found = []
        for _ in range(_ROUNDS):
            self._cuda.record(first, self._stream)
            for _ in range(_IN_A_ROW):
                call()
            self._cuda.record(last, self._stream)
            found.append(self._cuda.seconds_between(first, last) / _IN_A_ROW)
        return statistics.median(found)

    def alone(self):
        """Seconds of a call that is awaited, input and output on the GPU, median."""
        found = []
        for _ in range(_SINGLE):
            start = time.perf_counter()
            self._alone()
            found.append(time.perf_counter() - start)
        return statistics.median(found)


def _scored(context, rows, batch, folder):
    """Scores against ONNX Runtime's float32 answers, and against labels."""
    count = min(map(len, rows.values()))
    parts = []
    for at in range(0, count, batch):
        part = {key: array[at : at + batch] for key, array in rows.items()}
        size = min(batch, count - at)
        found = context.answer({key: _tiled(array, batch) for key, array in part.items()})
        parts.append({name: array[:size] for name, array in found.items()})
    answers = {name: np.concatenate([part[name] for part in parts]).astype(np.float64) for name in parts[0]}
    with np.load(folder / "answers.npz") as file:
        expected = {name: file[name].astype(np.float64) for name in file.files}
    levels = {name: _db(expected[name], answers[name]) for name in answers}
    scores = {"db": min(levels.values()), "dbs": levels}
    classes = [name for name in answers if answers[name].ndim == 2 and answers[name].shape[1] > 1]
    if classes:
        scores["top1_same"] = float(
            min((expected[name].argmax(1) == answers[name].argmax(1)).mean() for name in classes)
        )
    labels = folder / "labels.npy"
    if labels.exists() and classes and np.load(labels).ndim == 1:
        truth = np.load(labels)[:count]
        scores |= {
            "accuracy": float((answers[classes[0]].argmax(1) == truth).mean()),
            "accuracy_fp32": float((expected[classes[0]].argmax(1) == truth).mean()),
        }
    return scores


def _db(expected, answer):
    noise = float(((expected - answer) ** 2).sum())
    if not np.isfinite(noise):
        return -200.0
    return min(200.0, 10 * float(np.log10((expected**2).sum() / noise))) if noise else 200.0


if __name__ == "__main__":
    main(sys.argv[1])
