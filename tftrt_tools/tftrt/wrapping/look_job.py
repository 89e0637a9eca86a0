"""The child's side of looking at a model before it is wrapped: read from its protos; nothing is loaded or run."""

from __future__ import annotations

from typing import Any

from tftrt_tools.models.savedmodel import describe_job, signatures
from tftrt_tools.models.savedmodel.job import protos
from tftrt_tools.tftrt.wrapping.job import reading


def job(request: dict[str, Any]) -> dict[str, Any]:
    """Args: request: {"model": directory, "signature": name, or "" for serving_default or the only one}. Returns: {"description": dict,
    "normalized", "rows": of plan.Facts}."""
    described = describe_job.job([request["model"]])[0].to_dict()
    meta = protos.meta_graph(protos.read(request["model"]))
    known = signatures.definitions(meta)
    name = request["signature"] or (signatures.DEFAULT if signatures.DEFAULT in known else next(iter(known), ""))
    if name not in known:
        return {"description": described, "normalized": {}, "rows": {}}
    normalized, rows = {}, {}
    for key, info in known[name].inputs.items():
        found = reading.read(meta.graph_def, info.name)
        if found.steps:
            normalized[key] = list(found.steps)
        if found.rows is not None:
            rows[key] = found.rows
    return {"description": described, "normalized": normalized, "rows": rows}
