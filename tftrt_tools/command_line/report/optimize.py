"""The report of `tftrt optimize`: one HTML file that needs nothing else; it links to the pages of its steps, which lie beside it."""

from __future__ import annotations

import os
import pathlib
from typing import TYPE_CHECKING

from tftrt_tools.base.files import whole_file
from tftrt_tools.command_line.report import html, optimize_plot, trials
from tftrt_tools.studies.optimizing.asked import REPORT
from tftrt_tools.studies.optimizing.known import TUNE

if TYPE_CHECKING:
    from tftrt_tools.studies.optimizing.run import Done
    from tftrt_tools.studies.optimizing.step import StepResult
    from tftrt_tools.studies.optimizing.story import Story

_CLASSES = {"kept": "passed", "not kept": "failed", "open": "unsure", "cannot tell": "unsure"}


def write_page(done: Done, path: str) -> None:
    """Write the report of a run.Done, whole or not at all. Raises: OSError."""
    import shlex

    page = html.template("optimize.html").render(
        story=done.story,
        name=pathlib.PurePath(done.story.asked.model).name,
        meaning=done.story.meaning,
        known=done.known,
        trials=trials.of_document(done.known.document(TUNE)),
        classes=_CLASSES,
        line=shlex.join,
        plots=optimize_plot.plots(done.known),
        page=lambda one: _page(one, path),
    )
    whole_file.write_text(path, page)


def page_of(story: Story) -> str:
    """The page that the run of a Story has written. Raises: OSError where it is gone."""
    kept = pathlib.Path(story.asked.path(REPORT))
    before = pathlib.Path(story.asked.path("story.html"))  # as versions before called it
    return (kept if kept.is_file() or not before.is_file() else before).read_text()


def _page(one: StepResult, path: str) -> str:
    """The step's own page, as a link from `path`; "" if it has none."""
    found = next((word.partition("=")[2] for word in one.words if word.startswith("--html=")), "")
    return os.path.relpath(found, os.path.dirname(os.path.abspath(path))) if found and os.path.exists(found) else ""
