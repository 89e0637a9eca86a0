"""The files of a benchmark. One that cannot be written does not take the others with it: measuring took longer than writing."""

from tftrt_tools import whole_file
from tftrt_tools.bench import tables


class Outputs:
    """Args: json, csv, requests_csv, html, hdr: paths, None or "" for none. A context manager; `add` takes the records of each point."""

    def __init__(self, json=None, csv=None, requests_csv=None, html=None, hdr=None):
        self._json, self._csv, self._html, self._hdr = json, csv, html, hdr
        self.requests = tables.RequestsFile(requests_csv) if requests_csv else None
        self._histograms = tables.HistogramLog() if hdr else None

    def add(self, target, point, records):
        """The measured requests of one point, as tables.RequestsFile.add takes them."""
        for one in filter(None, (self.requests, self._histograms)):
            one.add(target, point, records)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.requests:
            self.requests.close()

    def write(self, done, goal):
        """Write everything of a result.Bench. Returns: a line for each file that could not be written."""
        from tftrt_tools.commands import _output
        from tftrt_tools.report import bench as report

        lost = [self.requests.failed] if self.requests and self.requests.failed else []
        jobs = ((self._json, lambda: _output.write_json(done, self._json)),
                (self._csv, lambda: tables.write_points(done, self._csv)),
                (self._hdr, lambda: self._histograms.write(self._hdr)),
                (self._html, lambda: report.write_page(done, goal, self._html)))
        lost += whole_file.write_each(jobs)
        if self.requests and done.complete:
            self.requests.finish()
        return lost
