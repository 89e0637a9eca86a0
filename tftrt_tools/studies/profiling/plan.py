"""Measures the engines that a model carries, each alone and outside TensorFlow, in children: raw facts part by part, then profiles."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.base.process import child, progress
from tftrt_tools.base.stack import bindings
from tftrt_tools.models.kinds.plan import document, layer_information
from tftrt_tools.models.savedmodel import describe, engine_assets, passport
from tftrt_tools.models.savedmodel.engine_op import EngineOp
from tftrt_tools.models.savedmodel.shapes import Call
from tftrt_tools.studies.profiling import apart, engines
from tftrt_tools.studies.profiling.apart import OnnxRequest, Request, SegmentsRequest, Sized
from tftrt_tools.studies.profiling.engine_graph import Graph
from tftrt_tools.studies.profiling.engine_profile import EngineProfile
from tftrt_tools.tftrt.conversion import layer_table

# What is asked, each in a process of its own, and for people. Later parts may end their process.
PARTS = {
    "told": "sizes and names of the engines",
    "timed": "each layer",
    "traced": "each kernel",
    "graph": "a CUDA graph",
    "streams": "several streams",
    "overlap": "streams fed by CUDA graphs",
}
# Of plan directories, too: engines of TF-TRT are built so that the inspector tells names alone.
OF_A_PLAN = {"inspected": "what the inspector tells of each layer"}
# The parts that say where a call's time goes.
OF_A_CALL = ("told", "timed", "traced")
# And of a plan, whose calls can be CUDA graphs.
OF_A_PLANS_CALL = (*OF_A_CALL, "graph")
# Seconds of a part, to begin with and for each engine and profile; it takes a few. A part that hangs is killed, and the others count.
_TO_BEGIN, _OF_A_PROFILE = 30.0, 15.0
# The request for the first part, which counts the engines.
_MOST_PROFILES = 20
_LOG_END = 4000

# {engine: batches}: an engine whose profile serves a range is measured at each of these, too, if no profile was tuned for it.
Rows = Mapping[str, Sequence[int]]


def measure(
    model: str | os.PathLike[str],
    shapes: Mapping[str, Sequence[Sequence[int]]] | None = None,
    parts: Sequence[str] = tuple(PARTS),
    rows: Rows | None = None,
) -> tuple[tuple[EngineProfile, ...], tuple[str, ...]]:
    """Take apart every engine and profile that SavedModel directory `model` carries.

    Args: shapes: {engine: shape of each of its inputs}; by default each profile runs at what it was tuned for. parts: of
      PARTS. rows: to measure, too.
    Returns: (EngineProfiles, remarks). A part that fails is a remark, and the others count. Raises: TftrtError for a damaged model.
    """
    assets = engine_assets.read(model)
    if not assets:
        return (), ("the model carries no engines: `tftrt build` makes them, and only saved ones can be taken apart",)
    if not bindings.installed():
        missing = bindings.missing("the engines cannot be taken apart", assets[0].tensorrt or "")
        return (), (f"{missing.cause} ({missing.mend})",)
    return engines.profiles(recording(model, shapes, parts, rows))


def recording(
    model: str | os.PathLike[str],
    shapes: Mapping[str, Sequence[Sequence[int]]] | None = None,
    parts: Sequence[str] = tuple(PARTS),
    rows: Rows | None = None,
) -> engines.Recording:
    """What `measure` makes profiles of. Args: as of `measure`. Raises: TftrtError for a damaged model."""
    given = {engine: tuple(map(tuple, inputs)) for engine, inputs in (shapes or {}).items()}
    batches = {engine: tuple(listed) for engine, listed in (rows or {}).items()}
    recorded = _recorded(parts, Request(model=str(model), shapes=given, rows=batches))
    requests = [
        Sized(engine, _tuples(engine_shapes))
        for (engine, *_), answers in engines.sorted_answers(recorded)[0].items()
        if (engine_shapes := engines.shapes(answers))
    ]
    request = SegmentsRequest(model=str(model), engines=tuple(requests))
    graphs = apart.segments.run(request).result if requests else ()
    return engines.Recording(
        parts=recorded, ops=describe.describe(model)[0].engines, graphs=graphs, built=_table(model)
    )


def recording_of_plan(
    path: str | os.PathLike[str], calls: Sequence[Call], parts: Sequence[str] = tuple(PARTS)
) -> engines.Recording:
    """The same of a plan directory. Args: calls: {input: shape} each, to measure beside what the profiles were tuned for. Raises:
    UsageError, TftrtError where it is not whole."""
    plan_file = document.read(path)
    recorded = _recorded((*parts, *OF_A_PLAN), Request(model=str(path), calls=tuple(map(_tuples, calls))))
    requests = [
        shapes for answers in engines.sorted_answers(recorded)[0].values() if (shapes := engines.shapes(answers))
    ]
    return engines.Recording(
        parts=recorded, ops=(_engine_op(path, plan_file),), graphs=graphs_of_plan(path, requests), built=_built(path)
    )


def graphs_of_plan(path: str | os.PathLike[str], calls: Sequence[Mapping[str, Sequence[int]]]) -> tuple[Graph, ...]:
    """The ONNX file of a plan with the sizes of calls; without nodes where it cannot be read here. Args: calls: {input: shape} each; other
    tensors in them do not matter."""
    request = OnnxRequest(onnx=str(pathlib.Path(path) / document.ONNX), calls=tuple(map(_tuples, calls)))
    try:
        return apart.onnx_file.run(request).result if calls else ()
    except (errors.TftrtError, child.ChildBug):
        return tuple(Graph(document.ENGINE, ()) for _ in calls)


def _tuples(call: Mapping[str, Sequence[int]]) -> Call:
    return {name: tuple(shape) for name, shape in call.items()}


def _built(path: str | os.PathLike[str]) -> dict[str, layer_table.Built]:
    """The inspector's document on the plan's layers from the build."""
    rows = layer_information.rows(passport.read(path, document.LAYER_INFORMATION))
    return {document.ENGINE: layer_table.Built(rows=rows)} if rows else {}


def _engine_op(path: str | os.PathLike[str], plan_file: document.PlanFile) -> EngineOp:
    """The plan as an engine op, as far as they have anything in common."""
    workspace = ((passport.read(path, passport.MANIFEST) or {}).get("settings") or {}).get(
        "max_workspace_size_bytes", 0
    )
    return EngineOp(
        name=document.ENGINE,
        precision=plan_file.precision,
        inputs=(),
        outputs=(),
        ops={},
        native_segment="",
        implicit_batch=False,
        profile_strategy="",
        workspace_size_bytes=workspace,
        maximum_cached_engines=1,
        allow_build_at_runtime=False,
        use_calibration=False,
        calibrated=False,
        explicit_precision=False,
    )


def _recorded(parts: Sequence[str], request: Request) -> dict[str, dict[str, Any]]:
    """{part: of `_part`}."""
    recorded: dict[str, dict[str, Any]] = {}
    for number, part in enumerate(parts):
        progress.say(f"measuring {(PARTS | OF_A_PLAN)[part]}", number, len(parts))
        counted = [len(calls.get("answers", ())) for calls in recorded.values()]
        recorded[part] = _part(
            dataclasses.replace(request, part=part), _TO_BEGIN + _OF_A_PROFILE * max(counted, default=_MOST_PROFILES)
        )
    return recorded


def _part(request: Request, seconds: float = _TO_BEGIN) -> dict[str, Any]:
    """{"answers": [facts of an engine and profile], "log": its end}, or {"error": why there are none, "log"}. Args: seconds: after which
    it is killed."""
    try:
        outcome = apart.measure.run(request, timeout=seconds)
    except child.ChildDied as error:
        return {"error": str(error), "log": error.log[-_LOG_END:]}
    except (errors.TftrtError, child.ChildBug) as error:
        return {"error": str(error)[-_LOG_END:], "log": ""}
    return {"answers": outcome.result, "log": outcome.log[-_LOG_END:]}


def _table(model: str | os.PathLike[str]) -> dict[str, layer_table.Built]:
    document = passport.read(model, passport.LAYERS)
    if document is None:
        return {}
    with passport.understood(model, passport.LAYERS):
        return layer_table.Table.from_dict(document).engines
