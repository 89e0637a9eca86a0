"""The files of a benchmark. If one cannot be written, the others still are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tftrt_tools.base.files import whole_file
from tftrt_tools.command_line.commands import _output
from tftrt_tools.studies.bench import tables

if TYPE_CHECKING:
    from tftrt_tools.studies.bench.goal import Goal
    from tftrt_tools.studies.bench.measurements import Bench
    from tftrt_tools.studies.bench.points import Point


class Outputs:
    """Args: json, csv, requests_csv, html, hdr, plot: paths, None or "" for none. A context manager; `add` takes the records of each
    point."""

    def __init__(
        self,
        json: str | None = None,
        csv: str | None = None,
        requests_csv: str | None = None,
        html: str | None = None,
        hdr: str | None = None,
        plot: str | None = None,
    ) -> None:
        self._plot = plot
        self._json, self._csv, self._html, self._hdr = json, csv, html, hdr
        self.requests = tables.RequestsFile(requests_csv) if requests_csv else None
        self._histograms = tables.HistogramLog() if hdr else None

    def add(self, target: str, point: Point, records: Any) -> None:
        """The measured requests of one point, as tables.RequestsFile.add takes them."""
        if self.requests:
            self.requests.add(target, point, records)
        if self._histograms:
            self._histograms.add(target, point, records)

    def __enter__(self) -> Outputs:
        return self

    def __exit__(self, *error: object) -> None:
        if self.requests:
            self.requests.close()

    def write(self, done: Bench, goal: Goal | None) -> list[str]:
        """Write everything of a measurements.Bench. Returns: a line for each file that could not be written."""
        from tftrt_tools.command_line.report import bench as report

        lost = [self.requests.failed] if self.requests and self.requests.failed else []
        jobs = (
            (self._json, lambda: _output.write_json(done, self._json)),
            (self._csv, lambda: tables.write_points(done, str(self._csv))),
            (self._hdr, self._write_histograms),
            (self._html, lambda: report.write_page(done, goal, str(self._html))),
            (
                self._plot if self._plot and done.breakdowns else None,
                lambda: report.write_breakdown(done, str(self._plot)),
            ),
        )
        lost += whole_file.write_each(jobs)
        if self.requests and done.complete:
            self.requests.finish()
        return lost

    def _write_histograms(self) -> None:
        if self._histograms:
            self._histograms.write(str(self._hdr))
