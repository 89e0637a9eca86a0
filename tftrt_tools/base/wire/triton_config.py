"""config.pbtxt of Triton: the fields that are written here, and its text form.

Names and types are those of model_config.proto in triton-inference-server/common; the file is text, which carries no numbers. A file that
somebody else wrote may have more fields: they are read over.
"""

import functools
import re
from typing import Any

from tftrt_tools.base.files import documents
from tftrt_tools.base.wire import config_types, messages

_MESSAGES: dict[str, dict[str, Any]] = {
    "ModelConfig": {
        "name": "string",
        "platform": "string",
        "backend": "string",
        "max_batch_size": "int32",
        "input": "[.ModelInput]",
        "output": "[.ModelOutput]",
        "version_policy": ".ModelVersionPolicy",
        "instance_group": "[.ModelInstanceGroup]",
        "cc_model_filenames": "[.FileOfCapability]",
        "dynamic_batching": ".ModelDynamicBatching",
        "parameters": "[.Parameter]",
        "model_warmup": "[.ModelWarmup]",
    },
    "ModelInput": {"name": "string", "data_type": ".DataType", "dims": "[int64]", "reshape": ".Reshape"},
    "ModelOutput": {"name": "string", "data_type": ".DataType", "dims": "[int64]", "reshape": ".Reshape"},
    "Reshape": {"shape": "[int64]"},
    "ModelVersionPolicy": {"latest": ".Latest", "all": ".All", "specific": ".Specific"},
    "Latest": {"num_versions": "uint32"},
    "All": {},
    "Specific": {"versions": "[int64]"},
    "ModelInstanceGroup": {"kind": ".Kind", "count": "int32", "profile": "[string]"},
    # An entry of a map, whose text is that of a repeated message.
    "FileOfCapability": {"key": "string", "value": "string"},
    "ModelDynamicBatching": {"preferred_batch_size": "[int32]", "max_queue_delay_microseconds": "uint64"},
    "Parameter": {"key": "string", "value": ".ModelParameter"},
    "ModelParameter": {"string_value": "string"},
    "ModelWarmup": {"name": "string", "batch_size": "uint32", "inputs": "[.WarmupInput]"},
    "WarmupInput": {"key": "string", "value": ".WarmupData"},
    "WarmupData": {"data_type": ".DataType", "dims": "[int64]", "zero_data": "bool", "random_data": "bool"},
}
_ENUMS: dict[str, dict[str, int]] = {
    "Kind": {"KIND_AUTO": 0, "KIND_GPU": 1, "KIND_CPU": 2, "KIND_MODEL": 3},
    "DataType": {
        f"TYPE_{name}": number
        for number, name in enumerate(
            (
                "INVALID",
                "BOOL",
                "UINT8",
                "UINT16",
                "UINT32",
                "UINT64",
                "INT8",
                "INT16",
                "INT32",
                "INT64",
                "FP16",
                "FP32",
                "FP64",
                "STRING",
                "BF16",
            )
        )
    },
}
_EMPTY_RESHAPE = re.compile(r"^( *)reshape \{\n *\}\n", re.MULTILINE)


def new() -> config_types.TritonConfig:
    """An empty ModelConfig."""
    made: config_types.TritonConfig = _made()["ModelConfig"]()
    return made


@functools.cache
def _made() -> dict[str, Any]:
    """{name: class} of all messages."""
    numbered = {
        name: {field: (number, kind) for number, (field, kind) in enumerate(fields.items(), 1)}
        for name, fields in _MESSAGES.items()
    }
    return messages.classes("tftrt_tools/base/wire/triton_config.proto", "inference", {**numbered, **_ENUMS})


def parse(text: str) -> config_types.TritonConfig:
    """The ModelConfig in a text, without the fields that are not known here. Raises: ValueError, with the place."""
    try:
        return documents.parse_message(text, new(), unknown=True)
    except ValueError as error:
        raise ValueError(" ".join(str(error).split())) from None


def render(message: config_types.TritonConfig) -> str:
    """The text of a ModelConfig."""
    from google.protobuf import text_format

    text: str = text_format.MessageToString(message, use_short_repeated_primitives=True)
    return _EMPTY_RESHAPE.sub(r"\1reshape { shape: [] }\n", text)  # the same, and says what it means


def type_name(number: int) -> str:
    """Such as "FP32", of a DataType's number."""
    return next(name for name, value in _ENUMS["DataType"].items() if value == number).removeprefix("TYPE_")


def type_number(name: str) -> int:
    """The number of a DataType such as "TYPE_FP32"."""
    return _ENUMS["DataType"][name]
