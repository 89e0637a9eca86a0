"""The plots of the report of `tftrt optimize`. Colours and manners are those of `plots`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tftrt_tools.command_line.report import plots as drawing
from tftrt_tools.command_line.report import profile_plots
from tftrt_tools.studies import backends
from tftrt_tools.studies.optimizing import known as knowledge
from tftrt_tools.studies.profiling import rows
from tftrt_tools.studies.profiling.profile import Profile
from tftrt_tools.studies.tuning.table import COMPARED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tftrt_tools.studies.optimizing.known import Known
    from tftrt_tools.tftrt.calibration.comparison import Comparison
    from tftrt_tools.tftrt.conversion.plan import Plan

# Levels beyond it are drawn at the right edge: no rounding shows there.
_CEILING_DB = 100.0


def plots(known: Known) -> list[tuple[str, str]]:
    """[(title, SVG text)] of what is known; what is not known has no plot."""
    found = []
    if known.done(knowledge.INSPECT):
        plans = [("as it is", known.first_plan)]
        if known.done(knowledge.MENDED):
            plans.append(("with the flags advised" if known.mend_words else "with profiles", known.plan))
        found.append(("Where the ops run", _shares(plans)))
    if known.comparison:
        found.append(("What INT8 keeps, simulated", _levels(known.comparison, known.wanted_db)))
    if document := known.document(knowledge.TUNE):
        found.append(("The trials", _trials(document)))
    if document := known.document(knowledge.PROFILE):
        found += _calls(Profile.from_dict(document))
    return [(title, svg) for title, svg in found if svg]


def _calls(found: Profile) -> list[tuple[str, str]]:
    """Where the time of each call goes, beside the original's."""
    made = []
    for call in found.model.calls:
        other = rows.matching(found.original, call)
        bars = [("now", call), *([("before", other)] if other else [])]
        made.append((f"Where the time goes: {call.text()}", profile_plots.parts(bars)))
    return made


def _shares(plans: Sequence[tuple[str, Plan]]) -> str:
    figure = drawing.new_figure(8, 1.0 + 0.4 * len(plans))
    axes = figure.subplots()
    for row, (_, plan) in enumerate(plans):
        usable = [one for one in plan.signatures if not one.problem]
        inside, ops = sum(one.ops_in_tensorrt for one in usable), sum(one.ops for one in usable)
        engines = sum(len(one.segments) for one in usable)
        axes.barh(row, inside, color=drawing.GREEN, height=0.6, label="TensorRT engines" if row == 0 else None)
        axes.barh(
            row, ops - inside, left=inside, color=drawing.GREY, height=0.6, label="TensorFlow" if row == 0 else None
        )
        drawing.beside(axes, ops, row, f"{inside} of {ops}, engines: {engines}")
    axes.set_yticks(range(len(plans)), [label for label, _ in plans])
    axes.invert_yaxis()
    axes.set_xlabel("ops that compute something")
    axes.margins(x=0.2)
    figure.legend(loc="outside upper right", ncol=2, frameon=False)
    drawing.bare(axes)
    return drawing.svg(figure)


def _levels(found: Comparison, wanted: float) -> str:
    figure = drawing.new_figure(8, 1.0 + 0.36 * len(found.methods))
    axes = figure.subplots()
    for row, method in enumerate(found.methods):
        level = found.worst(method)
        axes.barh(
            row, min(max(level, 0.0), _CEILING_DB), color=drawing.BLUE if level >= wanted else drawing.RED, height=0.6
        )
        drawing.beside(
            axes, min(max(level, 0.0), _CEILING_DB), row, f"{level:.1f}{' (taken)' if method == found.taken else ''}"
        )
    axes.axvline(wanted, color="black", linewidth=1.4)
    axes.set_yticks(range(len(found.methods)), found.methods)
    axes.invert_yaxis()
    axes.set_xlim(0, max(_CEILING_DB, wanted) * 1.15)
    axes.set_xlabel("signal to noise of the worst output, dB (black line: what it has to keep)")
    drawing.bare(axes)
    return drawing.svg(figure)


def _trials(document: Mapping[str, Any]) -> str:
    """Latency of each trial beside TensorFlow's, at the shape that counts."""
    call = document["objective"]
    rows = [("TensorFlow", document["native"][call]["ms"], drawing.GREY)]
    for one in document["trials"]:
        if call in one["latencies"]:
            color = (
                drawing.GREEN if one["number"] == document["winner"] else drawing.BLUE if one["kept"] else drawing.RED
            )
            rows.append((_label(one), one["latencies"][call]["ms"], color))
    figure = drawing.new_figure(8, 1.0 + 0.34 * len(rows))
    axes = figure.subplots()
    for row, (_, ms, color) in enumerate(rows):
        axes.barh(row, ms, color=color, height=0.6)
        drawing.beside(axes, ms, row, f"{ms:.3f} ms")
    axes.set_yticks(range(len(rows)), [label for label, _, _ in rows])
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel(f"median milliseconds at {call} (green: the winner, blue: keeps the goal, red: misses it)")
    drawing.bare(axes)
    return drawing.svg(figure)


def _label(trial: Mapping[str, Any]) -> str:
    """A trial of a search's document."""
    title = backends.named(trial.get("backend", backends.default().name)).title
    what = f"{title}, " if title else ""
    return f"{trial['number']}: {what}{trial['settings']['precision_mode']}" + (
        f", {COMPARED}" if trial.get("compared") else ""
    )
