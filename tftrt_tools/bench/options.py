"""What the flags of `tftrt bench` ask for, checked before anything is sent."""

import dataclasses
import pathlib

from tftrt_tools import errors
from tftrt_tools.bench import goal as goals
from tftrt_tools.bench import points, server_metrics
from tftrt_tools.inputs.options import DataOptions
from tftrt_tools.sources import opened


@dataclasses.dataclass(frozen=True)
class Options:
    """address: "" without a server. batch_sizes: () for what the inputs say. points: of the sweep, () for a search. goal: goal.Goal or
    None. search: look for the highest rate. lowest_rate, highest_rate: None where they are not given. original, in_process: source.Source
    or "". metrics_url: "" for none. tls: client.Tls or None. reading, data_rows: how files of the data are read, and how many rows. given:
    {flag: value} of what was set, for the report. The rest as the flags say."""

    address: str
    model_name: str
    model_version: int | None
    version_label: str
    signature_name: str
    shapes: str
    data: str
    reading: DataOptions
    data_rows: int
    ranges: str
    seed: int
    distinct: int
    batch_sizes: tuple
    points: tuple
    distribution: str
    schedule_file: str
    seconds: float
    min_queries: int
    warmup_seconds: float
    goal: object
    search: bool
    lowest_rate: float | None
    highest_rate: float | None
    resolution: float
    expected: str
    original: object
    thresholds: str
    allow_constant_outputs: bool
    output_kind: tuple[str, ...]
    in_process: object
    metrics_url: str
    model_dir: str
    timeout: float
    tls: object
    channels: int
    processes: int
    require_no_errors: bool
    given: dict


def from_flags(address, values, models, tls=None, reading=None):
    """Options of parsed flags.

    Args: values: FlagValues of commands/bench.py. models: {"original", "in_process": source.Source or ""}. tls: client.Tls or None.
      reading: DataOptions, how files of --data are read; None for the defaults.
    Raises: UsageError.
    """
    goal = goals.parse(values.slo)
    batch_sizes = points.integers("batch_size", values.batch_size)
    rates = points.rates("rate", values.rate)
    search = goal is not None and values.scenario == points.OPEN and not rates and not values.schedule_file
    if values.scenario == points.OPEN and not (rates or values.schedule_file or search):
        raise errors.UsageError("--scenario=open needs --rate, --schedule_file or --slo", "such as --rate=100,200, or --slo='p99<20ms'")
    if values.highest_rate and values.lowest_rate > values.highest_rate:
        raise errors.UsageError("--lowest_rate is above --highest_rate", "exchange them")
    swept = points.product(values.scenario, points.integers("concurrency", values.concurrency), rates, values.distribution, batch_sizes,
                           values.schedule_file)
    if (values.lowest_rate or values.highest_rate) and not search:
        raise errors.UsageError("--lowest_rate and --highest_rate bound a search", "search with --scenario=open --slo=… and no --rate")
    for flag in ("thresholds", "allow_constant_outputs"):
        if getattr(values, flag) and not values.original:
            raise errors.UsageError(f"--{flag} needs --original", "give the model that was converted")
    for model in filter(None, models.values()):
        opened.check(model)
    for flag in ("model_dir", "schedule_file"):
        path = getattr(values, flag)
        if path and not pathlib.Path(path).exists():
            raise errors.UsageError(f"--{flag}={path}: no such file or directory", "check the path")
    return Options(
        address, values.model_name, values.model_version, values.version_label, values.signature_keys, values.shapes, values.data,
        reading or DataOptions(), values.data_rows, values.ranges, values.seed, values.distinct, tuple(batch_sizes),
        () if search else tuple(swept), values.distribution, values.schedule_file, values.duration_seconds, values.min_queries,
        values.warmup_seconds, goal, search, values.lowest_rate or None, values.highest_rate or None, values.resolution,
        values.expected, models["original"], values.thresholds, values.allow_constant_outputs, tuple(values.output_kind),
        models["in_process"],
        server_metrics.url(values.rest, values.metrics_url), values.model_dir, values.timeout, tls, values.channels,
        values.processes, values.require_no_errors, _given(values))


def _given(values):
    return {name: values[name].value for name in sorted(values)
            if values[name].present and values[name].name == name and name not in ("json", "csv", "requests_csv", "html", "hdr", "help")}
