"""The child's side of FP16: an exported graph gets casts, and weights in FP16."""

from __future__ import annotations

import numpy as np
import onnx

from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.models.execution import npz
from tftrt_tools.models.kinds.onnx.kind import PRECISION
from tftrt_tools.tensorrt.exporting.job import half, model_file, onnx_ranges, squares
from tftrt_tools.tensorrt.exporting.job.graph_facts import Facts, all_nodes, name_of
from tftrt_tools.tensorrt.exporting.precision import Written, kept
from tftrt_tools.tensorrt.exporting.writing import Answer, ToFp16


def job(request: ToFp16) -> Answer:
    """Convert. Raises: UsageError, TftrtError."""
    model = onnx.load(request.files.onnx)
    names = kept(request.fp32_nodes, map(name_of, all_nodes(model.graph)))
    calls = list(map(npz.load, request.calls))
    # Silence and empty pictures are rare in data, and the largest number may be an inverse of the smallest.
    nothing = [
        {name: np.zeros_like(array) if array.dtype == np.float32 else array for name, array in call.items()}
        for call in calls[:1]
    ]
    largest = onnx_ranges.largest(model, Facts(model).floats, [*calls, *nothing])
    progress.say("writing FP16 into the graph")
    made = half.convert(model, names, largest)
    if not any(one.precision == "FP16" for one in made.nodes):
        fewer = "name fewer nodes with --fp32_nodes, or " if request.fp32_nodes else ""
        raise errors.TftrtError(
            "no node of it can be in FP16" + (f" ({made.nodes[0].name}: {made.nodes[0].reason})" if made.nodes else ""),
            f"{fewer}export it with another --precision",
        )
    # It loads: the types fit, and there is a kernel for each node.
    remark = onnx_ranges.Session(made.model).remark
    if remark and (products := squares.as_products(made.model)):
        remark = onnx_ranges.Session(made.model).remark
        progress.say(f"{products} squares became products, which ONNX Runtime loads")
    written = model_file.rewrite(made.model, request.files.output, request.files.weights, {PRECISION: "FP16"})
    model_file.save(half.convert(model, names, largest, simulated=True).model, request.judged)
    said = Written(precision="FP16", nodes=made.nodes, constants=made.constants, remarks=(remark,) if remark else ())
    return Answer(written=said, nodes=tuple(model_file.nodes(written)))
