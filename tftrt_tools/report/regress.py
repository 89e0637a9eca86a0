"""The report of `tftrt regress` and the plot of `tftrt history`: pages and pictures that need nothing else."""

import pathlib

from tftrt_tools import errors, whole_file
from tftrt_tools.accuracy import thresholds
from tftrt_tools.regression import result
from tftrt_tools.report import answers, html, regress_plot

PICTURES = (".svg", ".png")


def write_page(done, path):
    """Write the report of a result.Regression, whole or not at all. Raises: OSError."""
    whole_file.write_text(path, page(done))


def page(done):
    """The report's text; it opens on the verdict."""
    return html.template("regress.html").render(
        done=done, plot=regress_plot.rounds(done) if len(done.rounds.native_p50) > 1 else "", shown=shown, speed=result.speed_text,
        bounds=thresholds.text, answers=answers, missed=done.answers.missed if done.answers else (),
        classes={result.PASS: "passed", result.FAIL: "failed", result.UNSURE: "unsure", result.ENDED: "unsure"})


def shown(metric, value):
    """A metric's value for people."""
    if value is None:
        return ""
    return f"{value:.1f}/s" if metric == "throughput" else f"{1e3 * value:.3f} ms"


def check_picture(path):
    """Raise UsageError where `path` names no kind of picture that can be written."""
    if pathlib.Path(path).suffix.lower() not in PICTURES:
        raise errors.UsageError(f"--plot={path} is of no known kind", "name it " + " or ".join(f"FILE{suffix}" for suffix in PICTURES))


def write_history(found, path):
    """Write the plot of a history.History as .svg or .png, whole or not at all. Raises: UsageError, OSError."""
    check_picture(path)
    whole_file.write_bytes(path, regress_plot.history(found, pathlib.Path(path).suffix.lower().lstrip(".")))
