"""The child's side of `sensitivity` of an ONNX file: nodes rounded to INT8 or FP16 as `tftrt export` writes these precisions, one by one,
in ONNX Runtime on the CPU."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

import onnx
from onnx import TensorProto, shape_inference

from tftrt_tools.accuracy import harm, metrics, studying_job
from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.models.execution import constancy, npz
from tftrt_tools.models.execution.run import Call
from tftrt_tools.tensorrt.exporting import quantize_job
from tftrt_tools.tensorrt.exporting.job import foreign, half, onnx_ranges, opsets, placement, qdq, tables
from tftrt_tools.tensorrt.exporting.job.graph_facts import Facts, all_nodes, name_of, write_values
from tftrt_tools.tensorrt.exporting.precision import GIVEN, kept
from tftrt_tools.tensorrt.exporting.sensitivity import Answer, Request
from tftrt_tools.tensorrt.exporting.targets import TARGETS
from tftrt_tools.tftrt.calibration import comparison, methods
from tftrt_tools.tftrt.calibration.job import passing

if TYPE_CHECKING:
    from tftrt_tools.accuracy.metrics.comparison import Accumulator, Comparison
    from tftrt_tools.tensorrt.exporting.job.onnx_ranges import Arrays
    from tftrt_tools.tensorrt.exporting.job.placement import Placement
    from tftrt_tools.tensorrt.exporting.precision import NodePrecision

K = TypeVar("K", bound=Hashable)
# Calls on which FP16's range is looked at, as an export does.
_MOST_CALLS = 8


def job(request: Request) -> Answer:
    """Round each node of a file alone, all together, and all but the worst; INT8 with each calibration method.

    Raises: UsageError, TftrtError.
    """
    progress.say("loading the model")
    model = onnx.load(request.onnx)
    foreign.check_unwritten(model, request.onnx, "study the file in FP32")
    write_values(model.graph)
    foreign.name_nodes(model)
    if opsets.of(model) < qdq.OPSET:
        model = opsets.converted(shape_inference.infer_shapes(model), TARGETS["8.5"].opset)
    model = shape_inference.infer_shapes(model)
    calls = list(map(npz.load, request.calls))
    simulated = (_fp16 if request.precision == "FP16" else _int8)(request, model, calls)
    if not simulated.floats:
        raise errors.TftrtError(
            "the file has no float32 output, and noise is measured on floats",
            "study a file that gives scores or features in float32, not only classes",
        )
    if not simulated.sites:
        why = f" ({simulated.left[0].name}: {simulated.left[0].reason})" if simulated.left else ""
        raise errors.TftrtError(f"no node of the file can be in {request.precision}{why}", "study another precision")
    found = studying_job.studied(
        simulated, _chosen(simulated.sites, request.nodes, request.precision), request.precision
    )
    return Answer(signature=found, method=simulated.method)


def _chosen(sites: Sequence[_Site], pattern: str | None, precision: str) -> list[int]:
    """Indices of the sites to round alone. Raises: UsageError."""
    if pattern is None:
        return []
    found = [number for number, site in enumerate(sites) if not pattern or re.fullmatch(pattern, site.name)]
    if not found:
        raise errors.UsageError(
            f"--nodes={pattern} matches none of the {len(sites)} nodes that {precision} rounds",
            f"the whole name of a node must match, such as {sites[0].name!r}",
        )
    return found


@dataclasses.dataclass(frozen=True)
class _Site:
    """A node that can be rounded."""

    name: str
    op: str
    engine: str = ""


@dataclasses.dataclass(frozen=True)
class _Rounded:
    """Names of the nodes that are rounded. alone: no other node is looked at; else the others are those of --fp32_nodes."""

    names: frozenset[str]
    alone: bool = False


class _Simulation:
    """As studying_job.Simulation. floats: names of the outputs that are float32; left: nodes that stay in FP32, with the reason."""

    def __init__(
        self,
        request: Request,
        model: onnx.ModelProto,
        calls: Sequence[Arrays],
        sites: tuple[_Site, ...],
        made: Callable[[_Rounded, str], onnx.ModelProto],
        said: tuple[str, tuple[str, ...]],
        left: Sequence[NodePrecision],
        unrounded: tuple[str, ...] = (),
    ) -> None:
        """Args: made: the model with rounding by a method. said: (the method in force, all methods)."""
        self.name = request.signature
        self.sites, self.unrounded, self.left = sites, unrounded, left
        self.method, self.methods = said
        self.floats = [one.name for one in model.graph.output if one.type.tensor_type.elem_type == TensorProto.FLOAT]
        self._model, self._calls, self._made = model, calls, made
        self._plain: list[Arrays] | None = None

    @property
    def nothing_shown(self) -> str:
        watch = constancy.Watch()
        for call, answer in zip(self._calls, self._answers(), strict=True):
            watch.add(Call(self.name, dict(call)), {output: answer[output] for output in self.floats})
        return watch.nothing(self.name)

    def all_rounded(self) -> _Rounded:
        return _Rounded(frozenset(site.name for site in self.sites))

    def alone(self, number: int) -> _Rounded:
        return _Rounded(frozenset({self.sites[number].name}), alone=True)

    def without(self, kept: Sequence[int]) -> _Rounded:
        return _Rounded(frozenset(site.name for number, site in enumerate(self.sites) if number not in kept))

    def sweep(
        self, runs_wanted: Mapping[K, _Rounded], text: str, methods: Mapping[K, str] = MappingProxyType({})
    ) -> tuple[dict[K, tuple[Comparison, ...]], float, int]:
        """As studying_job.Simulation.sweep. Each run is a session of its own, because the rounding is written into the graph."""
        plain = self._answers()
        own = self._compared(onnx_ranges.Session(self._made(_Rounded(frozenset(), alone=True), self.method)), plain)
        fidelity = min((one.snr_db if one.snr_db is not None else -math.inf for one in own), default=math.inf)
        found: dict[K, tuple[Comparison, ...]] = {}
        for number, (key, rounded) in enumerate(runs_wanted.items()):
            progress.say(text, number, len(runs_wanted))
            made = self._made(rounded, methods.get(key, self.method))
            # ONNX Runtime's optimizations compute through the rounding here and there.
            found[key] = self._compared(onnx_ranges.Session(made, optimized=False), plain)
        return (
            found,
            fidelity,
            sum(max((array.shape[0] for array in call.values() if array.ndim), default=1) for call in self._calls),
        )

    def _answers(self) -> list[Arrays]:
        """Of the file as it is."""
        if self._plain is None:
            session = onnx_ranges.Session(self._model)
            self._plain = [session.run(call) for call in self._calls]
        return self._plain

    def _compared(self, session: onnx_ranges.Session, plain: Sequence[Arrays]) -> tuple[Comparison, ...]:
        into: dict[str, Accumulator] = {
            output: metrics.Accumulator(self.name, output, wanted=harm.METRICS) for output in self.floats
        }
        for call, reference in zip(self._calls, plain, strict=True):
            answer = session.run(call)
            for output, one in into.items():
                one.add(reference[output], answer[output])
        return tuple(one.result() for one in into.values())


# FP16 ------------------------------------------------------------------------------------------------------------------------------------


def _fp16(request: Request, model: onnx.ModelProto, calls: Sequence[Arrays]) -> _Simulation:
    names = kept(request.fp32_nodes, map(name_of, all_nodes(model.graph)))
    largest = onnx_ranges.largest(model, Facts(model).floats, calls[:_MOST_CALLS])
    listed = half.convert(model, names, largest, simulated=True).nodes
    left = names | {one.name for one in listed if one.reason}
    sites = tuple({one.name: _Site(one.name, one.op) for one in listed if one.precision == "FP16"}.values())

    def made(rounded: _Rounded, _: str) -> onnx.ModelProto:
        # What a node costs alone is asked, whichever others stay in FP32 beside it.
        return half.convert(
            model, left | ({site.name for site in sites} - rounded.names), largest, simulated=True, moved=False
        ).model

    return _Simulation(request, model, calls, sites, made, ("", ("",)), [one for one in listed if one.reason])


# INT8 ------------------------------------------------------------------------------------------------------------------------------------


def _int8(request: Request, model: onnx.ModelProto, calls: Sequence[Arrays]) -> _Simulation:
    names = kept(request.fp32_nodes, map(name_of, model.graph.node))
    placed = placement.place(model, names)
    scales, method = _scales(request, model, placed, calls)
    known = set.intersection(*map(set, scales.values())) if scales else set()
    ranged = placed.with_scales(known, "there is")
    lost = {site.node for site in placed.sites} - {site.node for site in ranged.sites}
    sites = tuple(_Site(site.node, site.op) for site in ranged.sites)

    def made(rounded: _Rounded, by: str) -> onnx.ModelProto:
        if rounded.alone:
            taken = ranged.without([site.node for site in ranged.sites if site.node not in rounded.names], "")
        else:
            # As --fp32_nodes has it: a sum beside a convolution that stays is placed otherwise.
            high = {site.name for site in sites} - rounded.names
            taken = placement.place(model, names | high).with_scales(known, "there is")
        return qdq.with_rounding(model, taken, scales[by])

    return _Simulation(request, model, calls, sites, made, (method, tuple(scales)), ranged.left, tuple(sorted(lost)))


def _scales(
    request: Request, model: onnx.ModelProto, placed: Placement, calls: Sequence[Arrays]
) -> tuple[dict[str, dict[str, float]], str]:
    """({method: {tensor: scale}}, the method in force)."""
    if request.table:
        return {GIVEN: tables.by_tensor(model, request.table)}, GIVEN
    listed = quantize_job.candidates(methods.AUTO, request.percentile)
    collector = onnx_ranges.Collector(model, _ranged(model, placed))
    names = (request.signature, *request.twins)
    batches = quantize_job.opened(request.data, request.onnx, model, names) if request.data else calls
    asked = request.method
    judging = passing.passed(collector, batches, listed if asked == methods.AUTO else ())
    positive = {name for name, one in collector.histograms.items() if one.absmax}
    found = {
        one.text: {
            name: scale
            for name, scale in onnx_ranges.scales_by_tensor(
                collector.histograms, passing.scales_of(collector.histograms, one)
            ).items()
            if name in positive
        }
        for one in listed
    }
    if asked != methods.AUTO:
        return found, quantize_job.candidates(asked, request.percentile)[0].text
    compared = onnx_ranges.compared(
        request.signature, model, placed.with_scales(positive, ""), collector.histograms, judging
    )
    return found, comparison.of([compared]).taken


def _ranged(model: onnx.ModelProto, placed: Placement) -> list[str]:
    """The tensors that need a range, whichever nodes stay in FP32: sums have two sides."""
    facts = Facts(model)
    sums = [
        tensor
        for node in facts.nodes
        if node.op_type == "Add"
        for tensor in node.input
        if facts.is_float(tensor) and not facts.is_constant(tensor)
    ]
    return list(dict.fromkeys((*placed.tensors, *sums)))
