"""The string_val of a TensorProto with many strings: protobuf's own loop, which is not Python's."""

import functools
from collections.abc import Sequence
from typing import Any

from tftrt_tools.base.wire import messages

FEW = 64  # with fewer strings a Python loop ends before the message classes are made
_MESSAGES = {
    "Dim": {"size": (1, "int64")},
    "Shape": {"dim": (2, "[.Dim]")},
    "Tensor": {
        "dtype": (1, "int32"),
        "tensor_shape": (2, ".Shape"),
        "tensor_content": (4, "bytes"),
        "string_val": (8, "[bytes]"),
    },
}


def write(values: Sequence[bytes]) -> bytes:
    """The fields string_val of these texts."""
    written: bytes = _tensor()(string_val=values).SerializeToString()
    return written


def parse(raw: memoryview) -> Any:
    """The TensorProto in the memoryview `raw`, with these fields only. Raises: ValueError."""
    from google.protobuf.message import DecodeError

    try:
        return _tensor().FromString(bytes(raw))
    except DecodeError as error:
        raise ValueError(str(error)) from None


@functools.cache
def _tensor() -> Any:
    return messages.classes("tftrt_tools/base/wire/many_texts.proto", "tftrt_texts", _MESSAGES)["Tensor"]
