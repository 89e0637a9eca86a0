"""When a started server can be asked: it opens its ports only after the models it starts with are loaded and warm."""

import dataclasses
import re

AVAILABLE = 30
_SECONDS = 2
_GRPC_LINE = re.compile(r"Running gRPC ModelServer at (\S+):(\d+) \.\.\.")
_REST_LINE = re.compile(r"Exporting HTTP/REST API at:\s*(\S+):(\d+) \.\.\.")


@dataclasses.dataclass(frozen=True)
class Probe:
    """How to ask a server. host: where it is reached; port, rest_port: 0 and -1 where only the log says which; models: names; tls: the
    gRPC port does not speak plainly, so the log alone is believed.
    """

    host: str
    port: int
    rest_port: int
    models: tuple
    tls: bool = False


@dataclasses.dataclass(frozen=True)
class Ready:
    """A server that answers: "host:port" of gRPC and of REST ("" where off), and (model, its versions that are available) pairs."""

    grpc: str
    rest: str
    models: tuple

    def to_dict(self):
        return {"grpc": self.grpc, "rest": self.rest, "models": {name: list(versions) for name, versions in self.models}}


def reached_at(host):
    """Where a server that listens on `host` is reached from this machine."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def _address(host, port):
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Watch:
    """Asks one server again and again."""

    def __init__(self, probe):
        """Args: probe: Probe."""
        self._probe = probe
        self._announced = {}
        self._channel = None

    def note(self, line):
        """Take a line of the server's log: the ports stand there."""
        for kind, pattern in (("grpc", _GRPC_LINE), ("rest", _REST_LINE)):
            found = pattern.search(line)
            if found:
                self._announced[kind] = int(found[2])

    def ask(self):
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

    def close(self):
        """Close the connection."""
        if self._channel is not None:
            self._channel.close()

    def _ready(self, port, models):
        host, rest = self._probe.host, self._probe.rest_port and (self._announced.get("rest") or self._probe.rest_port)
        return Ready(_address(host, port), _address(host, rest) if rest else "", tuple(models))

    def _versions(self, port, name):
        """Versions of model `name` that are available, () where the server knows none, None where it does not answer."""
        import grpc

        from tftrt_tools.serving import management_messages as messages

        if self._channel is None:
            # A refused connection is tried again at once: the port may open any moment. No proxy stands before this machine itself.
            options = [("grpc.enable_http_proxy", 0), ("grpc.initial_reconnect_backoff_ms", 200), ("grpc.max_reconnect_backoff_ms", 500)]
            self._channel = grpc.insecure_channel(_address(self._probe.host, port), options)
        request = messages.new("GetModelStatusRequest")
        request.model_spec.name = name
        try:
            answer = messages.calls(self._channel)[messages.GET_MODEL_STATUS](request, timeout=_SECONDS)
        except grpc.RpcError as error:
            return () if error.code() == grpc.StatusCode.NOT_FOUND else None
        return tuple(sorted(one.version for one in answer.model_version_status if one.state == AVAILABLE))
