"""The Q/DQ graph of `benchmarks.qdq` with nodes only where implicit INT8 took INT8, as `tftrt export --int8_as` writes it."""

import json
import pathlib

from tftrt_tools.tensorrt.exporting import as_plan
from tftrt_tools.tensorrt.exporting.as_plan import AsPlan


def write(folder, layers, scales):
    """folder/chosen.onnx, from folder/fp32.onnx. Args: layers: file of what the inspector said of the implicit engine. scales: {tensor:
    scale}. Returns: the number of rounded nodes. Raises: UsageError where implicit INT8 took none."""
    import onnx

    from tftrt_tools.tensorrt.exporting.job import placement, qdq

    # The weights are in another file, and belong into this one.
    model = onnx.shape_inference.infer_shapes(onnx.load(folder / "fp32.onnx"))
    seen = AsPlan(plan="implicit INT8", layers=as_plan.seen({"Layers": json.loads(pathlib.Path(layers).read_text())}))
    nodes = [site.node for site in placement.place(model, ()).sites]
    placed = placement.place(model, (), as_plan.wider(seen, nodes)).with_scales(scales, "the table has")
    onnx.save(qdq.with_rounding(model, placed, scales), folder / "chosen.onnx")
    return len(placed.sites)
