"""Warm-up inside a load: the requests stored beside a SavedModel are run once before it serves.

Rules and texts are those of TensorFlow Serving 2.14.1 (servables/tensorflow/saved_model_warmup_util.cc, saved_model_warmup.cc).
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf import message

from tftrt_tools.base.records import Record
from tftrt_tools.models.savedmodel import files
from tftrt_tools.servers.serving.local import failure
from tftrt_tools.servers.serving.local.servable import AnyServable

if TYPE_CHECKING:
    from tensorflow_serving.apis import prediction_log_pb2


FILE = files.WARMUP
MAX_RECORDS = 1000
_SHOWN = 200  # bytes of an unreadable record that its message shows; the real one shows all
_log = logging.getLogger("tftrt.serving")

# Answers a request of one kind: (servable, request).
Service = Callable[[AnyServable, Any], Any]


@dataclasses.dataclass(frozen=True)
class Services:
    """The functions (servable, request) that answer each kind of request; they raise Failure."""

    predict: Service
    classify: Service
    regress: Service
    multi_inference: Service


@dataclasses.dataclass(frozen=True)
class Replayed(Record):
    """records: requests read; microseconds: time that took, all together."""

    records: int
    microseconds: int


def replay(
    servable: AnyServable,
    services: Services,
    iterations: int = 1,
    record_latency: Callable[[str, str, int], object] | None = None,
) -> Replayed:
    """Run the warm-up requests of a servable, one after the other, without deadlines. The model that a record names is ignored.

    Args:
      servable: Servable.
      services: Services.
      iterations: how often each request is run; less than 1 counts as 1 (`--num_request_iterations_for_warmup`).
      record_latency: function (version directory, status text, microseconds), called once the file was read to its end or damage.

    Returns: Replayed; no records where the SavedModel has no such file.

    Raises: Failure: DATA_LOSS for a file that is no TFRecord or damaged; INVALID_ARGUMENT for a record that is no PredictionLog, and
      after record 1001 was run; UNIMPLEMENTED for a log of another kind; whatever a request raises.
    """
    start = time.monotonic()
    path = pathlib.Path(servable.path) / FILE
    if not path.exists():
        _log.info("No warmup data file found at %s", path)
        return Replayed(0, _microseconds(start))
    iterations = max(iterations, 1)
    _log.info(
        "Starting to read warmup data for model at %s with model-warmup-options num_request_iterations { value: %d }",
        path,
        iterations,
    )
    count = 0
    try:
        for record in _records(path):
            log = _parse(record, path)
            for _ in range(iterations):
                _run(servable, services, log)
            count += 1
            if count > MAX_RECORDS:
                raise failure.invalid(f"Number of warmup records exceeds the maximum ({MAX_RECORDS}) at {path}")
    except _Unreadable as damage:
        if record_latency:
            record_latency(servable.path, damage.failure.to_text(), _microseconds(start))
        if damage.failure.code is grpc.StatusCode.DATA_LOSS:
            raise failure.Failure(
                damage.failure.code, f"{damage.failure.message}. Please verify your warmup data is in TFRecord format."
            ) from None
        raise damage.failure from None
    took = _microseconds(start)
    if record_latency:
        record_latency(servable.path, "OK", took)
    _log.info(
        "Finished reading warmup data for model at %s. Number of warmup records read: %d. Elapsed time (microseconds): %d.",
        path,
        count,
        took,
    )
    return Replayed(count, took)


class _Unreadable(Exception):
    """The rest of the file could not be read; `failure` says why."""

    def __init__(self, cause: failure.Failure) -> None:
        super().__init__(cause.message)
        self.failure = cause


def _records(path: pathlib.Path) -> Iterator[bytes]:
    import tensorflow as tf

    # TensorFlow's plain reader gives the real server's messages, and unlike tf.data starts no eager runtime, which would take the
    # GPU's memory. It is unwrapped to leave out its advice to use tf.data.
    reader = inspect.unwrap(tf.compat.v1.io.tf_record_iterator)
    try:
        yield from reader(str(path))
    except tf.errors.OpError as error:
        raise _Unreadable(failure.from_number(error.error_code, error.message)) from None


def _parse(record: bytes, path: pathlib.Path) -> prediction_log_pb2.PredictionLog:
    from tensorflow_serving.apis import prediction_log_pb2

    try:
        return prediction_log_pb2.PredictionLog.FromString(record)
    except message.DecodeError:
        raise failure.invalid(
            f"Failed to parse warmup record: {record[:_SHOWN].decode('utf-8', 'replace')} from {path}"
        ) from None


def _run(servable: AnyServable, services: Services, log: prediction_log_pb2.PredictionLog) -> None:
    kind = log.WhichOneof("log_type")
    if kind is None:
        return  # counted and skipped, as in the real server
    function = getattr(services, kind.removesuffix("_log"), None)
    if function is None:
        raise failure.unimplemented(f"Unsupported log_type for warmup: {log.DESCRIPTOR.fields_by_name[kind].number}")
    function(servable, getattr(log, kind).request)


def _microseconds(start: float) -> int:
    return int((time.monotonic() - start) * 1e6)
