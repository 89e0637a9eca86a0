"""What is asked of a running TensorFlow Serving over gRPC, with one clear line for each way in which that fails."""

import dataclasses
import re

from tftrt_tools import errors
from tftrt_tools.serving import management_messages as messages

DEFAULT_PORT = 8500
LOADING, AVAILABLE, END = "LOADING", "AVAILABLE", "END"


class ServerError(errors.TftrtError):
    """The server said no, or nothing. code: name of the gRPC status, such as "NOT_FOUND"; text: the server's words."""

    def __init__(self, code, text, cause, mend=""):
        super().__init__(cause, mend)
        self.code, self.text = code, text


@dataclasses.dataclass(frozen=True)
class VersionStatus:
    """One version. state: START, LOADING, AVAILABLE, UNLOADING or END; error_code: name, "OK" without an error; error: its text."""

    version: int
    state: str
    error_code: str = "OK"
    error: str = ""

    @property
    def failed(self):
        """It ended with an error; without one it was unloaded."""
        return self.state == END and self.error_code != "OK"

    def error_text(self):
        """Such as "INVALID_ARGUMENT: …", "" without an error."""
        return "" if self.error_code == "OK" else f"{self.error_code}: {self.error}"


def target(address):
    """The gRPC target of HOST[:PORT] or unix:PATH. Raises: UsageError."""
    if address.startswith("unix:"):
        return address
    if "://" in address or "/" in address:
        raise errors.UsageError(f"{address} is no address of a gRPC port", f"write HOST:PORT, such as localhost:{DEFAULT_PORT}")
    port = re.search(r":(\d+)$", address)
    if not address or (port and not 0 < int(port[1]) < 65536) or (":" in address and not port and not address.endswith("]")):
        raise errors.UsageError(f"{address!r} is no address", f"write HOST:PORT, such as localhost:{DEFAULT_PORT}")
    return address if port else f"{address}:{DEFAULT_PORT}"


def is_here(address):
    """Whether the address is surely of this machine."""
    return address.startswith("unix:") or address.rpartition(":")[0] in ("localhost", "127.0.0.1", "[::1]", "")


class Client:
    """A channel to one server. A context manager. All methods raise ServerError."""

    def __init__(self, address, deadline_seconds=10, tls=None):
        """Args: address: HOST[:PORT] or unix:PATH; deadline_seconds: of one call; tls: client.Tls or None. Raises: UsageError."""
        import grpc

        from tftrt_tools.client import channel

        self.address, self._deadline = target(address), deadline_seconds
        self._channel = channel.opened(grpc, self.address, tls.credentials() if tls else None, channel.options(0, tls))
        self._calls = messages.calls(self._channel)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._channel.close()

    def status(self, name):
        """[VersionStatus] of all versions that the server has ever seen, the newest first."""
        request = messages.new("GetModelStatusRequest")
        request.model_spec.name = name
        answer = self._call(messages.GET_MODEL_STATUS, request)
        found = [VersionStatus(one.version, messages.STATES.get(one.state, str(one.state)), _code_name(one.status.error_code),
                               one.status.error_message) for one in answer.model_version_status]
        return sorted(found, key=lambda one: -one.version)

    def reload(self, config, deadline_seconds=None):
        """Give the server a whole ModelServerConfig. Returns when models with new names are available."""
        request = messages.new("ReloadConfigRequest", config=config.SerializeToString())
        answer = self._call(messages.HANDLE_RELOAD_CONFIG, request, deadline_seconds)
        if answer.status.error_code:  # the real server also fails the call itself
            raise self._refused(_code_name(answer.status.error_code), answer.status.error_message)

    def version_of(self, name, label=None):
        """The version that answers for a label, or, without one, for requests that name no version. None: no such label, or not loaded."""
        request = messages.new("GetModelMetadataRequest", metadata_field=["signature_def"])
        request.model_spec.name = name
        if label is not None:
            request.model_spec.version_label = label
        try:
            return self._call(messages.GET_MODEL_METADATA, request).model_spec.version.value
        except ServerError as error:
            if error.code == "NOT_FOUND" or (error.code == "INVALID_ARGUMENT" and "version label" in error.text):
                return None
            raise

    def _call(self, path, request, deadline_seconds=None):
        import grpc

        seconds = deadline_seconds or self._deadline
        try:
            return self._calls[path](request, timeout=seconds)
        except grpc.RpcError as error:
            code, text = error.code().name, " ".join((error.details() or "").split())
        if code == "UNAVAILABLE":
            from tftrt_tools.client import failure

            raise ServerError(code, text, *failure.unavailable(text, self.address))
        if code == "UNIMPLEMENTED":
            raise ServerError(code, text, f"{self.address} is no TensorFlow Serving: it has no {path.rpartition('/')[2]}",
                              "give the gRPC port of a TensorFlow Serving")
        if code == "DEADLINE_EXCEEDED":
            raise ServerError(code, text, f"no answer from {self.address} within {seconds:g} s",
                              "is that the gRPC port of a TensorFlow Serving? --deadline_seconds waits longer")
        raise self._refused(code, text)

    def _refused(self, code, text):
        return ServerError(code, text, f"{self.address} says {code}: {text}")


def _code_name(number):
    """TensorFlow's error codes and gRPC's are the same."""
    import grpc

    return next((code.name for code in grpc.StatusCode if code.value[0] == number), str(number))
