"""ModelService's two calls, GetModelStatus and HandleReloadConfigRequest, to and from bytes.

Field numbers are those of tensorflow/serving 2.14.1: apis/model.proto, get_model_status.proto, model_management.proto, util/status.proto.
"""

import dataclasses
import pathlib
import typing
from collections.abc import Iterable

from tftrt_tools.base import errors
from tftrt_tools.base.wire import fields, varints
from tftrt_tools.servers.client.model_spec import ModelSpec, text

STATUS = "/tensorflow.serving.ModelService/GetModelStatus"
RELOAD = "/tensorflow.serving.ModelService/HandleReloadConfigRequest"


class Message(typing.Protocol):
    """A protocol message."""

    def SerializeToString(self) -> bytes:  # noqa: N802 (protobuf's name)
        """The bytes of the message."""


# A models.config: its path, its text, or a ModelServerConfig.
Config: typing.TypeAlias = str | pathlib.Path | Message
# ModelVersionStatus.State. A server of another version may have more states; they are shown as numbers.
State = typing.Literal["UNKNOWN", "START", "LOADING", "AVAILABLE", "UNLOADING", "END"]
LOADING, AVAILABLE, END = "LOADING", "AVAILABLE", "END"
_STATES: dict[int, State] = {0: "UNKNOWN", 10: "START", 20: "LOADING", 30: "AVAILABLE", 40: "UNLOADING", 50: "END"}


@dataclasses.dataclass(frozen=True)
class VersionStatus:
    """One version. state: a State, or the number of one that is not known here; error_code: name, "OK" without an error; error: its
    text."""

    version: int
    state: str
    error_code: str = "OK"
    error: str = ""

    @property
    def failed(self) -> bool:
        """Whether it ended with an error; a version that ended without one was unloaded."""
        return self.state == END and self.error_code != "OK"

    def error_text(self) -> str:
        """The error's name and text, such as "INVALID_ARGUMENT: …"; "" without an error."""
        return "" if self.error_code == "OK" else f"{self.error_code}: {self.error}"

    def line(self) -> str:
        """The status in one line, such as "2 END (INVALID_ARGUMENT: …)"."""
        told = "" if self.error_code == "OK" else f" ({self.error_code}: {errors.first_line(self.error)})"
        return f"{self.version} {self.state}{told}"


def known(states: Iterable[VersionStatus]) -> str:
    """What a server knows of a model, for people: all of its versions in one line."""
    return "it knows: " + ", ".join(f"version {one.line()}" for one in states)


def status_request(model: ModelSpec) -> bytes:
    """bytes of the GetModelStatusRequest. The server does not look at the label of the ModelSpec."""
    return b"".join(varints.delimited(1, ModelSpec(model.name, model.version).to_bytes()))


def read_status(raw: bytes) -> list[VersionStatus]:
    """The versions in a GetModelStatusResponse, the newest first. Raises: ValueError."""
    states = [
        _version_status(value)
        for field, wire_type, value in fields.walk(memoryview(raw))
        if field == 1 and wire_type == fields.DELIMITED
    ]
    return sorted(states, key=lambda state: -state.version)


def _version_status(raw: memoryview) -> VersionStatus:
    version, state, statuses = 0, 0, []
    for field, wire_type, value in fields.walk(raw):
        if field == 1 and wire_type == fields.VARINT:
            version = fields.signed(value)
        elif field == 2 and wire_type == fields.VARINT:
            state = fields.signed(value, 32)
        elif field == 3 and wire_type == fields.DELIMITED:
            statuses.append(value)
    return VersionStatus(version, _STATES.get(state, str(state)), *_status(statuses))


def reload_request(config: Config) -> bytes:
    """bytes of the ReloadConfigRequest of a whole ModelServerConfig.

    Args: config: the path of a models.config (a pathlib.Path, or a str of one line without braces), its text, or the message.
    Raises: UsageError.
    """
    if hasattr(config, "SerializeToString"):
        return b"".join(varints.delimited(1, config.SerializeToString()))
    if isinstance(config, str) and config.strip() and not set(config) & set("{}<>\n"):
        config = pathlib.Path(config)
    from tftrt_tools.base.wire import config_messages

    where = config if isinstance(config, pathlib.Path) else "the configuration"
    try:
        content = config.read_text() if isinstance(config, pathlib.Path) else config
        if not isinstance(content, str):
            raise errors.UsageError(
                f"a configuration cannot be a {type(config).__name__}",
                "give the path of a models.config, its text, or a ModelServerConfig",
            )
        return reload_request(config_messages.parse(config_messages.MODELS, content))
    except OSError as error:
        raise errors.from_os_error(error) from None
    except UnicodeDecodeError:
        raise errors.UsageError(f"{where} is no text", "give the models.config of the server") from None
    except config_messages.SyntaxProblem as problem:
        raise errors.UsageError(f"{where}, line {problem.line}: {problem.text}", problem.mend) from None


def read_reload(raw: bytes) -> tuple[str, str]:
    """(code name, text) of the status in a ReloadConfigResponse, ("OK", "") where all is well. Raises: ValueError."""
    return _status(
        [
            value
            for field, wire_type, value in fields.walk(memoryview(raw))
            if field == 1 and wire_type == fields.DELIMITED
        ]
    )


def _status(parts: list[memoryview]) -> tuple[str, str]:
    """(code name, text) of a StatusProto, from its fields."""
    number, message = 0, ""
    for field, wire_type, value in fields.walk(fields.joined(parts)) if parts else ():
        if field == 1 and wire_type == fields.VARINT:
            number = fields.signed(value, 32)
        elif field == 2 and wire_type == fields.DELIMITED:
            message = text(value)
    return _code(number), message


def _code(number: int) -> str:
    """TensorFlow's error codes and gRPC's are the same."""
    import grpc

    return next((code.name for code in grpc.StatusCode if code.value[0] == number), str(number))
