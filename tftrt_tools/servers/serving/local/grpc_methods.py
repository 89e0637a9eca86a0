"""The calls of PredictionService and ModelService, from bytes to bytes, without a transport."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from google.protobuf import message

from tftrt_tools.servers.serving.local import failure
from tftrt_tools.servers.serving.local.core import Core

_log = logging.getLogger("tftrt.serving")

# Answers a request: (its bytes, milliseconds that it may take or 0) -> the answer's bytes, in parts. Raises: Failure.
Method: TypeAlias = Callable[[bytes | memoryview, int], Sequence[bytes | memoryview]]


def table(core: Core, at_once: int) -> dict[str, Method]:
    """{"/package.Service/Method": its function}. at_once: calls that run at the same time; one more is refused, as the real server does
    whose last gRPC thread has to wait for the next call."""
    from tensorflow_serving.apis import (
        classification_pb2,
        get_model_metadata_pb2,
        get_model_status_pb2,
        inference_pb2,
        model_management_pb2,
        regression_pb2,
    )

    def reload(request: model_management_pb2.ReloadConfigRequest, _: int) -> model_management_pb2.ReloadConfigResponse:
        core.serve_reload(request)
        answer = model_management_pb2.ReloadConfigResponse()
        answer.status.SetInParent()
        return answer

    prediction = {
        "Classify": _parsing(classification_pb2.ClassificationRequest, core.serve_classify),
        "Regress": _parsing(regression_pb2.RegressionRequest, core.serve_regress),
        "MultiInference": _parsing(inference_pb2.MultiInferenceRequest, core.serve_multi_inference),
        "GetModelMetadata": _parsing(
            get_model_metadata_pb2.GetModelMetadataRequest, lambda request, _: core.metadata(request)
        ),
        "Predict": _guarded("PredictRequest", core.serve_predict),
    }
    model = {
        "GetModelStatus": _parsing(get_model_status_pb2.GetModelStatusRequest, lambda request, _: core.status(request)),
        "HandleReloadConfigRequest": _parsing(model_management_pb2.ReloadConfigRequest, reload),
    }
    services: Mapping[str, Mapping[str, Method]] = {"PredictionService": prediction, "ModelService": model}
    limited = Limit(at_once).around
    return {
        f"/tensorflow.serving.{service}/{name}": limited(method)
        for service, methods in services.items()
        for name, method in methods.items()
    }


class Limit:
    """Counts the calls that run. Args: most: of them at the same time."""

    def __init__(self, most: int) -> None:
        self._most, self._running, self._lock = most, 0, threading.Lock()

    def around(self, method: Method) -> Method:
        """`method`, refused where too many run."""

        def call(raw: bytes | memoryview, timeout_ms: int) -> Sequence[bytes | memoryview]:
            with self._lock:
                if self._running >= self._most:
                    raise failure.exhausted("Server Threadpool Exhausted")
                self._running += 1
            try:
                return method(raw, timeout_ms)
            finally:
                with self._lock:
                    self._running -= 1

        return call


def _parsing(request_class: type[message.Message], answer: Callable[[Any, int], Any]) -> Method:
    def call(raw: bytes | memoryview, timeout_ms: int) -> Sequence[bytes]:
        return [answer(request_class.FromString(bytes(raw)), timeout_ms).SerializeToString()]

    return _guarded(request_class.DESCRIPTOR.name, call)


def _guarded(request_name: str, answer: Method) -> Method:
    def call(raw: bytes | memoryview, timeout_ms: int) -> Sequence[bytes | memoryview]:
        try:
            return answer(raw, timeout_ms)
        except message.DecodeError:
            raise failure.Failure(failure.INTERNAL, f"Failed to parse {request_name}") from None
        except failure.Failure:
            raise
        except Exception as error:
            _log.exception("a fault of the development server: a %s failed", request_name)
            raise failure.Failure(failure.INTERNAL, f"{type(error).__name__}: {error}") from None

    return call
