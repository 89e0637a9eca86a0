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
    """One engine in a model. engine: name of its engine op; input_shapes: one a input; bytes: of the serialized engine; tensorrt,
    compute_capability: that it was built with and for, such as "8.5.3.1" and "9.0", None where its head is of a form not known here."""

    engine: str
    input_shapes: tuple
    bytes: int
    tensorrt: str | None = None
    compute_capability: str | None = None

    def to_dict(self):
        return {"engine": self.engine, "input_shapes": [list(shape) for shape in self.input_shapes], "bytes": self.bytes,
                "tensorrt": self.tensorrt, "compute_capability": self.compute_capability}

    @classmethod
    def from_dict(cls, data):
        return cls(data["engine"], tuple(map(tuple, data["input_shapes"])), data["bytes"], data["tensorrt"], data["compute_capability"])


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
        found.append(EngineAsset(engine, shapes, len(instance.serialized_engine), *_origin(instance.serialized_engine)))
    return found


# The head of a serialized engine as TensorRT 8.5.3.1 writes it, seen for compute capability 9.0: a magic word, three numbers, then tagged
# values, the first of them the four parts of the version. Any other form says nothing here.
_HEAD = struct.Struct("<4s4x8x8x" + "IB" * 4 + "IB" + "I" + "Ii" * 2)
_MAGIC = b"ptrt"
_BYTE, _INT, _GROUP, _GROUP_END = 0x18002, 0x18007, 0x1800B, 0x18012


def same_release(one, other):
    """Whether two versions of TensorRT read each other's engines, by what TensorRT promises: the first three numbers are equal."""
    return one.split(".")[:3] == other.split(".")[:3]


def _origin(engine):
    """(version of TensorRT, compute capability) that a serialized engine names in its head, or (None, None)."""
    if len(engine) < _HEAD.size:
        return None, None
    magic, *fields = _HEAD.unpack_from(engine)
    tags, parts, capability = (*fields[0:10:2], fields[10], *fields[11::2]), fields[1:8:2], fields[12::2]
    if magic != _MAGIC or tags != (*[_BYTE] * 4, _GROUP_END, _GROUP, _INT, _INT):
        return None, None
    return ".".join(map(str, parts)), ".".join(map(str, capability))


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
