"""Two ONNX files with tensors that they share as outputs; the child's side of `tensors`."""

from __future__ import annotations

import pathlib
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

import onnx
from onnx import TensorProto, shape_inference

from tftrt_tools.accuracy.marked import Chunk, Chunks, SharedTensor
from tftrt_tools.base import errors
from tftrt_tools.tensorrt.exporting.job import half
from tftrt_tools.tensorrt.plans.tensor_files import Request

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)
_MOST_TOLD = 5


def job(request: Request) -> Chunks:
    """Write the files. Raises: UsageError for a tensor that one of them has not, or if they share none, or none inside."""
    models = [onnx.load(path) for path in request.files]
    first, second = map(_computed, models)
    shared = list(_shared(first, second))
    mend = "compare a file with what was made from it"
    if not shared:
        raise errors.UsageError("--tensors: the graphs compute no tensor of floats of the same name", mend)
    known = {name for pair in shared for name in (pair.first, pair.second)}
    missing = [name for name in request.names if name not in known]
    if missing:
        raise errors.UsageError(
            f"--tensors: {missing[0]!r} is no tensor of floats that both graphs compute",
            errors.nearest(missing[0], ["all", *(pair.name for pair in shared)], _MOST_TOLD),
        )
    if not request.names and not _inner((pair.second for pair in shared), models[1]) and _inner(second, models[1]):
        raise errors.UsageError("--tensors: the graphs have no inner tensor of the same name", mend)
    pairs = [pair for pair in shared if not request.names or {pair.first, pair.second} & set(request.names)]
    chunks = []
    for start in range(0, len(pairs), request.chunk):
        mine = pairs[start : start + request.chunk]
        paths = [str(pathlib.Path(request.folder) / f"{side}-{start}.onnx") for side in ("first", "second")]
        _write(models[0], [first[pair.first].value for pair in mine], paths[0])
        _write(models[1], [second[pair.second].value for pair in mine], paths[1])
        told = tuple(
            SharedTensor(tensor=pair.name, node=second[pair.second].node, first=pair.first, second=pair.second)
            for pair in mine
        )
        chunks.append(Chunk(first=paths[0], second=paths[1], tensors=told))
    return Chunks(chunks=tuple(chunks), computed=len(second))


class _Pair(NamedTuple):
    # The names of one tensor in the two graphs.
    first: str
    second: str

    @property
    def name(self) -> str:
        """Without what an export in FP16 puts behind it."""
        return min(self, key=len)


class _Tensor(NamedTuple):
    # "OP NAME" of what computes it.
    node: str
    value: onnx.ValueInfoProto


def _computed(model: onnx.ModelProto) -> dict[str, _Tensor]:
    """{name of a tensor of floats: it}, in the graph's order; without constants."""
    inferred = shape_inference.infer_shapes(model).graph
    types = {one.name: one for one in (*inferred.value_info, *inferred.output)}
    return {
        name: _Tensor(f"{node.op_type} {node.name}".strip(), types[name])
        for node in model.graph.node
        if node.op_type != "Constant"
        for name in node.output
        if name in types and types[name].type.tensor_type.elem_type in _FLOATS
    }


def _shared(first: Collection[str], second: Collection[str]) -> Iterator[_Pair]:
    """The tensors that both graphs compute, in the order of the second: of the same name, or of one that a graph in FP16 calls NAME/fp16
    and has no NAME beside; where it has both, one is a Cast of the other."""
    for name in second:
        plain, half_name = name.removesuffix(half.SUFFIX), name + half.SUFFIX
        if plain != name and plain in first and plain not in second:
            yield _Pair(plain, name)
        elif name in first:
            yield _Pair(name, name)
        elif half_name in first and half_name not in second:
            yield _Pair(half_name, name)


def _inner(names: Iterable[str], model: onnx.ModelProto) -> bool:
    """Whether some are no outputs of the graph."""
    return not {one.name for one in model.graph.output}.issuperset(names)


def _write(model: onnx.ModelProto, further: Iterable[onnx.ValueInfoProto], path: str) -> None:
    marked = onnx.ModelProto()
    marked.CopyFrom(model)
    already = {one.name for one in marked.graph.output}
    marked.graph.output.extend(value for value in further if value.name not in already)
    onnx.save(marked, path)
