"""The report of `tftrt verify --tensors`: one HTML file that needs nothing else, and its plot as a file of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tftrt_tools.base.files import whole_file
from tftrt_tools.command_line.report import html, pictures, tensors_plot

if TYPE_CHECKING:
    from tftrt_tools.tensorrt.plans.tensors import Tensors


def write_picture(done: Tensors, path: str) -> None:
    """Write the plot of a comparison as .svg or .png, whole or not at all. Raises: UsageError, OSError."""
    whole_file.write_bytes(path, tensors_plot.line(done, pictures.kind(path)))


def write_page(done: Tensors, path: str) -> None:
    """Write the report of a comparison. Raises: OSError."""
    whole_file.write_text(path, page(done))


def page(done: Tensors) -> str:
    """The report's text."""
    return html.template("tensors.html").render(done=done, plot=tensors_plot.line(done).decode())
