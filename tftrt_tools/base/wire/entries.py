"""The entries of protobuf's maps with text keys: messages {key = 1, value = 2}."""

from tftrt_tools.base.wire import fields


def read(raw: memoryview) -> tuple[str, memoryview]:
    """(key, memoryview of the value) of one entry, whose value is a message or bytes. Raises: ValueError."""
    key = ""
    values: list[memoryview] = []
    for field, wire_type, value in fields.walk(raw):
        if wire_type == fields.DELIMITED:
            if field == 1:
                key = str(value, "utf-8")
            elif field == 2:
                values.append(value)
    return key, fields.joined(values) if values else memoryview(b"")


def read_all(raw: memoryview, number: int) -> dict[str, memoryview]:
    """{key: value} of the map that is field `number` of the message `raw`; of a repeated key the last. Raises: ValueError."""
    return dict(
        read(value) for field, wire_type, value in fields.walk(raw) if field == number and wire_type == fields.DELIMITED
    )
