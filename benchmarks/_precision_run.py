"""One model of `precision`: its columns in turn in a worker process; what comes out of it in a journal."""

import concurrent.futures
import dataclasses
import datetime
import hashlib
import json
import pathlib
import shutil
import tempfile
import threading
import time

from benchmarks import _precision_cases as cases
from tftrt_tools.base import errors
from tftrt_tools.base.process import child
from tftrt_tools.tftrt.calibration import difference, file

FILE = "results.jsonl"
NATIVE = cases.Column("native", "")
_PREPARE, _JOB = "benchmarks._precision_worker:prepare", "benchmarks._precision_worker:job"
_ENV = {"TF_CPP_MIN_LOG_LEVEL": "1"}
_WORST = 5  # tensors named
_NOT_SHOWN = ("kind", "model", "column", "key", "flags", "text", "detail")
_SETTLE_SECONDS = 20.0  # to wait for what disturbs a measurement, before it is made all the same


class Journal:
    """A file of JSON lines that several threads append to; each line is on disk when `add` returns, and shown."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock, self._start = threading.Lock(), time.monotonic()

    def add(self, **line):
        with self._lock:
            now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
            with open(self.path, "a") as lines:
                lines.write(json.dumps({"time": now, **line}) + "\n")
            said = [
                f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
                for name, value in line.items()
                if name not in _NOT_SHOWN and isinstance(value, int | float | str) and value != ""
            ]
            print(
                f"[{time.monotonic() - self._start:4.0f} s] {line.get('model', '')} {line.get('column', '')} {line['kind']}: "
                + ", ".join(said)[:300],
                flush=True,
            )


def read(path):
    """The lines of a journal, oldest first. A last line that was cut short is left out."""
    found = []
    for line in pathlib.Path(path).read_text().splitlines() if pathlib.Path(path).is_file() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def key(case, options):
    """What a model's numbers depend on: lines with another key are another experiment."""
    facts = [
        case.to_dict(),
        options.batches,
        options.calibration,
        options.calibration_batch,
        options.scoring,
        options.dry_cpu,
    ]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]


@dataclasses.dataclass(frozen=True)
class Work:
    """A model with its columns."""

    case: cases.Case
    columns: tuple
    key: str

    def left(self, lines):
        """The columns that are not measured yet; the original is one of them."""
        done = {
            (line["column"], line["flags"]) for line in lines if line["kind"] == "measured" and line["key"] == self.key
        }
        return [column for column in (NATIVE, *self.columns) if (column.name, column.flags) not in done]

    @property
    def methods(self):
        """The toolkit's tables that the columns take, in order."""
        return list(dict.fromkeys(column.method for column in self.columns if column.calibrator == "toolkit"))


def prepare(pool, work, options):
    """Begin to prepare models on the CPU: first model, data and answers of each, then the entropy tables, then the others.

    Returns: {(model, ""): future of _precision_worker.prepare, (model, method): future of the same with that table}.
    """
    options.output.mkdir(parents=True, exist_ok=True)
    found = {}
    for method in ("", *cases.METHODS):
        for one in work:  # a model may be there twice, with different columns
            name = one.case.name
            if (name, method) not in found and method in ("", *one.methods):
                found[name, method] = pool.submit(
                    _prepare, one, [method] if method else [], found.get((name, "")), options
                )
    return found


def _prepare(work, tables, before, options):
    if before:
        before.result()
    return prepared(work.case, tables, options)


def prepared(case, tables, options):
    """What _precision_worker.prepare returns. Args: options: with output, models_dir, calibration, scoring, calibration_batch, timeout."""
    log = options.output / f"{'-'.join([case.name, 'prepare', *tables])}.log"
    request = {
        "case": case.to_dict(),
        "folder": str(options.models_dir),
        "calibration": options.calibration,
        "scoring": options.scoring,
        "batch": options.calibration_batch,
        "tables": tables,
    }
    found = child.run(
        _PREPARE, request, env={**_ENV, "CUDA_VISIBLE_DEVICES": "-1"}, timeout=options.timeout, log_file=log
    ).result
    log.unlink(missing_ok=True)  # it is of interest where this failed
    return found


class Waiting:
    """The models that no GPU has taken yet. prepared: of `prepare`."""

    def __init__(self, work, prepared):
        self._left, self.prepared, self._lock = list(work), prepared, threading.Lock()

    def take(self):
        """The first in order of those that are prepared; waits where none is. Returns: Work, or None where none is left."""
        with self._lock:
            if not self._left:
                return None
            concurrent.futures.wait(
                [self.prepared[one.case.name, ""] for one in self._left], return_when=concurrent.futures.FIRST_COMPLETED
            )
            chosen = next(one for one in self._left if self.prepared[one.case.name, ""].done())
            self._left.remove(chosen)
            return chosen


class Runner:
    """Measures one model on one GPU."""

    def __init__(self, work, prepared, device, options, journal, deadline):
        """Args: prepared: of `prepare`. device: CUDA_VISIBLE_DEVICES of the worker. deadline: of time.monotonic, after which no column
        is begun."""
        self._work, self._prepared, self._device = work, prepared, device
        # What would disturb a measurement; the tables of the other methods come late and are left out.
        self._disturbing = [future for (_, stage), future in prepared.items() if stage in ("", "entropy")]
        self._options, self._journal, self._deadline = options, journal, deadline
        self._worker, self._context, self._started, self._built = None, None, 0, []
        self._waiting = []  # (Column, folder, engine ops): built and not measured
        self._files, self._compared = None, False

    def run(self):
        try:
            self._files = self._prepared[self._work.case.name, ""].result()
        except Exception as error:
            self._failed(cases.Column("", ""), "prepare", error)
            return
        self._say(
            "prepared",
            "",
            seconds=self._files["seconds"],
            common=self._files["common"],
            text=self._work.case.text,
            labelled=self._work.case.labelled,
        )
        left = self._work.left(read(self._journal.path))
        with tempfile.TemporaryDirectory(prefix="tftrt-precision-", dir=self._options.models_dir) as folder:
            try:
                self._columns(left, pathlib.Path(folder))
            finally:
                self._stop()

    def _columns(self, left, folder):
        for column in left:
            if time.monotonic() > self._deadline:
                break
            if column is NATIVE:
                self._waiting.append((NATIVE, "", 0))
            else:
                self._attempt(column, "build", lambda column=column: self._build(column, folder / column.name))
            self._compare()
            if all(one.done() for one in self._disturbing):
                self._measure_waiting()
        if self._waiting:
            concurrent.futures.wait(self._disturbing, _SETTLE_SECONDS)
        self._compare()
        self._measure_waiting()

    def _build(self, column, target):
        table = self._table(column)
        batches = self._options.batches if column.timed else self._options.batches[-1:]
        request = {
            "do": "convert",
            "model": self._files["model"],
            "column": dataclasses.asdict(column),
            "table": table,
            "shapes": "" if self._options.dry_cpu else self._shapes(batches),
            "output": str(target),
        }
        try:
            made = self._call(request)
        except errors.TftrtError as error:
            if "has no table" not in error.cause:
                raise
            # Other flags may make other engines than those that the table was made for.
            shutil.rmtree(target, ignore_errors=True)
            made = self._call({**request, "table": self._calibrated(column, f"{column.name}-own")})
        self._say("built", column, built_before=list(self._built), process=self._started, **made)
        self._built.append(column.name)
        self._waiting.append((column, str(target), made["engines"]))

    def _shapes(self, batches):
        import numpy as np

        with np.load(self._files["scoring"]) as arrays:
            return cases.shapes({name: arrays[name] for name in arrays.files}, batches)

    def _table(self, column):
        """The path of the column's calibration table, or ""."""
        if not column.calibrator:
            return ""
        if column.calibrator == "toolkit":
            done = self._prepared[self._work.case.name, column.method].result()
            if seconds := done["seconds"].get(f"{column.method} table"):
                self._say("calibrated", column, cpu_calibrate_seconds=seconds)
            return done["tables"][column.method]
        return self._calibrated(column, "tensorrt")

    def _calibrated(self, column, name):
        """Calibrate in the worker. Returns: path of the table."""
        path = pathlib.Path(self._files["folder"]) / f"{name}.json"
        if not path.exists():
            done = self._call(
                {
                    "do": "calibrate",
                    "model": self._files["model"],
                    "column": dataclasses.asdict(column),
                    "data": self._files["calibration"],
                    "batch": self._options.calibration_batch,
                    "path": str(path),
                }
            )
            self._say("calibrated", column, **done)
        return str(path)

    def _compare(self):
        """TensorRT's table against that of the toolkit's entropy method, once both are there."""
        made, future = (
            pathlib.Path(self._files["folder"]) / "tensorrt.json",
            self._prepared.get((self._work.case.name, "entropy")),
        )
        wanted = (
            any(column.table == "tensorrt" for column in self._work.columns)
            and future is not None
            and not self._compared
        )
        if not wanted or not made.exists() or not future.done() or future.exception():
            return
        self._compared = True
        found = difference.compare(
            file.read(made), file.read(future.result()["tables"]["entropy"]), "TensorRT", "toolkit"
        )
        both = [one for one in found.tensors if one.ratio is not None]
        worst = sorted(both, key=lambda one: max(one.ratio, 1 / one.ratio), reverse=True)[:_WORST]
        only = [sum(one.a is None for one in found.tensors), sum(one.b is None for one in found.tensors)]
        self._say(
            "tables",
            "",
            summary=found.summary and found.summary.to_dict(),
            worst=[one.to_dict() for one in worst],
            only_toolkit=only[0],
            only_tensorrt=only[1],
            notes=list(found.notes),
        )

    def _measure_waiting(self):
        while self._waiting:
            column, target, engines = self._waiting.pop(0)
            self._attempt(column, "measure", lambda: self._measure(column, target, engines))  # noqa: B023
            if target:
                shutil.rmtree(target, ignore_errors=True)

    def _measure(self, column, target, engines):
        *latency, last = self._options.batches
        latency = latency or [last]
        names = ("model", "scoring", "labels", "reference")
        request = {
            "do": "measure",
            **{name: self._files[name] for name in names},
            "converted": target,
            "engines": engines,
            "latency": latency if column.timed else [],
            "throughput": last if column.timed else 0,
            "score": last,
            "repeats": self._options.repeats,
        }
        disturbed = not all(one.done() for one in self._disturbing)
        self._say("measured", column, disturbed=disturbed, **self._call(request))

    def _attempt(self, column, step, function):
        try:
            function()
        except Exception as error:  # whatever it is, the next column may work
            self._failed(column, step, error)

    def _failed(self, column, step, error):
        lines = str(getattr(error, "cause", error)).strip().splitlines() or [type(error).__name__]
        self._say("error", column, step=step, error=lines[-1][:500], detail=str(getattr(error, "mend", error))[-2000:])

    def _call(self, request):
        """Ask the worker, a new one where the last died or there was none."""
        if self._worker is None or not self._worker.alive:
            self._stop()
            self._started += 1
            self._built = []
            log = self._options.output / f"{self._work.case.name}-{self._device}-{self._started}-{int(time.time())}.log"
            self._context = child.worker(_JOB, {**_ENV, "CUDA_VISIBLE_DEVICES": self._device}, log)
            self._worker = self._context.__enter__()
            batches = [*self._options.batches, self._options.calibration_batch]
            warm = {"do": "warm", "model": self._files["model"], "scoring": self._files["scoring"], "batches": batches}
            self._say("warm", "", **self._worker.call(warm, self._options.timeout).result)
        return self._worker.call(request, self._options.timeout).result

    def _stop(self):
        context, self._context, self._worker = self._context, None, None
        if context:
            context.__exit__(None, None, None)

    def _say(self, kind, column, **facts):
        name, flags = (column.name, column.flags) if column else ("", "")
        self._journal.add(kind=kind, model=self._work.case.name, key=self._work.key, column=name, flags=flags, **facts)
