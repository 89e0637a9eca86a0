"""Waits until a started server accepts requests at each of its addresses: it opens them one after the other, after its first models are
loaded and warm."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import re
import socket
import ssl
import urllib.parse
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

_SECONDS = 2
_GRPC_LINE = re.compile(r"Running gRPC ModelServer at (\S+):(\d+) \.\.\.")
_REST_LINE = re.compile(r"Exporting HTTP/REST API at:\s*(\S+):(\d+) \.\.\.")

if TYPE_CHECKING:
    from tftrt_tools.servers.client import Client


@dataclasses.dataclass(frozen=True, kw_only=True)
class Probe:
    """How to reach a server."""

    # Its address.
    host: str
    # The ports of gRPC and REST; 0 and -1 if only the log tells them.
    port: int
    rest_port: int
    # The names of the models.
    models: tuple[str, ...]
    # Whether the gRPC port speaks TLS, whose certificates are the clients' business: it answers once a handshake is done.
    tls: bool = False
    # Whether it speaks ALTS; then the server is ready when its log says so.
    alts: bool = False
    # Where gRPC listens besides, "" for nowhere.
    socket_path: str = ""
    # Where the metrics are, "" where they are off.
    metrics_path: str = ""


@dataclasses.dataclass(frozen=True)
class Ready:
    """A server that answers: "host:port" of gRPC and of REST ("" where off), and (model, its versions that are available) pairs."""

    grpc: str
    rest: str
    models: tuple[tuple[str, tuple[int, ...]], ...]

    # Not a Record: the models are pairs, and are written as an object.
    def to_dict(self) -> dict[str, Any]:
        return {
            "grpc": self.grpc,
            "rest": self.rest,
            "models": {name: list(versions) for name, versions in self.models},
        }


def reached_at(host: str) -> str:
    """The address at which this machine reaches a server that listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Watch:
    """Asks one server repeatedly."""

    def __init__(self, probe: Probe) -> None:
        """Args: probe: Probe."""
        self._probe = probe
        self._announced: dict[str, int] = {}
        self._clients: dict[str, Client] = {}

    def note(self, line: str) -> None:
        """Take a line of the server's log: the ports stand there."""
        for kind, pattern in (("grpc", _GRPC_LINE), ("rest", _REST_LINE)):
            match = pattern.search(line)
            if match:
                self._announced[kind] = int(match[2])

    def ask(self) -> Ready | None:
        """Ready, or None as long as an address does not answer, or a model has no version that is available."""
        ready = self._loaded()
        return ready if ready and self._others_answer(ready) else None

    def _loaded(self) -> Ready | None:
        port = self._probe.port or self._announced.get("grpc")
        if not port or self._probe.rest_port < 0 and "rest" not in self._announced:
            return None
        if self._probe.tls or self._probe.alts:
            up = "grpc" in self._announced if self._probe.alts else _shakes_hands(self._probe.host, port)
            return self._ready(port, ((name, ()) for name in self._probe.models)) if up else None
        answers = []
        # A server without models is up when it says that it knows none.
        for name in self._probe.models or ("",):
            versions = self._versions(_address(self._probe.host, port), name)
            if versions is None or name and not versions:
                return None
            answers.append((name, versions))
        return self._ready(port, ((name, versions) for name, versions in answers if name))

    def _others_answer(self, ready: Ready) -> bool:
        """Whether the addresses besides gRPC's port answer: REST in any way, the metrics with their page."""
        probe = self._probe
        name = probe.models[0] if probe.models else ""
        return (
            (not ready.rest or _http_status(ready.rest, f"/v1/models/{name}") > 0)
            and (not probe.metrics_path or _http_status(ready.rest, probe.metrics_path) == http.HTTPStatus.OK)
            and (not probe.socket_path or self._versions(f"unix:{probe.socket_path}", name) is not None)
        )

    def close(self) -> None:
        """Close the connections."""
        for one in self._clients.values():
            one.close()

    def _ready(self, port: int, models: Iterable[tuple[str, tuple[int, ...]]]) -> Ready:
        host, rest = self._probe.host, self._probe.rest_port and (self._announced.get("rest") or self._probe.rest_port)
        return Ready(_address(host, port), _address(host, rest) if rest else "", tuple(models))

    def _versions(self, address: str, name: str) -> tuple[int, ...] | None:
        """Versions of model `name` that are available, () where the server knows none, None where it does not answer."""
        from tftrt_tools.servers import client
        from tftrt_tools.servers.client.model_service import AVAILABLE

        if address not in self._clients:
            # Requests to this machine need no proxy.
            self._clients[address] = client.Client(address, timeout=_SECONDS, retries=0, proxy=False)
        try:
            states = self._clients[address].status(name)
        except client.ServingError as error:
            return () if error.code == "NOT_FOUND" else None
        return tuple(sorted(state.version for state in states if state.state == AVAILABLE))


def _http_status(address: str, path: str) -> int:
    """The status with which a path is answered, 0 where it is not."""
    connection = http.client.HTTPConnection(address, timeout=_SECONDS)
    try:
        connection.request("GET", urllib.parse.quote(path))
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def _shakes_hands(host: str, port: int) -> bool:
    """Whether TLS answers there, whatever its certificate is."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with (
        contextlib.suppress(OSError),
        socket.create_connection((host, port), _SECONDS) as own,
        context.wrap_socket(own),
    ):
        return True
    return False
