"""The child's side of `tftrt calibrate`: tables for the engines that a conversion would make, or that a converted model has."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tftrt_tools.base import errors
from tftrt_tools.base.files import scratch
from tftrt_tools.base.process import progress
from tftrt_tools.models.execution.job import gpu as gpu_module
from tftrt_tools.models.savedmodel import signatures
from tftrt_tools.models.savedmodel.job import detach, graph, inline, loading, protos
from tftrt_tools.tftrt.calibration.calibrated import Calibrated
from tftrt_tools.tftrt.conversion.job import finishing, graph_pass, int8, patterns, prepare, tensorrt_here
from tftrt_tools.tftrt.conversion.settings import Settings, in_a_batch_mode

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2

    from tftrt_tools.models.savedmodel.engine_op import EngineOp
    from tftrt_tools.models.savedmodel.job.loading import Model
    from tftrt_tools.tftrt.calibration.file import EngineTable
    from tftrt_tools.tftrt.calibration.record import DataRecord
    from tftrt_tools.tftrt.conversion.converting import CalibrateRequest
    from tftrt_tools.tftrt.conversion.job.int8 import Measured, Source
    from tftrt_tools.tftrt.conversion.job.patterns import Patterns


def job(request: CalibrateRequest) -> Calibrated:
    """Calibrate in this process; nothing is saved. Raises: UsageError, TftrtError; CheckFailed where no engine takes a table."""
    settings = request.settings
    tensorrt_here.check()
    int8.check_calibrator(settings, request.int8, gpu_module.seen())
    with scratch.folder("calibrate") as folder:
        progress.say("loading the model")
        model, converted = _load(request.source, settings, folder)
        names = signatures.chosen(list(model.root.signatures), settings.signature_keys)
        once = signatures.Once.of(names, model.same)
        specs = {name: model.specs(name) for name in model.root.signatures}
        source, walked = int8.Source.of_model(request.int8, once, specs), once.names
        gathered = patterns.Patterns()
        measured = (
            (name, _signature(model, walked, index, converted, settings, source, folder, gathered))
            for index, name in enumerate(walked)
        )
        tables: list[EngineTable] = []
        records: list[DataRecord] = []
        for _, measured_signature, decision in int8.each_decided(measured, settings, source):
            tables += measured_signature.tables(decision.method)
            records += [measured_signature.record] if measured_signature.record else []
        gathered.check()
    if not tables:
        raise _nothing(request.source, converted)
    return Calibrated(
        versions=finishing.versions(),
        tables=tuple(tables),
        data=tuple(records),
        method=decision.said,
        comparison=decision.comparison,
    )


def _load(path: str | os.PathLike[str], settings: Settings, folder: str) -> tuple[Model, bool]:
    """Returns: (loading.Model, whether the model is converted already). Engines that a model carries are not read."""
    proto = protos.read(path)
    if not any(True for _ in graph.engine_nodes(protos.meta_graph(proto, settings.tags).graph_def)):
        return loading.load(path, settings.tags), False
    _refuse_pass_settings(settings)
    detach.write(proto, path, folder + "/model")
    return loading.load(folder + "/model", settings.tags), True


def _refuse_pass_settings(settings: Settings) -> None:
    """Refuse settings of the graph pass for a converted model, whose engines exist already."""
    default = in_a_batch_mode(Settings())
    for name in (
        "minimum_segment_size",
        "max_engines",
        "keep_native_ops",
        "keep_native_nodes",
        "fp32_nodes",
        "use_dynamic_shape",
    ):
        if getattr(settings, name) != getattr(default, name):
            raise errors.UsageError(
                f"--{name} has no effect: the model is converted already, and its engines are what is calibrated",
                "leave it out, or calibrate the original model",
            )


def _signature(
    model: Model,
    names: Sequence[str],
    index: int,
    converted: bool,
    settings: Settings,
    source: Source,
    folder: str,
    gathered: Patterns | None,
) -> Measured:
    """The int8.Measured of one of the signatures `names`."""
    name, prefix = names[index], f"TRTEngineOp_calibrated_{index}"
    progress.say(f"calibrating signature {name}", index, len(names))
    function = model.root.signatures[name]
    if not converted:
        frozen, passed = prepare.passed(name, function, settings, gathered)
        graph_def = passed.graph_def
        finishing.unique_names(graph_def, prefix)
        return int8.measured(name, frozen, graph_def, model.specs(name), settings, source, folder)
    frozen = graph_pass.freeze(name, function)
    graph_def = inline.inline_calls(frozen.graph_def)
    functions = {
        library_function.signature.name: f"{prefix}_{library_function.signature.name}"
        for library_function in graph_def.library.function
    }
    graph.rename(graph_def, {}, functions)
    engines = _to_calibrate(name, graph_def)
    if engines:
        settings = dataclasses.replace(settings, use_dynamic_shape=not engines[0].implicit_batch)
    patterns.in_int8_engines(graph_def, settings.high_precision_nodes, gathered)
    return int8.measured(name, frozen, graph_def, model.specs(name), settings, source, folder)


def _to_calibrate(name: str, graph_def: graph_pb2.GraphDef) -> list[EngineOp]:
    """Mark the engine ops to calibrate as INT8: those that are INT8; in a model of another precision all of them, because an INT8
    conversion with the same settings has the same segments. Returns: their EngineOps."""
    candidates = [engine_op for engine_op in graph.engine_ops(graph_def) if not engine_op.explicit_precision]
    int8_engines = [engine_op for engine_op in candidates if engine_op.precision == "INT8"]
    selected = (
        [int8_engine for int8_engine in int8_engines if int8_engine.use_calibration] if int8_engines else candidates
    )
    for op in selected:
        if not op.native_segment:
            raise errors.TftrtError(
                f"the native segment of {op.name} ({name}) was removed, so that nothing can run here",
                "calibrate the original model",
            )
    names = {engine_op.name for engine_op in selected}
    for node in graph.engine_nodes(graph_def):
        chosen = graph.engine_name(node.name) in names
        graph.set_attributes(node, precision_mode="INT8" if chosen else "FP32", use_calibration=chosen)
    return selected


def _nothing(path: str | os.PathLike[str], converted: bool) -> errors.CheckFailed:
    if converted:
        return errors.CheckFailed(
            f"{path} has no engine op that takes a calibration table", "its quantization nodes carry the ranges"
        )
    return errors.CheckFailed(
        f"no INT8 engine of {path} takes a calibration table",
        "`tftrt inspect` says what stays in TensorFlow; a quantization-aware model carries its ranges itself",
    )
