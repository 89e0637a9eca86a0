"""Random inputs, for trying a calibration out. No TensorFlow here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.models.execution import inputs
from tftrt_tools.models.inputs.sources_job.batching import Tally
from tftrt_tools.models.inputs.sources_job.request import Request
from tftrt_tools.models.inputs.sources_job.row_shapes import row_shapes

DEFAULT_BATCHES = 8


def source(request: Request) -> Callable[[Tally], Iterator[tuple[str, dict[str, npt.NDArray[Any]]]]]:
    """Draws batches at the signature's shape or the first of --shapes, each from a seed of its own."""
    rows = row_shapes(request, "give --shapes='INPUT:8x128'")
    ranges = inputs.parse_ranges(request.options.ranges, "--ranges")
    for name in ranges:
        if name not in rows:
            raise errors.UsageError(f"--ranges: no input {name!r}", "inputs here: " + ", ".join(rows))
    shapes = {name: () if row is None else (request.options.batch_size, *row) for name, row in rows.items()}
    # Every batch gets the scalars of the first batch.
    scalars = {name: shape for name, shape in shapes.items() if not shape}
    return lambda tally: _chunks(request, shapes, scalars, ranges)


def _chunks(
    request: Request,
    shapes: dict[str, tuple[int, ...]],
    scalars: dict[str, tuple[int, ...]],
    ranges: dict[str, tuple[float, float]],
) -> Iterator[tuple[str, dict[str, npt.NDArray[Any]]]]:
    fixed = inputs.random(
        [spec for spec in request.specs if spec.name in scalars], scalars, request.options.seed, ranges
    )
    for number in range(request.options.batches or DEFAULT_BATCHES):
        drawn = inputs.random(request.specs, shapes, request.options.seed + number, ranges)
        yield f"random batch {number}", {**drawn, **fixed}
