"""The report of `tftrt regress` and the plot of `tftrt history`: pages and pictures that need nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tftrt_tools.accuracy import thresholds
from tftrt_tools.base.files import whole_file
from tftrt_tools.command_line.report import answers, html, pictures, regress_plot
from tftrt_tools.studies.regression import comparison, sentences

if TYPE_CHECKING:
    from tftrt_tools.studies.regression.comparison import Regression
    from tftrt_tools.studies.regression.history import History


def write_page(done: Regression, path: str) -> None:
    """Write the report of a comparison.Regression, whole or not at all. Raises: OSError."""
    whole_file.write_text(path, page(done))


def page(done: Regression) -> str:
    """The report's text; it opens on the verdict."""
    return html.template("regress.html").render(
        done=done,
        plot=regress_plot.rounds(done) if len(done.rounds.native_p50) > 1 else "",
        shown=shown,
        speed=sentences.sentence,
        bounds=thresholds.text,
        answers=answers,
        missed=done.answers.missed if done.answers else (),
        classes={
            comparison.PASS: "passed",
            comparison.FAIL: "failed",
            comparison.UNSURE: "unsure",
            comparison.ENDED: "unsure",
        },
    )


def shown(metric: str, value: float | None) -> str:
    """A metric's value for people."""
    if value is None:
        return ""
    return f"{value:.1f}/s" if metric == "throughput" else f"{1e3 * value:.3f} ms"


def write_history(found: History, path: str) -> None:
    """Write the plot of a history.History as .svg or .png, whole or not at all. Raises: UsageError, OSError."""
    whole_file.write_bytes(path, regress_plot.history(found, pictures.kind(path)))
