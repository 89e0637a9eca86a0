"""The user's module:function, as a calibration_input_fn. TensorFlow is loaded only if the function uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.models.execution import user_function
from tftrt_tools.models.inputs import items
from tftrt_tools.models.inputs.sources_job.batching import Tally
from tftrt_tools.models.inputs.sources_job.request import Request

# A function that yields more for other signatures, one after the other, is taken for one that never ends.
_MOST_SKIPPED = 100_000


def source(request: Request) -> Callable[[Tally], Iterator[tuple[str, dict[str, npt.NDArray[Any]]]]]:
    """Calls the function without arguments; each item that it yields is a batch. Tensors are taken as arrays."""
    return lambda tally: _chunks(request, tally)


def _chunks(request: Request, tally: Tally) -> Iterator[tuple[str, dict[str, npt.NDArray[Any]]]]:
    reference, skipped = request.options.source, 0
    for number, item in enumerate(user_function.items(reference, request.said), 1):
        where = f"batch {number} of {reference}"
        values = _mine(item, where, request, tally)
        if values is not None:
            skipped = 0
            yield where, {name: items.array(value, name, where) for name, value in values.items()}
            continue
        skipped += 1
        if skipped == _MOST_SKIPPED:
            raise errors.UsageError(
                f"{reference} yields {skipped} items for other signatures, and none more for {request.signature!r}",
                request.takes,
            )


def _mine(item: object, where: str, request: Request, tally: Tally) -> dict[str, Any] | None:
    """{input: value} of an item, None of an item of another signature. Raises: UsageError."""
    signature, content = items.parts(item)
    if signature and signature not in (request.signature, *request.twins):
        if not any(name.startswith(f"{signature}/") for name in request.others):
            raise errors.UsageError(
                f"{where} is for signature {signature!r}, which the model does not have", request.takes
            )
        tally.leave(signature, request)
        return None
    if isinstance(content, dict):
        if not signature and content and set(content) <= set(request.others):
            for name in content:
                tally.leave(name, request)
            return None
        if set(content) != {spec.name for spec in request.specs}:
            raise errors.UsageError(f"{where} has {', '.join(map(str, content)) or 'nothing'}", request.takes)
    return items.named(content, where, request.signature, request.specs)
