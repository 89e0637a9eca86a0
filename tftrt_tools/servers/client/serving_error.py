"""A call that failed, as one clear line: the only place that puts gRPC's statuses into words."""

import re
from collections.abc import Mapping

from tftrt_tools.base import errors
from tftrt_tools.servers.client.protocol import Protocol

# gRPC's own words, not the server's, when the channel has no connection.
_NO_TLS = ("handshake", "certificate", "hostname verification", "ssl_error")
_NO_CONNECTION = (
    "failed to connect",
    "connections to all backends failing",
    "dns resolution failed",
    "errors resolving",
)
_HTTP = ("http1", "http/1", "parsing http/2", "trying to connect an http")
_LOST = (
    "socket closed",
    "connection reset",
    "broken pipe",
    "goaway",
    "stream removed",
    "connection aborted",
    "endpoint closing",
)
# gRPC's words in a server of which more was asked at once than its threads can do.
_NO_THREADS = "threadpool exhausted"
# Triton's words.
_NO_ID = "[request id: <id_unknown>] "
_NOT_EXPLICIT = "explicit model load / unload is not allowed"
_DECOUPLED, _NOT_LOADED = "decoupled transaction policy", "has no available versions"
ONE_ANSWER = "ask it with a client of ModelStreamInfer, such as tritonclient: here each request has one answer"
# The words of gRPC's libraries for a method that a server does not have. A server that has it may refuse a call with the same status.
_NO_METHOD = re.compile(r"$|method not |unknown (method|service)|unimplemented", re.IGNORECASE)


class ServingError(errors.TftrtError):
    """The server refused, failed, or did not answer.

    Attributes: code: name of the gRPC status, such as "NOT_FOUND"; message: the server's text, or gRPC's if no server answered.
    """

    def __init__(self, code: str, message: str, cause: str = "", mend: str = "") -> None:
        super().__init__(cause or f"{code}: {message}", mend)
        self.code, self.message = code, message

    @property
    def line(self) -> str:
        """The message in one line."""
        return one_line(self.message)


def of(
    code: str,
    message: str,
    address: str,
    seconds: float | None,
    protocol: Protocol,
    method: str = "",
    mends: Mapping[str, str] | None = None,
) -> ServingError:
    """The ServingError of a gRPC status.

    Args: code: its name; message: its details; seconds: the call's deadline, None for none; protocol: that was spoken; method: the last
    part of the call's path, "" for the one that runs a model; mends: {code: what to do}, in place of the words here.
    """
    cause, mend = _words(code, message, address, seconds, protocol, method or protocol.runs)
    return ServingError(code, message, cause, (mends or {}).get(code, mend))


def no_thread_left(code: str, message: str) -> bool:
    """Whether a status says that all of the server's gRPC threads (--grpc_max_threads) were busy, so that it refused the call."""
    return code == "RESOURCE_EXHAUSTED" and _NO_THREADS in message.lower()


def one_line(text: str) -> str:
    """Each run of white space becomes one space; Triton's word for a request that the client gave no id is left out."""
    return " ".join(text.removeprefix(_NO_ID).split())


def _words(
    code: str, message: str, address: str, seconds: float | None, protocol: Protocol, method: str
) -> tuple[str, str]:
    server, runs = protocol.server, method == protocol.runs
    if code == "UNAVAILABLE":
        return _unavailable(one_line(message), address, protocol)
    if code == "DEADLINE_EXCEEDED":
        return (
            f"no answer from {address}" + ("" if seconds is None else f" within {seconds:g} s"),
            "give more time (timeout), or ask for fewer rows at once"
            if runs
            else f"is that the gRPC port of a {server}? give more time (timeout)",
        )
    if code == "UNIMPLEMENTED" and _DECOUPLED in message:
        return f"{address}: the model is decoupled: it answers a request with a stream", ONE_ANSWER
    if code == "NOT_FOUND" and _NOT_LOADED in message:
        return (
            f"{address} says {code}: {one_line(message)}",
            "status(model) of the client, and `tftrt versions`, say why it is not loaded",
        )
    if code == "UNIMPLEMENTED" and (protocol.only_its_own or not runs) and _NO_METHOD.match(message):
        return f"{address} is no {server}: it has no {method}", f"give the gRPC port of a {server}; {protocol.instead}"
    if no_thread_left(code, message):
        return (
            f"{address} has no thread left for this call: {one_line(message)}",
            "send fewer calls at once, or start the server with a larger --grpc_max_threads (by default 4 for each core)",
        )
    # A model may hold an op that the server does not have: TensorFlow Serving may answer UNIMPLEMENTED to Predict only.
    return (
        f"{address} says {code}: {one_line(message)}",
        f"is that the gRPC port of a {server}?" if code == "UNIMPLEMENTED" and not protocol.only_its_own else "",
    )


def _unavailable(line: str, address: str, protocol: Protocol) -> tuple[str, str]:
    """(cause, mend) of a call that ended with UNAVAILABLE. Args: line: its details in one line."""
    low, reason = line.lower(), _reason(line)
    connected = not any(sign in low for sign in _NO_CONNECTION)
    closed = any(sign in low for sign in _LOST)
    if any(sign in low for sign in _NO_TLS):
        cause = f"no TLS with {address}: {reason}"
        mend = (
            "the server's certificate must be signed by the root that is trusted (Tls(root=…), --tls_root) and name this host; "
            "does the server speak TLS there?"
        )
    elif any(sign in low for sign in _HTTP):
        cause, mend = (
            f"{address} speaks HTTP, not gRPC",
            f"give the gRPC port, {protocol.port} by default, not the REST port",
        )
    elif closed and not connected:
        cause = f"{address} closes the connection at once: {reason}"
        mend = (
            f"is it the gRPC port ({protocol.port} by default)? does it ask for TLS, or for a client certificate? give them (Tls(…), "
            "the flags --tls…)"
        )
    elif not connected:
        cause = f"no server at {address}: {reason}"
        mend = "start it, or fix the address; its ports open when its first models are loaded"
        if "[::1]" in line:
            # gRPC tried several addresses and repeats the last one's error. Another address may have closed the connection.
            mend += "; where it asks for TLS, give the flags --tls…"
    elif _NOT_EXPLICIT in low:
        cause = f"{address} loads models by itself: {line}"
        mend = "start it with --model-control-mode=explicit, or let it poll its repository"
    elif closed:
        cause, mend = f"the connection to {address} was lost: {reason}", "is the server still there? see its log"
    else:
        cause, mend = f"{address} says UNAVAILABLE: {line}", ""
    return cause, mend


def _reason(line: str) -> str:
    """gRPC's own text without the addresses that it tried; of OpenSSL's text only the error."""
    line = re.sub(r"((: OK)|\])+$", "", line)
    openssl = line.rpartition("OPENSSL_internal:")[2]
    return openssl if openssl != line else line.rpartition(": ")[2] or line
