"""Message classes from a table: for messages that no installed package has, or whose own modules load TensorFlow."""


def classes(file, package, table):
    """Make message classes, in a descriptor pool of their own: another package may bring the real ones.

    Args:
      file: name for the descriptor. package: of the messages.
      table: {message: {field: (number, type)}}. A type is a scalar's name ("int64"), ".Message" of this table, or the full name of one of
        google.protobuf's wrappers; "[…]" is repeated.

    Returns: {message: class}.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, wrappers_pb2

    kinds = descriptor_pb2.FieldDescriptorProto
    described = descriptor_pb2.FileDescriptorProto(name=file, package=package, syntax="proto3", dependency=[wrappers_pb2.DESCRIPTOR.name])
    for name, fields in table.items():
        message = described.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            plain = kind.strip("[]")
            one = message.field.add(name=field, number=number, label=kinds.LABEL_REPEATED if kind != plain else kinds.LABEL_OPTIONAL)
            if "." in plain:
                one.type, one.type_name = kinds.TYPE_MESSAGE, f".{package}{plain}" if plain.startswith(".") else f".{plain}"
            else:
                one.type = getattr(kinds, f"TYPE_{plain.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(described.SerializeToString())
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in table}
