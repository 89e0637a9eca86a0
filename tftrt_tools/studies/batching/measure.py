"""Measures one trial: starts its server and searches the highest rate that keeps the promise there."""

import dataclasses
import time
from collections.abc import Iterator

from tftrt_tools.base import errors
from tftrt_tools.servers.serving.configuration.batching_file import Settings
from tftrt_tools.studies.batching import server
from tftrt_tools.studies.batching.options import Options
from tftrt_tools.studies.batching.trial import Trial
from tftrt_tools.studies.bench import bench, live, measure, measurements, summary


def trial(options: Options, view: live.Lines, number: int, settings: Settings | None, floor: float | None) -> Trial:
    """Measure a Trial.

    Args: number, settings, floor: as in Trial. Returns: Trial; one whose server does not start, or answers wrongly, has a failure.
    Raises: KeyboardInterrupt; without batching, TftrtError where nothing could be measured.
    """
    begun = time.monotonic()
    blank = Trial(number=number, settings=settings, floor=floor)
    try:
        with server.started(options, settings) as running:
            load = dataclasses.replace(
                options.load, address=running.address, lowest_rate=floor or options.load.lowest_rate
            )
            for last in (False, True):
                done = bench.bench(load, view)
                if done.ended == measure.INTERRUPTED:
                    raise errors.Interrupted
                trial_result = _made(blank, done, summary.name(options.bound.percentile or 0.0), running.problem())
                # Where the load generator was the limit, a missed floor says little about the server: it gets a second chance.
                if (
                    last
                    or floor is None
                    or trial_result.rate is not None
                    or trial_result.failure
                    or not trial_result.limited
                ):
                    break
                view.note(f"trial {number}: once more, because {trial_result.limited}")
    except errors.TftrtError as error:
        if settings is None:
            raise
        trial_result = dataclasses.replace(blank, failure=error.cause)
    if settings is None and trial_result.failure:
        raise errors.TftrtError(
            f"without batching: {trial_result.failure}", "fix the requests (--shapes, --data) or the model"
        )
    return dataclasses.replace(trial_result, seconds=time.monotonic() - begun)


def _made(blank: Trial, done: measurements.Bench, percentile: str, problem: errors.TftrtError | None) -> Trial:
    """The Trial of a benchmark. Args: percentile: name of the promised one. problem: why the server ended, or None."""
    failure = next(_failures(done, problem), "")
    if failure or not done.searched:
        return dataclasses.replace(blank, failure=failure or "nothing was measured")
    (search_result,) = done.searched
    probes = [row for row in done.rows if row.probe and row.offered is not None]
    times = [(row.response.percentiles[percentile], row) for row in probes]
    there = next((ms for ms, row in times if row.kept and row.point.rate == search_result.rate), None)
    seen = [(ms, row) for ms, row in times if ms is not None]
    nearest = min(seen, key=lambda pair: pair[0], default=None) if search_result.rate is None else None
    limited = next((row.limited or row.waits for row in probes if row.point.rate == search_result.above), "")
    return dataclasses.replace(
        blank,
        rate=search_result.rate,
        above=search_result.above,
        ms=there,
        ended=search_result.ended,
        limited=limited,
        nearest_ms=nearest[0] if nearest else None,
        nearest_rate=nearest[1].point.rate if nearest else None,
    )


def _failures(done: measurements.Bench, problem: errors.TftrtError | None) -> Iterator[str]:
    """Why a benchmark gives no figure, a line each."""
    if problem:
        yield problem.cause
    if done.ended:
        yield done.ended
    for row in done.rows:
        if row.wrong:
            yield f"{row.wrong} of {row.checked} compared answers are wrong ({row.point.text()})"
