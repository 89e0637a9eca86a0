"""`tftrt inspect` in its child process: a plan for a SavedModel, or the contents of a converted model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tftrt_tools.base import errors, records
from tftrt_tools.base.process import progress
from tftrt_tools.models.savedmodel import files, passport, signatures
from tftrt_tools.models.savedmodel.inspection import Finding
from tftrt_tools.models.savedmodel.job import fidelity, findings, graph, inspector, protos, unbuildable
from tftrt_tools.tftrt.calibration.job import agreement
from tftrt_tools.tftrt.conversion.inspecting import Inspected, InspectRequest
from tftrt_tools.tftrt.conversion.settings import Settings, in_a_batch_mode

if TYPE_CHECKING:
    from tensorflow.core.protobuf import meta_graph_pb2

    from tftrt_tools.models.savedmodel.inspection import Inspection

# Settings that choose what is shown of a model.
_OF_ANY_MODEL = ("tags", "signature_keys")


def job(request: InspectRequest) -> Inspected:
    """Look at a SavedModel. Raises: UsageError, TftrtError."""
    model, settings = request.model, request.settings
    progress.say("reading the model")
    meta_graph = protos.meta_graph(protos.read(model), settings.tags)
    if inspector.is_converted(model, meta_graph):
        _refuse_settings(settings)
        return Inspected(inspection=_converted(model, meta_graph, settings))
    from tftrt_tools.tftrt.conversion.job import planner

    return Inspected(plan=planner.plan(model, settings))


def _refuse_settings(settings: Settings) -> None:
    """Refuse what is about a conversion that is still to come. Raises: UsageError."""
    default = in_a_batch_mode(Settings())
    asked = [field for field in dataclasses.fields(Settings) if field.name not in _OF_ANY_MODEL]
    for field in sorted(asked, key=lambda one: one.name != "shapes"):  # sorted first, because they imply others
        if getattr(settings, field.name) != getattr(default, field.name):
            raise errors.UsageError(
                f"--{records.flag(field)} has no effect: the model is converted already",
                "leave it out, or inspect the original model",
            )


def _lost(model: str, meta_graph: meta_graph_pb2.MetaGraphDef, manifest: Mapping[str, Any] | None) -> list[Finding]:
    """What the model lost of its source, if the source still exists unchanged."""
    manifest = manifest or {}
    source = manifest.get("source", "")
    if not source or not files.is_saved_model(source):
        return []
    try:
        before = protos.meta_graph(protos.read(source), tuple(manifest.get("settings", {}).get("tags", ())))
    except errors.TftrtError:
        return []
    lost = fidelity.differences(source, before, model, _unwrapped(meta_graph, manifest), folders=("assets",))
    if not lost or files.digest(source) != manifest.get("source_digest"):
        return []
    return [Finding(f"its source {source}", key, findings.AGAIN) for key in lost]


def _unwrapped(meta_graph: meta_graph_pb2.MetaGraphDef, manifest: Mapping[str, Any]) -> meta_graph_pb2.MetaGraphDef:
    """The model with the signatures that it had before `tftrt wrap`."""
    added = passport.added_signatures(manifest)
    if not added:
        return meta_graph
    bare = protos.meta_graph_pb2.MetaGraphDef()
    bare.CopyFrom(meta_graph)
    for name in added:
        del bare.signature_def[name]
    was = manifest[passport.WRAPPED]["default_was"]
    if was:
        bare.signature_def[signatures.DEFAULT].CopyFrom(bare.signature_def[was])
        del bare.signature_def[was]
    return bare


def _converted(model: str, meta_graph: meta_graph_pb2.MetaGraphDef, settings: Settings) -> Inspection:
    from tftrt_tools.base import tf_private
    from tftrt_tools.base.stack import nvml_job

    keys = signatures.chosen(list(signatures.definitions(meta_graph)), settings.signature_keys)
    seen = inspector.inspect(model, meta_graph)
    capabilities = [gpu.compute_capability for gpu in nvml_job.query().gpus]
    listed = findings.find(seen, tf_private.tensorrt_loaded(), capabilities)
    calibration, damaged = agreement.read(model)
    if seen.manifest is not None and not damaged:
        texts = {
            graph.engine_name(node.name): node.attr["calibration_data"].s.decode(errors="replace")
            for node in graph.engine_nodes(meta_graph.graph_def)
        }
        damaged = agreement.find(texts, calibration)
    lost = _lost(model, meta_graph, seen.manifest)
    document = calibration.to_dict() if calibration else None
    never = unbuildable.standing(
        unbuildable.find(meta_graph.graph_def), {engine.name for engine in seen.engines if seen.assets(engine.name)}
    )
    return dataclasses.replace(seen, findings=(*listed, *lost, *damaged, *never), calibration=document).only(keys)
