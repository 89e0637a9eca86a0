"""How TensorFlow writes the shape and the dtype of a tensor in its messages."""

from __future__ import annotations

from tftrt_tools.servers.serving.local.servable import Array


def shape(array: Array) -> str:
    """The shape of a numpy.ndarray: "[2,3]"; "[]" for a scalar."""
    return "[" + ",".join(map(str, array.shape)) + "]"


def enum_name(array: Array) -> str:
    """The dtype as the protobuf enum names it: "DT_FLOAT"; "DT_STRING" for an object array."""
    import tensorflow as tf
    from tensorflow.core.framework import types_pb2

    result: str = types_pb2.DataType.Name(tf.as_dtype(array.dtype).as_datatype_enum)
    return result


def short_name(array: Array) -> str:
    """The dtype as C++ TensorFlow prints it: "float", "double", "half", "int32", "string"."""
    return enum_name(array).removeprefix("DT_").lower()
