"""The child's side of looking at a model before it is wrapped: read from its protos; nothing is loaded or run."""

from __future__ import annotations

from tftrt_tools.models.savedmodel import describe_job, signatures
from tftrt_tools.models.savedmodel.job import protos
from tftrt_tools.tftrt.wrapping.job import reading
from tftrt_tools.tftrt.wrapping.plan import Facts
from tftrt_tools.tftrt.wrapping.wrap import Looked, LookRequest


def job(request: LookRequest) -> Looked:
    """Look at a model. Raises: UsageError, TftrtError."""
    (described,) = describe_job.job([request.model])
    meta = protos.meta_graph(protos.read(request.model))
    definitions = signatures.definitions(meta)
    name = request.signature or (
        signatures.DEFAULT if signatures.DEFAULT in definitions else next(iter(definitions), "")
    )
    if name not in definitions:
        return Looked(description=described, facts=Facts(normalized={}, rows={}))
    normalized, rows = {}, {}
    for key, info in definitions[name].inputs.items():
        form = reading.read(meta.graph_def, info.name)
        if form.steps:
            normalized[key] = form.steps
        if form.rows is not None:
            rows[key] = form.rows
    return Looked(description=described, facts=Facts(normalized=normalized, rows=rows))
