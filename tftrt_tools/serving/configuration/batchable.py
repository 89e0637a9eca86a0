"""Which signatures TensorFlow Serving refuses to batch: it joins the inputs of requests along their first dimension, and cuts the outputs
by the rows of each request (batching_session.cc). Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tftrt_tools.savedmodel.shapes import InputSpec

Specs = Sequence[InputSpec]


def refused(inputs: Mapping[str, Specs], outputs: Mapping[str, Specs]) -> dict[str, str]:
    """{signature: the tensor that keeps it from being batched, and why}. Args: {signature: its tensors}."""
    found = {name: next(_refused(inputs[name], outputs.get(name, ())), "") for name in inputs}
    return {name: why for name, why in found.items() if why}


def _refused(inputs: Specs, outputs: Specs) -> Iterator[str]:
    for kind, specs in (("input", inputs), ("output", outputs)):
        yield from (f"{kind} {one.name} is a scalar, without rows" for one in specs if one.shape == ())
    rows = {one.name: one.shape[0] for one in inputs if one.shape}
    fixed = {name: size for name, size in rows.items() if size is not None}
    if fixed and len(set(rows.values())) > 1:
        name, size = next(iter(fixed.items()))
        other = next(one for one, its in rows.items() if its != size)
        yield f"input {name} always has {size} rows, and input {other} has others"
    batch = next(iter(fixed.values()), None)
    for one in outputs:
        if one.shape and one.shape[0] is not None and rows and one.shape[0] != batch:
            yield f"output {one.name} always has {one.shape[0]} rows, however many were sent"
