"""GetModelStatus and HandleReloadConfigRequest, from and to bytes."""

import pathlib

from tftrt_tools import errors
from tftrt_tools.serving import management_messages as messages
from tftrt_tools.serving.management_client import VersionStatus

STATUS, RELOAD = messages.GET_MODEL_STATUS, messages.HANDLE_RELOAD_CONFIG


def status_request(model):
    """bytes of the GetModelStatusRequest of a ModelSpec, whose label the server does not look at."""
    request = messages.new("GetModelStatusRequest")
    request.model_spec.name = model.name
    if model.version is not None:
        request.model_spec.version.value = model.version
    return request.SerializeToString()


def read_status(raw):
    """[VersionStatus], the newest version first. Raises: ValueError."""
    answer = _parsed("GetModelStatusResponse", raw)
    found = [VersionStatus(one.version, messages.STATES.get(one.state, str(one.state)), _code(one.status.error_code),
                           one.status.error_message) for one in answer.model_version_status]
    return sorted(found, key=lambda one: -one.version)


def reload_request(config):
    """bytes of the ReloadConfigRequest of a whole ModelServerConfig.

    Args: config: a pathlib.Path of a models.config, its text, or the message. Raises: UsageError.
    """
    if hasattr(config, "SerializeToString"):
        return messages.new("ReloadConfigRequest", config=config.SerializeToString()).SerializeToString()
    from tftrt_tools.serving import configuration_protos

    where = config if isinstance(config, pathlib.Path) else "the configuration"
    try:
        text = config.read_text() if isinstance(config, pathlib.Path) else config
        if not isinstance(text, str):
            raise errors.UsageError(f"a configuration cannot be a {type(config).__name__}",
                                    "give the pathlib.Path of a models.config, its text, or a ModelServerConfig")
        return reload_request(configuration_protos.parse(configuration_protos.MODELS, text))
    except OSError as error:
        raise errors.from_os_error(error) from None
    except UnicodeDecodeError:
        raise errors.UsageError(f"{where} is no text", "give the models.config of the server") from None
    except configuration_protos.SyntaxProblem as problem:
        raise errors.UsageError(f"{where}, line {problem.line}: {problem.text}", problem.mend) from None


def read_reload(raw):
    """(code name, text) of the status in a ReloadConfigResponse, ("OK", "") where all is well. Raises: ValueError."""
    status = _parsed("ReloadConfigResponse", raw).status
    return _code(status.error_code), status.error_message


def _parsed(name, raw):
    from google.protobuf.message import DecodeError

    message = messages.new(name)
    try:
        message.MergeFromString(raw)
    except DecodeError as error:
        raise ValueError(str(error)) from None
    return message


def _code(number):
    """TensorFlow's error codes and gRPC's are the same."""
    import grpc

    return next((code.name for code in grpc.StatusCode if code.value[0] == number), str(number))
