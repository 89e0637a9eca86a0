"""Counters and histograms under TensorFlow Serving's names, and their page for Prometheus (text format 0.0.4)."""

from __future__ import annotations

import bisect
import dataclasses
import threading

from tftrt_tools.servers.serving import metric_names as names
from tftrt_tools.servers.serving.local import batching_servable


@dataclasses.dataclass
class _Histogram:
    """counts: of the values in each bucket. total: the sum of the values."""

    counts: list[int]
    total: float = 0.0


class Metrics:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, dict[tuple[str, ...], int]] = {metric.name: {} for metric in names.METRICS}
        self._histograms: dict[str, dict[tuple[str, ...], _Histogram]] = {metric.name: {} for metric in names.METRICS}
        self._bounds = {metric.name: metric.bounds() for metric in names.METRICS if metric.kind == names.HISTOGRAM}

    def add(self, metric: names.Metric, *labels: str, by: int = 1) -> None:
        """Count. Args: metric: of metric_names; labels: its values, in order."""
        with self._lock:
            values = self._values[metric.name]
            values[labels] = values.get(labels, 0) + by

    def observe(self, metric: names.Metric, *labels: str, value: float) -> None:
        """One value of a histogram."""
        bounds = self._bounds[metric.name]
        with self._lock:
            held = self._histograms[metric.name].setdefault(labels, _Histogram([0] * (len(bounds) + 1)))
            held.counts[bisect.bisect_right(bounds, value)] += 1
            held.total += value

    def request(
        self, model: str, api: str, status: str, seconds: float, runtime_seconds: float, entrypoint: str = "GRPC"
    ) -> None:
        """One request of Predict, Classify or Regress. status: name of the code. Only those that went well have a latency."""
        self.add(names.REQUEST_COUNT, model, status)
        if status == "OK":
            self.observe(names.REQUEST_LATENCY, model, api, entrypoint, value=seconds * 1e6)
            self.observe(names.RUNTIME_LATENCY, model, api, "TF1", value=runtime_seconds * 1e6)

    def load_attempt(self, path: object, status: str, seconds: float) -> None:
        """One try to load a version directory."""
        self.add(names.LOAD_ATTEMPT_COUNT, str(path), "success" if status == "OK" else "fail")
        self.add(names.LOAD_LATENCY, str(path), by=int(seconds * 1e6))

    def warmup(self, path: object, status: str, microseconds: float) -> None:
        """One warm-up."""
        self.observe(names.MODEL_WARMUP_LATENCY, str(path), status, value=microseconds)

    def batching_hooks(self) -> batching_servable.Hooks:
        """Hooks that count here."""
        return batching_servable.Hooks(
            input_batch_size=lambda rows: self.observe(names.INPUT_BATCH_SIZE, value=rows),
            queuing_latency=lambda pool, micros: self.observe(names.QUEUING_LATENCY, pool, value=micros),
            processed_batch_size=lambda rows: self.observe(names.PROCESSED_BATCH_SIZE, value=rows),
            padding_size=lambda rows, size: self.observe(names.PADDING_SIZE, str(size), value=rows),
            wrapped_run=lambda: self.add(names.WRAPPED_RUN_COUNT),
        )

    def page(self) -> str:
        """The text that Prometheus reads."""
        lines = []
        with self._lock:
            for metric in names.METRICS:
                values: dict[tuple[str, ...], int | _Histogram] = {
                    **self._values[metric.name],
                    **self._histograms[metric.name],
                }
                if values:
                    lines.append(f"# TYPE {metric.name} {metric.kind}")
                    for labels in sorted(values):
                        lines += self._lines(metric, labels, values[labels])
        return "\n".join(lines) + "\n"

    def _lines(self, metric: names.Metric, labels: tuple[str, ...], value: int | _Histogram) -> list[str]:
        pairs = [f'{name}="{_escaped(text)}"' for name, text in zip(metric.labels, labels, strict=True)]
        if isinstance(value, int):
            return [f"{metric.name}{{{','.join(pairs)}}} {value}"]
        lines, below = [], 0
        for bound, count in zip([*map("{:g}".format, self._bounds[metric.name]), "+Inf"], value.counts, strict=True):
            below += count
            lines.append(f"{metric.name}_bucket{{{','.join([*pairs, f'le={_quoted(bound)}'])}}} {below}")
        text = f"{{{','.join(pairs)}}}"
        return [*lines, f"{metric.name}_sum{text} {value.total:g}", f"{metric.name}_count{text} {below}"]


def _quoted(text: str) -> str:
    return f'"{text}"'


def _escaped(text: object) -> str:
    return str(text).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
