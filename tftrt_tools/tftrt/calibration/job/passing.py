"""The one pass over calibration data, whatever counts the values: which batches judge the methods, and the scales by each. No TensorFlow
here."""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Iterable, Mapping, Sequence

from tftrt_tools.base.process import progress
from tftrt_tools.tftrt.calibration.job import scales
from tftrt_tools.tftrt.calibration.job.counted import Counted
from tftrt_tools.tftrt.calibration.job.histogram import Histogram
from tftrt_tools.tftrt.calibration.job.kept_back import Batch, KeptBack
from tftrt_tools.tftrt.calibration.methods import Method


@dataclasses.dataclass(frozen=True)
class Judging:
    """The data that judges the methods. batches: of the calibration data; apart: whether the scales come only from other batches;
    scales: {Method: {id of a Histogram: its scale, or None}}."""

    batches: Sequence[Batch]
    apart: bool
    scales: Mapping[Method, Mapping[int, float | None]]


def passed(collector: Counted, batches: Iterable[Batch], methods: Sequence[Method] = ()) -> tuple[Judging, ...]:
    """Make the pass over the data. Args: as of toolkit.measure. Returns: what judges the methods, () without methods."""
    kept, total, count = KeptBack(), operator.length_hint(batches) or None, itertools.count(1)
    for number, batch in enumerate(batches, 1):
        for part in kept.sorted_out(number, batch) if methods else [batch]:
            collector.add(part, next(count), total)
            last = part
    progress.say("computing scales")
    judging = _judging(collector, kept, methods) if kept.batches else ()
    for batch in kept.batches:
        collector.add(batch, next(count), total)
    if methods and not kept.batches:
        judging = (Judging([last], False, _by_method(collector, methods)),)
    return judging


def _judging(collector: Counted, kept: KeptBack, methods: Sequence[Method]) -> tuple[Judging, ...]:
    """Judgings on the kept batches, with scales of the batches counted so far; and the other way round if the other half was kept too."""
    first = Judging(kept.batches, True, _by_method(collector, methods))
    if not kept.others:
        return (first,)
    with collector.set_aside():
        for number, batch in enumerate(kept.batches, 1):
            collector.add(batch, number, len(kept.batches))
        return first, Judging(kept.others, True, _by_method(collector, methods))


def _by_method(collector: Counted, methods: Iterable[Method]) -> dict[Method, dict[int, float | None]]:
    return {method: scales_of(collector.histograms, method) for method in methods}


def scales_of(histograms: Mapping[str, Histogram], method: Method) -> dict[int, float | None]:
    """{id of a histogram: its scale}: tensors may share a histogram."""
    return {
        key: scales.scale(histogram, method.name, method.percentile)
        for key, histogram in {id(histogram): histogram for histogram in histograms.values()}.items()
    }
