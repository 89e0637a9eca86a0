"""The page of `tftrt profile`: one HTML file that needs nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tftrt_tools import whole_file
from tftrt_tools.execution import kernels
from tftrt_tools.profiling import rows
from tftrt_tools.report import graph_plot, html, profile_plots

if TYPE_CHECKING:
    from tftrt_tools.profiling.profile import Profile


def write_page(found: Profile, path: str) -> None:
    """Write the page of a profile, whole or not at all. Raises: OSError."""
    whole_file.write_text(path, page(found))


def page(found: Profile) -> str:
    """The page's text."""
    calls = []
    for call in found.model.calls:
        other = rows.matching(found.original, call)
        bars = [("this model", call), *([("original", other)] if other else [])]
        calls.append((call, other, profile_plots.parts(bars), profile_plots.timeline(bars)))
    graphs = [(name, graph_plot.draw(nodes)) for name, nodes in found.model.graph.items()
              if name in {call.signature for call in found.model.calls}]
    return html.template("profile.html").render(found=found, calls=calls, graphs=graphs, rows=rows, arithmetic=kernels.text)
