"""Whole files as strings, for a model that decodes them itself: encoded pictures, sound, documents. No TensorFlow here."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.models.inputs import find, foreign
from tftrt_tools.models.inputs.sources_job import request as requests
from tftrt_tools.models.inputs.sources_job.batching import Tally
from tftrt_tools.models.savedmodel.shapes import InputSpec


def source(request: requests.Request) -> Callable[[Tally], Iterator[tuple[str, dict[str, npt.NDArray[Any]]]]]:
    """Each file is a row, its bytes as they are. If only some files are wanted, they are spread over the sorted files."""
    first = pathlib.Path(request.files[0]).name
    encoded = foreign.encoded(request.files[0])
    if encoded and not requests.only_text(request):
        raise errors.UsageError(f"{first} is {encoded[0]}", encoded[1])
    mend = f"known: {find.KNOWN}, or module:function"
    spec = requests.needs_text(request, f"a file of no known kind ({first})", mend)
    files = find.spread(len(request.files), request.rows or len(request.files))
    return lambda tally: whole([request.files[number] for number in files], spec)


def whole(files: list[str], spec: InputSpec) -> Iterator[tuple[str, dict[str, npt.NDArray[Any]]]]:
    """(path, {input: object[1, …] of bytes}) of each file. Raises: UsageError where one cannot be read."""
    for path in files:
        try:
            data = pathlib.Path(path).read_bytes()
        except OSError as error:
            raise errors.UsageError(f"{path} cannot be read: {error.strerror}", "check its permissions") from None
        yield path, {spec.name: row(data, spec)}


def row(data: bytes, spec: InputSpec) -> npt.NDArray[Any]:
    """A row of one string: object[1, …], as the input's shape says."""
    array = np.empty(requests.row_shape(spec), object)
    array[...] = data
    return array
