"""Plots as files of their own: which kinds there are, and writing them."""

from __future__ import annotations

import io
import pathlib
from typing import TYPE_CHECKING

from tftrt_tools.base import errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ENDINGS = (".svg", ".png")


def check(path: str) -> None:
    """Raise UsageError where `path` names no kind of picture that can be written."""
    if pathlib.Path(path).suffix.lower() not in _ENDINGS:
        raise errors.UsageError(
            f"--plot={path} is of no known kind", "name it " + " or ".join(f"FILE{ending}" for ending in _ENDINGS)
        )


def kind(path: str) -> str:
    """ "svg" or "png". Raises: UsageError."""
    check(path)
    return pathlib.Path(path).suffix.lower().lstrip(".")


def content(figure: Figure, kind: str) -> bytes:
    """A figure as a file of that kind."""
    from tftrt_tools.command_line.report import plots

    if kind == "svg":
        return plots.svg(figure).encode()
    data = io.BytesIO()
    figure.savefig(data, format=kind, dpi=150)
    return data.getvalue()
