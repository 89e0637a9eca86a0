"""Makes EngineProfiles from what the engines told of themselves (`job/plan_job.py`), their segments and the log of their build."""

from __future__ import annotations

import collections
import dataclasses
import statistics
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from tftrt_tools.base import records
from tftrt_tools.models.execution import kernels as kernel_names
from tftrt_tools.models.kinds.plan import layer_information
from tftrt_tools.models.kinds.plan.document import ENGINE as PLAN
from tftrt_tools.models.savedmodel.engine_op import EngineOp
from tftrt_tools.studies.profiling import cuda_graph, fusion, layers, layers_kernels, memory, peaks, roofline
from tftrt_tools.studies.profiling.engine_graph import Graph
from tftrt_tools.studies.profiling.engine_profile import EngineProfile, Latency, LayerProfile, Source
from tftrt_tools.studies.profiling.layers import Layer
from tftrt_tools.studies.profiling.layers_kernels import OfLayer
from tftrt_tools.studies.profiling.peaks import Peaks
from tftrt_tools.tftrt.conversion import layer_table

# Calls of a trace, as `job/plan_job.py` makes them.
_TRACED = 5
# Where the sum of the layers and the sum of the kernels differ by more, a note says so.
_AGREE = 0.05
_TYPES = {"Int8": "INT8", "Half": "FP16", "Float": "FP32"}
# Answers of one engine and profile: {part: answer}.
Answers = Mapping[str, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recording(records.Record):
    """The recorded measurements of a model's engines, and the facts about them in the model."""

    # {part: {"answers": [facts of an engine and profile], "log"} or {"error", "log"}}, see `job/plan_job.py`.
    parts: dict[str, Any]
    ops: tuple[EngineOp, ...] = ()
    # Of each engine and profile that answered, in the order of `sorted_answers`; without nodes where the native segment was removed.
    graphs: tuple[Graph, ...] = ()
    # {engine op: what the log of its build said}.
    built: dict[str, layer_table.Built] = dataclasses.field(default_factory=dict)

    document: typing.ClassVar[str] = "recording of engines"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Known:
    """The facts about an engine besides its recorded answers."""

    op: EngineOp | None = None
    graph: Graph | None = None
    # The engine's part of the build's log, where it was kept.
    built: layer_table.Built | None = None

    @property
    def precision(self) -> str:
        """The precision that the engine was built for."""
        return self.op.precision if self.op else ""

    @property
    def of_a_plan(self) -> bool:
        """Whether it is that of a plan directory."""
        return self.op is not None and self.op.name == PLAN


def sorted_answers(
    parts: Mapping[str, Mapping[str, Any]],
) -> tuple[dict[tuple[str, int, int, int], Answers], tuple[str, ...]]:
    """({(engine, number of its record, profile, rows that were asked for or 0): its answers}, why parts have none).

    Args: parts: {part: what its child gave}.
    """
    answers: dict[tuple[str, int, int, int], dict[str, Any]] = collections.defaultdict(dict)
    failed: dict[str, str] = {}
    for part, given in parts.items():
        if "error" in given:
            failed[part] = given["error"].strip().splitlines()[-1]
        for answer in given.get("answers", ()):
            answers[answer["engine"], answer["record"], answer["profile"], answer.get("rows", 0)][part] = answer
    if len(failed) == len(parts) > 1 and len({*failed.values()}) == 1:
        return {}, (f"the engines could not be taken apart: {next(iter(failed.values()))}",)
    return dict(answers), tuple(f"{part}: {why}" for part, why in failed.items())


def profiles(recording: Recording) -> tuple[tuple[EngineProfile, ...], tuple[str, ...]]:
    """(EngineProfiles, why parts have no answers)."""
    answers, failed = sorted_answers(recording.parts)
    ops, graphs, result = {op.name: op for op in recording.ops}, iter(recording.graphs), []
    for (engine, *_), answer in answers.items():
        graph = next(graphs) if shapes(answer) else None
        facts = Known(
            op=ops.get(engine), graph=graph if graph and graph.nodes else None, built=recording.built.get(engine)
        )
        result.append(of(answer, facts))
    return tuple(result), failed


def shapes(answers: Answers) -> dict[str, list[int]]:
    """{input or output of the engine: its shape in the measured calls}; {} where no context could be made."""
    return next((dict(answer["shapes"]) for answer in answers.values() if "shapes" in answer), {})


def of(answers: Answers, known: Known) -> EngineProfile:
    """The EngineProfile of one engine and profile."""
    told, timed, traced = (answers.get(part, {}) for part in ("told", "timed", "traced"))
    first = next(iter(answers.values()))
    timings = _layer_seconds(timed)
    calls = layers_kernels.calls(traced["trace"], _TRACED) if "trace" in traced else ()
    how, of_kernels, others = layers_kernels.by_layer(calls, list(timings.items()))
    rows = {row.name: row for row in known.built.of_profile(first["profile"])} if known.built else {}
    rows |= _seen(answers.get("inspected", {}), first["profile"])
    layers_found = layers.of_names(timings, known.graph, rows)
    limits = _peaks(told, timed)
    seconds = (
        {name: of_kernels[name].seconds if name in of_kernels else 0.0 for name in timings}
        if how == "ranges"
        else timings
    )
    events = [timings[name] - own.seconds for name, own in of_kernels.items()]
    profiled = _layers(layers_found, _Times(seconds, timings, of_kernels), known, rows, limits)
    kernel_seconds = (
        statistics.median(sum(kernel.seconds for kernel in call.kernels) for call in calls) if calls else None
    )
    profile = EngineProfile(
        engine=first["engine"],
        precision=known.precision,
        implicit_batch=first["implicit"],
        profile=first["profile"],
        profiles=told.get("num_optimization_profiles", 1),
        shapes={name: tuple(shape) for name, shape in shapes(answers).items()},
        latency=_latency(timed),
        layers=profiled,
        layer_seconds=sum(seconds.values()),
        kernel_seconds=kernel_seconds,
        kernels_by=how,
        other_kernel_seconds=others,
        event_seconds=statistics.median(events) if events else None,
        fusion=_fusion(layers_found, seconds, profiled, known, rows),
        memory=memory.of(
            told,
            answers.get("streams", {}),
            known.graph,
            known.built,
            first["profile"],
            known.op.workspace_size_bytes if known.op else None,
        )
        if told
        else None,
        cuda_graph=cuda_graph.measured(answers["graph"]) if "graph" in answers else None,
        streams=cuda_graph.streams(answers.get("streams", {}), answers.get("overlap", {})),
        peaks=limits,
        notes=tuple(dict.fromkeys(_errors(answers))),
    )
    wide = _range(told, first["profile"], first.get("rows", 0))
    return dataclasses.replace(profile, notes=(*profile.notes, *_remarks(profile, known), *wide))


def _seen(inspected: Mapping[str, Any], profile: int) -> dict[str, layer_table.Row]:
    """{layer: what the inspector said of it in the measured calls}; without those of which it told no types."""
    built = layer_table.Built(rows=layer_information.rows({"Layers": inspected.get("layers", ())}))
    return {
        row.name: row for row in built.of_profile(profile) if any(tensor.type for tensor in (*row.inputs, *row.outputs))
    }


def _layer_seconds(timed: Mapping[str, Any]) -> dict[str, float]:
    """{layer without its profile's mark: seconds, median of the calls}, in order."""
    reported = timed.get("layers_ahead") or timed.get("layers")
    if not reported or not reported["milliseconds"]:
        return {}
    columns = zip(*reported["milliseconds"], strict=True)
    seconds_of: dict[str, float] = collections.defaultdict(float)
    for name, column in zip(reported["names"], columns, strict=True):
        seconds_of[layer_table.without_profile(name)[0]] += statistics.median(column) / 1e3
    return dict(seconds_of)


def _latency(timed: Mapping[str, Any]) -> Latency | None:
    names = {"single": "single_seconds", "in_a_row": "row_seconds", "wall": "wall_seconds", "enqueue": "host_seconds"}
    if not all(timed.get(key) for key in names.values()):
        return None
    return Latency(**{name: statistics.median(timed[key]) for name, key in names.items()})


def _peaks(told: Mapping[str, Any], timed: Mapping[str, Any]) -> Peaks | None:
    gpu, clocks = told.get("gpu") or {}, timed.get("clocks_mhz")
    clock = statistics.median(clocks) if clocks else gpu.get("most_sm_mhz")
    if not clock or not gpu.get("compute_capability") or not told.get("multiprocessors"):
        return None
    return peaks.of(
        gpu["compute_capability"],
        gpu.get("name", ""),
        told["multiprocessors"],
        clock,
        bool(clocks),
        gpu.get("most_memory_mhz"),
        gpu.get("memory_bus_bits"),
    )


@dataclasses.dataclass(frozen=True)
class _Times:
    """{layer: seconds}: what each takes, what IProfiler says, and its kernels."""

    seconds: Mapping[str, float]
    profiler: Mapping[str, float]
    kernels: Mapping[str, OfLayer]


def _layers(
    found: Sequence[Layer], times: _Times, known: Known, rows: Mapping[str, layer_table.Row], limits: Peaks | None
) -> tuple[LayerProfile, ...]:
    owner = roofline.owners(found, frozenset(layers.MOVES))
    owned: dict[str, set[str]] = collections.defaultdict(set)
    for node, name in owner.items():
        owned[name].add(node)
    total = sum(times.seconds.values()) or 1.0
    result = []
    for layer in found:
        own, row, seconds = times.kernels.get(layer.name), rows.get(layer.name), times.seconds[layer.name]
        precision, source = _precision(layer, own, row, known)
        done = (
            roofline.work(layer, known.graph, owned[layer.name], row, precision or known.precision)
            if known.graph
            else None
        )
        against = roofline.roof(done, seconds, precision, limits) if done else None
        result.append(
            LayerProfile(
                name=layer.name,
                role=layer.role,
                kind=row.kind if row else "",
                nodes=layer.nodes,
                seconds=seconds,
                share=seconds / total,
                profiler_seconds=times.profiler[layer.name],
                kernel_seconds=own.seconds if own else None,
                kernels=own.names if own else (),
                precision=precision,
                precision_from=source,
                formats=_formats(row) if row else "",
                tactic=row.tactic if row else "",
                output_shape=_output_shape(layer, row, known.graph),
                flops=done.flops if done else None,
                bytes=done.bytes if done else None,
                tflops=against.tflops if against else None,
                gb_per_s=against.gb_per_s if against else None,
                bound=against.bound if against else None,
                roof_share=against.share if against else None,
            )
        )
    return tuple(result)


def _precision(
    layer: Layer, own: OfLayer | None, row: layer_table.Row | None, known: Known
) -> tuple[str, Source | None]:
    """(In what a layer computes, how that is known)."""
    precision = known.precision
    arithmetics = [kernel_names.arithmetic(name) for name in own.names] if own else []
    told = [arithmetic for arithmetic in arithmetics if arithmetic != kernel_names.OTHER]
    if told and layer.role in ("product", "fused graph"):
        # A fused graph may multiply in several arithmetics; the narrowest is first in ARITHMETICS.
        return min(told, key=kernel_names.ARITHMETICS.index), "kernels"
    types = [_TYPES[tensor.type] for tensor in (*row.inputs, *row.outputs) if tensor.type in _TYPES] if row else []
    if types:
        return types[0], "inspector" if known.of_a_plan else "build log"
    return (precision, "asked for") if layer.role in ("product", "fused graph") and precision else ("", None)


def _formats(row: layer_table.Row) -> str:
    ends = [
        f"{tensor.type} c{tensor.packed}" if tensor.packed > 1 else tensor.type
        for tensor in (*row.inputs[:1], *row.outputs[:1])
    ]
    return " → ".join(filter(None, ends))


def _output_shape(layer: Layer, row: layer_table.Row | None, graph: Graph | None) -> tuple[int | None, ...] | None:
    if row and row.outputs and all(size >= 0 for size in row.outputs[0].sizes):
        return row.outputs[0].sizes
    last = graph.by_name[layer.nodes[-1]] if graph and layer.nodes else None
    return last.outputs[0].shape if last and last.outputs else None


def _fusion(
    found: Sequence[Layer],
    timings: Mapping[str, float],
    profiled: Sequence[LayerProfile],
    known: Known,
    rows: Mapping[str, layer_table.Row],
) -> fusion.Fusion | None:
    if known.graph is None or not found:
        return None
    precisions = {
        layer.name: layer.precision for layer in profiled if layer.precision and layer.precision_from != "asked for"
    }
    return fusion.of(fusion.Engine(graph=known.graph, layers=found, seconds=timings, precisions=precisions, rows=rows))


def _errors(answers: Answers) -> list[str]:
    return [
        f"{part}, {what}: {why}" for part, answer in answers.items() for what, why in answer.get("errors", {}).items()
    ]


def _range(told: Mapping[str, Any], profile: int, rows: int) -> list[str]:
    """A remark where the profile serves more sizes than the measured one. Args: rows: that were asked for, 0 for what it was tuned for."""
    sizes = told["profiles"][profile] if len(told.get("profiles", ())) > profile else {}
    wide = [
        f"{name} from {_size(three[0])} to {_size(three[2])}"
        for name, three in sizes.items()
        if len(three) == 3 and three[0] != three[2]
    ]
    measured = f"batch {rows}" if rows else "what it was tuned for"
    return [f"this profile serves {', '.join(wide)}; it was measured at {measured}"] if wide else []


def _size(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "()"


def _remarks(profile: EngineProfile, known: Known) -> list[str]:
    remarks = []
    if known.graph is None:
        remarks.append(
            "the sizes in model.onnx are not known: no operations, no fusion map"
            if known.of_a_plan
            else "the native segment was removed: no operations, no fusion map"
        )
    if known.of_a_plan and not any(layer.kind for layer in profile.layers):
        remarks.append("the plan's metadata have no layer information: tactics, formats and types are not known")
    elif known.built is None and not known.of_a_plan:
        remarks.append(
            "the log of this engine's build was not kept with the model: `tftrt build` without a cached engine keeps its tactics, "
            "formats and types"
        )
    if profile.kernels_by == "aligned":
        remarks.append("the trace has no ranges of TensorRT: kernels were given to layers by their times")
    if profile.agreement is not None and abs(profile.agreement - 1) > _AGREE:
        remarks.append(
            f"the layers' times by IProfiler, less its events, are {profile.agreement:.2f} of their kernels' times"
        )
    if profile.peaks and profile.peaks.note:
        remarks.append(profile.peaks.note)
    return remarks
