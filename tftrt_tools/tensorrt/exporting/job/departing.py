"""The first tensor that departs, of tensors that the source's graph and the ONNX graph share."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx

from tftrt_tools.accuracy import thresholds
from tftrt_tools.accuracy.metrics.elements import Elements
from tftrt_tools.models.execution import runner
from tftrt_tools.models.kinds.onnx import runner_job
from tftrt_tools.models.savedmodel.signatures import DEFAULT
from tftrt_tools.tensorrt.exporting.job import model_file
from tftrt_tools.tensorrt.exporting.result import Departure

# Tensors nearer than that agree: the bound of answers of another runtime.
_AGREES_DB = thresholds.DEFAULTS["FP32"]["snr_db"]
# tf2onnx computes pictures with their channels first.
_CHANNELS_FIRST = {4: (0, 3, 1, 2), 5: (0, 4, 1, 2, 3)}


def producers(model: onnx.ModelProto) -> dict[str, onnx.NodeProto]:
    """{tensor: the node that computes it}, in the order of the graph."""
    return {output: node for node in model.graph.node for output in node.output if output}


def first(
    model: onnx.ModelProto, path: pathlib.Path, feed: dict[str, Any], tensors: Mapping[str, tuple[str, Any]]
) -> Departure | None:
    """The first tensor that departs.

    Args: model: of the file `path`; tensors: {its name in the file: (the source's op, its value there)}, in the file's order.
    Returns: None if none departs.
    """
    made = producers(model)
    second = _run(model, path, list(tensors), feed)
    before, compared = "", 0
    for name, (op, value) in tensors.items():
        level = _level(np.asarray(value), second[name])
        if level is None:
            continue
        compared += 1
        if level < _AGREES_DB:
            return Departure(
                tensor=name,
                source_op=op,
                node=f"{made[name].op_type} {made[name].name}",
                snr_db=level,
                before=before,
                compared=compared,
                tensors=len(made),
            )
        before = name
    return None


def _run(model: onnx.ModelProto, path: pathlib.Path, names: list[str], feed: dict[str, Any]) -> dict[str, Any]:
    """{name: value} under ONNX Runtime."""
    already = {one.name for one in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in already)
    searched = path.with_name(f"searched-{path.name}")
    model_file.save(model, str(searched))
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
