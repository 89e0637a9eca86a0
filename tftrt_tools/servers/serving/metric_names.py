"""The metrics of TensorFlow Serving 2.14.1, under the names that its Prometheus page uses.

Source: the Counter, Gauge and Sampler definitions of tensorflow/serving 2.14.1 (servables/tensorflow/util.cc,
saved_model_warmup_util.cc, batching/batching_session.cc and batching_util.h) and of TensorFlow 2.14.1
(cc/saved_model/loader.cc, core/common_runtime/metrics.cc). On the page each '/' of a name is a ':' (util/prometheus_exporter.cc).
A histogram NAME stands there as NAME_bucket, NAME_sum and NAME_count. Times are microseconds.
"""

import dataclasses
from typing import Literal

Kind = Literal["counter", "histogram"]
COUNTER: Kind = "counter"
HISTOGRAM: Kind = "histogram"


@dataclasses.dataclass(frozen=True)
class Metric:
    """One metric. buckets: (scale, growth, count) of a histogram: its bounds are scale * growth**i for i < count, then +Inf."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    buckets: tuple[float, float, int] | None = None

    @property
    def series(self) -> tuple[str, ...]:
        """The names that a query may use."""
        return (
            (self.name,) if self.kind == COUNTER else tuple(self.name + part for part in ("_bucket", "_sum", "_count"))
        )

    def bounds(self) -> list[float]:
        """Upper bounds of a histogram's buckets without +Inf."""
        scale, growth, count = self.buckets or (0.0, 0.0, 0)
        return [scale * growth**power for power in range(count)]


_LATENCY = 10, 1.8, 33
_ROWS = 1, 2, 14

REQUEST_COUNT = Metric(":tensorflow:serving:request_count", COUNTER, ("model_name", "status"))
REQUEST_LATENCY = Metric(
    ":tensorflow:serving:request_latency", HISTOGRAM, ("model_name", "API", "entrypoint"), _LATENCY
)
RUNTIME_LATENCY = Metric(":tensorflow:serving:runtime_latency", HISTOGRAM, ("model_name", "API", "runtime"), _LATENCY)
REQUEST_EXAMPLE_COUNTS = Metric(":tensorflow:serving:request_example_counts", HISTOGRAM, ("model",), (1, 2, 15))
REQUEST_EXAMPLE_COUNT_TOTAL = Metric(":tensorflow:serving:request_example_count_total", COUNTER, ("model",))
MODEL_WARMUP_LATENCY = Metric(
    ":tensorflow:serving:model_warmup_latency", HISTOGRAM, ("model_path", "status"), (10, 1.8, 33)
)
QUEUING_LATENCY = Metric(
    ":tensorflow:serving:batching_session:queuing_latency", HISTOGRAM, ("thread_pool_name",), (100, 1.2, 52)
)
WRAPPED_RUN_COUNT = Metric(":tensorflow:serving:batching_session:wrapped_run_count", COUNTER, ())
INPUT_BATCH_SIZE = Metric(":tensorflow:serving:batching_session:input_batch_size", HISTOGRAM, (), _ROWS)
PROCESSED_BATCH_SIZE = Metric(":tensorflow:serving:batching_session:processed_batch_size", HISTOGRAM, (), _ROWS)
PADDING_SIZE = Metric(":tensorflow:serving:batching_session:padding_size", HISTOGRAM, ("execution_batch_size",), _ROWS)
LOAD_ATTEMPT_COUNT = Metric(":tensorflow:cc:saved_model:load_attempt_count", COUNTER, ("model_path", "status"))
LOAD_LATENCY = Metric(":tensorflow:cc:saved_model:load_latency", COUNTER, ("model_path",))
GRAPH_RUNS = Metric(":tensorflow:core:graph_runs", COUNTER, ())
GRAPH_RUN_TIME = Metric(":tensorflow:core:graph_run_time_usecs", COUNTER, ())

METRICS = (
    REQUEST_COUNT,
    REQUEST_LATENCY,
    RUNTIME_LATENCY,
    REQUEST_EXAMPLE_COUNTS,
    REQUEST_EXAMPLE_COUNT_TOTAL,
    MODEL_WARMUP_LATENCY,
    QUEUING_LATENCY,
    WRAPPED_RUN_COUNT,
    INPUT_BATCH_SIZE,
    PROCESSED_BATCH_SIZE,
    PADDING_SIZE,
    LOAD_ATTEMPT_COUNT,
    LOAD_LATENCY,
    GRAPH_RUNS,
    GRAPH_RUN_TIME,
)
SERIES = frozenset(name for metric in METRICS for name in metric.series)
PATH = "/monitoring/prometheus/metrics"
