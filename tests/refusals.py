"""A stand-in for TensorRT: it builds engines that are none, and refuses nodes by name."""

import dataclasses
import itertools
import os
import threading

import tensorflow as tf

from tests import prepared_models
from tests.engine_files import engine_file
from tftrt_tools.base import tf_private
from tftrt_tools.models.savedmodel.job import graph, loading
from tftrt_tools.tftrt.calibration import methods
from tftrt_tools.tftrt.conversion import convert_job
from tftrt_tools.tftrt.conversion.job import engines, finishing, int8
from tftrt_tools.tftrt.conversion.settings import Settings

VERSIONS = {"tensorflow": "2.14.1", "tensorrt": "8.5.3", "tensorrt_linked": "8.4.3"}
NUMBERS = itertools.count()
GPU = {"name": "a GPU", "compute_capability": "9.0", "driver": "1"}


@dataclasses.dataclass
class Builds:
    """What stands for TensorRT. compiled: (engine, shapes) in order; held: engine numbers that wait for `go_on`."""

    compiled: list
    held: set
    go_on: threading.Event

    def compile(self, lone, feeds, dynamic):
        number = len(self.compiled)
        self.compiled.append((lone.node, [tuple(tensor.shape.as_list() for tensor in feed) for feed in feeds]))
        if number in self.held:
            assert self.go_on.wait(30)

    def serialize(self, name, path):
        return bool(engine_file(path, (1, 8), engine=b"engine of " + name.encode()))


LAYER = "4: [graphShapeAnalyzer.cpp] Error Code 4: Internal Error ({engine}/{node}-slice:SLICE: ISliceLayer has out of bounds access on axis 1)"
LOGGED = (
    "2026-11-26 09:43:10.100000: E tensorflow/compiler/tf2tensorrt/utils/trt_logger.cc:86] DefaultLogger {said}\n"
    + (
        "2026-11-26 09:43:10.200000: W tensorflow/compiler/tf2tensorrt/kernels/trt_engine_op.cc:1120] TF-TRT Warning: Engine creation for "
        "{engine} failed. The native segment will be used instead. Reason: INTERNAL: Failed to build TensorRT engine\n"
    )
)


# A refusal of TF-TRT's own, which names no node. Seen on an H100, TensorFlow 2.14.1, TensorRT 8.5.3.
UNNAMED = (
    "2026-11-28 01:48:10.200000: W tensorflow/compiler/tf2tensorrt/kernels/trt_engine_op.cc:1120] TF-TRT Warning: Engine creation for "
    "{engine} failed. The native segment will be used instead. Reason: INVALID_ARGUMENT: Channel dimension must be static\n"
)


class Refusals(Builds):
    """Builds that TensorRT refuses where the segment holds a node of such a type. words: what it says then; logged: the log's lines."""

    def __init__(self, op, words=LAYER, logged=LOGGED):
        super().__init__([], set(), threading.Event())
        self.op, self.words, self.logged = op, words, logged
        self.refusals = []

    def compile(self, lone, feeds, dynamic):
        super().compile(lone, feeds, dynamic)
        (one,) = graph.native_segments(lone.graph_def).values()
        self.refused = next((node.name for node in one.function.node_def if node.op == self.op), None)
        self.refusals.append(self.refused is not None)
        if self.refused:
            said = self.words.format(engine=lone.node, node=self.refused)
            os.write(2, self.logged.format(said=said, engine=lone.node).encode())

    def serialize(self, name, path):
        return not self.refused and super().serialize(name, path)


NO_TABLES = int8.Source(options=None, given=None)


def converted(model, calls, tmp_path, source=NO_TABLES, **settings):
    """Returns: the finishing.Made of the model's only signature, as convert_job makes it."""
    loaded = loading.load(model)
    work = finishing.Work(
        settings=Settings(use_dynamic_shape=True, **settings), gpu=GPU, versions=VERSIONS, store=None, origin="model"
    )
    ready, measured = convert_job._ready(
        loaded, ["serving_default"], 0, None, work, source, f"TRTEngineOp_r{next(NUMBERS)}", calls, str(tmp_path), 0
    )
    return convert_job._signature(
        ready, measured, work, int8.Decision(methods.Method("max"), ""), str(tmp_path), source
    )


def cropping(path):
    @tf.function(input_signature=[tf.TensorSpec((None, None, 8), name="x")])
    def serve(x):
        y = tf.nn.relu(x * 2 + 1)[:, 2:-2]
        return {"y": tf.nn.softmax(tf.nn.relu(y * 3 - 1) + 1)}

    return prepared_models.save(serve, path)


def stand_in(monkeypatch, builds):
    monkeypatch.setattr(engines, "compile_engines", builds.compile)
    monkeypatch.setattr(tf_private, "serialize_engines", builds.serialize)
    return builds
