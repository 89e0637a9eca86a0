"""The server under test as the tests see it: two stubs, one REST function, and what it refuses."""

import dataclasses
import http.client
import json
import re

import grpc

MESSAGE_LIMIT = 256 << 20  # bytes; the client's own default is 4 MiB
_OPTIONS = [("grpc.max_send_message_length", MESSAGE_LIMIT), ("grpc.max_receive_message_length", MESSAGE_LIMIT)]
TIMEOUT = 30.0  # seconds for one call that has no deadline of its own


@dataclasses.dataclass(frozen=True)
class RestAnswer:
    """status: HTTP number. headers: {lower-case name: value}. body: bytes."""

    status: int
    headers: dict
    body: bytes

    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        """The text of `{"error": TEXT}`, which has to be all there is."""
        answer = self.json()
        assert list(answer) == ["error"], answer
        return answer["error"]


class Server:
    """One address. grpc_address, rest_address: "HOST:PORT"; folder: the models' folder where this process can write it, or None."""

    def __init__(self, grpc_address, rest_address, folder=None):
        from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

        self.grpc_address, self.rest_address, self.folder = grpc_address, rest_address, folder
        self.channel = grpc.insecure_channel(grpc_address, _OPTIONS)
        self.prediction = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)
        self.model = model_service_pb2_grpc.ModelServiceStub(self.channel)

    def close(self):
        self.channel.close()

    def predict(self, model, inputs, timeout=TIMEOUT, **options):
        """PredictResponse of `predict_request(model, inputs, **options)`."""
        return self.prediction.Predict(predict_request(model, inputs, **options), timeout=timeout)

    def rest(self, verb, path, body=None, headers=(), timeout=TIMEOUT):
        """Send exactly this path. body: bytes, text or something to write as JSON. Returns: RestAnswer."""
        if body is not None and not isinstance(body, bytes | str):
            body = json.dumps(body)
        connection = http.client.HTTPConnection(self.rest_address, timeout=timeout)
        try:
            connection.request(verb, path, body, dict(headers))
            answer = connection.getresponse()
            return RestAnswer(
                answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
            )
        finally:
            connection.close()

    def rest_predict(self, model, body, **options):
        return self.rest("POST", f"/v1/models/{model}:predict", body, **options)


def spec(name=None, version=None, label=None, signature=None):
    """ModelSpec; what is None stays unset."""
    from tensorflow_serving.apis import model_pb2

    answer = model_pb2.ModelSpec(name=name or "", signature_name=signature or "")
    if version is not None:
        answer.version.value = version
    if label is not None:
        answer.version_label = label
    return answer


def tensor(value, dtype=None):
    """TensorProto with its values in tensor_content (strings: string_val)."""
    import numpy as np
    import tensorflow as tf

    value = value if isinstance(value, np.ndarray) else np.asarray(value, dtype if dtype is not None else np.float32)
    return tf.make_tensor_proto(value)


def predict_request(model, inputs, version=None, label=None, signature=None, output_filter=()):
    """PredictRequest. inputs: {alias: TensorProto, or values that become float32}."""
    from tensorflow.core.framework import tensor_pb2
    from tensorflow_serving.apis import predict_pb2

    request = predict_pb2.PredictRequest(model_spec=spec(model, version, label, signature), output_filter=output_filter)
    for alias, value in inputs.items():
        request.inputs[alias].CopyFrom(value if isinstance(value, tensor_pb2.TensorProto) else tensor(value))
    return request


def refusal(call, request, timeout=TIMEOUT):
    """(code name, message) of a gRPC call that has to fail."""
    try:
        answer = call(request, timeout=timeout)
    except grpc.RpcError as error:
        return error.code().name, error.details()
    raise AssertionError(f"answered {answer!r}, expected a refusal")


def assert_refused(call, request, code, message=None, *, pattern=None, timeout=TIMEOUT):
    """The call fails with this code and this message, or one that the pattern matches as a whole."""
    _compare(refusal(call, request, timeout), code, message, pattern)


def assert_rest_refused(answer, status, message=None, *, pattern=None):
    """A RestAnswer that is `{"error": message}` with this status."""
    assert answer.headers["content-type"] == "application/json"
    _compare((answer.status, answer.error), status, message, pattern)


def _compare(got, code, message, pattern):
    if pattern is None:
        assert got == (code, message)
    else:
        assert got[0] == code, got
        assert re.fullmatch(pattern, got[1], re.DOTALL), f"{got[1]!r} is not like {pattern!r}"
