"""INT8 simulated with the tables of several calibration methods, to see which harms a signature's outputs least. No GPU, no TensorRT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.models.savedmodel.job import rounding
from tftrt_tools.tftrt.calibration.comparison import Compared
from tftrt_tools.tftrt.calibration.job import kept_back, rounded
from tftrt_tools.tftrt.calibration.job.frozen import Frozen
from tftrt_tools.tftrt.calibration.job.kept_back import Batch
from tftrt_tools.tftrt.calibration.job.noise import Noise, check_repeatable
from tftrt_tools.tftrt.calibration.job.shown import Shown
from tftrt_tools.tftrt.calibration.job.toolkit import Ranges
from tftrt_tools.tftrt.calibration.methods import Method
from tftrt_tools.tftrt.calibration.table import Table

if TYPE_CHECKING:
    import numpy.typing as npt

    from tftrt_tools.tftrt.calibration.job.rounded import Simulated

# Tables of each method, by engine.
Tables = Mapping[Method, Mapping[str, Table]]


def compared(name: str, frozen: Frozen, ranges: Ranges, tables: Sequence[Tables]) -> Compared:
    """Simulate a signature with everything in INT8 that has a range.

    Args: name: of the signature; frozen: graph_pass.Frozen of it. ranges: toolkit.Ranges. tables: for each of ranges.judging.

    Returns: Compared; if nothing can be simulated, it says why.
    """
    rows, apart = (
        sum(kept_back.rows(judging.batches) for judging in ranges.judging),
        all(judging.apart for judging in ranges.judging),
    )
    try:
        levels, nothing = _levels(name, frozen, ranges, tables)
    except (
        errors.TftrtError,
        tf.errors.OpError,
        ValueError,
    ) as error:  # a graph over TensorFlow's 2 GiB is a ValueError
        cause = error.cause if isinstance(error, errors.TftrtError) else errors.first_line(str(error))
        return Compared(signature=name, rows=rows, apart=apart, levels={}, problem=cause)
    return Compared.of(name, rows, apart, levels, nothing)


def _levels(
    name: str, frozen: Frozen, ranges: Ranges, tables: Sequence[Tables]
) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """({method: {output: dB}}, {output that shows nothing: why})."""
    inner = {engine: ranges.inner[engine] for engine in ranges.named}
    found = [
        {
            method: rounded.with_scales(ranges.inlined, inner, ranges.by_tensor(table_of), ranges.left_out(table_of))
            for method, table_of in table.items()
        }
        for table in tables
    ]
    # A tensor with a range in only one half is not rounded in either.
    names = [{site.node for site in next(iter(tables_of.values()))[0]} for tables_of in found]
    sites = [site for site in next(iter(found[0].values()))[0] if all(site.node in nodes for nodes in names)]
    if not sites:
        raise errors.TftrtError("no node would be rounded to INT8")
    simulated = rounded.Simulated(name, frozen, rounding.add_int8(ranges.inlined, sites))
    if not simulated.floats:
        raise errors.TftrtError("it has no float output, and noise is measured on floats")
    noises = {method.text: {output: Noise() for output in simulated.floats} for method in found[0]}
    shown, total, done = Shown(name), sum(len(part.batches) for part in ranges.judging), 0
    for judging, by_method in zip(ranges.judging, found, strict=True):
        vectors = {method.text: simulated.vector(scales) for method, (_, _, scales) in by_method.items()}
        for batch in judging.batches:
            progress.say("simulating INT8 by each method", done, total)
            plain = _judge(simulated, len(sites), vectors, batch, noises, first=not done)
            shown.add(batch, plain, simulated.floats)
            done += 1
    levels = {
        method: {output: noise.level for output, noise in by_output.items()} for method, by_output in noises.items()
    }
    return levels, shown.nothing(levels)


def _judge(
    simulated: Simulated,
    count: int,
    vectors: Mapping[str, npt.NDArray[Any]],
    batch: Batch,
    noises: Mapping[str, Mapping[str, Noise]],
    first: bool,
) -> dict[str, npt.NDArray[Any]]:
    """Add the noise of one batch to `noises`. Args: count: of the nodes; vectors: {method: scales}; first: whether to check that the
    model gives the same answer twice. Returns: the answers with nothing rounded."""
    feed = {key: tf.constant(value) for key, value in batch.items()}
    off, some = np.zeros(count, bool), next(iter(vectors.values()))
    plain = simulated.answers(off, some, feed)
    if first:
        check_repeatable(simulated.floats, plain, simulated.answers(off, some, feed))
    for method, vector in vectors.items():
        answers = simulated.answers(~off, vector, feed)
        for output, noise in noises[method].items():
            noise.add(plain[output], answers[output])
    return plain
