"""Measures one point: plans its load, watches the server's counters and the GPUs meanwhile, and makes the row."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.servers.load import generator, latency_statistics, load_plan, schedule
from tftrt_tools.servers.load.run_record import Records
from tftrt_tools.servers.load.several import clocks
from tftrt_tools.studies.bench import counted, gpu_watch, live, measurements, points, search, server_metrics, summary
from tftrt_tools.studies.bench.options import Options
from tftrt_tools.studies.bench.targets import Sent, Target

INTERRUPTED = generator.INTERRUPTED
_CHECK_EVERY = 16
# A row says that the server does not keep up if the backlog grows as if it answered less than this share of the offered requests.
_KEPT_UP = 0.95
# A probe of a search sends this many times the least number of requests that its percentile needs; fewer seldom decide it.
_PROBE_REQUESTS = 2
# A row has a note if fewer requests were under way than this share of the requested concurrency.
_REACHED = 0.9
_WINDOW_SECONDS = 0.5
_LIVE_SAMPLES = 1000


class Files(Protocol):
    """What keeps the records of all points."""

    def add(self, target: str, point: points.Point, records: Records) -> None:
        """The measured requests of one point."""


class Measure:
    """Args: watch: of gpu_watch.watching. files: what gets the records, or None. counters: of the server, None where they are not
    read."""

    def __init__(
        self,
        options: Options,
        view: live.Lines,
        watch: gpu_watch.AnyWatch,
        files: Files | None,
        counters: counted.Counters[Any] | None = None,
    ) -> None:
        self._options, self._view, self._watch, self._files, self._counters = options, view, watch, files, counters
        self.interrupted = False
        self.silent_seconds = 0.0  # of the server's last row: run_record.Records.silent_ns
        # Seconds of work that the server may have left, at the pace of its rows: of all requests that it did not answer in time.
        self.backlog_seconds = self._pace = 0.0
        self._scheduled = schedule.read(options.schedule_file) if options.schedule_file else None

    def point(self, target: Target, sent: Sent, point: points.Point, probe: bool = False) -> measurements.Row:
        """Measure. Args: target: of targets. sent: targets.Sent. point: points.Point. Returns: measurements.Row. Raises: TftrtError."""
        plan = self._plan(point, probe)
        counters = self._counters if target.name == measurements.SERVER else None
        meanwhile = _Meanwhile(self._view, self._watch, counters, _seconds(plan))
        records = target.run(sent, plan, meanwhile.progress)
        self.interrupted = records.partial == INTERRUPTED
        if target.name == measurements.SERVER:
            self.silent_seconds = records.silent_ns / 1e9
            self._pace = records.pace or self._pace
            self.backlog_seconds += records.unanswered / self._pace if self._pace else 0.0
        server, notes = meanwhile.server()
        if self._files:
            self._files.add(target.name, point, records)
        row = summary.row(
            target.name,
            point,
            records,
            sent.rows,
            self._options.goal,
            server=server,
            gpus=tuple(self._watch.uses(meanwhile.since)),
            probe=probe,
        )
        return dataclasses.replace(row, notes=tuple([*notes, *_notes(row, records)]))

    def _plan(self, point: points.Point, probe: bool) -> load_plan.Plan:
        options = self._options
        rule = (
            load_plan.WarmUpRule(
                window_s=min(_WINDOW_SECONDS, options.warmup_seconds / 4), at_most_s=options.warmup_seconds
            )
            if options.warmup_seconds
            else None
        )
        shared: dict[str, Any] = {"warm_up": rule, "check_every": _CHECK_EVERY, "min_queries": options.min_queries}
        if point.scenario == points.OPEN:
            offsets = self._offsets(point, probe)
            return load_plan.Plan(
                kind="open",
                schedule=offsets,
                processes=options.processes or processes_for(math.inf),
                **{**shared, "min_queries": min(options.min_queries, len(offsets))},
            )
        processes = options.processes or processes_for(point.concurrency or 1)
        kind: load_plan.Kind = "offline" if point.scenario == points.OFFLINE else "closed"
        exactly: dict[str, Any] = (
            {"max_queries": options.min_queries} if point.scenario == points.OFFLINE and options.min_queries else {}
        )
        return load_plan.Plan(
            kind=kind,
            concurrency=point.concurrency or 1,
            seconds=options.seconds,
            processes=processes,
            **shared,
            **exactly,
        )

    def _offsets(self, point: points.Point, probe: bool) -> Any:
        if self._scheduled is not None:
            return self._scheduled
        assert point.rate is not None
        seconds = length(self._options, point.rate, probe)
        if point.distribution == "poisson":
            return schedule.poisson(point.rate, seconds, self._options.seed)
        return schedule.constant(point.rate, seconds)


class _Meanwhile:
    """What runs beside the load: the view, the server's counters, the instant from which the GPUs' samples count."""

    def __init__(
        self, view: live.Lines, watch: gpu_watch.AnyWatch, counters: counted.Counters[Any] | None, seconds: float | None
    ) -> None:
        self._view, self._watch, self._counters, self._seconds = view, watch, counters, seconds
        self._before: Any = None
        self._recent: list[tuple[float, npt.NDArray[np.int64]]] = []
        self._answered, self._phase = 0, ""
        self._problem = ""
        self.since = watch.now

    def progress(self, moment: load_plan.Progress) -> None:
        """For generator.run."""
        if moment.phase == "start":
            # The server's work for this request is not in the difference.
            self._before = self._fetched()
            self.since = self._watch.now
            return
        if moment.phase != self._phase:
            self._phase, self._recent, self._answered = moment.phase, [], 0
        self._answered += moment.latency_ns.size
        self._keep(moment)
        self._view.moment(live.Moment.of(moment, self._seconds, self._answered, self._recent))

    def _keep(self, moment: load_plan.Progress) -> None:
        """Keep the answers of the last second, and as many before it as a p99 needs."""
        self._recent.append((moment.seconds, moment.latency_ns))
        kept = sum(times.size for _, times in self._recent)
        while moment.seconds - self._recent[0][0] >= 1 and kept - self._recent[0][1].size >= _LIVE_SAMPLES:
            kept -= self._recent.pop(0)[1].size

    def server(self) -> tuple[server_metrics.ServerSide | None, list[str]]:
        """(server_metrics.ServerSide or None, [what could not be read])."""
        if not self._counters:
            return None, []
        after = self._fetched()
        if self._problem or self._before is None or after is None:
            return None, [f"the server's counters: {self._problem or 'not read'}"]
        return self._counters.between(self._before, after), []

    def _fetched(self) -> Any:
        if not self._counters:
            return None
        try:
            return self._counters.read()
        except errors.TftrtError as error:
            self._problem = error.cause
            return None


def length(options: Options, rate: float, probe: bool = False) -> float:
    """Seconds of an open-loop row. A probe of a search lasts longer if its percentiles would have too few requests."""
    return max(options.seconds, _least_requests(options, probe) / rate)


def _least_requests(options: Options, probe: bool) -> int:
    """The least number of requests in an open-loop row."""
    shares = options.goal.shares.values() if probe and options.goal else ()
    return max([options.min_queries, *(_PROBE_REQUESTS * latency_statistics.min_samples(share) for share in shares)])


def of_probes(options: Options) -> str:
    """How long a search may take, a line for people."""
    needed = _least_requests(options, True)
    longer = f", or until {needed} requests were sent" if needed else ""
    return (
        f"each probe of the search lasts {options.seconds:g} s{longer}, and its warm-up {options.warmup_seconds:g} s at most; "
        f"there may be {search.MOST_PROBES} of them"
    )


def too_short(options: Options, point: points.Point) -> str:
    """A line that says what a row will be too short for, as far as that is known beforehand, or "". Args: point: always "" unless it is
    of the open loop."""
    if point.rate is None:
        return ""
    wanted, share = max(
        (options.goal.shares if options.goal else {}).items(), key=lambda one: one[1], default=("p99", 0.99)
    )
    seconds, needed = length(options, point.rate), latency_statistics.min_samples(share)
    expected = round(point.rate * seconds)
    if expected >= needed:
        return ""
    return (
        f"{point.rate:g}/s for {seconds:g} s are {expected} requests, and {wanted} needs {needed}: "
        f"--duration_seconds={math.ceil(needed / point.rate)} has them"
    )


def processes_for(concurrency: float) -> int:
    """Half of the cores, because the server may need the other half; no more than the load needs."""
    return max(1, int(min(concurrency, len(os.sched_getaffinity(0)) // 2)))


def _seconds(plan: load_plan.Plan) -> float | None:
    if plan.kind == "open" and plan.schedule is not None:
        return float(plan.schedule[-1]) / 1e9 or None
    return plan.seconds if not plan.max_queries else None


def _notes(row: measurements.Row, records: Records) -> Iterator[str]:
    if row.point.scenario == points.OFFLINE and row.answered:
        known = ", ".join(
            f"{name} {ms:.3f} ms" for name in ("p50", "p99") if (ms := row.service.percentiles.get(name)) is not None
        )
        yield "times count from the start, when all requests were due" + (
            known and f"; from sending to answer: {known}"
        )
    if records.partial and records.partial != INTERRUPTED:
        yield f"not complete: {records.partial}"
    if row.offered is not None and row.sent_rate is not None:
        if records.held or row.sent_rate < _KEPT_UP * row.offered:
            held = f", {records.held} requests waited because too many were under way" if records.held else ""
            yield f"{row.offered:.1f}/s should have been sent, and {row.sent_rate:.1f}/s were sent{held}"
        if records.falling_behind > 1 / _KEPT_UP - 1 and row.throughput:
            yield f"the server answered {row.throughput:.1f}/s of {row.offered:.1f}/s, and the backlog grew"
    reached = records.under_way + records.unfinished
    if row.point.concurrency and not records.partial and reached < _REACHED * row.point.concurrency:
        yield f"no more than {reached} requests were under way at once: the concurrency was not reached"
    if records.unsent and not records.partial:
        yield f"{records.unsent} requests were never sent"
    if records.unfinished:
        yield f"{records.unfinished} requests were given up without an answer"
    if row.refused:
        yield (
            f"the server refused {row.refused} of {row.requests} requests because it had no gRPC thread left: start it with a larger "
            "--grpc_max_threads (by default 4 for each core, and it refuses some calls when three quarters are busy), or have fewer "
            "under way"
        )
    if records.unjudged:
        yield (
            f"{records.unjudged} answers had other bytes than the first ones, and nobody judged whether they are right: beside the load "
            "only some are judged"
        )
    for one in records.wrong_answers[:1]:
        yield f"a wrong answer to request {one.payload}, after {one.sent_ns / 1e9:.2f} s: {one.why}"
    if records.generators and (
        line := clocks.apart(row.offered, max(round(1e6 * one.clock_uncertainty_ms) for one in records.generators))
    ):
        yield line
    if records.warm_up.stable is False:
        yield f"it did not settle within {records.warm_up.seconds:.1f} s of warm-up"
