"""The report of `tftrt regress` and the plot of `tftrt history`: pages and pictures that need nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tftrt_tools.accuracy import thresholds
from tftrt_tools.base.files import whole_file
from tftrt_tools.command_line.report import answers, html, pictures, regress_plot
from tftrt_tools.studies.regression import comparison, sentences
from tftrt_tools.studies.regression.several import Regressions

if TYPE_CHECKING:
    from tftrt_tools.studies.regression.comparison import Regression
    from tftrt_tools.studies.regression.history import History


def write_page(done: Regression | Regressions, path: str) -> None:
    """Write the report of a result, whole or not at all. Raises: OSError."""
    whole_file.write_text(path, page(done))


def page(done: Regression | Regressions) -> str:
    """The report's text; it opens on the verdict. Of several batch sizes the page of each follows."""
    several = isinstance(done, Regressions)
    parts = done.parts if isinstance(done, Regressions) else ()
    return html.template("regressions.html" if several else "regress.html").render(
        done=done,
        **({} if isinstance(done, Regressions) else _of_one(done)),
        pages=[
            {"batch_size": one.batch_size, "done": one.regression, **_of_one(one.regression)}
            for one in parts
            if one.regression
        ],
        shown=shown,
        speed=sentences.sentence,
        bounds=thresholds.text,
        answers=answers,
        classes={
            comparison.PASS: "passed",
            comparison.FAIL: "failed",
            comparison.UNSURE: "unsure",
            comparison.ENDED: "unsure",
        },
    )


def _of_one(done: Regression) -> dict[str, Any]:
    """What its part of the page is made of."""
    return {
        "plot": regress_plot.rounds(done) if len(done.rounds.native_p50) > 1 else "",
        "missed": done.answers.missed if done.answers else (),
    }


def shown(metric: str, value: float | None) -> str:
    """A metric's value for people."""
    if value is None:
        return ""
    return f"{value:.1f}/s" if metric == "throughput" else f"{1e3 * value:.3f} ms"


def write_history(found: History, path: str) -> None:
    """Write the plot of a history.History as .svg or .png, whole or not at all. Raises: UsageError, OSError."""
    whole_file.write_bytes(path, regress_plot.history(found, pictures.kind(path)))
