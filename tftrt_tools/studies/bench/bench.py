"""`tftrt bench`: prepares the requests and measures all points on all targets, or stops early with a reason."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tftrt_tools.accuracy import judgement
from tftrt_tools.base import errors
from tftrt_tools.base.files import scratch
from tftrt_tools.base.process import child
from tftrt_tools.base.stack import fingerprint, installed
from tftrt_tools.models.kinds.model import Model
from tftrt_tools.models.savedmodel import passport, shapes
from tftrt_tools.servers.client import Client, TritonClient, protocols
from tftrt_tools.servers.load import limits
from tftrt_tools.studies.bench import (
    alone,
    answers,
    breakdown,
    counted,
    elsewhere,
    gpu_watch,
    live,
    measure,
    measurements,
    points,
    search,
    subject,
    summary,
    targets,
    threads,
    workload,
)
from tftrt_tools.studies.bench.options import Options
from tftrt_tools.studies.bench.targets import Sent, Target
from tftrt_tools.studies.bench.workload import Workload

_VERSIONS = ("grpcio", "numpy", "scipy", "hdrhistogram", "protobuf")


def bench(options: Options, view: live.Lines, files: measure.Files | None = None) -> measurements.Bench:
    """Measure.

    Args: options: options.Options. view: live.Lines. files: what gets the records, or None.
    Returns: measurements.Bench, also after an early end if at least one point was measured: then `ended` says why. Raises: TftrtError,
    UsageError, CheckFailed where nothing could be measured.
    """
    rules = judgement.Rules.of(options)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(scratch.folder("bench"))
        client = targets.client(options) if options.address else None
        if client:
            stack.enter_context(client)
        address = client.address if client else ""
        model = subject.of_server(client, options) if client else None
        flags = ("in_process", "model_dir", "original") if client else ("in_process", "original")
        named = stack.enter_context(
            subject.on_disk({flag: getattr(options, flag) for flag in flags if getattr(options, flag)})
        )
        model = model or subject.of_files(named["in_process"])
        same = [model.same]
        if client:
            subject.check_files(named, options.model_name, model.signatures)
            same = [one.contents.same for one in named.values()]
        signature = workload.choose_signature(model.signatures, options.signature_name)
        takes = subject.takes(signature, model.signatures, same, options.model_dir or options.in_process)
        takes = takes.limited_by(*(one.inputs for one in named.values()))
        specs = takes.specs[signature]
        loads = workload.workloads(takes, options.batch_sizes, options.asked, options.distinct)
        traced = named.get("in_process") or named.get("model_dir") if options.breakdown else None
        if traced:
            alone.check(traced)
        digests = subject.digests(options.model_dir or options.in_process)
        counters = _counters(client, options)
        if counters:
            counters.read()  # a wrong address is an error before any work
        if options.search:
            view.note(f"note: {measure.of_probes(options)}")
        if too_many := threads.note(address, max((one.concurrency or 0 for one in options.points), default=0)):
            view.note(f"note: {too_many}")
        for point in options.points:
            short = measure.too_short(options, point)
            if short:
                view.note(f"note: {short}")
        watch = stack.enter_context(gpu_watch.watching(targets.gpus_are_here(address)))
        known = None
        if options.original:
            known = answers.Original(
                named["original"], None if client else named["in_process"], signature, options.timeout
            )
        for note in known.notes if known else ():
            view.note(f"note: {note}")
        versions = _Versions(client, options, model.version) if client else None
        run = _Run(options, view, files, watch, rules, known, versions, counters)
        if traced:
            run.alone_of(traced, targets.gpus_are_here(address), folder)
        generators = stack.enter_context(elsewhere.opened(options.on, options.generators, options.processes, address))
        shared = (*elsewhere.beside(generators), *_without_engines(named.get("in_process")))
        for line in shared:
            view.note(f"note: {line}")
        opened = targets.of_options(options, client, signature, folder, named.get("in_process"), generators)
        ended = run.everything(opened, loads)
    asked = measurements.Subject(
        address=client.protocol.scheme + address if client else "",
        model_name=options.model_name,
        model_version=model.version,
        model_dir=str(options.model_dir or options.in_process),
        model_digest=digests[0],
        manifest_digest=digests[1],
        signature=signature,
        inputs={spec.name: spec.text() for spec in specs},
        values="; ".join(dict.fromkeys(load.source for load in loads)),
        requests=sum(len(load.calls) for load in loads),
        request_bytes=run.mean_bytes,
        shapes=tuple(dict.fromkeys(shapes.call_text(call.shapes) for load in loads for call in load.calls)),
        compared=_compared(options, run),
    )
    return measurements.Bench(
        subject=asked,
        settings=options.given,
        versions=_versions(),
        fingerprint=fingerprint.fingerprint(),
        stamp=passport.stamp(),
        rows=_acquitted(run.rows),
        goal=options.goal.text if options.goal else "",
        searched=tuple(run.searched),
        prices=tuple(_prices(run.rows)),
        breakdowns=run.breakdowns(),
        notes=shared,
        problems=tuple(_problems(options, run)),
        ended=ended,
        refused=bool(run.refused),
    )


def _without_engines(model: Model | None) -> list[str]:
    """A note where no engine of the model in process can run."""
    if model is None or not model.contents.engines or fingerprint.gpu_here():
        return []
    return [
        f"there is no GPU here, so the engine ops of {model.title} ran as TensorFlow ops: in process, this says nothing about engines"
    ]


def _counters(client: Client | TritonClient | None, options: Options) -> counted.Counters[Any] | None:
    """The counters of the server that is asked, None where they are not read."""
    if isinstance(client, TritonClient):
        return counted.Triton(client, options.model_name, options.model_version)
    return counted.Page(options.metrics_url, options.model_name) if options.metrics_url else None


class _Run:
    """Gathers the rows."""

    def __init__(
        self,
        options: Options,
        view: live.Lines,
        files: measure.Files | None,
        watch: gpu_watch.AnyWatch,
        rules: judgement.Rules,
        original: answers.Original | None,
        versions: "_Versions | None" = None,
        counters: counted.Counters[Any] | None = None,
    ) -> None:
        """Args: original: answers.Original, or None. versions: of the server, None without one. counters: the server's, or None."""
        self._versions = versions
        self._protocol = protocols.of(options.address)
        self._options, self._view, self._rules, self._original = options, view, rules, original
        self._measure = measure.Measure(options, view, watch, files, counters)
        self.rows: list[measurements.Row] = []
        self.searched: list[measurements.Searched] = []
        self._bytes: dict[int | None, tuple[int, int]] = {}
        self.refused, self.unanswered = "", 0
        self._alone_of: Callable[[targets.Server, Workload, Sent], breakdown.Alone] | None = None
        self._alone: dict[int | None, breakdown.Alone] = {}

    def _read(self, answer: bytes) -> dict[str, Any]:
        """{output: ndarray} of an answer; the version that it names is noted. Raises: ValueError."""
        asked, arrays = self._protocol.response_arrays(answer)
        if self._versions:
            self._versions.seen.add(asked.version)
        return arrays

    def alone_of(self, model: Model, here: bool, folder: str) -> None:
        """From now on also measure what a breakdown needs besides the rows. Args: as alone.measure."""

        def measured(server: targets.Server, load: Workload, sent: Sent) -> breakdown.Alone:
            self._view.note("note: measuring the parts of a request, and the model in process")
            return alone.measure(server, load, sent, model, here, pathlib.Path(folder) / f"traced-{len(self._alone)}")

        self._alone_of = measured

    def breakdowns(self) -> tuple[breakdown.Breakdown, ...]:
        """Of the server's rows that can be taken apart."""
        found = (
            breakdown.of_row(row, self._alone[row.point.batch_size])
            for row in self.rows
            if row.point.batch_size in self._alone
        )
        return tuple(one for one in found if one)

    def everything(self, opened: Sequence[Target], loads: Sequence[Workload]) -> str:
        """Measure all points on all targets. Returns: "" or the reason of an early end. Raises: as `bench` where there is no row yet."""
        total = None if self._options.search else len(self._options.points) * len(opened)
        try:
            for load in loads:
                originals = self._original.answers(load.calls) if self._original else None
                for target in opened:
                    self._of_target(target, load, originals, total)
            return self._gone(opened)
        except (KeyboardInterrupt, _Cut, errors.TftrtError, child.ChildBug) as error:
            if not self.rows or isinstance(error, child.ChildBug):
                raise
            if isinstance(error, errors.CheckFailed):
                self.refused = error.cause
            return measure.INTERRUPTED if isinstance(error, KeyboardInterrupt) else str(error)

    def _gone(self, opened: Sequence[Target]) -> str:
        """ "" or a message that the server, or its model, was gone or hung in the last row; after another row the next one finds out."""
        server = next((one for one in opened if isinstance(one, targets.Server)), None)
        if not server or not self._measure.silent_seconds:
            return ""
        silent, backlog = (
            f"the server answered no more for the last {self._measure.silent_seconds:.1f} s",
            self._measure.backlog_seconds,
        )
        if (seconds := server.patience(backlog)) > self._options.timeout:
            self._view.note(
                f"note: {silent}; one more request may take {seconds:g} s, three times the work that it may have left"
            )
        why, busy = server.silence(backlog)
        text = why and f"{silent}: {why}"
        if text and busy:
            self._view.note(
                f"note: {text}; it still tells its model's state: it has too much to do, or the model hangs"
            )
            return ""
        return text

    def _of_target(
        self, target: Target, load: Workload, originals: Mapping[int, answers.Answer] | None, total: int | None
    ) -> None:
        sent = target.prepare(load, lambda first: self._judge(load, first, originals))
        # The size for the first target: on the wire if there is a server.
        self._bytes.setdefault(load.batch_size, (len(load.calls), sent.mean_bytes))
        if self._options.search:
            self._search(target, load, sent)
        for point in self._options.points:
            if point.batch_size == load.batch_size:
                self._add(target, sent, point, total)
        if self._alone_of and isinstance(target, targets.Server):
            self._alone[load.batch_size] = self._alone_of(target, load, sent)

    @property
    def mean_bytes(self) -> int:
        """Of a request, over all batch sizes."""
        count = sum(number for number, _ in self._bytes.values())
        return round(sum(number * size for number, size in self._bytes.values()) / count) if count else 0

    def _judge(
        self, load: Workload, first: Mapping[int, answers.Answer], originals: Mapping[int, answers.Answer] | None
    ) -> answers.Judge | None:
        """The answers.Judge of later answers, or None. Raises: CheckFailed where the first ones are wrong."""
        self.unanswered = max(self.unanswered, len(load.calls) - len(first))
        own = bool(self._options.data)
        if originals is not None:
            judge = answers.Judge(load.calls, originals, self._rules, own, self._read)
            answers.check_first(judge, first)
            return judge
        if self._options.expected == "none":
            return None
        return answers.Judge(load.calls, first, self._rules, own, self._read)

    def _add(
        self, target: Target, sent: Sent, point: points.Point, total: int | None = None, probe: bool = False
    ) -> measurements.Row:
        self._view.begin(len(self.rows) + 1, total, f"{target.name}: {point.text()}")
        row = self._measure.point(target, sent, point, probe)
        changed = self._versions.changed() if self._versions and target.name == measurements.SERVER else ""
        if changed:
            row = dataclasses.replace(row, notes=(*row.notes, changed))
        self.rows.append(row)
        self._view.done(row)
        if self._measure.interrupted:
            raise _Cut(measure.INTERRUPTED)
        return row

    def _search(self, target: Target, load: Workload, sent: Sent) -> None:
        options = self._options
        start = options.lowest_rate or self._first_rate(target, sent, load)

        def probe(rate: float) -> str:
            point = points.Point(
                scenario=points.OPEN, rate=rate, distribution=options.distribution, batch_size=load.batch_size
            )
            row = self._add(target, sent, point, probe=True)
            if row.kept:
                return search.KEPT
            if not row.complete and row.kept is None:
                return search.UNDECIDED
            if row.refused:
                return search.REFUSED
            return (
                search.UNOFFERED
                if row.limited or row.waits
                else search.UNDECIDED
                if row.kept is None
                else search.MISSED
            )

        found = search.highest(probe, start, options.lowest_rate, options.highest_rate, options.resolution)
        self.searched.append(
            measurements.Searched(
                target=target.name,
                batch_size=load.batch_size,
                rate=found.rate,
                above=found.above,
                resolution=options.resolution,
                ended=found.ended,
            )
        )

    def _first_rate(self, target: Target, sent: Sent, load: Workload) -> float:
        """Half of the rate that single requests in a row reach: a server that can keep the goal at all usually keeps it at this rate.
        Several generators have one under way each, which is that many times the rate at most."""
        count = self._options.generators
        row = self._add(
            target,
            sent,
            points.Point(scenario=points.CLOSED, concurrency=count, batch_size=load.batch_size),
            probe=True,
        )
        if not row.throughput:
            raise _Cut("no request was answered")
        return row.throughput / 2 / count


class _Versions:
    """Which version answers, asked after each row: a label may move, and a newer version may be loaded, while the load runs. A sample of
    the answers tells of one that answered only for a while.

    Args: version: the one that answered at first. Attributes: seen: versions that answers of the row named."""

    def __init__(self, client: Client | TritonClient, options: Options, version: int | None) -> None:
        self._client, self._options, self._version = client, options, version
        self.seen: set[int | None] = set()

    def changed(self) -> str:
        """A line that says that another version answers than at the last call, or ""."""
        options, before = self._options, self._version
        seen, self.seen = self.seen, set()
        if options.model_version is not None:
            return ""
        try:
            self._version = self._client.metadata(options.model_name, None, options.version_label).model.version
        except errors.TftrtError:
            # The row's own failures say that the server is gone.
            return ""
        label = f"label {options.version_label!r}" if options.version_label else "the model"
        if self._version == before:
            others = ", ".join(map(str, sorted(one for one in seen if one not in (None, before))))
            return (
                others
                and f"{label} changed its version for a while during this row: {before} answers before and now, {others} did too"
            )
        return f"{label} changed its version during this row: {before} answered before, {self._version} answers now"


def _acquitted(rows: Sequence[measurements.Row]) -> tuple[measurements.Row, ...]:
    """The rows. The load generator was not the limit of one if another row with more requests under way was faster, or if its rate grew
    as the requests under way did."""
    found = []
    for row in rows:
        others = (
            [
                (one.point.concurrency or 1, one.throughput)
                for one in rows
                if one.point.scenario == points.CLOSED == row.point.scenario
                and (one.target, one.point.batch_size) == (row.target, row.point.batch_size)
            ]
            if row.limited
            else ()
        )
        more = limits.acquitted(row.throughput, row.point.concurrency, others)
        if more:
            why = row.limited.partition(": ")[2].rpartition(": ")[0]
            text = (
                f"part of each round trip is the load generator's own time ({why}), and not the limit: {more[0]} requests under way "
                f"get {more[1] / row.throughput:.1f} times as many answers a second"
            )
            row = dataclasses.replace(row, limited="", waits="; ".join(filter(None, (text, row.waits))))
        elif limits.kept_pace(row.throughput, row.point.concurrency, others):
            row = dataclasses.replace(row, limited="")
        found.append(row)
    return tuple(found)


class _Cut(Exception):
    """The benchmark ends here; what was measured stays. The text says why."""


def _compared(options: Options, run: _Run) -> str:
    """What the answers were really compared with, in words."""
    parts = [_first_compared(options, run)] if options.original else []
    if options.address:
        parts.append(_later_compared(options, run))
    inside = "later ones not compared" if options.original else "not compared"
    if options.in_process and not options.address:
        parts.append(inside)
    return "; ".join(parts) + (f" (in process: {inside})" if options.in_process and options.address else "")


def _first_compared(options: Options, run: _Run) -> str:
    if run.refused:
        return f"not all first answers are like those of {options.original}"
    unanswered = f", except for {run.unanswered} requests without an answer" if run.unanswered else ""
    return f"the first answers are like those of {options.original}{unanswered}"


def _later_compared(options: Options, run: _Run) -> str:
    if not options.original and options.expected == "none":
        return "not compared"
    unanswered = (
        f", except for {run.unanswered} requests without a first answer"
        if run.unanswered and not options.original
        else ""
    )
    unjudged = sum(row.unjudged for row in run.rows)
    later = (
        "a sample of the later ones was compared with the first"
        if options.original
        else "a sample was compared with the first answer to the same request"
    )
    return later + unanswered + (f", except for {unjudged} with other bytes that nobody judged" if unjudged else "")


def _prices(rows: Sequence[measurements.Row]) -> Iterator[measurements.Price]:
    """What serving costs, at each point that was measured on both targets."""
    inside = {row.point: row for row in rows if row.target == measurements.IN_PROCESS and not row.probe}
    for row in rows:
        other = inside.get(row.point)
        if row.target == measurements.SERVER and other and not row.probe:
            yield measurements.Price(
                point=row.point,
                server_ms=row.response.percentiles["p50"],
                in_process_ms=other.response.percentiles["p50"],
                server_throughput=row.throughput,
                in_process_throughput=other.throughput,
            )


def _problems(options: Options, run: _Run) -> Iterator[str]:
    """The reasons why the check fails, a line each."""
    if run.refused:
        yield run.refused
    for row in run.rows:
        where = f"{row.target}, {row.point.text()}"
        if row.wrong:
            more = f", and {row.unjudged} more were not judged" if row.unjudged else ""
            yield f"{where}: {row.wrong} of {row.checked} compared answers are wrong{more}"
        if row.refused and not row.probe:
            yield (
                f"{where}: the server refused {row.refused} of {row.requests} requests: no gRPC thread left; start it with "
                "--grpc_max_threads=256, or have fewer under way"
            )
        if options.breakdown and row.target == measurements.SERVER and (why := breakdown.missing(row)):
            yield f"{where}: its time is not taken apart: {why}"
        if options.require_no_errors and row.failed:
            yield f"{where}: {row.failed} of {row.requests} requests failed"
        if options.goal and not row.probe and not options.search and row.kept is not True:
            for one in row.goal:
                if one.kept is not True:
                    yield f"{where}: {one.bound} is {summary.shortfall(one, row)}"
    for searched in run.searched:
        if searched.rate is None and options.goal:
            batch = f" at batch {searched.batch_size}" if searched.batch_size else ""
            yield f"{searched.target}{batch}: no rate was shown to keep {options.goal.text}: {searched.ended}"


def _versions() -> dict[str, str]:
    tensorflow = installed.tensorflow()
    found = {name: installed.version_of(name) for name in _VERSIONS}
    return {
        name: version
        for name, version in {**found, "tensorflow": tensorflow.version if tensorflow else None}.items()
        if version
    }
