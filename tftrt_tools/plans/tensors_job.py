"""Two ONNX files with tensors that they share as outputs; the child's side of `tensors`."""

from __future__ import annotations

import pathlib
from typing import Any

import onnx
from onnx import TensorProto, shape_inference

from tftrt_tools import errors

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)
_MOST_TOLD = 5


def job(request: dict[str, Any]) -> dict[str, Any]:
    """Write the files.

    Args: request: {"files": two paths, "names": of tensors, [] for all, "folder": where files go, "chunk": tensors of a file}.
    Returns: {"chunks": [{"first", "second": paths, "tensors": [{"tensor", "node"}]}], "computed": tensors of floats in the second}.
    Raises: UsageError for a tensor that one of them has not.
    """
    models = [onnx.load(path) for path in request["files"]]
    first, second = map(_computed, models)
    missing = [name for name in request["names"] if name not in first or name not in second]
    if missing:
        shared = [name for name in second if name in first]
        raise errors.UsageError(f"--tensors: {missing[0]!r} is no tensor of floats that both graphs compute",
                                "such are " + ", ".join(shared[:_MOST_TOLD]) + (", …" if len(shared) > _MOST_TOLD else ""))
    names = [name for name in second if name in first and (not request["names"] or name in request["names"])]
    if not names:
        raise errors.UsageError("--tensors: the graphs have no tensor of the same name", "compare a file with what was made from it")
    chunks = []
    for start in range(0, len(names), request["chunk"]):
        mine = names[start:start + request["chunk"]]
        paths = [str(pathlib.Path(request["folder"]) / f"{side}-{start}.onnx") for side in ("first", "second")]
        for model, types, path in zip(models, (first, second), paths, strict=True):
            _write(model, {name: types[name][1] for name in mine}, path)
        chunks.append({"first": paths[0], "second": paths[1], "tensors": [{"tensor": name, "node": second[name][0]} for name in mine]})
    return {"chunks": chunks, "computed": len(second)}


def _computed(model: onnx.ModelProto) -> dict[str, tuple[str, onnx.ValueInfoProto]]:
    """{tensor of floats: ("OP NAME" of its node, its type)}, in the graph's order; without constants."""
    inferred = shape_inference.infer_shapes(model).graph
    types = {one.name: one for one in (*inferred.value_info, *inferred.output)}
    return {name: (f"{node.op_type} {node.name}".strip(), types[name]) for node in model.graph.node if node.op_type != "Constant"
            for name in node.output if name in types and types[name].type.tensor_type.elem_type in _FLOATS}


def _write(model: onnx.ModelProto, further: dict[str, onnx.ValueInfoProto], path: str) -> None:
    marked = onnx.ModelProto()
    marked.CopyFrom(model)
    already = {one.name for one in marked.graph.output}
    marked.graph.output.extend(value for name, value in further.items() if name not in already)
    onnx.save(marked, path)
