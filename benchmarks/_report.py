"""Where results go: a JSON file that is whole after every row, and a plain table."""

import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import shutil
import subprocess


class Results:
    """Rows of one benchmark run, kept in a JSON file, so that a run that is cut short leaves what it measured."""

    def __init__(self, path, benchmark, resume=False):
        """Args: path: JSON file, or None to keep the rows in memory only. resume: go on with the rows that are there."""
        self._path = pathlib.Path(path) if path else None
        self.data = {"benchmark": benchmark, "machine": None, "rows": []}
        if resume and self._path and self._path.is_file():
            self.data = json.loads(self._path.read_text())
        else:
            self.data["machine"] = machine()
            self._write()

    @property
    def rows(self):
        return self.data["rows"]

    def add(self, **row):
        """Keep a row and show it."""
        self.rows.append(row)
        self._write()
        print("  " + ", ".join(f"{key} {cell(value)}" for key, value in row.items() if value is not None), flush=True)

    def note(self, key, value):
        """Keep a fact beside the rows."""
        self.data[key] = value
        self._write()

    def _write(self):
        if not self._path:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        partial.write_text(json.dumps(self.data, indent=1) + "\n")
        os.replace(partial, self._path)


def machine():
    """What the numbers depend on: processor, GPU, driver, versions, time."""
    return {
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "processor": _processor(),
        "gpu": gpu(),
        **{name: _version(name) for name in ("tensorflow", "tensorrt", "tf2onnx", "onnx")},
    }


def _processor():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def gpu():
    """ "name, driver, SM clock, largest SM clock" of the first GPU, or None."""
    if not shutil.which("nvidia-smi"):
        return _gpu_by_nvml()
    query = "--query-gpu=name,driver_version,clocks.sm,clocks.max.sm,power.limit"
    done = subprocess.run(["nvidia-smi", query, "--format=csv,noheader"], capture_output=True, text=True, check=False)
    return done.stdout.splitlines()[0].strip() if done.returncode == 0 and done.stdout.strip() else _gpu_by_nvml()


def _gpu_by_nvml():
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        clocks = [
            f(handle, pynvml.NVML_CLOCK_SM) for f in (pynvml.nvmlDeviceGetClockInfo, pynvml.nvmlDeviceGetMaxClockInfo)
        ]
        return f"{pynvml.nvmlDeviceGetName(handle)}, {pynvml.nvmlSystemGetDriverVersion()}, {clocks[0]} MHz, {clocks[1]} MHz"
    except Exception:  # a machine without a driver, or without the package
        return None


def cell(value):
    """A value as a table shows it."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)


def table(columns, rows):
    """Plain text. columns: [(key, heading)]; rows: dicts; numbers to the right."""
    cells = [[heading for _, heading in columns]] + [[cell(row.get(key)) for key, _ in columns] for row in rows]
    right = [all(isinstance(row.get(key), int | float | None) for row in rows) for key, _ in columns]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    lines = [
        "  ".join(
            text.rjust(width) if side else text.ljust(width)
            for text, width, side in zip(line, widths, right, strict=True)
        )
        for line in cells
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines)
