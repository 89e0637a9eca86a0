"""A failed request in TensorFlow Serving's form: a status code and a message."""

from __future__ import annotations

import grpc

INTERNAL = grpc.StatusCode.INTERNAL
_GRPC_LIMIT = 1024  # characters of an error text over gRPC; REST texts are whole
_CODE = grpc.StatusCode
_HTTP = {
    _CODE.OK: 200,
    _CODE.INVALID_ARGUMENT: 400,
    _CODE.FAILED_PRECONDITION: 400,
    _CODE.OUT_OF_RANGE: 400,
    _CODE.UNAUTHENTICATED: 401,
    _CODE.PERMISSION_DENIED: 403,
    _CODE.NOT_FOUND: 404,
    _CODE.ALREADY_EXISTS: 409,
    _CODE.ABORTED: 409,
    _CODE.RESOURCE_EXHAUSTED: 429,
    _CODE.CANCELLED: 499,
    _CODE.UNIMPLEMENTED: 501,
    _CODE.UNAVAILABLE: 503,
    _CODE.DEADLINE_EXCEEDED: 504,
}
_BY_NUMBER = {code.value[0]: code for code in _CODE}


class Failure(Exception):
    """Args: code: grpc.StatusCode. message: text."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def number(self) -> int:
        """The code as protobufs carry it, 3 for INVALID_ARGUMENT."""
        number: int = self.code.value[0]
        return number

    @property
    def grpc_message(self) -> str:
        """The message, cut as the server cuts it for gRPC."""
        return self.message if len(self.message) <= _GRPC_LIMIT else self.message[:_GRPC_LIMIT] + "...TRUNCATED"

    @property
    def http(self) -> int:
        """Status of the REST answer."""
        return _HTTP.get(self.code, 500)

    def to_text(self) -> str:
        """The status as TensorFlow prints it: "INVALID_ARGUMENT: message"."""
        return f"{self.code.name}: {self.message}"


def from_number(number: int, message: str) -> Failure:
    """A Failure of TensorFlow's error code, an int; TensorFlow's codes and gRPC's are the same."""
    return Failure(_BY_NUMBER.get(number, _CODE.UNKNOWN), message)


def invalid(message: str) -> Failure:
    """Failure INVALID_ARGUMENT."""
    return Failure(_CODE.INVALID_ARGUMENT, message)


def not_found(message: str) -> Failure:
    """Failure NOT_FOUND."""
    return Failure(_CODE.NOT_FOUND, message)


def precondition(message: str) -> Failure:
    """Failure FAILED_PRECONDITION."""
    return Failure(_CODE.FAILED_PRECONDITION, message)


def exhausted(message: str) -> Failure:
    """Failure RESOURCE_EXHAUSTED."""
    return Failure(_CODE.RESOURCE_EXHAUSTED, message)


def unimplemented(message: str) -> Failure:
    """Failure UNIMPLEMENTED."""
    return Failure(_CODE.UNIMPLEMENTED, message)
