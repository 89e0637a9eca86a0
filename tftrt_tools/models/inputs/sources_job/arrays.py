""".npz and .npy files. No TensorFlow here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.models.execution import arrays as array_reader
from tftrt_tools.models.inputs.sources_job.batching import Tally
from tftrt_tools.models.inputs.sources_job.request import Request
from tftrt_tools.models.savedmodel.signatures import Once


def source(request: Request) -> Callable[[Tally], Iterator[tuple[str, dict[str, npt.NDArray[Any]]]]]:
    """Reads one file after the other. Arrays of an .npz are named INPUT or SIGNATURE/INPUT; those of other signatures are skipped."""
    return lambda tally: _chunks(request, tally)


def _chunks(request: Request, tally: Tally) -> Iterator[tuple[str, dict[str, npt.NDArray[Any]]]]:
    for path in request.files:
        # Only one file is in memory: nothing here keeps a yielded array.
        yield path, _inputs(path, request, tally)


def _inputs(path: str, request: Request, tally: Tally) -> dict[str, npt.NDArray[Any]]:
    arrays, needed = array_reader.load(path), ", ".join(f"{spec.name} {spec.text()}" for spec in request.specs)
    for name in arrays:
        tally.leave(name, request)
    own, walked = {spec.name for spec in request.specs}, Once({request.signature: request.twins})
    picked = {
        name: array
        for name, array in walked.renamed(arrays).items()
        if ("/" not in name or name in own or name.startswith(request.signature + "/")) and name not in request.others
    }
    try:
        array_reader.check_names(picked, {request.signature: request.specs})
    except errors.UsageError as error:
        raise errors.UsageError(f"{path}: {error.cause}", f"{request.signature!r} takes {needed}") from None
    cast = {
        spec.name: array_reader.pick(picked, request.signature, spec.name, len(request.specs)) for spec in request.specs
    }
    missing = [name for name, array in cast.items() if array is None]
    if missing:
        scalar = next((spec for spec in request.specs if spec.name == missing[0] and spec.shape == ()), None)
        there = "one array without a name" if "" in arrays else "arrays " + ", ".join(arrays) if arrays else "no array"
        raise errors.UsageError(
            f"{path} has {there}, and nothing for input {missing[0]!r}",
            f"{request.signature!r} takes {needed}: "
            "write them with np.savez(path, input_name=array); "
            + (array_reader.scalar_text(scalar) + "; " if scalar else "")
            + "--signature_keys leaves signatures out",
        )
    return cast
