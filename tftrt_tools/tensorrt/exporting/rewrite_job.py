"""The child's side of the rewrites that are made in an exported graph: one after the other, each checked, and left out if it fails."""

from __future__ import annotations

import pathlib

import onnx
from onnx import version_converter

from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.models.kinds.onnx import runner_job
from tftrt_tools.tensorrt.exporting.job import model_file
from tftrt_tools.tensorrt.exporting.job.graph_facts import drop_hints
from tftrt_tools.tensorrt.exporting.job.rewrites import registry
from tftrt_tools.tensorrt.exporting.rewriting import REWRITES, Answer, Changed, Missed, Request, Rewritten

# What onnx checks, and onnxslim copies, in memory.
_MOST_BYTES = 1_900_000_000
# A file that grows by more than that has gained nothing: constants were spread out.
_MOST_GROWN, _LEAST_GROWN_BYTES = 1.1, 1_000_000


def job(request: Request) -> Answer:
    """Rewrite."""
    path = pathlib.Path(request.onnx)
    size = sum(one.stat().st_size for one in (path, path.parent / request.weights) if one.is_file())
    if size > _MOST_BYTES:
        undone = f"the file has {size / 1e9:.1f} GB, which is too much for it"
        return Answer(rewrites=tuple(Rewritten(name=name, nodes=0, undone=undone) for name in request.rewrites))
    model, made = onnx.load(path), []
    for name in request.rewrites:
        progress.say(f"rewriting: {name}")
        model, one = _with(model, name, request)
        made.append(one)
    if not any(one.nodes and not one.undone for one in made):
        return Answer(rewrites=tuple(made))
    before = [one.value for one in model.metadata_props if one.key == "tftrt.rewrites"]
    names = ",".join([*before, *(one.name for one in made if one.nodes and not one.undone)])
    written = model_file.rewrite(
        model, request.output, request.weights, {"tftrt.rewrites": names, "tftrt.opset": str(_opset(model))}
    )
    return Answer(rewrites=tuple(made), changed=Changed(nodes=tuple(model_file.nodes(written)), opset=_opset(model)))


def _with(model: onnx.ModelProto, name: str, request: Request) -> tuple[onnx.ModelProto, Rewritten]:
    """(The model with a rewrite, what became of it); the same model if it changed nothing or failed."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    try:
        nodes = registry.IN_GRAPH[name](made, request.target)
        if not nodes:
            return model, Rewritten(name=name, nodes=0, missed=_missed(model, name, request.target))
        if request.raised and _opset(made) < REWRITES[name].opset:
            made = _raised(model, name, request.target)
        checked = _checked(made)
    except Exception as error:  # onnxslim, onnx and ONNX Runtime raise whatever their parts do
        return model, Rewritten(
            name=name, nodes=0, undone=f"it failed: {errors.first_line(str(error)) or type(error).__name__}"
        )
    grown = checked.ByteSize() - model.ByteSize()
    if not REWRITES[name].grows and grown > _LEAST_GROWN_BYTES and checked.ByteSize() > _MOST_GROWN * model.ByteSize():
        return model, Rewritten(name=name, nodes=nodes, undone=f"the file would grow by {grown / 1e6:.0f} MB")
    return checked, Rewritten(name=name, nodes=nodes, missed=_missed(checked, name, request.target))


def _missed(model: onnx.ModelProto, name: str, target: str) -> tuple[Missed, ...]:
    """Of a graph with the rewrite."""
    found = registry.MISSED[name](model, target) if name in registry.MISSED else ()
    return tuple(Missed(node=node, reason=reason) for node, reason in found)


def _raised(model: onnx.ModelProto, name: str, target: str) -> onnx.ModelProto:
    """The rewrite in a model of the opset that it needs."""
    made = version_converter.convert_version(model, REWRITES[name].opset)
    registry.IN_GRAPH[name](made, target)
    return made


def _checked(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its shapes and types inferred anew. Raises: what onnx's checker or ONNX Runtime raise."""
    drop_hints(model.graph)
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, data_prop=True)
    onnx.checker.check_model(inferred, full_check=True)
    runner_job.session(inferred.SerializeToString(), "the rewritten graph", optimized=False)
    return inferred


def _opset(model: onnx.ModelProto) -> int:
    result: int = next(one.version for one in model.opset_import if one.domain in ("", "ai.onnx"))
    return result
