"""What the flags of `tftrt bench` ask for, checked before anything is sent."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tftrt_tools.base import errors
from tftrt_tools.fleet.place import Place
from tftrt_tools.models.inputs import calls as inputs
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.kinds import opening
from tftrt_tools.models.sources.source import Source
from tftrt_tools.servers.client import Tls, protocols
from tftrt_tools.studies.bench import elsewhere, points, server_metrics
from tftrt_tools.studies.bench import goal as goals

if TYPE_CHECKING:
    from absl.flags import FlagValues


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """The model to measure, the load, and the checks."""

    # HOST:PORT, "" without a server.
    address: str
    # The model on the server; its version and label, None and "" for the one that answers.
    model_name: str
    model_version: int | None
    version_label: str
    # "" for the model's default.
    signature_name: str
    # The inputs: texts of the flags, how files of the data are read, and how many rows of them, 0 for all.
    shapes: str
    data: str
    reading: DataOptions
    data_rows: int
    ranges: str
    # The seed of drawn values.
    seed: int
    # How many different requests.
    distinct: int
    # Rows of a request, () to take them from the inputs.
    batch_sizes: tuple[int, ...]
    # The sweep's, () for a search.
    points: tuple[points.Point, ...]
    # The instants of an open loop: "constant" or "poisson"; and a file that has them, or "".
    distribution: str
    schedule_file: str
    # Seconds to measure a point, and its least number of requests.
    seconds: float
    min_queries: int
    # Seconds of the warm-up, at most.
    warmup_seconds: float
    # The goal of the service, or None.
    goal: goals.Goal | None
    # Whether to search the highest rate that keeps the goal; the lowest and highest requests a second to try, None where not given; and
    # the resolution, a share of the rate.
    search: bool
    lowest_rate: float | None
    highest_rate: float | None
    resolution: float
    # What later answers are compared with: "first" answers or "none".
    expected: str
    # The model whose answers the first answers are compared with, or "".
    original: Source | str
    # How answers are judged: texts of the flags.
    thresholds: str
    allow_constant_outputs: bool
    output_kind: tuple[str, ...]
    # The model to measure without a server, or "".
    in_process: Source | str
    # The server's Prometheus page, "" for none.
    metrics_url: str
    # Files of the served model, "" where they are not known.
    model_dir: str
    # Whether to take a request's time apart.
    breakdown: bool
    # Seconds for one request.
    timeout: float
    tls: Tls | None
    # Connections, and load processes: 0 to choose.
    channels: int
    processes: int
    # Where the load comes from, None for this machine alone; and how many generators send it there.
    on: Place | None
    generators: int
    # Whether a failed request fails the check.
    require_no_errors: bool
    # {flag: value} of what was set, for the report.
    given: Mapping[str, Any]

    @property
    def asked(self) -> inputs.Asked:
        """What the user says of the inputs."""
        return inputs.Asked(
            data=self.data,
            reading=self.reading,
            data_rows=self.data_rows,
            shapes=self.shapes,
            ranges=self.ranges,
            seed=self.seed,
        )


def from_flags(
    address: str,
    values: FlagValues,
    models: Mapping[str, Source | str],
    tls: Tls | None = None,
    reading: DataOptions | None = None,
    on: Place | None = None,
) -> Options:
    """Options of parsed flags.

    Args: values: of commands/bench.py. models: {"original", "in_process": "" for none}. reading: how files of --data are read; None for
      the defaults. on: what --on says.
    Raises: UsageError.
    """
    goal = goals.parse(values.slo)
    batch_sizes = points.integers("batch_size", values.batch_size)
    rates = points.rates("rate", values.rate)
    search = goal is not None and values.scenario == points.OPEN and not rates and not values.schedule_file
    if values.scenario == points.OPEN and not (rates or values.schedule_file or search):
        raise errors.UsageError(
            "--scenario=open needs --rate, --schedule_file or --slo", "such as --rate=100,200, or --slo='p99<20ms'"
        )
    if values.highest_rate and values.lowest_rate > values.highest_rate:
        raise errors.UsageError("--lowest_rate is above --highest_rate", "exchange them")
    swept = points.product(
        values.scenario,
        points.integers("concurrency", values.concurrency),
        rates,
        values.distribution,
        batch_sizes,
        values.schedule_file,
    )
    if (values.lowest_rate or values.highest_rate) and not search:
        raise errors.UsageError(
            "--lowest_rate and --highest_rate bound a search", "search with --scenario=open --slo=… and no --rate"
        )
    for flag in ("thresholds", "allow_constant_outputs"):
        if getattr(values, flag) and not values.original:
            raise errors.UsageError(f"--{flag} needs --original", "give the model that was converted")
    for model in models.values():
        if model:
            opening.check(model)
    for flag in ("model_dir", "schedule_file"):
        path = getattr(values, flag)
        if path and not pathlib.Path(path).exists():
            raise errors.UsageError(f"--{flag}={path}: no such file or directory", "check the path")
    metrics_url = server_metrics.url(values.rest, values.metrics_url)
    if protocols.of(address) is protocols.TRITON:
        _check_triton(values)
    if values.breakdown:
        _check_breakdown(address, metrics_url, values.in_process or values.model_dir, search)
    elif values.plot:
        raise errors.UsageError(
            "--plot needs --breakdown: it draws where the time goes", "add --breakdown; --html has the other plots"
        )
    generators = values.generators if on else 1
    if on:
        elsewhere.check(address, values, swept, on)
    return Options(
        address=address,
        model_name=values.model_name,
        model_version=values.model_version,
        version_label=values.version_label,
        signature_name=values.signature_keys,
        shapes=values.shapes,
        data=values.data,
        reading=reading or DataOptions(),
        data_rows=values.data_rows,
        ranges=values.ranges,
        seed=values.seed,
        distinct=values.distinct,
        batch_sizes=tuple(batch_sizes),
        points=() if search else tuple(swept),
        distribution=values.distribution,
        schedule_file=values.schedule_file,
        seconds=values.duration_seconds,
        min_queries=values.min_queries,
        warmup_seconds=values.warmup_seconds,
        goal=goal,
        search=search,
        lowest_rate=values.lowest_rate or None,
        highest_rate=values.highest_rate or None,
        resolution=values.resolution,
        expected=values.expected,
        original=models["original"],
        thresholds=values.thresholds,
        allow_constant_outputs=values.allow_constant_outputs,
        output_kind=tuple(values.output_kind),
        in_process=models["in_process"],
        metrics_url=metrics_url,
        breakdown=values.breakdown,
        model_dir=values.model_dir,
        timeout=values.timeout,
        tls=tls,
        channels=values.channels,
        processes=values.processes,
        on=on,
        generators=generators,
        require_no_errors=values.require_no_errors,
        given=_given(values),
    )


def _check_triton(values: FlagValues) -> None:
    """Refuse what only a TensorFlow Serving has. Raises: UsageError."""
    if values.version_label:
        raise errors.UsageError(
            "--version_label: a Triton has no version labels", "ask for a version by its number: --model_version"
        )
    for flag in ("rest", "metrics_url", "breakdown"):
        if getattr(values, flag):
            raise errors.UsageError(
                f"--{flag} reads the counters of a TensorFlow Serving, and {protocols.TRITON.scheme} names a Triton",
                "leave it out",
            )


def _check_breakdown(address: str, metrics_url: str, files: str, search: bool) -> None:
    """Refuse what --breakdown cannot do. Args: files: of the served model, "" for none. Raises: UsageError."""
    if not address:
        raise errors.UsageError("--breakdown takes a served request apart, and no server is named", "give ADDRESS too")
    if not metrics_url:
        raise errors.UsageError(
            "--breakdown needs the server's counters",
            "--rest=HOST:PORT of a server that was started with --rest_api_port and --monitoring_config_file",
        )
    if not files:
        raise errors.UsageError(
            "--breakdown runs the model in process too, and its files are not named",
            "--model_dir=DIRECTORY of the served version",
        )
    if search:
        raise errors.UsageError(
            "--breakdown does not go with a search for a rate", "measure points: --rate, or --concurrency"
        )


def _given(values: FlagValues) -> dict[str, Any]:
    return {
        name: values[name].value
        for name in sorted(values)
        if values[name].present
        and values[name].name == name
        and name not in ("json", "csv", "requests_csv", "html", "hdr", "plot", "help")
    }
