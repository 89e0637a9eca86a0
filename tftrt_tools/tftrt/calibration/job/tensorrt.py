"""TensorRT's own INT8 calibration of a signature's engines, through TF-TRT, on the GPU.

TF-TRT's engine op calibrates if it is INT8 with calibration and has no table: each call feeds its batch to TensorRT's entropy calibrator
2 and answers natively. It does not report that it skipped a batch or ended without a table; this module does.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from tftrt_tools.base import errors, tf_private
from tftrt_tools.base.process import native_log, progress
from tftrt_tools.models.execution.job import build_log
from tftrt_tools.models.savedmodel.job import graph, loading
from tftrt_tools.tftrt.calibration.job.frozen import Frozen

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2, node_def_pb2

    from tftrt_tools.tftrt.calibration.job.kept_back import Batch


class NoTable(errors.TftrtError):
    """TensorRT made no table for an engine. node: of its segment, the one that was refused, "" for none that is named. reason: of the
    log."""

    engine = node = reason = ""


def tables(
    frozen: Frozen, graph_def: graph_pb2.GraphDef, batches: Iterable[Batch], dynamic: bool, folder: str
) -> dict[str, str]:
    """Calibrate every INT8 engine of a signature.

    Args:
      frozen: graph_pass.Frozen; graph_def: its converted graph with final engine names (not changed).
      batches: iterable of {input: np.ndarray}, all of one shape (TensorRT skips others without a word).
      dynamic: explicit batch mode. folder: for the engines that calibration builds, which are not kept.

    Returns: {engine name: table text}. Raises: NoTable where an engine has none.
    """
    calibrating = type(graph_def)()
    calibrating.CopyFrom(graph_def)
    names = [graph.engine_name(node.name) for node in _int8(calibrating)]
    for node in _int8(calibrating):
        graph.set_attributes(node, use_calibration=True, calibration_data="")
    logged = native_log.position()
    function, total = None, operator.length_hint(batches) or None
    for count, batch in enumerate(batches, 1):
        feed = [tf.constant(batch[name]) for name in frozen.input_names]
        if function is None:
            function = _ready(frozen, calibrating, dynamic, feed)
        progress.say(f"calibrating on the GPU, batch {count}", count - 1, total)
        _call(function, feed)
    progress.say("ending the calibration, for which TensorRT builds an engine")
    texts = {name: tf_private.calibration_table(name) for name in names}
    for name in names:
        tf_private.serialize_engines(name, f"{folder}/calibration-{name}")
    missing = [name for name, table in texts.items() if not table]
    if missing:
        reason = build_log.reason(native_log.since(logged)) or "its reason may be in the log (--log_file)"
        error = NoTable(
            f"TensorRT made no calibration table for {missing[0]} ({len(missing)} of {len(names)} engines have none): "
            f"{reason}",
            "--calibrator=toolkit needs no GPU and no engine build; what TensorRT cannot build stays out "
            "of engines by --keep_native_ops or --keep_native_nodes",
        )
        segment = graph.native_segments(calibrating)[missing[0]]
        error.engine = missing[0]
        error.node, error.reason = build_log.node_of_segment(reason, segment.function.node_def), reason
        raise error
    return {name: table.decode() for name, table in texts.items() if table}


def _int8(graph_def: graph_pb2.GraphDef) -> list[node_def_pb2.NodeDef]:
    return [node for node in graph.engine_nodes(graph_def) if node.attr["precision_mode"].s == b"INT8"]


def _ready(
    frozen: Frozen, graph_def: graph_pb2.GraphDef, dynamic: bool, feed: Sequence[tf.Tensor]
) -> tf.types.experimental.ConcreteFunction:
    """The function to calibrate with; in explicit batch mode after a call that makes the optimization profile."""
    if dynamic:
        # "Optimal" with its one shape would make another network than the engines have, with other numbers in the tensors' names.
        graph.set_on_engines(graph_def, _profile_generation_mode=True, profile_strategy="Range")
        _call(tf_private.rebuild(graph_def, frozen), feed)
        graph.set_on_engines(graph_def, _profile_generation_mode=False)
    return tf_private.rebuild(graph_def, frozen)


def _call(function: tf.types.experimental.ConcreteFunction, feed: Sequence[tf.Tensor]) -> None:
    try:
        function(*feed)
    except tf.errors.OpError as error:
        raise errors.TftrtError(
            f"the model fails on the calibration data: {loading.first_line(error)}", "check the data"
        ) from None
