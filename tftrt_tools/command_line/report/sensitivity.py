"""The report of `tftrt sensitivity`: one HTML file that needs nothing else, and its plot as a file of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tftrt_tools.accuracy import harm
from tftrt_tools.base.files import whole_file
from tftrt_tools.command_line.report import html, pictures, sensitivity_plot

if TYPE_CHECKING:
    from tftrt_tools.accuracy.harm import Effect, Sensitivity, SignatureHarm


def write_picture(done: Sensitivity, path: str) -> None:
    """Write the plot of a harm.Sensitivity as .svg or .png, whole or not at all. Raises: UsageError, OSError."""
    whole_file.write_bytes(path, sensitivity_plot.bars(done.signatures, done.precision, pictures.kind(path)))


def write_page(done: Sensitivity, path: str) -> None:
    """Write the report of a harm.Sensitivity. Raises: OSError."""
    plot = sensitivity_plot.bars(done.signatures, done.precision).decode()
    whole_file.write_text(path, html.template("sensitivity.html").render(done=done, plot=plot, rows=kept_rows))


def kept_rows(signature: SignatureHarm) -> list[tuple[str, Effect]]:
    """(label, Effect on the worst output) of keeping none, 1, 2, 4, 8 and the suggested number of nodes of a harm.SignatureHarm."""
    suggested = signature.suggested.nodes if signature.suggested else 0
    rows = [("none", harm.worst(signature.total))]
    for one in signature.kept:
        if one.nodes in (1, 2, 4, 8, suggested):
            label = "the worst node" if one.nodes == 1 else f"the {one.nodes} worst nodes"
            rows.append((label + (", as suggested" if one.nodes == suggested else ""), harm.worst(one.effects)))
    return rows
