"""The report of `tftrt sensitivity`: one HTML file that needs nothing else, and its plot as a file of its own."""

import pathlib

from tftrt_tools import errors, whole_file
from tftrt_tools.accuracy import harm
from tftrt_tools.report import html, sensitivity_plot

PICTURES = (".svg", ".png")


def check_picture(path):
    """Raise UsageError where `path` names no kind of picture that can be written."""
    if pathlib.Path(path).suffix.lower() not in PICTURES:
        raise errors.UsageError(f"--plot={path} is of no known kind", "name it " + " or ".join(f"FILE{suffix}" for suffix in PICTURES))


def write_picture(done, path):
    """Write the plot of a harm.Sensitivity as .svg or .png, whole or not at all. Raises: UsageError, OSError."""
    check_picture(path)
    kind = pathlib.Path(path).suffix.lower().lstrip(".")
    whole_file.write_bytes(path, sensitivity_plot.bars(done.signatures, done.precision, kind))


def write_page(done, path):
    """Write the report of a harm.Sensitivity. Raises: OSError."""
    plot = sensitivity_plot.bars(done.signatures, done.precision).decode()
    whole_file.write_text(path, html.template("sensitivity.html").render(done=done, plot=plot, rows=kept_rows))


def kept_rows(signature):
    """(label, Effect on the worst output) of keeping none, 1, 2, 4, 8 and the suggested number of nodes of a harm.SignatureHarm."""
    suggested = signature.suggested.nodes if signature.suggested else 0
    rows = [("none", harm.worst(signature.total))]
    for one in signature.kept:
        if one.nodes in (1, 2, 4, 8, suggested):
            label = "the worst node" if one.nodes == 1 else f"the {one.nodes} worst nodes"
            rows.append((label + (", as suggested" if one.nodes == suggested else ""), harm.worst(one.effects)))
    return rows
