"""A model of NumPy functions and a backend around it, for the tests of the REST layer."""

import contextlib
import threading
import time

import grpc
import numpy as np

from tftrt_tools.servers.serving.local import failure

NAME = "demo"
VERSION = 7
DTYPES = {
    "float": 1,
    "double": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 5,
    "int8": 6,
    "string": 7,
    "complex64": 8,
    "int64": 9,
    "bool": 10,
    "bfloat16": 14,
    "half": 19,
    "uint32": 22,
    "uint64": 23,
}


def signature(inputs, outputs=(), method="tensorflow/serving/predict"):
    """A SignatureDef; inputs and outputs: dict of alias to a dtype's name."""
    from tensorflow.core.protobuf import meta_graph_pb2

    made = meta_graph_pb2.SignatureDef(method_name=method)
    for tensors, wanted in ((made.inputs, inputs), (made.outputs, dict(outputs))):
        for alias, dtype in wanted.items():
            tensors[alias].name = f"{alias}:0"
            tensors[alias].dtype = DTYPES[dtype]
            tensors[alias].tensor_shape.dim.add(size=-1)
    return made


class Servable:
    """Signatures, each with its function of arrays to a dict of arrays."""

    name, version = NAME, VERSION

    def __init__(self):
        f = "float"
        barrier = threading.Barrier(3, timeout=20)
        self.functions = {
            "serving_default": (signature({"x": f}, {"y": f}), lambda x: {"y": x / np.float32(2) + np.float32(2)}),
            "pair": (
                signature({"a": f, "b": f}, {"sum": f, "product": f}),
                lambda a, b: {"sum": a + b, "product": a * b},
            ),
            "text": (
                signature({"s": "string"}, {"t": "string", "t_bytes": "string"}),
                lambda s: {"t": s, "t_bytes": s},
            ),
            "uneven": (signature({"x": f}, {"p": f, "q": f}), lambda x: {"p": x, "q": x[:1]}),
            "total": (signature({"x": f}, {"y": f}), lambda x: {"y": x.sum()}),
            "slow": (signature({"x": f}, {"y": f}), lambda x: {"y": time.sleep(float(x.max())) or x}),
            "meet": (signature({"x": f}, {"y": f}), lambda x: {"y": x + np.float32(barrier.wait() * 0)}),
            "broken": (signature({"x": f}, {"y": f}), lambda x: {"y": x.no_such_method()}),
            "empty": (signature({}), lambda: {}),
            "default": (signature({"x": f, "k": f}, {"y": f}), lambda x, k: {"y": x * k}),
            "to_half": (signature({"x": f}, {"y": "half"}), lambda x: {"y": x.astype(np.float16)}),
            **{dtype: (signature({"x": dtype}, {"y": dtype}), lambda x: {"y": x}) for dtype in DTYPES},
        }
        self.functions["default"][0].defaults["k"].float_val.append(3)
        self.signatures = {name: made for name, (made, _) in self.functions.items()}


class Backend:
    """What RestServer asks. in_flight: handles not given back."""

    def __init__(self):
        self.servable = Servable()
        self.in_flight = 0
        self.metrics_text = "# TYPE up gauge\nup 1\n"

    @contextlib.contextmanager
    def handle(self, spec):
        if spec.version_label and spec.version_label != "stable":
            raise failure.invalid(f"Unrecognized servable version label: {spec.version_label}")
        if spec.HasField("version") and (spec.name, spec.version.value) != (NAME, VERSION):
            raise failure.not_found(f"Servable not found for request: Specific({spec.name}, {spec.version.value})")
        if spec.name != NAME:
            raise failure.not_found(f"Servable not found for request: Latest({spec.name})")
        self.in_flight += 1
        try:
            yield self.servable
        finally:
            self.in_flight -= 1

    def predict(self, servable, inputs, signature_name, timeout_ms):
        _, function = servable.functions[signature_name or "serving_default"]
        begun = time.monotonic()
        outputs = function(**inputs)
        if timeout_ms and (time.monotonic() - begun) * 1000 > timeout_ms:
            raise failure.Failure(grpc.StatusCode.DEADLINE_EXCEEDED, "Timed out waiting for notification")
        return outputs, signature_name or "serving_default"

    def classify(self, servable, request, timeout_ms):
        from tensorflow_serving.apis import classification_pb2

        response = classification_pb2.ClassificationResponse()
        for value in self._features(request):
            classes = response.result.classifications.add().classes
            classes.add(label="low", score=1 - value)
            classes.add(label="high", score=value)
        return response

    def regress(self, servable, request, timeout_ms):
        from tensorflow_serving.apis import regression_pb2

        response = regression_pb2.RegressionResponse()
        for value in self._features(request):
            response.result.regressions.add(value=2 * value)
        return response

    @staticmethod
    def _features(request):
        given = (
            request.input.example_list_with_context
            if request.input.HasField("example_list_with_context")
            else request.input.example_list
        )
        context = (
            given.context.features.feature["x"].float_list.value
            if request.input.HasField("example_list_with_context")
            else ()
        )
        for example in given.examples:
            values = example.features.feature["x"].float_list.value or context
            if not values:
                raise failure.invalid("Feature: x (data type: float) is required but could not be found.")
            yield values[0]

    def status(self, request):
        from tensorflow_serving.apis import get_model_status_pb2

        spec = request.model_spec
        if spec.name != NAME:
            raise failure.not_found(f"Could not find any versions of model {spec.name}")
        if spec.HasField("version") and spec.version.value != VERSION:
            raise failure.not_found(f"Could not find version {spec.version.value} of model {spec.name}")
        response = get_model_status_pb2.GetModelStatusResponse()
        found = response.model_version_status.add(version=VERSION, state=30)
        found.status.SetInParent()
        return response

    def metadata(self, request):
        from tensorflow_serving.apis import get_model_metadata_pb2

        signatures = get_model_metadata_pb2.SignatureDefMap()
        signatures.signature_def["serving_default"].CopyFrom(self.servable.signatures["serving_default"])
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        with self.handle(request.model_spec):
            response.model_spec.name = NAME
            response.model_spec.version.value = VERSION
            response.metadata["signature_def"].Pack(signatures)
        return response

    def metrics(self):
        return self.metrics_text
