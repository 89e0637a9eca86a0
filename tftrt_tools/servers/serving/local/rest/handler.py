"""Answers one REST request (model_servers/http_rest_api_handler.cc, http_server.cc). No sockets here."""

from __future__ import annotations

import dataclasses
import http
import logging
import zlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_pb2,
    regression_pb2,
)

from tftrt_tools.servers.serving.local import failure
from tftrt_tools.servers.serving.local.rest import examples_in, json_in, json_out, parse, proto_json, routes
from tftrt_tools.servers.serving.local.servable import AnyServable, Array

# A request of Classify or Regress.
_Filled = TypeVar("_Filled", classification_pb2.ClassificationRequest, regression_pb2.RegressionRequest)
METRICS_PATH = "/monitoring/prometheus/metrics"
_VERBS = ("GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH")  # libevent itself refuses others
_MAX_UNCOMPRESSED = 100 * 2**20  # bytes; net_http/compression/gzip_zlib.h
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Answer:
    """status: int. content_type: str. body: bytes. close: whether the connection ends with it."""

    status: int
    content_type: str
    body: bytes
    close: bool = False


def page(status: int) -> Answer:
    """The HTML page with which libevent answers requests that never reach the REST API."""
    phrase = http.HTTPStatus(status).phrase
    return Answer(
        status,
        "text/html",
        f"<HTML><HEAD>\n<TITLE>{status} {phrase}</TITLE>\n</HEAD><BODY>\n<H1>{phrase}</H1>\n</BODY></HTML>\n".encode(),
        close=True,
    )


class Backend(Protocol):
    """The interface of core.Core."""

    def handle(self, model_spec: model_pb2.ModelSpec) -> AbstractContextManager[AnyServable]: ...

    def predict(
        self, servable: AnyServable, arrays: Mapping[str, Array], name: str, timeout_ms: int
    ) -> tuple[dict[str, Array], str]: ...

    def classify(
        self, servable: AnyServable, request: classification_pb2.ClassificationRequest, timeout_ms: int
    ) -> classification_pb2.ClassificationResponse: ...

    def regress(
        self, servable: AnyServable, request: regression_pb2.RegressionRequest, timeout_ms: int
    ) -> regression_pb2.RegressionResponse: ...

    def metadata(
        self, request: get_model_metadata_pb2.GetModelMetadataRequest
    ) -> get_model_metadata_pb2.GetModelMetadataResponse: ...

    def status(
        self, request: get_model_status_pb2.GetModelStatusRequest
    ) -> get_model_status_pb2.GetModelStatusResponse: ...

    def metrics(self) -> str | None: ...


class Handler:
    """Answers REST requests from a backend.

    Args:
      backend: answers the requests.
      timeout_ms: deadline of one model run, handed to the backend; 0: none.
      metrics_path: where Prometheus reads, if backend.metrics() returns a text.
    """

    def __init__(self, backend: Backend, timeout_ms: int = 0, metrics_path: str = METRICS_PATH) -> None:
        self._backend = backend
        self._timeout_ms = max(timeout_ms, 0)
        self._metrics_path = metrics_path
        self._calls: dict[routes.Call, Callable[[routes.Route, bytes], bytes]] = {
            "predict": self._predict,
            "classify": self._classify,
            "regress": self._regress,
            "status": self._status,
            "metadata": self._metadata,
        }

    def answer(self, verb: str, target: str, encoding: str, body: bytes) -> Answer:
        """Answer one request; never raises.

        Args: verb: "POST". target: str as it stood in the request line. encoding: the Content-Encoding, "" where none. body: bytes.
        Returns: Answer.
        """
        try:
            return self._answer(verb, target, encoding, body)
        except Exception as error:
            _log.exception("a fault of the development server: the REST request %s %s failed", verb, target)
            return _json(500, json_out.error(f"{type(error).__name__}: {error}"))

    def _answer(self, verb: str, target: str, encoding: str, body: bytes) -> Answer:
        parts = routes.split(target)
        if verb not in _VERBS:
            return page(501)
        if parts is None:
            return page(400)
        path, target = parts
        if path == self._metrics_path and (text := self._backend.metrics()) is not None:
            if target != path:
                return Answer(400, "text/plain", f"Unexpected path: {target}. Should be {path}".encode())
            return Answer(200, "text/plain", text.encode())
        if not routes.is_api(target):
            return page(404)
        if verb == "OPTIONS" and body:
            return Answer(400, "text/html", b"")
        try:
            route = routes.find(verb, target)
            return _json(200, self._calls[route.call](route, uncompressed(body) if "gzip" in encoding else body))
        except routes.Unwritten as error:
            return _json(error.http, b"")
        except failure.Failure as error:
            return _json(error.http, json_out.error(error.message))

    def _predict(self, route: routes.Route, body: bytes) -> bytes:
        document = parse.parse(body)
        name = json_in.signature_name(document)
        spec = model_pb2.ModelSpec()
        route.fill(spec)
        spec.signature_name = _proto_text(name)
        with self._backend.handle(spec) as servable:
            signature = servable.signatures.get(name or json_in.DEFAULT_SIGNATURE)
            if signature is None:
                raise failure.invalid(
                    f'Serving signature name: "{name or json_in.DEFAULT_SIGNATURE}" not found in signature def'
                )
            rows, arrays = json_in.tensors(document, dict(signature.inputs))
            del document
            outputs, _ = self._backend.predict(servable, arrays, name, self._timeout_ms)
        return json_out.outputs(outputs, rows)

    def _classify(self, route: routes.Route, body: bytes) -> bytes:
        request = self._filled(classification_pb2.ClassificationRequest(), route, body)
        with self._backend.handle(request.model_spec) as servable:
            return json_out.classification(self._backend.classify(servable, request, self._timeout_ms).result)

    def _regress(self, route: routes.Route, body: bytes) -> bytes:
        request = self._filled(regression_pb2.RegressionRequest(), route, body)
        with self._backend.handle(request.model_spec) as servable:
            return json_out.regression(self._backend.regress(servable, request, self._timeout_ms).result)

    @staticmethod
    def _filled(request: _Filled, route: routes.Route, body: bytes) -> _Filled:
        document = parse.parse(body)
        route.fill(request.model_spec)
        request.model_spec.signature_name = _proto_text(json_in.signature_name(document))
        examples_in.fill(document, request.input)
        return request

    def _status(self, route: routes.Route, _: bytes) -> bytes:
        request = get_model_status_pb2.GetModelStatusRequest()
        route.fill(request.model_spec)
        return proto_json.status(self._backend.status(request))

    def _metadata(self, route: routes.Route, _: bytes) -> bytes:
        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        route.fill(request.model_spec)
        return proto_json.metadata(self._backend.metadata(request))


def uncompressed(body: bytes) -> bytes:
    """The content of a gzip body; b"" of one that is broken or larger than the server takes, 100 MiB."""
    try:
        stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        content = stream.decompress(body, _MAX_UNCOMPRESSED)
    except zlib.error:
        return b""
    return content if stream.eof else b""


def _json(status: int, body: bytes) -> Answer:
    return Answer(status, "application/json", body)


def _proto_text(text: str) -> str:
    return json_in.as_bytes(text).decode("utf-8", "replace")
