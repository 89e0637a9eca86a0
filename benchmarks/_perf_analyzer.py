"""perf_analyzer, NVIDIA's load generator, out of the wheel of tritonclient: an independent client for TensorFlow Serving."""

import csv
import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

WHEEL = "tritonclient==2.41.1"
_CUDA = "nvidia-cuda-runtime-cu12"  # it links to libcudart 12, which must not meet the 11.8 of the environment
_B64 = "libb64-0d"  # Debian's package
_SECONDS = 300


class Missing(Exception):
    """It cannot be had here; the text says why."""


@dataclasses.dataclass(frozen=True)
class PerfAnalyzer:
    """program: path. libraries: for LD_LIBRARY_PATH."""

    program: str
    libraries: str

    def run(self, address, model, *flags, timeout=_SECONDS):
        """Drive a TensorFlow Serving at `address` over gRPC. Returns: [row of its CSV, as a dict]. Raises: Missing where it fails."""
        table = pathlib.Path(self.program).parent / f"{os.getpid()}.csv"
        command = [
            self.program,
            "-m",
            model,
            "-u",
            address,
            "-i",
            "grpc",
            "--service-kind=tfserving",
            "-f",
            str(table),
            *flags,
        ]
        done = subprocess.run(
            command,
            env={**os.environ, "LD_LIBRARY_PATH": self.libraries},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode or not table.exists():
            raise Missing(f"perf_analyzer ended with {done.returncode}: {(done.stderr or done.stdout)[:500]}")
        with open(table, newline="") as lines:
            rows = list(csv.DictReader(lines))
        table.unlink()
        return rows


def fetched(folder):
    """The program, fetched into `folder` once. Returns: PerfAnalyzer. Raises: Missing."""
    folder = pathlib.Path(folder).absolute()
    ready = folder / "ready"
    if not ready.exists():
        shutil.rmtree(folder, ignore_errors=True)
        downloads = folder / "downloads"
        downloads.mkdir(parents=True)
        _call(
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--dest",
            downloads,
            WHEEL,
            _CUDA,
        )
        for wheel in downloads.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(folder)
        _call("apt-get", "download", _B64, cwd=downloads)
        _call("dpkg", "-x", next(downloads.glob("libb64*.deb")), folder)
        shutil.rmtree(downloads)
        ready.touch()
    program = next(folder.rglob("perf_analyzer"))
    program.chmod(0o755)
    libraries = [path.parent for name in ("libcudart.so.12*", "libb64.so.0d*") for path in folder.rglob(name)]
    return PerfAnalyzer(str(program), os.pathsep.join(map(str, dict.fromkeys(libraries))))


def _call(*command, cwd=None):
    try:
        done = subprocess.run(
            list(map(str, command)), cwd=cwd, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{command[0]}: {error}") from None
    if done.returncode:
        raise Missing(f"{command[0]} failed: {done.stderr.strip()[-300:]}")
