"""Paths of the REST API (model_servers/http_rest_api_util.cc): finds which request is meant."""

from __future__ import annotations

import dataclasses
import re
import urllib.parse
from typing import TYPE_CHECKING, Literal

import grpc

from tftrt_tools.servers.serving.local import failure

if TYPE_CHECKING:
    from tensorflow_serving.apis import model_pb2


_WHERE = r"(?:/versions/(\d+)|/labels/([^/:]+))?"
_CALL = re.compile(r"/v1/models/([^/:]+)" + _WHERE + ":(classify|regress|predict)", re.IGNORECASE | re.ASCII)
_READ = re.compile(r"/v1/models(?:/([^/:]+))?" + _WHERE + "(?:/(metadata))?", re.IGNORECASE | re.ASCII)
_API = re.compile("/v1/.*", re.IGNORECASE | re.ASCII)
_ABSOLUTE = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#]*", re.IGNORECASE | re.ASCII)
# What libevent accepts as a path, a query and a fragment (RFC 3986).
_VALID = re.compile(
    r"(?P<path>(?:[\w.~!$&'()*+,;=:@/-]|%[0-9a-f]{2})*)(?:[?#](?:[\w.~!$&'()*+,;=:@/?#-]|%[0-9a-f]{2})*)?",
    re.IGNORECASE | re.ASCII,
)
_INT64_MAX = 2**63 - 1

Call = Literal["classify", "regress", "predict", "status", "metadata"]
_ASKED: tuple[Call, ...] = ("classify", "regress", "predict")


class Unwritten(failure.Failure):
    """A failure that the server answers with its status and an empty body."""


@dataclasses.dataclass(frozen=True)
class Route:
    """The route of a request: `call` is classify, regress, predict, status or metadata. version and label: None where not given."""

    call: Call
    name: str
    version: int | None
    label: str | None

    def fill(self, model_spec: model_pb2.ModelSpec) -> None:
        """Put the name and the version or the label into a ModelSpec."""
        model_spec.name = self.name
        if self.version is not None:
            model_spec.version.value = self.version
        if self.label is not None:
            model_spec.version_label = self.label


def split(target: str) -> tuple[str, str] | None:
    """The path, and the path with query and fragment, of a request target. Returns: None where it is no valid URI."""
    match = _ABSOLUTE.match(target)
    target = target[match.end() :] if match else target
    match = _VALID.fullmatch(target)
    return (match["path"], target) if match else None


def is_api(target: str) -> bool:
    """Whether the REST API answers for this target; others get a 404 page."""
    return _API.fullmatch(target) is not None


def find(verb: str, target: str) -> Route:
    """The route of a request.

    The whole target must match, so a query makes it malformed; the case of the method does matter, unlike the path's.
    Raises: Failure INVALID_ARGUMENT; Unwritten where the version is beyond 64 bits.
    """
    call: Call | None = None
    name = version = label = ""
    if verb == "POST" and (match := _CALL.fullmatch(target)):
        name, version, label, word = match.groups(default="")
        call = next((method for method in _ASKED if method == word), None)
    elif verb == "GET" and (match := _READ.fullmatch(target)):
        name, version, label, what = match.groups(default="")
        call = "metadata" if what == "metadata" else "status"
    digits = version.lstrip("0")
    if len(digits) > 19 or int(digits or 0) > _INT64_MAX:
        raise Unwritten(grpc.StatusCode.INVALID_ARGUMENT, f"Failed to convert version: {version} to numeric.")
    if call is None:
        raise failure.invalid(f"Malformed request: {verb} {target}")
    if not name:
        raise failure.invalid("Missing model name in request.")
    return Route(call, _decoded(name), int(digits or 0) if version else None, _decoded(label) if label else None)


def _decoded(text: str) -> str:
    return urllib.parse.unquote_to_bytes(text).decode("utf-8", "replace")
