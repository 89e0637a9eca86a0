"""The child's side of FP16: an exported graph gets casts, and weights in FP16."""

from __future__ import annotations

from typing import Any

import onnx

from tftrt_tools import errors, progress
from tftrt_tools.execution import npz
from tftrt_tools.exporting.job import half, model_file, onnx_ranges
from tftrt_tools.exporting.job.graph_facts import Facts, all_nodes, name_of
from tftrt_tools.exporting.precision import Written, kept
from tftrt_tools.models.onnx.kind import PRECISION


def job(request: dict[str, Any]) -> dict[str, Any]:
    """Convert.

    Args: request: {"onnx": the file in FP32, "output": the file to write, "weights": name of the file beside it, or "", "judged": another
      file to write, which computes in FP32 and rounds to FP16, "fp32_nodes": regular expressions, "calls": .npz files of inputs, on which
      tensors are looked at}.
    Returns: {"written": Written, "judged": its path, "nodes"}. Raises: UsageError, TftrtError.
    """
    model = onnx.load(request["onnx"])
    names = kept(request["fp32_nodes"], map(name_of, all_nodes(model.graph)))
    largest = onnx_ranges.largest(model, Facts(model).floats, map(npz.load, request["calls"]))
    progress.say("writing FP16 into the graph")
    made = half.convert(model, names, largest)
    if not any(one.precision == "FP16" for one in made.nodes):
        fewer = "name fewer nodes with --fp32_nodes, or " if request["fp32_nodes"] else ""
        raise errors.TftrtError("no node of it can be in FP16" + (f" ({made.nodes[0].name}: {made.nodes[0].reason})" if made.nodes else ""),
                                f"{fewer}export it with another --precision_mode")
    written = model_file.rewrite(made.model, request["output"], request["weights"], {PRECISION: "FP16"})
    # It loads: the types fit, and there is a kernel for each node.
    onnx_ranges.Session(onnx.load(request["output"]))
    model_file.save(half.convert(model, names, largest, simulated=True).model, request["judged"])
    return {"written": Written(precision="FP16", nodes=made.nodes, constants=made.constants).to_dict(), "judged": request["judged"],
            "nodes": [one.to_dict() for one in model_file.nodes(written)]}
