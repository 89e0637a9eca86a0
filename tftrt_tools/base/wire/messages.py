"""Message classes from a table: for messages that no installed package has, or whose own modules load TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf import descriptor_pb2


# {message: {field: (number, type) or (number, type, name of its oneof)}, enum: {value's name: number}}
Table = Mapping[str, Mapping[str, Any]]


def classes(file: str, package: str, table: Table) -> dict[str, Any]:
    """Make message classes, in a descriptor pool of their own: another package may bring the real ones.

    Args:
      file: name for the descriptor. package: of the messages.
      table: a type is a scalar's name ("int64"), a dot and the name of a message or an enum of this table (".Message"), or the full
        name of google.protobuf's Any or of one of its wrappers. "[…]" is repeated, "{…}" a map of texts to this scalar.

    Returns: {message: class}.
    """
    from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory, wrappers_pb2

    imported = (wrappers_pb2.DESCRIPTOR, any_pb2.DESCRIPTOR)
    described = descriptor_pb2.FileDescriptorProto(
        name=file, package=package, syntax="proto3", dependency=[descriptor.name for descriptor in imported]
    )
    enums = {
        name for name, members in table.items() if members and all(isinstance(value, int) for value in members.values())
    }
    for name in enums:
        described.enum_type.add(
            name=name, value=[{"name": value, "number": number} for value, number in table[name].items()]
        )
    for name, fields in table.items():
        if name not in enums:
            _describe(described.message_type.add(name=name), package, fields, enums)
    pool = descriptor_pool.DescriptorPool()
    for needed in imported:
        pool.AddSerializedFile(needed.serialized_pb)
    pool.AddSerializedFile(described.SerializeToString())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in table
        if name not in enums
    }


def _describe(
    message: descriptor_pb2.DescriptorProto, package: str, fields: Mapping[str, Any], enums: set[str]
) -> None:
    """Give a DescriptorProto its fields."""
    for field, (number, kind, *oneof) in fields.items():
        added = message.field.add(name=field, number=number, label=_label(kind))
        if oneof:
            names = [group.name for group in message.oneof_decl]
            if oneof[0] not in names:
                message.oneof_decl.add(name=oneof[0])
            added.oneof_index = names.index(oneof[0]) if oneof[0] in names else len(names)
        if kind.startswith("{"):
            entry = message.nested_type.add(name=field.title().replace("_", "") + "Entry", options={"map_entry": True})
            _describe(entry, package, {"key": (1, "string"), "value": (2, kind.strip("{}"))}, enums)
            _set_type(added, f".{package}.{message.name}.{entry.name}", is_enum=False)
        elif kind.strip("[]").startswith("."):
            _set_type(added, f".{package}{kind.strip('[]')}", kind.strip("[].") in enums)
        else:
            _set_type(added, kind.strip("[]"), is_enum=False)


def _label(kind: str) -> descriptor_pb2.FieldDescriptorProto.Label:
    from google.protobuf import descriptor_pb2

    labels = descriptor_pb2.FieldDescriptorProto
    return labels.LABEL_REPEATED if kind[0] in "[{" else labels.LABEL_OPTIONAL


def _set_type(field: descriptor_pb2.FieldDescriptorProto, name: str, is_enum: bool) -> None:
    """Args: field: FieldDescriptorProto. name: of a scalar, or the full name of a message or an enum."""
    from google.protobuf import descriptor_pb2

    kinds = descriptor_pb2.FieldDescriptorProto
    if "." in name:
        field.type, field.type_name = kinds.TYPE_ENUM if is_enum else kinds.TYPE_MESSAGE, f".{name.lstrip('.')}"
    else:
        field.type = getattr(kinds, f"TYPE_{name.upper()}")
