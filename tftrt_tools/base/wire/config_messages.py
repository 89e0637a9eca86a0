"""The messages of TensorFlow Serving's configuration files, and their text form.

They are made here, with the names and types of tensorflow/serving 2.14.1 (config/*.proto, sources/storage_path/
file_system_storage_path_source.proto, servables/tensorflow/session_bundle_config.proto). The package tensorflow-serving-api has the first
of them alone, and it installs TensorFlow. ModelServerConfig goes over the wire, with the field numbers of the server; the others are read
and written as text, which carries no numbers.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from tftrt_tools.base.files import documents
from tftrt_tools.base.wire import config_types, messages

if TYPE_CHECKING:
    from google.protobuf import descriptor


# The kinds of files.
Kind = Literal["models", "batching", "monitoring", "ssl"]
MODELS: Literal["models"] = "models"
BATCHING: Literal["batching"] = "batching"
MONITORING: Literal["monitoring"] = "monitoring"
SSL: Literal["ssl"] = "ssl"
# What `tftrt configure` calls the files, and the server's flag for each.
FILE_NAMES: dict[Kind, str] = {
    MODELS: "models.config",
    BATCHING: "batching_parameters.txt",
    MONITORING: "monitoring.config",
}
SERVER_FLAGS: dict[Kind, str] = {
    MODELS: "model_config_file",
    BATCHING: "batching_parameters_file",
    MONITORING: "monitoring_config_file",
}
_NAMES: dict[Kind, str] = {
    MODELS: "ModelServerConfig",
    BATCHING: "BatchingParameters",
    MONITORING: "MonitoringConfig",
    SSL: "SSLConfig",
}

_INT64, _BOOL, _STRING = "google.protobuf.Int64Value", "google.protobuf.BoolValue", "google.protobuf.StringValue"
# As messages.classes takes them.
_MODELS: messages.Table = {
    "ModelServerConfig": {
        "model_config_list": (1, ".ModelConfigList", "config"),
        "custom_model_config": (2, "google.protobuf.Any", "config"),
    },
    "ModelConfigList": {"config": (1, "[.ModelConfig]")},
    "ModelConfig": {
        "name": (1, "string"),
        "base_path": (2, "string"),
        "model_type": (3, ".ModelType"),
        "model_platform": (4, "string"),
        "model_version_policy": (7, ".ServableVersionPolicy"),
        "version_labels": (8, "{int64}"),
        "logging_config": (6, ".LoggingConfig"),
    },
    "ModelType": {"MODEL_TYPE_UNSPECIFIED": 0, "TENSORFLOW": 1, "OTHER": 2},
    "ServableVersionPolicy": {
        "latest": (100, ".Latest", "policy_choice"),
        "all": (101, ".All", "policy_choice"),
        "specific": (102, ".Specific", "policy_choice"),
    },
    "Latest": {"num_versions": (1, "uint32")},
    "All": {},
    "Specific": {"versions": (1, "[int64]")},
    "LoggingConfig": {"log_collector_config": (1, ".LogCollectorConfig"), "sampling_config": (2, ".SamplingConfig")},
    "LogCollectorConfig": {"type": (1, "string"), "filename_prefix": (2, "string")},
    "SamplingConfig": {"sampling_rate": (1, "double"), "attributes": (2, "int32")},
}
# {message: {field: type}}
_AS_TEXT = {
    "BatchingParameters": {
        "max_batch_size": _INT64,
        "batch_timeout_micros": _INT64,
        "max_enqueued_batches": _INT64,
        "num_batch_threads": _INT64,
        "thread_pool_name": _STRING,
        "allowed_batch_sizes": "[int64]",
        "pad_variable_length_inputs": "bool",
        "enable_large_batch_splitting": _BOOL,
        "max_execution_batch_size": _INT64,
    },
    "PrometheusConfig": {"enable": "bool", "path": "string"},
    "MonitoringConfig": {"prometheus_config": ".PrometheusConfig"},
    "SSLConfig": {"server_key": "string", "server_cert": "string", "custom_ca": "string", "client_verify": "bool"},
}


class SyntaxProblem(Exception):
    """A text that is not a message of its kind. line: 1 for the first, 0 where not known; text: what is wrong; mend: what to do, or ""."""

    def __init__(self, line: int, text: str, mend: str = "") -> None:
        super().__init__(text)
        self.line, self.text, self.mend = line, text, mend


@overload
def new(kind: Literal["models"]) -> config_types.ModelServerConfig: ...
@overload
def new(kind: Literal["batching"]) -> config_types.BatchingParameters: ...
@overload
def new(kind: Literal["monitoring"]) -> config_types.MonitoringConfig: ...
@overload
def new(kind: Literal["ssl"]) -> config_types.SslConfig: ...
@overload
def new(kind: Kind) -> Any: ...
def new(kind: Kind) -> Any:
    """An empty message of a kind of file."""
    return _made()[_NAMES[kind]]()


@functools.cache
def _made() -> dict[str, Any]:
    """{name: class} of all messages."""
    numbered = {
        name: {field: (number, kind) for number, (field, kind) in enumerate(fields.items(), 1)}
        for name, fields in _AS_TEXT.items()
    }
    return messages.classes(
        "tftrt_tools/base/wire/config_messages.proto", "tensorflow.serving", {**_MODELS, **numbered}
    )


@overload
def parse(kind: Literal["models"], text: str) -> config_types.ModelServerConfig: ...
@overload
def parse(kind: Kind, text: str) -> Any: ...
def parse(kind: Kind, text: str) -> Any:
    """The message in `text`. Raises: SyntaxProblem."""
    message = new(kind)
    try:
        return documents.parse_message(text, message)
    except documents.NoMessage as error:
        raise _problem(error, message.DESCRIPTOR) from None


def render(message: config_types.Message, indent: int = 0) -> str:
    """The message's fields in text form, a list of numbers in one line, a newline at the end of each. indent: spaces in front."""
    from google.protobuf import text_format

    text: str = text_format.MessageToString(message, indent=indent, use_short_repeated_primitives=True)
    return text


def kind_of(names: Sequence[str]) -> Kind | None:
    """Which kind of file has outermost fields of these names, or None."""
    scores = {kind: sum(name in new(kind).DESCRIPTOR.fields_by_name for name in names) for kind in FILE_NAMES}
    best = max(scores, key=lambda kind: scores[kind])
    return best if scores[best] else None


def _problem(error: documents.NoMessage, descriptor: descriptor.Descriptor) -> SyntaxProblem:
    text = " ".join(str(error).split())
    place = re.match(r"(\d+):\d+ : (.*)", text)
    line = error.line or (int(place[1]) if place else 0)
    reason = place[2] if place else text
    unknown = re.search(r'Message type "([\w.]+)" has no field named "([^"]+)"', reason)
    if unknown:
        names = sorted(_fields(descriptor, unknown[1]))
        near = difflib.get_close_matches(unknown[2], names, 1)
        return SyntaxProblem(
            line,
            f"{unknown[1].rsplit('.', 1)[-1]} has no field {unknown[2]!r}",
            f"did you mean {near[0]!r}?" if near else f"it has: {', '.join(names)}",
        )
    # protobuf quotes the offending line before its message.
    reason = re.sub(r"^'.*': ", "", reason)
    if reason.startswith('Expected "{"'):
        return SyntaxProblem(
            line, "a message is expected here, and a plain value is given", "write it as NAME { value: 8 }"
        )
    return SyntaxProblem(line, reason)


def _fields(descriptor: descriptor.Descriptor, full_name: str, seen: tuple[str, ...] = ()) -> list[str]:
    """Field names of the message `full_name`, which is `descriptor` or somewhere inside it."""
    if descriptor.full_name == full_name:
        return list(descriptor.fields_by_name)
    if descriptor.full_name in seen:
        return []
    return next(
        (
            nested
            for field in descriptor.fields
            if field.message_type
            for nested in [_fields(field.message_type, full_name, (*seen, descriptor.full_name))]
            if nested
        ),
        [],
    )
