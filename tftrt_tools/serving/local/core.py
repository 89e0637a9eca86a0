"""What gRPC and REST share: one function for each call, which finds the servable, answers and counts."""

import time

from tftrt_tools.serving.local import classify, failure, metadata, multi_inference, predict, regress, reload, replay, states


class Core:
    """Args: manager: Manager; metrics: Metrics; monitored: whether the metrics page is on; check_method_name: see predict.predict."""

    def __init__(self, metrics, monitored=False, check_method_name=False):
        self.manager = None  # set once it exists: loading needs the services below
        self._metrics, self._monitored, self._check = metrics, monitored, check_method_name

    def services(self):
        """replay.Services for the warm-up inside a load."""
        return replay.Services(*(lambda servable, request, call=call: call(servable, request, 0, self._check) for call in (
            predict.predict, classify.classify, regress.regress, multi_inference.multi_inference)))

    def handle(self, model_spec):
        """See Manager.handle."""
        return self.manager.handle(model_spec)

    def serve_predict(self, request, timeout_ms):
        """bytes of the PredictResponse."""
        return self._counted("Predict", predict.predict, request, timeout_ms)

    def serve_classify(self, request, timeout_ms):
        """ClassificationResponse."""
        return self._counted("Classify", classify.classify, request, timeout_ms)

    def serve_regress(self, request, timeout_ms):
        """RegressionResponse."""
        return self._counted("Regress", regress.regress, request, timeout_ms)

    def serve_multi_inference(self, request, timeout_ms):
        """MultiInferenceResponse. Not counted, as in the real server."""
        with self.handle(multi_inference.model_spec(request)) as servable:
            return multi_inference.multi_inference(servable, request, timeout_ms, self._check)

    def serve_reload(self, request):
        """Take over another configuration. Raises: Failure."""
        reload.check(request)
        self.manager.reload(request.config)

    def predict(self, servable, arrays, name, timeout_ms):
        """({alias: array}, signature name), for REST."""
        return self._measured("Predict", servable.name, "REST", lambda: predict.predict_arrays(servable, arrays, name, timeout_ms,
                                                                                               self._check))

    def classify(self, servable, request, timeout_ms):
        """ClassificationResponse, for REST."""
        return self._measured("Classify", servable.name, "REST", lambda: classify.classify(servable, request, timeout_ms, self._check))

    def regress(self, servable, request, timeout_ms):
        """RegressionResponse, for REST."""
        return self._measured("Regress", servable.name, "REST", lambda: regress.regress(servable, request, timeout_ms, self._check))

    def metadata(self, request):
        """GetModelMetadataResponse."""
        metadata.check(request)
        with self.handle(_spec(request)) as servable:
            return metadata.metadata(servable, request)

    def status(self, request):
        """GetModelStatusResponse."""
        return states.response(self.manager, request)

    def metrics(self):
        """The page for Prometheus, None where it is off."""
        return self._metrics.page() if self._monitored else None

    def _counted(self, api, call, request, timeout_ms):
        spec = _spec(request)

        def answer():
            with self.handle(spec) as servable:
                return call(servable, request, timeout_ms, self._check)

        return self._measured(api, spec.name if spec else "", "GRPC", answer)

    def _measured(self, api, model, entrypoint, answer):
        start, status = time.monotonic(), "OK"
        try:
            return answer()
        except failure.Failure as error:
            status = error.code.name
            raise
        except BaseException:
            status = "INTERNAL"
            raise
        finally:
            seconds = time.monotonic() - start
            self._metrics.request(model, api, status, seconds, seconds, entrypoint)


def _spec(request):
    return request.model_spec if request.HasField("model_spec") else None
