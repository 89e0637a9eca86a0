"""The child's side of INT8: an exported graph gets QuantizeLinear and DequantizeLinear, with scales from data or from a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import onnx

from tftrt_tools.base import choices, errors
from tftrt_tools.base.process import progress
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.kinds.onnx import index_limits
from tftrt_tools.models.kinds.onnx.kind import PRECISION
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.tensorrt.exporting import as_plan
from tftrt_tools.tensorrt.exporting.job import model_file, onnx_ranges, placement, qdq, tables
from tftrt_tools.tensorrt.exporting.job.graph_facts import Facts, name_of
from tftrt_tools.tensorrt.exporting.job.placement import Placement
from tftrt_tools.tensorrt.exporting.precision import GIVEN, Written, kept
from tftrt_tools.tensorrt.exporting.writing import Answer, ToInt8
from tftrt_tools.tftrt.calibration import comparison, methods
from tftrt_tools.tftrt.calibration.comparison import Comparison
from tftrt_tools.tftrt.calibration.job import data, passing
from tftrt_tools.tftrt.calibration.job.histogram import Histogram
from tftrt_tools.tftrt.calibration.methods import Method
from tftrt_tools.tftrt.calibration.record import DataRecord
from tftrt_tools.tftrt.calibration.table import LEVELS

# The last node with weights stays in FP32 if that takes away half of the noise, or more.
_LEAST_GAIN_DB = 3.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Scaled:
    """placement: what is rounded; scales: {tensor: scale}, of all that were measured; method, comparison: how they were chosen; record: of
    the data."""

    placement: Placement
    scales: Mapping[str, float]
    method: str
    comparison: Comparison | None = None
    record: DataRecord | None = None


def job(request: ToInt8) -> Answer:
    """Quantize. Raises: UsageError, TftrtError."""
    model = onnx.load(request.files.onnx)
    names = kept(request.fp32_nodes, map(name_of, model.graph.node))
    placed = placement.place(model, names)
    if placed.sites and request.as_plan:
        placed = placement.place(model, names, as_plan.wider(request.as_plan, [site.node for site in placed.sites]))
    if not placed.sites:
        raise errors.TftrtError(
            "no node of it can be in INT8"
            + (
                f" ({placed.left[0].name}: {placed.left[0].reason})"
                if placed.left
                else ": it has no convolution and no product with constant weights, in FP32"
            ),
            "export it with another --precision",
        )
    found = _measured(request, request.data, model, placed) if request.data else _of_table(model, placed, request.table)
    if not found.placement.sites:
        raise errors.TftrtError(
            f"no node of it has the ranges that INT8 needs ({found.placement.left[-1].reason})",
            "give other calibration data, or the table of this model",
        )
    progress.say("writing INT8 into the graph")
    made = qdq.with_rounding(model, found.placement, found.scales)
    properties = {PRECISION: "INT8", "tftrt.calibration_method": found.method}
    made = model_file.rewrite(made, request.files.output, request.files.weights, properties)
    record = found.record
    written = Written(
        precision="INT8",
        nodes=found.placement.nodes(),
        method=found.method,
        comparison=found.comparison,
        ranges={tensor: found.scales[tensor] * LEVELS for tensor in found.placement.tensors},
        samples=record.samples if record else 0,
        warnings=record.warnings if record else (),
    )
    return Answer(written=written, scales=found.scales, data=record, nodes=tuple(model_file.nodes(made)))


def _of_table(model: onnx.ModelProto, placed: Placement, table: Mapping[str, float]) -> _Scaled:
    scales = tables.by_tensor(model, table)
    return _Scaled(placement=placed.with_scales(scales, "the table has"), scales=scales, method=GIVEN)


def opened(
    options: DataOptions,
    path: str,
    model: onnx.ModelProto,
    names: Sequence[str],
    source: Mapping[str, Sequence[InputSpec]] = MappingProxyType({}),
    asked: Sequence[str] = (),
) -> data.Batches:
    """The calibration data of a file. Args: model: of the file `path`. names: of its signature. source, asked: the source's inputs, and the
    signatures that are exported, as precise.Exported has them. Raises: UsageError."""
    specs = list(index_limits.limited(path, model_file.specs(model.graph.input)))
    name, *twins = names
    places = {spec.name: spec.place for spec in source.get(name, ())}
    if places.keys() == {spec.name for spec in specs}:
        # The file has its inputs in another order than the source's function.
        specs = [spec.knowing(spec.limit, places[spec.name]) for spec in specs]
    elsewhere = data.Elsewhere.of(names, asked, source) if source else data.Elsewhere()
    return data.open(options, name, specs, twins, lambda rows: _takes(specs, rows), alike=False, elsewhere=elsewhere)


def candidates(asked: choices.CalibrationMethod, percentile: float) -> list[Method]:
    """The methods that --calibration_method names."""
    return [Method(name, percentile) for name in (choices.METHODS if asked == methods.AUTO else (asked,))]


def _measured(request: ToInt8, options: DataOptions, model: onnx.ModelProto, placed: Placement) -> _Scaled:
    names = (request.signature, *request.twins)
    batches = opened(options, request.files.onnx, model, names, request.inputs, request.asked)
    asked = request.method
    listed = candidates(asked, request.percentile)
    collector = onnx_ranges.Collector(model, Facts(model).floats if request.every_tensor else placed.tensors)
    judging = passing.passed(collector, batches, listed)
    ranged = placed.with_scales(
        {name for name, one in collector.histograms.items() if one.absmax}, "the calibration data has"
    )
    compared = onnx_ranges.compared(request.signature, model, ranged, collector.histograms, judging)
    decided = comparison.of([compared], "" if asked == methods.AUTO else listed[0].text)
    method = next(one for one in listed if one.text == decided.taken)
    if compared.levels:
        chosen = [dataclasses.replace(one, scales={method: one.scales[method]}) for one in judging]
        level = min(compared.levels[method.text].values())
        ranged = _without_harm(request.signature, model, ranged, collector.histograms, chosen, level)
    scales = onnx_ranges.scales_by_tensor(collector.histograms, passing.scales_of(collector.histograms, method))
    return _Scaled(placement=ranged, scales=scales, method=method.text, comparison=decided, record=batches.record)


def _takes(specs: list[InputSpec], rows: int) -> bool:
    return all(not spec.shape or spec.shape[0] in (None, rows) for spec in specs)


def _without_harm(
    signature: str,
    model: onnx.ModelProto,
    placed: Placement,
    histograms: Mapping[str, Histogram],
    judging: list[passing.Judging],
    level: float,
) -> Placement:
    """The Placement without the last nodes with weights, if INT8 loses much just there. Args: level: dB of the worst output with them."""
    names = placement.last(model, placed)
    without = placed.without(names, "")
    if not without.sites:
        return placed
    found = onnx_ranges.compared(signature, model, without, histograms, judging)
    worst = min((one for by_output in found.levels.values() for one in by_output.values()), default=level)
    if worst - level < _LEAST_GAIN_DB:
        return placed
    return placed.without(names, f"INT8 of the last layer alone costs {worst - level:.1f} dB of the worst output")
