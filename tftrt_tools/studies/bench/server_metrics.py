"""What the server counted during a measurement: the differences of its Prometheus page, before and after."""

import dataclasses
import http.client
import urllib.error
import urllib.request
from collections.abc import Mapping

from tftrt_tools.base import errors, records
from tftrt_tools.servers.serving import metric_names as names

_SECONDS = 5
_MEAN = {
    "request_ms": (names.REQUEST_LATENCY, 1e-3),
    "runtime_ms": (names.RUNTIME_LATENCY, 1e-3),
    "queuing_ms": (names.QUEUING_LATENCY, 1e-3),
    "input_rows": (names.INPUT_BATCH_SIZE, 1.0),
    "processed_rows": (names.PROCESSED_BATCH_SIZE, 1.0),
    "padding_rows": (names.PADDING_SIZE, 1.0),
}
_OF_MODEL = "model_name"
# Only these never fall while the server lives, so only their fall means a restart; a gauge may fall.
_GROWING = ("counter", "histogram")


# {(sample name, ((label, value), …)): value} of a page.
Samples = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerSide(records.Record):
    """What the server counted. Means over the requests of the interval, None where it counted none."""

    # {status: how many} of the model, Predict, Classify and Regress alike.
    requests: Mapping[str, int]
    # Mean time in the server of requests that went well, and the part of it in Session::Run.
    request_ms: float | None
    runtime_ms: float | None
    # The fields from here on are of all models together, and only of servers with batching. Mean time in the queue.
    queuing_ms: float | None
    # Rows of a request, rows of a batch with its padding, padding of a batch.
    input_rows: float | None
    processed_rows: float | None
    padding_rows: float | None
    # {"<8": batches with fewer rows than that, and not fewer than the bound before}.
    batches: Mapping[str, int]
    # Runs of graphs in the whole process.
    graph_runs: int

    def text(self) -> str:
        """One line for people."""
        parts = [", ".join(f"{count} {status}" for status, count in self.requests.items()) or "no request counted"]
        if self.request_ms is not None:
            parts.append(f"mean {self.request_ms:.3f} ms in the server")
        if self.runtime_ms is not None:
            parts.append(f"{self.runtime_ms:.3f} ms in the model")
        if self.queuing_ms is not None:
            parts.append(f"{self.queuing_ms:.3f} ms queued for a batch")
        if self.processed_rows is not None:
            padded = f", {self.padding_rows:.1f} of them padding" if self.padding_rows else ""
            parts.append(f"{self.processed_rows:.1f} rows a batch{padded}")
        return ", ".join(parts)


def url(rest: str = "", metrics_url: str = "") -> str:
    """Where the page is. Args: rest: HOST:PORT or "". Returns: str, "" where neither is given. Raises: UsageError."""
    if metrics_url:
        if not metrics_url.startswith(("http://", "https://")):
            raise errors.UsageError(
                f"--metrics_url={metrics_url} is no http address", f"such as http://localhost:8501{names.PATH}"
            )
        return metrics_url
    if rest and ("/" in rest or not rest.rpartition(":")[2].isdigit()):
        raise errors.UsageError(f"--rest={rest} is no HOST:PORT", "give the REST port, such as localhost:8501")
    return f"http://{rest}{names.PATH}" if rest else ""


def fetch(address: str) -> Samples:
    """{(sample name, ((label, value), …)): value} of the page's counters and histograms. Raises: TftrtError if there is no page, or if
    it has another format."""
    try:
        with urllib.request.urlopen(address, timeout=_SECONDS) as answer:
            text = answer.read().decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        mend = "start the server with --monitoring_config_file" if error.code == 404 else ""
        raise errors.TftrtError(f"{address} has no metrics: HTTP {error.code}", mend) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        # A gRPC port answers with HTTP/2 frames.
        why = (
            "it speaks no HTTP/1.1"
            if isinstance(error, http.client.BadStatusLine)
            else getattr(error, "reason", None) or error
        )
        raise errors.TftrtError(
            f"{address} does not answer: {why}", "check --rest: it is the port of --rest_api_port"
        ) from None
    return parse(text)


def parse(text: str) -> Samples:
    """The samples of a page in Prometheus' text format, as `fetch` returns them. Raises: TftrtError."""
    from prometheus_client import parser

    try:
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in parser.text_string_to_metric_families(text)
            if family.type in _GROWING
            for sample in family.samples
        }
    except ValueError as error:
        raise errors.TftrtError(
            f"the metrics page is not in Prometheus' text format: {error}", "check --rest or --metrics_url"
        ) from None


def difference(before: Samples, after: Samples, model: str) -> ServerSide:
    """The ServerSide of the time between two pages of `fetch`. A server that was restarted between them counts from 0.

    Args: model: name; samples without a model label count whole.
    """
    grown = {key: value - before.get(key, 0) for key, value in after.items()}
    if any(value < 0 for value in grown.values()):
        grown = dict(after)
    mine = {key: value for key, value in grown.items() if dict(key[1]).get(_OF_MODEL, model) == model and value}
    requests = {
        dict(labels)["status"]: int(value)
        for (name, labels), value in sorted(mine.items())
        if name in _counter(names.REQUEST_COUNT)
    }
    means = {field: _mean(mine, metric, scale) for field, (metric, scale) in _MEAN.items()}
    return ServerSide(
        requests=requests,
        batches=_buckets(mine, names.PROCESSED_BATCH_SIZE),
        graph_runs=int(_sum(mine, *_counter(names.GRAPH_RUNS))),
        **means,
    )


def _counter(metric: names.Metric) -> tuple[str, str]:
    # The parser adds _total to what the page declares as a counter.
    return metric.name, metric.name + "_total"


def _sum(samples: Samples, *wanted: str) -> float:
    return sum(value for (name, _), value in samples.items() if name in wanted)


def _mean(samples: Samples, metric: names.Metric, scale: float) -> float | None:
    count = _sum(samples, metric.name + "_count")
    return scale * _sum(samples, metric.name + "_sum") / count if count else None


def _buckets(samples: Samples, metric: names.Metric) -> dict[str, int]:
    """{"<bound": count} of the buckets that are not empty. A value equal to a bound counts above it: TensorFlow's buckets are half-open,
    although Prometheus' "le" says otherwise (tsl/lib/histogram, Histogram::Add takes the upper bound)."""
    below: dict[float, float] = {}
    for (name, labels), value in samples.items():
        if name == metric.name + "_bucket":
            bound = float(dict(labels)["le"])
            below[bound] = below.get(bound, 0) + value
    found: dict[str, int] = {}
    seen = 0.0
    for bound, total in sorted(below.items()):
        if total > seen:
            found[f"<{bound:g}"] = int(total - seen)
            seen = total
    return found
