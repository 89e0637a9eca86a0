"""From load's Records to a Row."""

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from tftrt_tools.base.statistics import averages
from tftrt_tools.servers.load import latency_statistics
from tftrt_tools.servers.load.run_record import Records
from tftrt_tools.studies.bench import measurements
from tftrt_tools.studies.bench.goal import Bound, Goal
from tftrt_tools.studies.bench.gpu_watch import Use
from tftrt_tools.studies.bench.points import Point
from tftrt_tools.studies.bench.server_metrics import ServerSide

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)
_MS = 1e6
_INTERVALS = 60
_SHORTEST_NS = 100_000_000


def name(percentile: float) -> str:
    """ "p99" of 99.0."""
    return f"p{percentile:g}"


def row(
    target: str,
    point: Point,
    records: Records,
    rows_of_request: npt.ArrayLike,
    goal: Goal | None = None,
    server: ServerSide | None = None,
    gpus: tuple[Use, ...] = (),
    notes: tuple[str, ...] = (),
    probe: bool = False,
) -> measurements.Row:
    """A measurements.Row.

    Args: records: of a run. rows_of_request: float [payloads], rows of each request. server, gpus, notes, probe: of the Row.
    """
    answered, seconds = int(records.ok.sum()), records.seconds
    if answered and (records.kind == "offline" or not seconds):
        seconds = float(records.done_ns[records.ok].max()) / 1e9
    throughput = records.rate()
    mean_rows = float(np.mean(np.asarray(rows_of_request)[records.payload[records.ok]])) if answered else 0.0
    wanted = sorted({*PERCENTILES, *(goal.percentiles if goal else ())})
    open_loop = records.kind == "open"
    requests = int(records.sent_ns.size)
    return measurements.Row(
        target=target,
        point=point,
        seconds=seconds,
        warmup_seconds=records.warm_up.seconds,
        requests=requests,
        answered=answered,
        errors=tuple(
            measurements.Error(one.name, one.count, " ".join("".join(one.messages[:1]).split()))
            for one in records.errors.values()
        ),
        checked=records.checked,
        wrong=records.wrong,
        throughput=throughput,
        rows_per_second=throughput * mean_rows,
        offered=_offered(point, records) if open_loop and records.length_ns else None,
        sent_rate=_sent_rate(records) if open_loop and requests and records.length_ns else None,
        late=records.late,
        limited=f"limited by the load generator: {records.why}" if records.limited_by_generator else "",
        waits=f"the load generator may have caused the tail: {records.waits}" if records.waits else "",
        response=latency(records.latency_ns, wanted),
        service=latency(records.service_ns, wanted, cdf=False),
        series=series(records),
        goal=judged(records, goal) if goal else (),
        complete=not records.partial,
        unjudged=records.unjudged,
        generators=records.generators,
        server=server,
        gpus=gpus,
        notes=notes,
        probe=probe,
    )


def _offered(point: Point, records: Records) -> float:
    """Requests a second that the schedule asks for. The length of a run that was cut short only says how far it came, so the planned
    rate counts."""
    if records.partial and point.rate:
        return point.rate
    return (records.sent_ns.size + records.unsent) / (records.length_ns / 1e9)


def _sent_rate(records: Records) -> float:
    """Requests sent a second, over the planned length, or until the last one was sent if that took longer."""
    return records.sent_ns.size / (max(records.length_ns, int(records.sent_ns.max())) / 1e9)


def latency(
    times_ns: npt.ArrayLike, percentiles: Iterable[float] = PERCENTILES, cdf: bool = True
) -> measurements.Latency:
    """The measurements.Latency of response times. Args: times_ns: int64 [n]; percentiles: in percent."""
    times_ns = np.asarray(times_ns)
    if not times_ns.size:
        return measurements.Latency(
            count=0,
            mean_ms=None,
            min_ms=None,
            max_ms=None,
            percentiles={name(one): None for one in percentiles},
            needs={name(one): latency_statistics.min_samples(one / 100) for one in percentiles},
        )
    values: dict[str, float | None] = {}
    needs: dict[str, int] = {}
    below: dict[str, float] = {}
    for one in percentiles:
        found = latency_statistics.percentile(times_ns, one / 100)
        values[name(one)] = None if found.value is None else found.value / _MS
        if found.value is None:
            needs[name(one)] = found.needed
        else:
            assert found.upper is not None
            below[name(one)] = found.upper / _MS
    return measurements.Latency(
        count=int(times_ns.size),
        mean_ms=float(times_ns.mean()) / _MS,
        min_ms=int(times_ns.min()) / _MS,
        max_ms=int(times_ns.max()) / _MS,
        percentiles=values,
        needs=needs,
        cdf=curve(times_ns) if cdf else (),
        below=below,
    )


def curve(times_ns: npt.NDArray[np.int64], points: int = 160) -> tuple[tuple[float, float], ...]:
    """((share, milliseconds), …) of the distribution, shares spread evenly in the logarithm of what is left, up to the largest share for
    which there are enough requests (latency_statistics.min_samples)."""
    ordered = np.sort(times_ns)
    count = ordered.size
    # The largest share that n samples allow a percentile for: one in about n / 6.6, see min_samples.
    largest = _largest_share(count)
    if largest <= 0:
        return ()
    left = np.geomspace(1.0, 1 - largest, points)
    ranks = averages.nearest_places(count, 1 - left)
    pairs = {float(1 - share): float(ordered[rank]) / _MS for share, rank in zip(left, ranks, strict=True)}
    return tuple((round(share, 7), round(ms, 6)) for share, ms in pairs.items())


def _largest_share(count: int) -> float:
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        if 0 < middle < 1 and latency_statistics.min_samples(middle) <= count:
            low = middle
        else:
            high = middle
    return low


def series(records: Records) -> measurements.Series:
    """The measurements.Series of a run, at most _INTERVALS intervals, none shorter than a tenth of a second."""
    end = int(records.done_ns.max()) if records.kind == "offline" and records.done_ns.size else records.length_ns
    # A last interval that is not full would look like a drop of the rate.
    count = max(1, min(_INTERVALS, int(end // _SHORTEST_NS)))
    length = max(1, math.ceil(end / count))
    place, earlier = records.done_ns // length, records.earlier_ns // length
    times = records.done_ns - records.scheduled_ns
    answered, failed, p50, highest = [], [], [], []
    for number in range(count):
        inside = place == number
        mine = times[inside & records.ok]
        answered.append(round((mine.size + int((earlier == number).sum())) / length * 1e9, 3))
        failed.append(round(int((inside & ~records.ok).sum()) / length * 1e9, 3))
        p50.append(round(float(np.median(mine)) / _MS, 6) if mine.size else None)
        highest.append(round(int(mine.max()) / _MS, 6) if mine.size else None)
    return measurements.Series(
        seconds=length / 1e9, answered=tuple(answered), failed=tuple(failed), p50_ms=tuple(p50), max_ms=tuple(highest)
    )


def shortfall(checked: measurements.Checked, row: measurements.Row) -> str:
    """The value of a measurements.Checked that was not kept, for people."""
    if checked.value is None:
        # Answers that are too few for the percentile can be enough to show on which side of the bound it lies.
        return (
            f"not kept: too many of {row.requests} requests were slower or failed"
            if checked.kept is False
            else f"not known: {row.answered} requests were answered"
        )
    value = f"{100 * checked.value:.3g} %" if checked.bound.startswith("errors") else f"{1e3 * checked.value:.3f} ms"
    return value if checked.kept is False else f"{value}, which {row.answered} requests do not settle: measure longer"


def _errors_kept(bound: Bound, failed: int, count: int) -> bool | None:
    if not count:
        return None
    if not 0 < bound.limit < 1:
        return bound.kept(failed / count)
    return latency_statistics.decided(failed, count, 1 - bound.limit)


def judged(records: Records, goal: Goal) -> tuple[measurements.Checked, ...]:
    """[measurements.Checked] of a goal.

    A percentile and a share of errors are decided only if latency_statistics.decided says so with its confidence, a mean only if
    latency_statistics.mean_decided does. For a percentile, a request that failed or was never answered is slower than every bound. Mean
    and max count the answers only. max, and errors<=0%, only say what was seen; samples cannot show more of them.
    """
    times = records.latency_ns
    count = int(records.sent_ns.size) + records.unfinished
    failed = count - times.size
    found = []
    for bound in goal.bounds:
        limit = bound.limit * 1e9
        if bound.percentile is not None:
            over = int((times > limit).sum() if bound.inclusive else (times >= limit).sum()) + failed
            share = bound.percentile / 100
            value = latency_statistics.percentile(times, share).value if times.size else None
            decided = latency_statistics.decided(over, count, share)
            found.append(measurements.Checked(bound.text, None if value is None else value / 1e9, decided))
            continue
        if bound.what == "errors":
            found.append(
                measurements.Checked(bound.text, failed / count if count else None, _errors_kept(bound, failed, count))
            )
            continue
        value = float(times.mean() if bound.what == "mean" else times.max()) / 1e9 if times.size else None
        if bound.what == "mean":
            kept = latency_statistics.mean_decided(times, limit)
        else:
            kept = None if value is None else bound.kept(value)
        found.append(measurements.Checked(bound.text, value, kept))
    if all(bound.what != "errors" for bound in goal.bounds):
        found.append(
            measurements.Checked("errors<=0%", failed / count if count else None, not failed if count else None)
        )
    return tuple(found)
