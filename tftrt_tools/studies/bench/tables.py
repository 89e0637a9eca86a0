"""The tables of a benchmark: a CSV row for each point and for each request, and the log of histograms."""

import csv
import io
import os
import pathlib
import time
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.base.files import whole_file
from tftrt_tools.servers.load.run_record import Records
from tftrt_tools.studies.bench.measurements import Bench, Row
from tftrt_tools.studies.bench.points import Point

REQUEST_COLUMNS = ("target", "row", "point", "scheduled_ns", "sent_ns", "done_ns", "code", "payload", "generator")


def write_points(bench: Bench, path: str | os.PathLike[str]) -> None:
    """A row for each point of a measurements.Bench, whole or not at all. A percentile with too few samples is empty. Raises: OSError."""
    text = io.StringIO()
    rows = [_flat(bench, row) for row in bench.rows]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    table = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    whole_file.write_text(path, text.getvalue())


def _flat(bench: Bench, row: Row) -> dict[str, Any]:
    flat = {"target": row.target, **row.point.to_dict(), "probe": int(row.probe), "complete": int(row.complete)}
    for name in (
        "seconds",
        "requests",
        "answered",
        "failed",
        "refused",
        "checked",
        "wrong",
        "unjudged",
        "throughput",
        "rows_per_second",
        "offered",
        "sent_rate",
        "late",
        "limited",
        "waits",
    ):
        flat[name] = _cell(getattr(row, name))
    for kind, latency in (("response", row.response), ("service", row.service)):
        flat |= {f"{kind}_{name}_ms": _cell(getattr(latency, f"{name}_ms")) for name in ("mean", "min", "max")}
        flat |= {f"{kind}_{name}_ms": _cell(value) for name, value in latency.percentiles.items()}
    if row.generators:
        flat |= {
            "generators": len(row.generators),
            "generators_limited": sum(bool(one.limited) for one in row.generators),
        }
    flat["kept"] = "" if row.kept is None else int(row.kept)
    flat["errors"] = "; ".join(f"{one.code}: {one.count}" for one in row.errors)
    if row.server:
        flat |= {
            f"server_{name}": _cell(getattr(row.server, name))
            for name in ("request_ms", "runtime_ms", "queuing_ms", "input_rows", "processed_rows", "padding_rows")
        }
    for use in row.gpus:
        flat |= {
            f"gpu{use.gpu}_{name}": _cell(getattr(use, name))
            for name in ("mean_utilization", "max_memory_mib", "mean_clock_mhz", "mean_power_w", "max_temperature_c")
        }
    flat["model_version"], flat["machine"] = _cell(bench.subject.model_version), bench.fingerprint.digest
    return flat


def _cell(value: object) -> object:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else value


class RequestsFile:
    """A row for each request, written point by point, so that an interrupt keeps what was measured.

    It is PATH.partial until `finish`. If the disk fills up, the whole lines written so far stay there, `failed` says why, and the
    benchmark goes on.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises: OSError if the file cannot be made, UsageError if it could not be renamed to its final name."""
        target, stream = whole_file.place(path)
        if stream:
            raise errors.UsageError(
                f"{path} is no regular file", "requests are written beside it first: give the path of a file"
            )
        self.path, self.failed = pathlib.Path(target), ""
        self.partial = self.path.with_name(self.path.name + ".partial")
        self._good, self._points = 0, 0
        # No buffer: writing it could fail later, in close().
        self._file = self.partial.open("wb", buffering=0)
        self._write(",".join(REQUEST_COLUMNS) + "\n")

    def add(self, target: str, point: Point, records: Records) -> None:
        """The measured requests of one point. Args: target: as in a Row; point: points.Point; records: run_record.Records."""
        self._points += 1
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        columns = (records.scheduled_ns, records.sent_ns, records.done_ns, records.code, records.payload)
        generators = records.generator.tolist() or [""] * len(records.sent_ns)
        for values in zip(*(column.tolist() for column in columns), generators, strict=True):
            table.writerow((target, self._points, point.text(), *values))
        self._write(text.getvalue())

    def finish(self) -> None:
        """The file is complete: rename it to its final name. Raises: OSError."""
        if self._points and not self.failed:
            os.replace(self.partial, self.path)

    def close(self) -> None:
        """End writing. If nothing was written, no file is left."""
        self._file.close()
        if not self._points:
            self.partial.unlink(missing_ok=True)

    def _write(self, text: str) -> None:
        if self.failed:
            return
        data = memoryview(text.encode())
        try:
            while data:
                data = data[self._file.write(data) :]
            self._good = self._file.tell()
        except OSError as error:
            self.failed = f"{self.partial}: {error.strerror}; the points before are in it"
            self._file.truncate(self._good)


class HistogramLog:
    """The response times of each row, as HdrHistogram's log (format 1.2): a line each, tagged with the row's number from 1."""

    def __init__(self) -> None:
        from hdrh import log

        self._text = io.StringIO()
        self._log = log.HistogramLogWriter(self._text)
        self._log.output_log_format_version()
        self._log.output_comment("response times in ns, 1 us to 1 h, three digits")
        self._log.output_legend()
        self._rows = 0
        # Readers use only the wall clock, and skip a row that begins before the first one. So one offset holds for all rows: a clock
        # that is set meanwhile, or read a microsecond later, cannot put a row before the first.
        self._wall_ns = time.time_ns() - time.perf_counter_ns()

    def add(self, target: str, point: Point, records: Records) -> None:
        """As RequestsFile.add."""
        self._rows += 1
        begun = (self._wall_ns + records.started_monotonic_ns) / 1e9
        self._log.output_comment(f"row {self._rows}: {target}, {point.text()}")
        self._text.write(f"Tag={self._rows},")
        self._log.output_interval_histogram(records.histogram(), begun, begun + records.seconds)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Whole or not at all. Raises: OSError."""
        whole_file.write_text(path, self._text.getvalue())
