"""What gRPC and REST share: one function for each call, which finds the servable, answers and counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tftrt_tools.servers.serving.local import (
    classify_api,
    config_checks,
    failure,
    metadata_api,
    multi_inference_api,
    plain_request,
    predict_api,
    regress_api,
    states,
    warmup_replay,
)
from tftrt_tools.servers.serving.local.held import Handle
from tftrt_tools.servers.serving.local.manager import Manager
from tftrt_tools.servers.serving.local.metrics_page import Metrics
from tftrt_tools.servers.serving.local.servable import AnyServable, Array, Clocked

if TYPE_CHECKING:
    from google.protobuf import message
    from tensorflow_serving.apis import (
        classification_pb2,
        get_model_metadata_pb2,
        get_model_status_pb2,
        inference_pb2,
        model_management_pb2,
        model_pb2,
        regression_pb2,
    )


# A request of gRPC's, or what was read of one.
Asked: TypeAlias = "message.Message | plain_request.PlainRequest"
# Bytes from which on protobuf's copies of a request cost more than reading it in Python.
_LARGE = 1 << 15


class Core:
    """Args: metrics: counts the requests. monitored: whether the metrics page is on. check_method_name: as for predict_api.predict."""

    def __init__(self, metrics: Metrics, monitored: bool = False, check_method_name: bool = False) -> None:
        self.manager: Manager  # set later, because loading needs the services below
        self._metrics, self._monitored, self._check = metrics, monitored, check_method_name

    def services(self) -> warmup_replay.Services:
        """The functions that answer warm-up requests during a load."""
        return warmup_replay.Services(
            *(
                lambda servable, request, call=call: call(servable, request, 0, self._check)
                for call in (
                    predict_api.predict,
                    classify_api.classify,
                    regress_api.regress,
                    multi_inference_api.multi_inference,
                )
            )
        )

    def handle(self, model_spec: model_pb2.ModelSpec | None) -> Handle[AnyServable]:
        """See Manager.handle."""
        return self.manager.handle(model_spec)

    def serve_predict(self, raw: bytes | memoryview, timeout_ms: int) -> Sequence[bytes | memoryview]:
        """The PredictResponse's bytes, in parts. Args: raw: a PredictRequest. Raises: Failure; DecodeError where it is none."""
        from tensorflow_serving.apis import predict_pb2

        plain = plain_request.read(raw) if len(raw) >= _LARGE else None
        request = plain or predict_pb2.PredictRequest.FromString(bytes(raw))
        result: Sequence[bytes | memoryview] = self._counted("Predict", predict_api.predict, request, timeout_ms)
        return result

    def serve_classify(
        self, request: classification_pb2.ClassificationRequest, timeout_ms: int
    ) -> classification_pb2.ClassificationResponse:
        """ClassificationResponse."""
        return self._counted("Classify", classify_api.classify, request, timeout_ms)

    def serve_regress(
        self, request: regression_pb2.RegressionRequest, timeout_ms: int
    ) -> regression_pb2.RegressionResponse:
        """RegressionResponse."""
        return self._counted("Regress", regress_api.regress, request, timeout_ms)

    def serve_multi_inference(
        self, request: inference_pb2.MultiInferenceRequest, timeout_ms: int
    ) -> inference_pb2.MultiInferenceResponse:
        """MultiInferenceResponse. Not counted, as in the real server."""
        with self.handle(multi_inference_api.model_spec(request)) as servable:
            return multi_inference_api.multi_inference(servable, request, timeout_ms, self._check)

    def serve_reload(self, request: model_management_pb2.ReloadConfigRequest) -> None:
        """Change to another configuration. Raises: Failure."""
        config_checks.check(request)
        self.manager.reload(request.config)

    def predict(self, servable: AnyServable, arrays: Mapping[str, Array], name: str, timeout_ms: int) -> Any:
        """({alias: array}, signature name), for REST."""
        clocked = Clocked(servable)
        return self._measured(
            "Predict",
            clocked.name,
            "REST",
            lambda: (predict_api.predict_arrays(clocked, arrays, name, timeout_ms, self._check), clocked.seconds),
        )

    def classify(
        self, servable: AnyServable, request: classification_pb2.ClassificationRequest, timeout_ms: int
    ) -> classification_pb2.ClassificationResponse:
        """ClassificationResponse, for REST."""
        clocked = Clocked(servable)
        return self._measured(
            "Classify",
            clocked.name,
            "REST",
            lambda: (classify_api.classify(clocked, request, timeout_ms, self._check), clocked.seconds),
        )

    def regress(
        self, servable: AnyServable, request: regression_pb2.RegressionRequest, timeout_ms: int
    ) -> regression_pb2.RegressionResponse:
        """RegressionResponse, for REST."""
        clocked = Clocked(servable)
        return self._measured(
            "Regress",
            clocked.name,
            "REST",
            lambda: (regress_api.regress(clocked, request, timeout_ms, self._check), clocked.seconds),
        )

    def metadata(
        self, request: get_model_metadata_pb2.GetModelMetadataRequest
    ) -> get_model_metadata_pb2.GetModelMetadataResponse:
        """GetModelMetadataResponse."""
        metadata_api.check(request)
        with self.handle(_spec(request)) as servable:
            return metadata_api.metadata(servable, request)

    def status(
        self, request: get_model_status_pb2.GetModelStatusRequest
    ) -> get_model_status_pb2.GetModelStatusResponse:
        """GetModelStatusResponse."""
        return states.response(self.manager, request)

    def metrics(self) -> str | None:
        """The page for Prometheus, None where it is off."""
        return self._metrics.page() if self._monitored else None

    def _counted(self, api: str, call: Callable[..., Any], request: Asked, timeout_ms: int) -> Any:
        spec = _spec(request)

        def answer() -> tuple[Any, float]:
            with self.handle(spec) as servable:
                clocked = Clocked(servable)
                return call(clocked, request, timeout_ms, self._check), clocked.seconds

        return self._measured(api, spec.name if spec else "", "GRPC", answer)

    def _measured(self, api: str, model: str, entrypoint: str, answer: Callable[[], tuple[Any, float]]) -> Any:
        """Call `answer`, which returns a result and the seconds that the graph ran. Returns: the result."""
        start, status, runtime = time.monotonic(), "OK", 0.0
        try:
            result, runtime = answer()
            return result
        except failure.Failure as error:
            status = error.code.name
            raise
        except BaseException:
            status = "INTERNAL"
            raise
        finally:
            self._metrics.request(model, api, status, time.monotonic() - start, runtime, entrypoint)


def _spec(request: Asked) -> model_pb2.ModelSpec | None:
    if isinstance(request, plain_request.PlainRequest):
        return request.model_spec
    return request.model_spec if request.HasField("model_spec") else None
