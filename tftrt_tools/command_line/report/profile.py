"""The page of `tftrt profile`: one HTML file that needs nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tftrt_tools.base.files import whole_file
from tftrt_tools.command_line.report import engine_plots, footnotes, graph_plot, html, profile_plots
from tftrt_tools.models.execution import kernels
from tftrt_tools.studies.profiling import compared_rows, engine_rows, rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tftrt_tools.studies.profiling.comparison import ProfileComparison
    from tftrt_tools.studies.profiling.engine_profile import EngineProfile
    from tftrt_tools.studies.profiling.profile import Profile

# Layers of an engine whose share is written into the graph.
_SLOWEST = 5


def write_page(found: Profile, path: str) -> None:
    """Write the page of a profile, whole or not at all. Raises: OSError."""
    whole_file.write_text(path, page(found))


def write_comparison(done: ProfileComparison, path: str) -> None:
    """Write the page of a comparison, whole or not at all. Raises: OSError."""
    whole_file.write_text(path, html.template("profile_comparison.html").render(done=done, compared_rows=compared_rows))


def page(found: Profile) -> str:
    """The page's text."""
    calls = []
    for call in found.model.calls:
        other = rows.matching(found.original, call)
        bars = [("this model", call), *([("original", other)] if other else [])]
        calls.append((call, other, profile_plots.parts(bars), profile_plots.timeline(bars)))
    engines = [(engine, engine_plots.layers(engine), engine_plots.roofline(engine)) for engine in found.engines]
    split = [group for engine in found.engines if engine.fusion for group in engine.fusion.split]
    unfused = {(one.before, one.behind) for group in split for one in group.splits}
    graphs = [
        (name, graph_plot.draw(nodes, unfused, _slow(found.engines)))
        for name, nodes in found.model.graph.items()
        if name in {call.signature for call in found.model.calls}
    ]
    return html.template("profile.html").render(
        found=found,
        calls=calls,
        footnotes=footnotes.collect(call.notes for call in found.model.calls),
        graphs=graphs,
        engines=engines,
        memory=engine_plots.memory(found.engines),
        rows=rows,
        engine_rows=engine_rows,
        arithmetic=kernels.text,
    )


def _slow(engines: Sequence[EngineProfile]) -> dict[str, str]:
    """{the first node of a layer: its share of the engine's time} of the slowest layers of each engine, in its first profile."""
    found: dict[str, str] = {}
    for engine in {one.engine: one for one in reversed(engines)}.values():
        found |= {layer.nodes[0]: f"{layer.share:.0%}" for layer, _ in engine.by_time()[:_SLOWEST] if layer.nodes}
    return found
