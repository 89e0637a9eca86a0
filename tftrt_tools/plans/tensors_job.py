"""Two ONNX files with tensors that they share as outputs; the child's side of `tensors`."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import onnx
from onnx import TensorProto, shape_inference

from tftrt_tools import errors
from tftrt_tools.exporting.job import half

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)
_MOST_TOLD = 5


def job(request: dict[str, Any]) -> dict[str, Any]:
    """Write the files.

    Args: request: {"files": two paths, "names": of tensors, [] for all, "folder": where files go, "chunk": tensors of a file}.
    Returns: {"chunks": [{"first", "second": paths, "tensors": [{"tensor", "node", "first", "second": its name in each}]}],
      "computed": tensors of floats in the second}.
    Raises: UsageError for a tensor that one of them has not, or if they share none inside.
    """
    models = [onnx.load(path) for path in request["files"]]
    first, second = map(_computed, models)
    shared = [name for name in second if name in first]
    missing = [name for name in request["names"] if name not in shared]
    if missing:
        raise errors.UsageError(f"--tensors: {missing[0]!r} is no tensor of floats that both graphs compute",
                                "such are " + ", ".join(shared[:_MOST_TOLD]) + (", …" if len(shared) > _MOST_TOLD else ""))
    if not request["names"] and not _inner(shared, models[1]) and _inner(second, models[1]):
        raise errors.UsageError("--tensors: the graphs have no inner tensor of the same name", "compare a file with what was made from it")
    names = [name for name in shared if not request["names"] or name in request["names"]]
    chunks = []
    for start in range(0, len(names), request["chunk"]):
        mine = names[start:start + request["chunk"]]
        paths = [str(pathlib.Path(request["folder"]) / f"{side}-{start}.onnx") for side in ("first", "second")]
        for model, computed, path in zip(models, (first, second), paths, strict=True):
            _write(model, [computed[name].value for name in mine], path)
        told = [{"tensor": name, "node": second[name].node, "first": first[name].value.name, "second": second[name].value.name}
                for name in mine]
        chunks.append({"first": paths[0], "second": paths[1], "tensors": told})
    return {"chunks": chunks, "computed": len(second)}


class _Tensor(NamedTuple):
    # "OP NAME" of what computes it.
    node: str
    value: onnx.ValueInfoProto


def _computed(model: onnx.ModelProto) -> dict[str, _Tensor]:
    """{name of a tensor of floats: it}, in the graph's order; without constants. What an export in FP16 calls NAME/fp16 is NAME here."""
    inferred = shape_inference.infer_shapes(model).graph
    types = {one.name: one for one in (*inferred.value_info, *inferred.output)}
    found = {name: _Tensor(f"{node.op_type} {node.name}".strip(), types[name]) for node in model.graph.node if node.op_type != "Constant"
             for name in node.output if name in types and types[name].type.tensor_type.elem_type in _FLOATS}
    taken = {*found, *(one.name for one in model.graph.input)}
    plain = {name: name.removesuffix(half.SUFFIX) for name in found}
    # A Cast of NAME is no other tensor: NAME is there itself.
    return {name if plain[name] in taken else plain[name]: one for name, one in found.items()}


def _inner(names: Iterable[str], model: onnx.ModelProto) -> bool:
    """Whether some are no outputs of the graph."""
    return not {one.name for one in model.graph.output}.issuperset(names)


def _write(model: onnx.ModelProto, further: Iterable[onnx.ValueInfoProto], path: str) -> None:
    marked = onnx.ModelProto()
    marked.CopyFrom(model)
    already = {one.name for one in marked.graph.output}
    marked.graph.output.extend(value for value in further if value.name not in already)
    onnx.save(marked, path)
