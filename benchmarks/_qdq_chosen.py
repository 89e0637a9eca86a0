"""The Q/DQ graph of `benchmarks.qdq` with nodes only where implicit INT8 took INT8, as `tftrt export --int8_as` writes it."""

import json
import pathlib

from tftrt_tools.exporting import as_plan
from tftrt_tools.exporting.as_plan import AsPlan, Seen
from tftrt_tools.models.plan import layer_information


def write(folder, layers, scales):
    """folder/chosen.onnx, from folder/fp32.onnx. Args: layers: file of what the inspector said of the implicit engine. scales: {tensor:
    scale}. Returns: the number of rounded nodes. Raises: UsageError where implicit INT8 took none."""
    import onnx

    from tftrt_tools.exporting.job import placement, qdq

    # The weights are in another file, and belong into this one.
    model = onnx.shape_inference.infer_shapes(onnx.load(folder / "fp32.onnx"))
    rows = layer_information.rows({"Layers": json.loads(pathlib.Path(layers).read_text())})
    seen = AsPlan(plan="implicit INT8", layers=tuple(Seen(row.name, as_plan.type_of(row)) for row in rows if as_plan.tells(row)))
    nodes = [site.node for site in placement.place(model, ()).sites]
    placed = placement.place(model, (), as_plan.wider(seen, nodes)).with_scales(scales, "the table has")
    onnx.save(qdq.with_rounding(model, placed, scales), folder / "chosen.onnx")
    return len(placed.sites)
