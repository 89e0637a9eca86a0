"""Waits until a started server accepts requests: it opens its ports only after its first models are loaded and warm."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

_SECONDS = 2
_GRPC_LINE = re.compile(r"Running gRPC ModelServer at (\S+):(\d+) \.\.\.")
_REST_LINE = re.compile(r"Exporting HTTP/REST API at:\s*(\S+):(\d+) \.\.\.")

if TYPE_CHECKING:
    from tftrt_tools.client import Client


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
    # Whether the gRPC port speaks TLS; then the server is ready when its log says so.
    tls: bool = False


@dataclasses.dataclass(frozen=True)
class Ready:
    """A server that answers: "host:port" of gRPC and of REST ("" where off), and (model, its versions that are available) pairs."""

    grpc: str
    rest: str
    models: tuple[tuple[str, tuple[int, ...]], ...]

    # Not a Record: the models are pairs, and are written as an object.
    def to_dict(self) -> dict[str, Any]:
        return {"grpc": self.grpc, "rest": self.rest, "models": {name: list(versions) for name, versions in self.models}}


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
        self._client: Client | None = None

    def note(self, line: str) -> None:
        """Take a line of the server's log: the ports stand there."""
        for kind, pattern in (("grpc", _GRPC_LINE), ("rest", _REST_LINE)):
            found = pattern.search(line)
            if found:
                self._announced[kind] = int(found[2])

    def ask(self) -> Ready | None:
        """Ready, or None as long as a model has no version that is available."""
        port = self._probe.port or self._announced.get("grpc")
        if not port or self._probe.rest_port < 0 and "rest" not in self._announced:
            return None
        if self._probe.tls:
            return self._ready(port, ((name, ()) for name in self._probe.models)) if "grpc" in self._announced else None
        answers = []
        # A server without models is up when it says that it knows none.
        for name in self._probe.models or ("",):
            versions = self._versions(port, name)
            if versions is None or name and not versions:
                return None
            answers.append((name, versions))
        return self._ready(port, ((name, versions) for name, versions in answers if name))

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()

    def _ready(self, port: int, models: Iterable[tuple[str, tuple[int, ...]]]) -> Ready:
        host, rest = self._probe.host, self._probe.rest_port and (self._announced.get("rest") or self._probe.rest_port)
        return Ready(_address(host, port), _address(host, rest) if rest else "", tuple(models))

    def _versions(self, port: int, name: str) -> tuple[int, ...] | None:
        """Versions of model `name` that are available, () where the server knows none, None where it does not answer."""
        from tftrt_tools import client
        from tftrt_tools.client.model_service import AVAILABLE

        if self._client is None:
            # Requests to this machine need no proxy.
            self._client = client.Client(_address(self._probe.host, port), timeout=_SECONDS, retries=0, proxy=False)
        try:
            found = self._client.status(name)
        except client.ServingError as error:
            return () if error.code == "NOT_FOUND" else None
        return tuple(sorted(one.version for one in found if one.state == AVAILABLE))
