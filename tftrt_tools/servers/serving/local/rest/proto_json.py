"""Protobuf messages in the layout of protobuf's C++ JSON printer with whitespace and default values (model status, metadata)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from google.protobuf import json_format

if TYPE_CHECKING:
    from google.protobuf import descriptor, message
    from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2


_SIGNATURE_DEF = "signature_def"


def status(response: get_model_status_pb2.GetModelStatusResponse) -> bytes:
    """The answer to a status request. Args: response: GetModelStatusResponse. Returns: bytes."""
    return _printed(response, preserve=False).encode()


def metadata(response: get_model_metadata_pb2.GetModelMetadataResponse) -> bytes:
    """The answer to a metadata request, put together of two messages as the server does.

    Args: response: GetModelMetadataResponse. Returns: bytes.
    """
    from tensorflow_serving.apis import get_model_metadata_pb2

    signatures = get_model_metadata_pb2.SignatureDefMap()
    response.metadata[_SIGNATURE_DEF].Unpack(signatures)
    return (
        f'{{\n"model_spec":{_printed(response.model_spec, preserve=True)},\n'
        f'"metadata": {{"signature_def": {_printed(signatures, preserve=True)}}}\n}}\n'
    ).encode()


def _printed(message: message.Message, preserve: bool) -> str:
    values = json_format.MessageToDict(
        message, including_default_value_fields=True, preserving_proto_field_name=preserve
    )
    text = json.dumps(_ordered(values, message.DESCRIPTOR, preserve), indent=1, ensure_ascii=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e") + "\n"


def _ordered(values: object, descriptor: descriptor.Descriptor, preserve: bool) -> object:
    """Members in the printer's order: the fields by number, then those of a oneof; maps by key."""
    if not isinstance(values, dict) or descriptor.full_name.startswith("google.protobuf."):
        return values
    ordered = {}
    for field in sorted(descriptor.fields, key=lambda field: (field.containing_oneof is not None, field.number)):
        name = field.name if preserve else field.json_name
        if name in values:
            ordered[name] = _ordered_field(values[name], field, preserve)
    return ordered


def _ordered_field(value: object, field: descriptor.FieldDescriptor, preserve: bool) -> object:
    inner = field.message_type
    if inner is None:
        return value
    if isinstance(value, dict) and inner.GetOptions().map_entry:
        target = inner.fields_by_name["value"].message_type
        return {key: _ordered(value[key], target, preserve) if target else value[key] for key in sorted(value)}
    if isinstance(value, list):
        return [_ordered(item, inner, preserve) for item in value]
    return _ordered(value, inner, preserve)
