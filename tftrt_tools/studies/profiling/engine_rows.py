"""The rows of an engine's tables, for pages and terminals."""

from __future__ import annotations

from tftrt_tools.models.savedmodel import shapes as shape_grammar
from tftrt_tools.studies.profiling import rows
from tftrt_tools.studies.profiling.engine_profile import EngineProfile
from tftrt_tools.studies.profiling.fusion import Fusion, Group

COLUMNS = (
    "layer",
    "what",
    "computes in",
    ">ms",
    ">share",
    ">sum",
    ">TFLOP/s",
    ">GB/s",
    "bound by",
    ">of its roof",
    "formats",
)
_LONGEST = 60
_MOST_SPLITS = 6
_MIB = 1 << 20


def headline(engine: EngineProfile) -> list[str]:
    """Lines on an engine as a whole."""
    which = f", profile {engine.profile + 1} of {engine.profiles}" if engine.profiles > 1 else ""
    lines = [
        f"{engine.engine}{which}, {engine.precision or 'precision unknown'}: {shape_grammar.call_text(dict(engine.shapes))}"
    ]
    if engine.latency:
        how = "without copies" if engine.of_a_plan else "outside TensorFlow"
        lines.append(
            f"alone, {how}: {rows.ms(engine.latency.in_a_row)} ms on the GPU in a row, "
            f"{rows.ms(engine.latency.single)} ms there one at a time, "
            f"{rows.ms(engine.latency.enqueue)} ms of the host to launch it"
        )
    gap = f", {rows.ms(engine.gap_seconds)} ms between kernels" if engine.gap_seconds is not None else ""
    kernels = f", kernels {rows.ms(engine.kernel_seconds)} ms{gap}" if engine.kernel_seconds is not None else ""
    lines.append(f"{len(engine.layers)} layers, {rows.ms(engine.layer_seconds)} ms in sum{kernels}")
    return lines


def layers(engine: EngineProfile) -> list[tuple[str, ...]]:
    """The rows of its layers under COLUMNS, the slowest first; layers without time are left out."""
    return [
        (
            short(layer.short),
            f"{layer.role}{f' ({layer.kind})' if layer.kind else ''}",
            layer.precision,
            rows.ms(layer.seconds),
            f"{layer.share:.1%}",
            f"{total:.1%}",
            _number(layer.tflops),
            _number(layer.gb_per_s),
            layer.bound or "",
            f"{layer.roof_share:.0%}" if layer.roof_share is not None else "",
            layer.formats,
        )
        for layer, total in engine.by_time()
        if layer.seconds
    ]


def _number(value: float | None) -> str:
    return "" if not value else f"{value:.3g}"


def short(name: str) -> str:
    """A layer's name: the last parts of its nodes' names, cut where it is too long."""
    first, *others = name.split(" + ")
    text = " + ".join((node(first), *(one.rsplit("/", 1)[-1] for one in others)))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def node(name: str) -> str:
    """The last two parts of a node's name."""
    return "/".join(name.split("/")[-2:])


def splits(fusion: Fusion) -> list[str]:
    """Lines on groups that are not one layer, those first that cost the most; groups that are split alike are one line."""
    alike: dict[tuple[str, ...], list[Group]] = {}
    for group in fusion.split:
        alike.setdefault(
            tuple(split.cause if split.cause == "not told" else split.reason for split in group.splits), []
        ).append(group)
    lines = []
    for groups in list(alike.values())[:_MOST_SPLITS]:
        first = groups[0]
        reasons = "; ".join(dict.fromkeys(split.reason for split in first.splits))
        more = f", and {len(groups) - 1} more like it" if len(groups) > 1 else ""
        lines.append(
            f"{' + '.join(map(node, first.nodes))} in {len(first.layers)} layers{more}: {reasons} "
            f"(up to {rows.ms(sum(group.split_seconds for group in groups))} ms)"
        )
    return lines


def memory(engine: EngineProfile) -> list[tuple[str, int]]:
    """(what, bytes) of the GPU's memory and the plan, as far as it is known."""
    memory_use = engine.memory
    listed = (
        ()
        if memory_use is None
        else (
            ("plan on disk", memory_use.plan),
            ("weights in the model", memory_use.weights_in_model),
            ("engine on the GPU", memory_use.engine),
            ("context on the GPU", memory_use.context),
            ("activations and scratch of a context", memory_use.activations_and_scratch),
            ("of this profile", memory_use.activations_of_profile),
            ("if no activations shared memory", memory_use.activations_without_reuse),
            ("scratch of its layers", memory_use.workspace_taken),
            ("inputs and outputs", memory_use.inputs_and_outputs),
            ("another copy with its context", sum(memory_use.next_engine) if memory_use.next_engine else None),
        )
    )
    return [(what, size) for what, size in listed if size is not None]


def remarks(engine: EngineProfile) -> list[str]:
    """Lines on fusion, memory, a CUDA graph and streams, and what has to be known with the figures."""
    lines = []
    if engine.fusion:
        fused = sum(group.fused for group in engine.fusion.groups)
        if engine.fusion.groups:
            lines.append(f"fused: {fused} of {len(engine.fusion.groups)} groups that usually become one layer")
        lines += [f"not fused: {line}" for line in splits(engine.fusion)]
        moved = [f"{move.count} {move.role} ({rows.ms(move.seconds)} ms)" for move in engine.fusion.moved if move.count]
        if moved:
            lines.append(f"layers that only move values: {', '.join(moved)}")
    memory_rows = memory(engine)
    if memory_rows:
        lines.append("memory: " + ", ".join(f"{what} {size / _MIB:.1f} MiB" for what, size in memory_rows))
    if engine.cuda_graph:
        lines.append(engine.cuda_graph.text(engine.of_a_plan))
    if engine.streams:
        lines.append(
            "several contexts, each with a stream, calls a second: "
            + ", ".join(
                f"{stream.contexts}: {_best(stream.one_thread, stream.thread_each)}"
                + (f" (kernels of two at once {stream.overlap:.0%})" if stream.overlap is not None else "")
                for stream in engine.streams
            )
        )
    return [*lines, *(f"note: {note}" for note in engine.notes)]


def _best(*rates: float | None) -> str:
    known = [rate for rate in rates if rate is not None]
    return f"{max(known):.0f}" if known else "failed"
