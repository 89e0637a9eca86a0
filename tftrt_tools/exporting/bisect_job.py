"""The child's side of the search for the first tensor that departs: both graphs run with all tensors that they share as outputs."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import tensorflow as tf

from tftrt_tools.accuracy import thresholds
from tftrt_tools.accuracy.metrics.elements import Elements
from tftrt_tools.execution import npz, runner
from tftrt_tools.exporting.result import Departure
from tftrt_tools.models.onnx import runner_job
from tftrt_tools.savedmodel.signatures import DEFAULT

# Tensors nearer than that agree: the bound of answers of another runtime.
_AGREES_DB = thresholds.DEFAULTS["FP32"]["snr_db"]
# tf2onnx computes pictures with their channels first.
_CHANNELS_FIRST = {4: (0, 3, 1, 2), 5: (0, 4, 1, 2, 3)}


def job(request: dict[str, Any]) -> dict[str, Any] | None:
    """Search.

    Args: request: {"onnx": the file, "frozen": the source's GraphDef, "renamed": {its tensor: name in the file}, "inputs": .npz of a call}.
    Returns: Departure as a dict; None if no tensor departs that both have, or the source's graph cannot be run alone (it has tables).
    """
    model, renamed = onnx.load(request["onnx"]), request["renamed"]
    graph = tf.Graph()
    with graph.as_default():
        definition = tf.compat.v1.GraphDef.FromString(pathlib.Path(request["frozen"]).read_bytes())
        tf.import_graph_def(definition, name="")
    there = {name: tensor for tensor, name in renamed.items()}
    producers = {output: node for node in model.graph.node for output in node.output if output}
    tensors = {name: tensor for name in producers if (tensor := _tensor(graph, there.get(name, name))) is not None}
    feed = npz.load(request["inputs"])
    try:
        with tf.compat.v1.Session(graph=graph) as session:
            first = session.run(tensors, {there[name]: value for name, value in feed.items()})
    except tf.errors.OpError:
        return None
    second = _run(model, pathlib.Path(request["onnx"]), list(tensors), feed)
    before, compared = "", 0
    for name, tensor in tensors.items():
        level = _level(np.asarray(first[name]), second[name])
        if level is None:
            continue
        compared += 1
        if level < _AGREES_DB:
            return Departure(tensor=name, source_op=tensor.op.type, node=f"{producers[name].op_type} {producers[name].name}", snr_db=level,
                             before=before, compared=compared, tensors=len(producers)).to_dict()
        before = name
    return None


def _tensor(graph: Any, name: str) -> Any:
    """The source's tensor of a name, None if it has none that can be compared."""
    try:
        found = graph.get_tensor_by_name(name)
    except (KeyError, ValueError):
        return None
    return found if found.dtype.is_floating or found.dtype.is_integer or found.dtype.is_bool else None


def _run(model: onnx.ModelProto, path: pathlib.Path, names: list[str], feed: dict[str, Any]) -> dict[str, Any]:
    """{name: value} under ONNX Runtime."""
    already = {one.name for one in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in already)
    searched = path.with_name(f"searched-{path.name}")
    onnx.save(model, str(searched))
    with runner_job.load(str(searched), runner.Wanted(label="the file")) as loaded:
        return dict(loaded.ready(DEFAULT, feed)())


def _level(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> float | None:
    """How near two values are, in dB; None if they are not of one form."""
    levels = [_one_level(first, other) for other in _forms(first, second)]
    return max(levels, default=None)


def _forms(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    """The second value, and with its channels last, as far as it has the form of the first."""
    turned = [np.transpose(second, np.argsort(_CHANNELS_FIRST[second.ndim]))] if second.ndim in _CHANNELS_FIRST else []
    yield from (one for one in (second, *turned) if one.shape == first.shape)


def _one_level(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> float:
    if first.dtype.kind not in "fc":
        return math.inf if np.array_equal(first, second) else -math.inf
    if not np.array_equal(np.isfinite(first), np.isfinite(second)):
        return -math.inf
    measured = Elements()
    measured.add(first, second)
    return float(measured.values()["snr_db"])
