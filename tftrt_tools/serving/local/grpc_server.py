"""The gRPC side: PredictionService and ModelService."""

from __future__ import annotations

import concurrent.futures
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grpc
from google.protobuf import message

from tftrt_tools import errors
from tftrt_tools.serving.local import failure
from tftrt_tools.serving.local.core import Core

_log = logging.getLogger("tftrt.serving")
_STOP_SECONDS = 5


class GrpcServer:
    """Args: core: core.Core; threads: requests worked on at the same time; options: [(channel argument, value)]; credentials: of
    grpc.ssl_server_credentials, or None."""

    def __init__(self, core: Core, threads: int, options: Sequence[tuple[str, Any]] = (), credentials: Any | None = None) -> None:
        # SO_REUSEPORT would silently let two servers share a port.
        limits = [("grpc.max_receive_message_length", 2 ** 31 - 1), ("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0)]
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(threads, thread_name_prefix="grpc"), options=[*limits, *options])
        self._server.add_generic_rpc_handlers(_handlers(core))
        self._credentials = credentials

    def listen(self, address: str) -> int:
        """Bind "host:port" or "unix:path". Returns: the port. Raises: TftrtError where it cannot be had."""
        try:
            if self._credentials and not address.startswith("unix:"):
                port = self._server.add_secure_port(address, self._credentials)
            else:
                port = self._server.add_insecure_port(address)
        except RuntimeError:
            port = 0
        if not port:
            raise errors.TftrtError(f"cannot listen on {address}", "choose another --port, or end what listens there")
        return port

    def start(self) -> None:
        """Answer requests from now on."""
        self._server.start()

    def stop(self) -> None:
        """Refuse new requests and wait some seconds for those that run."""
        self._server.stop(_STOP_SECONDS).wait()


def _handlers(core: Core) -> tuple[Any, ...]:
    from tensorflow_serving.apis import (
        classification_pb2,
        get_model_metadata_pb2,
        get_model_status_pb2,
        inference_pb2,
        model_management_pb2,
        regression_pb2,
    )

    def reload(request: Any, _: int) -> Any:
        core.serve_reload(request)
        answer = model_management_pb2.ReloadConfigResponse()
        answer.status.SetInParent()
        return answer

    prediction = {
        "Classify": (classification_pb2.ClassificationRequest, core.serve_classify),
        "Regress": (regression_pb2.RegressionRequest, core.serve_regress),
        "MultiInference": (inference_pb2.MultiInferenceRequest, core.serve_multi_inference),
        "GetModelMetadata": (get_model_metadata_pb2.GetModelMetadataRequest, lambda request, _: core.metadata(request)),
    }
    model = {
        "GetModelStatus": (get_model_status_pb2.GetModelStatusRequest, lambda request, _: core.status(request)),
        "HandleReloadConfigRequest": (model_management_pb2.ReloadConfigRequest, reload),
    }
    answers = {"PredictionService": {"Predict": _unary("Predict", "PredictRequest", core.serve_predict), **_parsing(prediction)},
               "ModelService": _parsing(model)}
    return tuple(grpc.method_handlers_generic_handler(f"tensorflow.serving.{service}", methods) for service, methods in answers.items())


def _parsing(methods: Mapping[str, tuple[Any, Callable[[Any, int], Any]]]) -> dict[str, Any]:
    """{name: handler} of {name: (class of the request, function that answers it with a message)}."""
    def handler(name: str, request_class: Any, answer: Callable[[Any, int], Any]) -> Any:
        return _unary(name, request_class.DESCRIPTOR.name,
                      lambda raw, timeout_ms: answer(request_class.FromString(raw), timeout_ms).SerializeToString())

    return {name: handler(name, *method) for name, method in methods.items()}


def _unary(name: str, request_name: str, answer: Callable[[bytes, int], bytes]) -> Any:
    def call(raw: bytes, context: Any) -> Any:
        try:
            return answer(raw, _timeout_ms(context))
        except message.DecodeError:
            code, text = grpc.StatusCode.INTERNAL, f"Failed to parse {request_name}"
        except failure.Failure as error:
            code, text = error.code, error.grpc_message
        except Exception as error:
            _log.exception("%s failed", name)
            code, text = grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}"
        return context.abort(code, text)  # raises

    return grpc.unary_unary_rpc_method_handler(call)  # bytes in, bytes out


def _timeout_ms(context: Any) -> int:
    left = context.time_remaining()
    return 0 if left is None or left > 1e9 else max(int(left * 1000), 1)
