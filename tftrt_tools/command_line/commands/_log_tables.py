"""The tables of `tftrt log`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tftrt_tools.base import terminal
from tftrt_tools.command_line.commands import _output

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from rich.console import Console

    from tftrt_tools.base.logs.collect.builder import Builder
    from tftrt_tools.base.logs.collect.context import Context
    from tftrt_tools.base.logs.collect.engines import Engine, EngineRuns
    from tftrt_tools.base.logs.collect.findings import Finding, Unknown
    from tftrt_tools.base.logs.summary import Summary

    Say = Callable[[str], None]

_SHOWN_SUBJECTS = 3
_MIB = 2**20


def show(console: Console, summary: Summary, top: int, *, layers: bool, notes: bool) -> None:
    """Print a summary, what matters first. Args: top: rows of a table. layers, notes: whether to print these, too."""

    def say(text: str) -> None:
        console.print(text, soft_wrap=True)

    for line in _heading(summary):
        say(line)
    _findings(console, say, summary, notes)
    _unknown(console, say, summary, top)
    if notes:
        _left(console, summary.context, top)
    _engines(console, say, summary.engines, top)
    _builds(console, summary.engines, top)
    for line in _builder(summary.builder):
        say(line)
    if layers:
        _layers(console, summary.builder, top)
    for name, said in summary.context.performance.items():
        say(f"{name}: {said}")


def _heading(summary: Summary) -> Iterator[str]:
    """What was read, when it was written, by whom."""
    context = summary.context
    for log in summary.logs:
        remarks = [
            f"{terminal.counted(log.cut, 'line')} of them cut" if log.cut else "",
            "its end is missing" if log.damage else "",
        ]
        when = f", {log.first} to {log.last}" if log.first else ""
        yield "; ".join(filter(None, [f"{log.name}: {terminal.counted(log.lines, 'line')}{when}", *remarks]))
    about = [f"TensorRT {', '.join(context.tensorrt)}" if context.tensorrt else "", ", ".join(context.gpus)]
    if any(about):
        yield "; ".join(filter(None, about))
    writers = {
        name: count
        for name, count in context.sources.items()
        if name and name not in {log.path for log in summary.logs}
    }
    if writers:
        yield f"from {terminal.counted(len(writers), 'writer')}: {_some(writers)}"
    if (mixed := max(log.starts for log in summary.logs)) > 1:
        yield (
            f"at least {mixed} processes started in one log, and no line says whose it is: engines of one name count together, and "
            "times of layers may be of several builds. TF_CPP_LOG_THREAD_ID=1, or the prefixes of Docker and kubectl, tell them apart"
        )


def _findings(console: Console, say: Say, summary: Summary, notes: bool) -> None:
    shown = [one for one in summary.findings if notes or one.severity != "note"]
    if shown:
        rows = (_finding(one, _line(one, summary)) for one in shown)
        _table(console, "What is known", [">times", "what", "it means", "what to do"], rows)
    else:
        say("no warning and no error that is known here")
    if hidden := len(summary.findings) - len(shown):
        say(
            f"{terminal.counted(hidden, 'kind')} of messages {'mean' if hidden > 1 else 'means'} that nothing is wrong (--notes)"
        )


def _finding(one: Finding, line: str) -> tuple[object, ...]:
    what = f"{one.severity}, {one.category}: {one.name.replace('_', ' ')} (line {line})"
    which = _some(one.subjects) if one.subjects else one.example if one.severity == "error" else ""
    return one.count, f"{what}\n{which}".strip(), one.meaning, one.mend


def _line(one: Finding | Unknown, summary: Summary) -> str:
    """The number of the first line, with its log where there are several."""
    logs = [log for log in summary.logs if one.source == log.path or one.source.startswith(f"{log.path} ")]
    return f"{one.line} of {logs[0].name.rsplit('/', 1)[-1]}" if len(summary.logs) > 1 and logs else str(one.line)


def _unknown(console: Console, say: Say, summary: Summary, top: int) -> None:
    if summary.unknown:
        rows = [
            (one.count, one.level, one.place.rsplit("/", 1)[-1], _line(one, summary), one.example)
            for one in summary.unknown[:top]
        ]
        _table(
            console,
            f"Not known here{_rest(summary.unknown, top)}",
            [">times", "level", "from", ">line", "the first one"],
            rows,
        )
    if summary.loud:
        say(f"{summary.loud - summary.unknown_count} of {summary.loud} warnings and errors are known")


def _left(console: Console, context: Context, top: int) -> None:
    """What TF-TRT left in TensorFlow, with the reasons where the log has them."""
    counts = context.left_because or context.left
    rows = [(count, *(name.split(": ", 1) if context.left_because else (name, ""))) for name, count in counts.items()]
    if rows:
        _table(console, f"Left in TensorFlow{_rest(rows, top)}", [">times", "op", "why"], rows[:top])


def _engines(console: Console, say: Say, runs: EngineRuns, top: int) -> None:
    concerned = [
        one for one in runs.engines if one.runs or one.fell_back or one.calibration_runs or one.collecting_runs
    ]
    if not concerned:
        return
    columns = ["engine", ">runs", ">in TensorFlow instead", "of which is known"]
    _table(console, f"Engines{_rest(concerned, top)}", columns, (_engine(one, runs.counted) for one in concerned[:top]))
    if not all(_exact(one, runs.counted) for one in concerned):
        say(
            "TF-TRT stops warning after five a process, so there may be more. TF_CPP_VMODULE=trt_engine_op=1 brings a line for each run"
        )


def _exact(one: Engine, counted: bool) -> bool:
    """Whether the runs in TensorFlow are counted. Where several processes write into one log, those that count and those that only warn
    look alike, and more warnings than runs show that there are both."""
    return counted and one.native_runs >= one.warnings


def _engine(one: Engine, counted: bool) -> tuple[object, ...]:
    """A row. Without lines that count runs, the warnings are all that is known."""
    shapes = {fallback.shapes or fallback.reason.replace("_", " "): fallback.warnings for fallback in one.fallbacks}
    known = [
        f"warned of {_some(shapes)}" if shapes else "",
        f"{terminal.counted(one.calibration_runs, 'further run')} for calibration" if one.calibration_runs else "",
        f"{terminal.counted(one.collecting_runs, 'further run')} while shapes were collected"
        if one.collecting_runs
        else "",
    ]
    native = one.native_runs if _exact(one, counted) else f"at least {one.fell_back}"
    return one.name, one.runs if counted or one.runs else "", native, "; ".join(filter(None, known))


def _builds(console: Console, runs: EngineRuns, top: int) -> None:
    if runs.builds:
        rows = [
            (one.engine, one.shapes, one.outcome, "" if one.seconds is None else f"{one.seconds:.1f}", one.reason)
            for one in runs.builds[:top]
        ]
        _table(console, f"Builds{_rest(runs.builds, top)}", ["engine", "shapes", "outcome", ">seconds", "reason"], rows)


def _builder(builder: Builder) -> Iterator[str]:
    """TensorRT's work, in a few lines."""
    from tftrt_tools.base.logs import engine_layers

    if timings := sum(one.timings for one in builder.layers):
        seconds, slowest = sum(one.seconds or 0 for one in builder.layers), builder.layers[0]
        yield (
            f"TensorRT timed {terminal.counted(timings, 'kernel')} of {terminal.counted(len(builder.layers), 'layer')}"
            + (
                f" in {seconds:.1f} s, longest for {engine_layers.shown(slowest.layer)} ({slowest.seconds:.1f} s)"
                if slowest.seconds
                else ""
            )
        )
    if builder.skipped_memory or builder.skipped_other:
        wanted = max((one.wanted_bytes for one in builder.layers), default=0) / _MIB
        yield (
            f"{terminal.counted(builder.skipped_memory, 'kernel')} not tried for want of memory"
            + (f" (up to {wanted:.0f} MiB wanted)" if wanted >= 1 else "")
            + f", {builder.skipped_other} for other reasons"
        )
    if builder.fusions:
        yield f"{terminal.counted(sum(builder.fusions.values()), 'fusion')} of layers: {_some(builder.fusions)}"
    for phase, (times, seconds) in builder.phases.items():
        yield f"{phase}: {seconds:.1f} s" + (f", {times} times" if times > 1 else "")
    if builder.peak_gpu_mib:
        yield (
            f"the most memory in use while TensorRT worked: {builder.peak_cpu_mib} MiB by the process, {builder.peak_gpu_mib} MiB on "
            "the GPU, by all"
        )


def _layers(console: Console, builder: Builder, top: int) -> None:
    from tftrt_tools.base.logs import engine_layers

    if builder.layers:
        timed = (
            (
                engine_layers.shown(one.layer),
                _number(one.seconds, 2),
                one.timings,
                _number(one.fastest_ms, 4),
                one.runner,
                one.skipped or "",
            )
            for one in builder.layers[:top]
        )
        _table(
            console,
            f"Layers that were timed{_rest(builder.layers, top)}",
            ["layer", ">s timing", ">kernels", ">fastest, ms", "its runner", ">not tried, memory"],
            timed,
        )
    if builder.runners:
        kinds = ((one.kind, _number(one.seconds, 2), one.timings, one.chosen) for one in builder.runners[:top])
        _table(console, f"Runners{_rest(builder.runners, top)}", ["kind", ">s timing", ">kernels", ">chosen"], kinds)
    if builder.engine_layers:
        built = (
            (
                one.engine or "(not of TF-TRT)",
                one.count,
                _precisions(one.products),
                _precisions(one.others),
                _some(one.kinds),
            )
            for one in builder.engine_layers[:top]
        )
        _table(
            console,
            f"Layers of built engines{_rest(builder.engine_layers, top)}",
            ["engine", ">layers", "convolutions and products", "others", "kinds"],
            built,
        )
    if builder.fusions:
        _table(
            console, f"Fusions{_rest(builder.fusions, top)}", ["pass", ">times"], list(builder.fusions.items())[:top]
        )


def _table(console: Console, title: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    console.print(_output.table(title, columns, rows))


def _some(counts: Mapping[str, int]) -> str:
    """Such as "A (5), B, and 3 more"."""
    shown = [
        f"{name} ({count})" if count > 1 else name for name, count in list(counts.items())[:_SHOWN_SUBJECTS] if name
    ]
    more = len(counts) - len(shown)
    return ", ".join(shown) + (f", and {more} more" if more > 0 else "")


def _precisions(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} in {name or 'other types'}" for name, count in counts.items())


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _rest(rows: Collection[object], top: int) -> str:
    """ ", N more (--top)" where not all are shown."""
    return f", {len(rows) - top} more (--top)" if len(rows) > top else ""
