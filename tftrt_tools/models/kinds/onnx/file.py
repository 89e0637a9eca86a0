"""Reads the contents of an ONNX file from its bytes (onnx.proto): without ONNX Runtime, without the package onnx, and without its
weights in memory."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import math
import mmap
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.base.wire import fields
from tftrt_tools.models.kinds.model import File, Overview, Signature
from tftrt_tools.models.savedmodel import files
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.models.savedmodel.signatures import DEFAULT

# The first byte of every known ONNX file: field 1, the version of the format.
_FIRST = b"\x08"
# The domain of ONNX's own ops, which files leave empty.
_OWN = "ai.onnx"
# TensorProto.DataType.
_DTYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "string",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
    17: "float8_e4m3fn",
    18: "float8_e4m3fnuz",
    19: "float8_e5m2",
    20: "float8_e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4_e2m1fn",
}
# Values that are not tensors: fields of TypeProto.
_NO_TENSORS = {4: "sequence", 5: "map", 7: "opaque", 8: "sparse tensor", 9: "optional"}
_TENSOR_TYPE = 1
# The deepest nesting of graphs: a file with more is damaged.
_DEEPEST = 50
_UNASKED = (
    "what TF-TRT would take of it: TF-TRT converts TensorFlow models (`tftrt convert --backend=tensorrt` builds a plan from the "
    "file, and `tftrt export` prepares it for that)",
    "saved engines: there are none in an ONNX file",
    "whether it was verified: an ONNX file carries no metadata (`tftrt verify ORIGINAL FILE` compares)",
)

# {number of a field: its values}; for integers the number is negative.
Fields = Mapping[int, list[Any]]


@dataclasses.dataclass
class _Counted:
    """The counts of a file's graphs."""

    ops: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    # {dtype: elements} of constant tensors.
    weights: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    # {file: bytes of it that the tensors need}, as the model names it.
    outside: dict[str, int] = dataclasses.field(default_factory=dict)


def overview(path: str) -> Overview:
    """The Overview of a file. Raises: UsageError, TftrtError if it is not a whole ONNX model."""
    with opened(path) as model:
        counted = _counted(path, model)
        graph = only(model, 7)
        initializers = {text(tensor, 8) for tensor in map(fields_of, graph.get(5, ()))}
        inputs, outputs = (tuple(map(_spec, map(fields_of, graph.get(number, ())))) for number in (11, 12))
        facts = {
            "format version": str(number(model, 1)),
            "producer": f"{text(model, 2)} {text(model, 3)}".strip(),
            "model version": str(number(model, 5) or ""),
            "graph": text(graph, 2),
            "description": text(model, 6) or text(graph, 10),
            **{text(entry, 1): text(entry, 2) for entry in map(fields_of, model.get(14, ()))},
        }
        opsets = {text(entry, 1) or _OWN: number(entry, 2) for entry in map(fields_of, model.get(8, ()))}
    # Before version 4 of the format, weights are inputs as well.
    signature = Signature(tuple(spec for spec in inputs if spec.name not in initializers), outputs)
    here = pathlib.Path(path)
    files = (File(name, (here.parent / name).stat().st_size) for name in (here.name, *sorted(counted.outside)))
    ops = dict(sorted(counted.ops.items(), key=lambda item: (-item[1], item[0])))
    return Overview(
        model=str(here.absolute()),
        form="ONNX file",
        signatures={DEFAULT: signature},
        opsets=opsets,
        ops=ops,
        weights=dict(counted.weights.most_common()),
        files=tuple(files),
        facts={name: text for name, text in facts.items() if text},
        unasked=_UNASKED,
    )


def outside(path: str) -> list[str]:
    """Paths of the files beside an ONNX file that hold its weights. Raises: as `overview`."""
    with opened(path) as model:
        return [str(pathlib.Path(path).parent / name) for name in sorted(_counted(path, model).outside)]


@contextlib.contextmanager
def opened(path: str) -> Iterator[Fields]:
    """The fields of a ModelProto; a ValueError inside the context means that the file is not an ONNX model. Raises: UsageError,
    TftrtError."""
    if not pathlib.Path(path).is_file():
        raise errors.UsageError(f"no such file: {path}", "check the path of the ONNX file")
    with open(path, "rb") as file:
        first = file.read(1)
        raw = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) if first else memoryview(b"")
    try:
        model = fields_of(raw)
        if not (7 in model and 8 in model):
            raise ValueError("it has no graph, or names no opset")
        yield model
    except ValueError as error:
        if first == _FIRST:
            raise errors.TftrtError(
                f"{path} is truncated or damaged ({error})", "export or copy the model again"
            ) from None
        raise errors.TftrtError(
            f"{path} is no ONNX file, whatever its name says" if first else f"{path} is empty",
            "give the file that the exporter wrote",
        ) from None


def _counted(path: str, model: Fields) -> _Counted:
    """Count the contents of the model's graphs and functions. Raises: ValueError; TftrtError where a file with weights is missing."""
    counted = _Counted()
    _count(only(model, 7), counted)
    for function in map(fields_of, model.get(25, ())):
        _count_nodes(function.get(7, ()), counted)
    _check_outside(path, counted)
    return counted


def _check_outside(path: str, counted: _Counted) -> None:
    folder = pathlib.Path(path).parent
    for name, needed in counted.outside.items():
        place = pathlib.PurePosixPath(name)
        if not name or place.is_absolute() or ".." in place.parts:
            raise errors.TftrtError(
                f"{path} has weights in {name!r}, and no runtime looks for them outside the model's folder",
                "export it again, with its weights beside it",
            )
        if not (folder / name).is_file():
            raise errors.TftrtError(
                f"{path} has weights in {name}, which is not beside it",
                f"copy {name} into its folder: both files are the model",
            )
        files.check_link(folder / name, folder)
        size = (folder / name).stat().st_size
        if size < needed:
            raise errors.TftrtError(
                f"{folder / name} is truncated: it has {size} bytes, and {path} names {needed} of it",
                "copy it again; both files have to be of one export",
            )


def fields_of(raw: memoryview) -> Fields:
    by_number: dict[int, list[Any]] = {}
    for number, kind, value in fields.walk(raw):
        if kind == fields.DELIMITED:
            by_number.setdefault(number, []).append(value)
        elif kind == fields.VARINT:
            by_number.setdefault(-number, []).append(value)
    return by_number


def only(message: Fields, number: int) -> Fields:
    """The fields of a field that is a message; {} where it is missing. Raises: ValueError."""
    return fields_of(fields.joined(message[number])) if number in message else {}


def text(message: Fields, number: int) -> str:
    return str(message[number][-1], "utf-8") if number in message else ""


def number(message: Fields, number: int) -> int:
    return fields.signed(message[-number][-1]) if -number in message else 0


def _count(graph: Fields, counted: _Counted, depth: int = 0) -> None:
    for raw in graph.get(5, ()):
        _count_tensor(raw, counted)
    for sparse in map(fields_of, graph.get(15, ())):
        for raw in (*sparse.get(1, ()), *sparse.get(2, ())):
            _count_tensor(raw, counted)
    _count_nodes(graph.get(1, ()), counted, depth)


def _count_nodes(nodes: Iterable[memoryview], counted: _Counted, depth: int = 0) -> None:
    if depth > _DEEPEST:
        raise ValueError(f"more than {_DEEPEST} graphs lie in each other")
    for node in map(fields_of, nodes):
        domain = text(node, 7)
        counted.ops[text(node, 4) if domain in ("", _OWN) else f"{domain}.{text(node, 4)}"] += 1
        for attribute in map(fields_of, node.get(5, ())):
            for raw in (*attribute.get(5, ()), *attribute.get(10, ())):
                _count_tensor(raw, counted)
            for graph in (*attribute.get(6, ()), *attribute.get(11, ())):
                _count(fields_of(graph), counted, depth + 1)


def _count_tensor(raw: memoryview, counted: _Counted) -> None:
    tensor = fields_of(raw)
    counted.weights[_dtype(number(tensor, 2))] += math.prod(dims(tensor))
    if number(tensor, 14) == 1:
        external = {text(entry, 1): text(entry, 2) for entry in map(fields_of, tensor.get(13, ()))}
        name = external.get("location", "")
        end = int(external.get("offset") or 0) + int(external.get("length") or 0)
        counted.outside[name] = max(counted.outside.get(name, 0), end)


def dims(tensor: Fields) -> list[int]:
    """The integers of field 1, single or packed."""
    from tftrt_tools.base.wire import varints  # NumPy is not needed for a command's help

    return [*tensor.get(-1, ()), *(int(one) for raw in tensor.get(1, ()) for one in varints.decode(raw))]


def _dtype(number: int) -> str:
    return _DTYPES.get(number, f"type {number}")


def _spec(value: Fields) -> InputSpec:
    """The InputSpec of a ValueInfoProto; if it is not a tensor, the dtype says what it is."""
    name, kind = text(value, 1), only(value, 2)
    if _TENSOR_TYPE not in kind:
        return InputSpec(name, next((text for number, text in _NO_TENSORS.items() if number in kind), "unknown"), None)
    tensor = only(kind, _TENSOR_TYPE)
    if 2 not in tensor:
        return InputSpec(name, _dtype(number(tensor, 1)), None)
    dims = (fields_of(raw) for raw in only(tensor, 2).get(1, ()))
    # An unknown size has a name instead of a number, or neither.
    sizes = (number(dim, 1) if -1 in dim else -1 for dim in dims)
    return InputSpec(name, _dtype(number(tensor, 1)), tuple(None if size < 0 else size for size in sizes))
