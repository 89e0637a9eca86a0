"""As bisect_job, of an ONNX file: tensors of the source and of the file that have one name."""

from __future__ import annotations

import pathlib

import onnx
from onnx import TensorProto, shape_inference

from tftrt_tools.models.execution import npz
from tftrt_tools.tensorrt.exporting.bisecting import Request
from tftrt_tools.tensorrt.exporting.job import departing, onnx_ranges
from tftrt_tools.tensorrt.exporting.result import Departure

_COMPARED = frozenset(
    {
        TensorProto.FLOAT,
        TensorProto.DOUBLE,
        TensorProto.FLOAT16,
        TensorProto.INT64,
        TensorProto.INT32,
        TensorProto.UINT8,
        TensorProto.INT8,
        TensorProto.BOOL,
    }
)


def job(request: Request) -> Departure | None:
    """Search; None if no tensor departs that both have."""
    model, source = onnx.load(request.onnx), shape_inference.infer_shapes(onnx.load(request.source))
    kinds = {one.name: one.type.tensor_type.elem_type for one in (*source.graph.value_info, *source.graph.output)}
    made, feed = departing.producers(source), npz.load(request.inputs)
    names = [name for name in departing.producers(model) if name in made and kinds.get(name) in _COMPARED]
    values = onnx_ranges.Session(source, names).run(feed)
    return departing.first(
        model, pathlib.Path(request.onnx), feed, {name: (made[name].op_type, values[name]) for name in names}
    )
