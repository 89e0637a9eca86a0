"""The scales of a calibration file, for the tensors of an ONNX graph."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from tftrt_tools.models.savedmodel import engine_op
from tftrt_tools.tensorrt.exporting.job.graph_facts import Facts


def by_tensor(model: onnx.ModelProto, table: Mapping[str, float]) -> dict[str, float]:
    """{tensor of the graph: scale}.

    A table of an exported graph has the tensors' own names. That of a TF-TRT engine has the names of TensorFlow's nodes, which tf2onnx
    keeps as "node:0"; and TensorRTInputPH_0 for the engine's first input, which is the graph's if both have one alone. A tensor that only
    passes on the values of another one (behind a Transpose, say) has its scale.
    """
    facts = Facts(model)
    known = {
        tensor: scale
        for tensor in facts.floats
        for key in (tensor, tensor.removesuffix(":0"))
        if (scale := table.get(key)) is not None
    }
    places = [name for name in table if name.startswith(engine_op.INPUT)]
    if len(places) == 1 and len(facts.inputs) == 1:
        known.setdefault(next(iter(facts.inputs)), table[places[0]])
    return {
        tensor: scale
        for tensor in facts.floats
        if (scale := known.get(tensor, known.get(facts.source(tensor)))) is not None
    }
