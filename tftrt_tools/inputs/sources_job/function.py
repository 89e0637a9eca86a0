"""The user's module:function, as a calibration_input_fn. TensorFlow is loaded only if the function uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tftrt_tools import errors
from tftrt_tools.execution import user_function
from tftrt_tools.inputs.sources_job.batching import Tally
from tftrt_tools.inputs.sources_job.request import Request

_MEND = "yield {input name: array}, a tuple in the signature's order, or one array for an only input"


def source(request: Request) -> Callable[[Tally], Iterator[tuple[str, dict[str, npt.NDArray[Any]]]]]:
    """Calls the function without arguments; each item that it yields is a batch. Tensors are taken as arrays."""
    return lambda tally: _chunks(request)


def _chunks(request: Request) -> Iterator[tuple[str, dict[str, npt.NDArray[Any]]]]:
    reference = request.options.source
    for number, item in enumerate(user_function.items(reference, request.said), 1):
        where = f"batch {number} of {reference}"
        yield where, {name: _array(value, name, where) for name, value in _named(item, where, request).items()}


def _named(item: Any, where: str, request: Request) -> dict[str, Any]:
    names = [spec.name for spec in request.specs]
    wanted = ", ".join(f"{spec.name} {spec.text()}" for spec in request.specs)
    if isinstance(item, dict):
        if set(item) != set(names):
            raise errors.UsageError(f"{where} has {', '.join(map(str, item)) or 'nothing'}", f"{request.signature!r} takes {wanted}")
        return item
    if isinstance(item, (tuple, list)):
        if len(item) != len(names):
            raise errors.UsageError(f"{where} has {len(item)} arrays in a {type(item).__name__}", f"{request.signature!r} takes {wanted}; "
                                    + _MEND)
        return dict(zip(names, item, strict=True))
    if len(names) != 1:
        raise errors.UsageError(f"{where} is one {type(item).__name__}", f"{request.signature!r} takes {wanted}; {_MEND}")
    return {names[0]: item}


def _array(value: Any, name: str, where: str) -> npt.NDArray[Any]:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):
        array = None
    if array is None or array.dtype == object and not all(isinstance(one, (str, bytes)) for one in array.reshape(-1)):
        raise errors.UsageError(f"{where}: input {name!r} is a {type(value).__name__} and no array", _MEND)
    return array
