"""Which tensors keep a signature from being batched. Pure functions."""

from collections.abc import Iterator, Sequence

from tftrt_tools.models.savedmodel.shapes import InputSpec

MEND = "serve this model from a server without --enable_batching, or give that tensor a first dimension for the rows"


def of_signature(name: str, inputs: Sequence[InputSpec], outputs: Sequence[InputSpec]) -> Iterator[str]:
    """A line for each tensor for which a server with batching refuses every call of the signature."""
    for spec in inputs:
        if spec.shape == ():
            yield f"{name}: input {spec.name!r} is {spec.text()}, a scalar, and batching refuses each call with it"
    grows = any(spec.shape and spec.shape[0] is None for spec in inputs)
    for spec in outputs:
        if spec.shape == ():
            yield f"{name}: output {spec.name!r} is {spec.text()}, a scalar, which batching cannot divide among requests"
        elif grows and spec.shape and spec.shape[0] is not None:
            yield f"{name}: output {spec.name!r} is {spec.text()}, whatever the batch: batching cannot divide it among requests"
