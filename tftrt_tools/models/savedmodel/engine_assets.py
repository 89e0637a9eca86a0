"""Engine assets: the files in which a SavedModel carries built TensorRT engines.

A file is a TFRecord file; each record is TF-TRT's TRTEngineInstance: field 1, repeated TensorShapeProto, the input shapes the
engine was built with; field 2, bytes, the serialized engine. TF 2.14 ships no Python class for that message, and processes without
TensorFlow need one as well.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import re
import struct
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tftrt_tools.base import errors, records
from tftrt_tools.models.savedmodel.engine_op import Shape

if TYPE_CHECKING:
    from google.protobuf import message

PREFIX = "trt-serialized-engine."


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineAsset(records.Record):
    """One engine in a model."""

    # Name of its engine op.
    engine: str
    # The shapes that it was built for, one an input.
    input_shapes: tuple[Shape, ...]
    # The bytes of the serialized engine.
    bytes: int
    # The version that built it, such as "8.5.3.1"; None if the form of the engine's header is not known.
    tensorrt: str | None = None
    # The compute capability that it was built for, such as "9.0"; None as above.
    compute_capability: str | None = None


def read(model: str | os.PathLike[str]) -> list[EngineAsset]:
    """The EngineAssets of SavedModel directory `model`, in file order; [] where it carries none. Raises: TftrtError."""
    assets: list[EngineAsset] = []
    for path in sorted((pathlib.Path(model) / "assets").glob(PREFIX + "*")):
        assets += read_file(path)
    return assets


def read_file(path: str | os.PathLike[str]) -> list[EngineAsset]:
    """The EngineAssets of one asset file."""
    return [asset for asset, _ in plans(path)]


def plans(path: str | os.PathLike[str]) -> Iterator[tuple[EngineAsset, bytes]]:
    """(EngineAsset, the serialized engine) of one asset file, one at a time: engines can be large."""
    engine = pathlib.Path(path).name.removeprefix(PREFIX)
    for record in _records(path):
        instance = _message_class()()
        instance.ParseFromString(record)
        shapes = tuple(_shape(shape) for shape in instance.input_shapes)
        tensorrt, capability = _origin(instance.serialized_engine)
        yield (
            EngineAsset(
                engine=engine,
                input_shapes=shapes,
                bytes=len(instance.serialized_engine),
                tensorrt=tensorrt,
                compute_capability=capability,
            ),
            instance.serialized_engine,
        )


# The header of a serialized engine, seen of TensorRT 8.5.3.1 and 8.6.0.12 for compute capability 9.0: a magic word, three numbers, then
# tagged values. The first values are the four parts of the version; after a few bytes that differ from build to build come the two parts
# of the compute capability. 8.6 has one more value between them, and puts headers of 56 bytes in front. Any other form is not read.
_PART, _NUMBER = rb"\x02\x80\x01\x00(.)", rb"\x07\x80\x01\x00(.{4})"
_FIRST, _FLAGS = rb"(?:ftrt.{52})?", rb"(?:\xe5\x80\x01\x00\x07\x80\x01\x00.{4})?"
_HEAD = re.compile(_FIRST + rb"ptrt.{20}" + 4 * _PART + _FLAGS + rb"\x12\x80\x01\x00.{4,5}" + 2 * _NUMBER, re.DOTALL)
_HEAD_BYTES = 256
_NEWEST_CAPABILITY = 30  # a larger "major" is not a version


def same_release(one: str, other: str) -> bool:
    """Whether two versions of TensorRT read each other's engines. TensorRT promises it if the first three numbers are equal."""
    return one.split(".")[:3] == other.split(".")[:3]


def origin(asset: EngineAsset, manifest: Mapping[str, Any] | None) -> tuple[str | None, str | None]:
    """(TensorRT, compute capability) that an EngineAsset was built with and for: by its header, else by the model's manifest, a dict or
    None; None if neither says."""
    gpu = (manifest or {}).get("gpu") or {}
    # The manifest's versions are those of the build only if it names the GPU of the build.
    tensorrt = ((manifest or {}).get("versions") or {}).get("tensorrt") if gpu else None
    return asset.tensorrt or tensorrt, asset.compute_capability or gpu.get("compute_capability")


def header(path: str | os.PathLike[str]) -> tuple[str | None, str | None]:
    """(TensorRT, compute capability) that a file with a serialized engine names in its first bytes, (None, None) for another form."""
    with open(path, "rb") as file:
        return _origin(file.read(_HEAD_BYTES))


def _origin(engine: bytes) -> tuple[str | None, str | None]:
    """(version of TensorRT, compute capability) that a serialized engine names in its header, or (None, None)."""
    match = _HEAD.match(engine)
    if not match:
        return None, None
    capability = [int.from_bytes(part, "little") for part in match.groups()[4:]]
    if not 1 <= capability[0] < _NEWEST_CAPABILITY or capability[1] > 9:
        return None, None
    return ".".join(str(part[0]) for part in match.groups()[:4]), ".".join(map(str, capability))


def _records(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """Payloads of a TFRecord file: u64 length, u32 masked CRC of it, payload, u32 masked CRC of that."""
    with open(path, "rb") as file:
        while head := file.read(12):
            length = struct.unpack("<Q", head[:8])[0] if len(head) == 12 else -1
            payload = file.read(length) if 0 <= length <= pathlib.Path(path).stat().st_size else b""
            if len(payload) != length or len(file.read(4)) != 4:
                raise errors.TftrtError(f"the engine file {path} is truncated", "build the engines again")
            yield payload


def _shape(proto: message.Message) -> Shape:
    """A TensorShapeProto as a tuple with None for unknown dimensions; None for an unknown rank."""
    return None if proto.unknown_rank else tuple(None if dim.size < 0 else dim.size for dim in proto.dim)


@functools.cache
def _message_class() -> Any:
    """TRTEngineInstance, with the fields of TensorShapeProto that give a shape."""
    # Not every environment that runs plans has protobuf, and this module is imported there, too.
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="tftrt_tools/trt_engine_instance.proto", package="tftrt_tools", syntax="proto3"
    )
    dim = file.message_type.add(name="Dim")
    dim.field.add(name="size", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    shape = file.message_type.add(name="Shape")
    shape.field.add(
        name="dim", number=2, type=field.TYPE_MESSAGE, label=field.LABEL_REPEATED, type_name=".tftrt_tools.Dim"
    )
    shape.field.add(name="unknown_rank", number=3, type=field.TYPE_BOOL, label=field.LABEL_OPTIONAL)
    instance = file.message_type.add(name="TRTEngineInstance")
    instance.field.add(
        name="input_shapes",
        number=1,
        type=field.TYPE_MESSAGE,
        label=field.LABEL_REPEATED,
        type_name=".tftrt_tools.Shape",
    )
    instance.field.add(name="serialized_engine", number=2, type=field.TYPE_BYTES, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tftrt_tools.TRTEngineInstance"))
