"""Engine assets: the files in which a SavedModel carries built TensorRT engines.

A file is a TFRecord file; each record is TF-TRT's TRTEngineInstance: field 1, repeated TensorShapeProto, the input shapes the
engine was built with; field 2, bytes, the serialized engine. TF 2.14 ships no Python class for that message.
"""

import dataclasses
import functools
import pathlib
import struct

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tftrt_tools import errors

PREFIX = "trt-serialized-engine."


@dataclasses.dataclass(frozen=True)
class EngineAsset:
    """One engine in a model. engine: name of its engine op; input_shapes: one a input; bytes: of the serialized engine."""

    engine: str
    input_shapes: tuple
    bytes: int

    def to_dict(self):
        return {"engine": self.engine, "input_shapes": [list(shape) for shape in self.input_shapes], "bytes": self.bytes}

    @classmethod
    def from_dict(cls, data):
        return cls(data["engine"], tuple(map(tuple, data["input_shapes"])), data["bytes"])


def read(model):
    """The EngineAssets of SavedModel directory `model`, in file order; [] where it carries none. Raises: TftrtError."""
    found = []
    for path in sorted((pathlib.Path(model) / "assets").glob(PREFIX + "*")):
        found += read_file(path)
    return found


def read_file(path):
    """The EngineAssets of one asset file."""
    from tftrt_tools.savedmodel import graph

    engine = pathlib.Path(path).name.removeprefix(PREFIX)
    found = []
    for record in _records(path):
        instance = _message_class()()
        instance.ParseFromString(record)
        shapes = tuple(graph.shape_of(shape) for shape in instance.input_shapes)
        found.append(EngineAsset(engine, shapes, len(instance.serialized_engine)))
    return found


def _records(path):
    """Payloads of a TFRecord file: u64 length, u32 masked CRC of it, payload, u32 masked CRC of that."""
    with open(path, "rb") as file:
        while head := file.read(12):
            length = struct.unpack("<Q", head[:8])[0] if len(head) == 12 else -1
            payload = file.read(length) if 0 <= length <= pathlib.Path(path).stat().st_size else b""
            if len(payload) != length or len(file.read(4)) != 4:
                raise errors.TftrtError(f"the engine file {path} is truncated", "build the engines again")
            yield payload


@functools.cache
def _message_class():
    # Not above: it imports TensorFlow, and EngineAsset is wanted in processes without it.
    from tensorflow.core.framework import tensor_shape_pb2

    file = descriptor_pb2.FileDescriptorProto(name="tftrt_tools/trt_engine_instance.proto", package="tftrt_tools", syntax="proto3")
    file.dependency.append("tensorflow/core/framework/tensor_shape.proto")
    message = file.message_type.add(name="TRTEngineInstance")
    field = descriptor_pb2.FieldDescriptorProto
    message.field.add(name="input_shapes", number=1, type=field.TYPE_MESSAGE, label=field.LABEL_REPEATED,
                      type_name=".tensorflow.TensorShapeProto")
    message.field.add(name="serialized_engine", number=2, type=field.TYPE_BYTES, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.Default()
    assert tensor_shape_pb2.DESCRIPTOR.name in file.dependency
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tftrt_tools.TRTEngineInstance"))
