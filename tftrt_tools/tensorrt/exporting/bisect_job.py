"""The child's side of the search for the first tensor that departs: both graphs run with all tensors that they share as outputs."""

from __future__ import annotations

import pathlib

import onnx
import tensorflow as tf

from tftrt_tools.models.execution import npz
from tftrt_tools.tensorrt.exporting.bisecting import Request
from tftrt_tools.tensorrt.exporting.job import departing
from tftrt_tools.tensorrt.exporting.result import Departure


def job(request: Request) -> Departure | None:
    """Search; None if no tensor departs that both have, or the source's graph cannot be run alone (it has tables)."""
    model, renamed = onnx.load(request.onnx), request.renamed
    graph = tf.Graph()
    with graph.as_default():
        definition = tf.compat.v1.GraphDef.FromString(pathlib.Path(request.frozen).read_bytes())
        tf.import_graph_def(definition, name="")
    there = {name: tensor for tensor, name in renamed.items()}
    tensors = {
        name: tensor
        for name in departing.producers(model)
        if (tensor := _tensor(graph, there.get(name, name))) is not None
    }
    feed = npz.load(request.inputs)
    try:
        with tf.compat.v1.Session(graph=graph) as session:
            values = session.run(tensors, {there[name]: value for name, value in feed.items()})
    except tf.errors.OpError:
        return None
    seen = {name: (tensor.op.type, values[name]) for name, tensor in tensors.items()}
    return departing.first(model, pathlib.Path(request.onnx), feed, seen)


def _tensor(graph: tf.Graph, name: str) -> tf.Tensor | None:
    """The source's tensor of a name, None if it has none that can be compared."""
    try:
        found = graph.get_tensor_by_name(name)
    except (KeyError, ValueError):
        return None
    return found if found.dtype.is_floating or found.dtype.is_integer or found.dtype.is_bool else None
