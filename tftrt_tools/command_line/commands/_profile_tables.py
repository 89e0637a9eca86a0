"""The tables of `tftrt profile` for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tftrt_tools.base import terminal
from tftrt_tools.command_line.commands import _output

if TYPE_CHECKING:
    from rich.console import Console

    from tftrt_tools.studies.profiling.call_profile import CallProfile
    from tftrt_tools.studies.profiling.comparison import ProfileComparison
    from tftrt_tools.studies.profiling.engine_profile import EngineProfile
    from tftrt_tools.studies.profiling.profile import Profile


def show(console: Console, profile: Profile, most: int) -> None:
    """Print a profile. Args: most: rows of ops and layers."""
    from tftrt_tools.studies.profiling import rows

    for line in rows.headline(profile):
        _say(console, line)
    for call in profile.model.calls:
        _call(console, call, rows.matching(profile.original, call), most)
    for engine in profile.engines:
        _engine(console, engine, most)
    for note in profile.notes:
        _say(console, f"note: {note}")


def compared(console: Console, done: ProfileComparison, most: int) -> None:
    """Print a comparison. Args: most: rows of layers."""
    from tftrt_tools.studies.profiling import compared_rows

    _say(console, f"A: {done.one}")
    _say(console, f"B: {done.other}")
    for pair in done.calls:
        console.print()
        for line in compared_rows.headline(pair):
            _say(console, line)
        console.print(_output.table(None, compared_rows.PARTS, compared_rows.parts(pair)))
    for engines in done.engines:
        console.print()
        _say(console, compared_rows.engines(engines))
        listed = compared_rows.layers(engines)
        console.print(_output.table(None, compared_rows.LAYERS, listed[:most]))
        if len(listed) > most:
            _say(console, f"  and {terminal.counted(len(listed) - most, 'row')} more (--top)")
        for line in compared_rows.remarks(engines):
            _say(console, line)
    for note in done.notes:
        _say(console, f"note: {note}")


def _say(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True)


def _call(console: Console, call: CallProfile, other: CallProfile | None, most: int) -> None:
    from tftrt_tools.studies.profiling import rows

    console.print()
    _say(
        console,
        f"{call.text()}: {call.latency.text()}, p90 {1e3 * call.latency.p90:.3f} ms, {call.latency.calls} calls"
        + (f"; the original {other.latency.text()}: {rows.speed(call, other)}" if other else ""),
    )
    whole = call.latency.p50
    columns = ["part of the call", "busy", ">ms", ">share", *([">original ms", ">share"] if other else [])]
    table = [
        (
            one.name,
            one.device,
            rows.ms(one.seconds),
            rows.share(one.seconds, whole),
            *((rows.ms(one.other), rows.share(one.other, other.latency.p50)) if other else ()),
        )
        for one in rows.parts(call, other)
    ]
    console.print(_output.table(None, columns, table))
    _say(console, rows.basis(call))
    _engines(console, call)
    _ops(console, call, most)
    _copies(console, call)
    _callers(console, call)
    for note in call.notes:
        _say(console, f"note: {note}")


def _engines(console: Console, call: CallProfile) -> None:
    from tftrt_tools.models.execution import kernels
    from tftrt_tools.studies.profiling import rows

    if call.engines:
        columns = [
            "engine op",
            ">runs",
            ">kernels",
            ">GPU ms",
            ">gaps ms, traced",
            ">host ms, traced",
            "kernels' arithmetic",
        ]
        console.print(
            _output.table(
                None,
                columns,
                [
                    (
                        one.name,
                        f"{one.runs:g}",
                        f"{one.kernels:g}",
                        rows.ms(one.gpu_seconds),
                        rows.gaps(one),
                        rows.ms(one.host_seconds),
                        kernels.text(one.arithmetic),
                    )
                    for one in call.engines
                ],
            )
        )


def _ops(console: Console, call: CallProfile, most: int) -> None:
    from tftrt_tools.studies.profiling import rows

    if call.ops:
        columns = ["op outside engines", "type", ">runs", ">kernels", ">GPU ms", ">host ms, traced"]
        console.print(
            _output.table(
                None,
                columns,
                [
                    (
                        one.name,
                        one.type,
                        f"{one.runs:g}",
                        f"{one.kernels:g}",
                        rows.ms(one.gpu_seconds),
                        rows.ms(one.host_seconds),
                    )
                    for one in call.ops[:most]
                ],
            )
        )
        left = call.ops[most:]
        if left:
            _say(
                console,
                f"  and {terminal.counted(len(left), 'op')} more: GPU {rows.ms(sum(one.gpu_seconds for one in left))} ms, host "
                f"{rows.ms(sum(one.host_seconds for one in left))} ms (--top)",
            )


def _engine(console: Console, engine: EngineProfile, most: int) -> None:
    from tftrt_tools.studies.profiling import engine_rows, rows

    console.print()
    for line in engine_rows.headline(engine):
        _say(console, line)
    listed = engine_rows.layers(engine)
    console.print(_output.table(None, engine_rows.COLUMNS, listed[:most]))
    if len(listed) > most:
        _say(console, f"  and {terminal.counted(len(listed) - most, 'layer')} more (--top)")
    if engine.fusion and engine.fusion.split:
        console.print(
            _output.table(
                None,
                ["not one layer", "from", "to", "because", ">ms that it costs at most"],
                [
                    (
                        group.kind,
                        engine_rows.node(one.before),
                        engine_rows.node(one.behind),
                        one.reason,
                        rows.ms(group.split_seconds),
                    )
                    for group in engine.fusion.split[:most]
                    for one in group.splits
                ],
            )
        )
    for line in engine_rows.remarks(engine):
        _say(console, line)


def _copies(console: Console, call: CallProfile) -> None:
    from tftrt_tools.studies.profiling import rows

    if call.copies:
        console.print(
            _output.table(
                None,
                ["copies", "asked for", ">copies", ">bytes", ">ms", ">GB/s"],
                [
                    (
                        one.kind,
                        rows.asked_for(one),
                        f"{one.copies:g}",
                        rows.size(one.bytes),
                        rows.ms(one.seconds),
                        rows.rate(one),
                    )
                    for one in call.copies
                ],
            )
        )


def _callers(console: Console, call: CallProfile) -> None:
    from tftrt_tools.studies.profiling import rows

    if call.callers:
        console.print(_output.table(None, [f">{name}" for name in rows.CALLERS], rows.callers(call)))
