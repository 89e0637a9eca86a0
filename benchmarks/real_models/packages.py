"""Files of packages, pinned by digest and unpacked; environments of their own for what needs other packages."""

import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile

from benchmarks import _models
from benchmarks.real_models import cases


def unpacked(name: str, folder: pathlib.Path, package: cases.Package | None = None) -> pathlib.Path:
    """The folder that holds the package's files, downloaded where they are missing. Args: package: one that is not in `cases`.

    Raises: RuntimeError: what pip says where the file cannot be had or has another digest.
    """
    target = folder / name
    with _models.made(target) as partial:
        if partial:
            _unpack(_download(package or cases.PACKAGES[name], folder), partial)
    return target


def _download(package, folder):
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        wanted = pathlib.Path(scratch) / "wanted.txt"
        wanted.write_text(f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n")
        _pip(
            sys.executable,
            "download",
            "--no-deps",
            "--ignore-requires-python",
            "--require-hashes",
            "--requirement",
            wanted,
            "--dest",
            scratch,
        )
        (found,) = (path for path in pathlib.Path(scratch).iterdir() if path != wanted)
        kept = folder / found.name
        shutil.move(found, kept)
    return kept


def _unpack(archive, target):
    """A wheel, or a source archive without its outermost folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(target)
        return
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        with tarfile.open(archive) as opened:
            opened.extractall(scratch, filter="data")
        (only,) = pathlib.Path(scratch).iterdir()
        shutil.move(only, target)


def python(environment: str, folder: pathlib.Path) -> pathlib.Path:
    """The interpreter of an environment of `cases.ENVIRONMENTS`, made where it is missing."""
    needs = cases.ENVIRONMENTS[environment]
    if not needs:
        return pathlib.Path(sys.executable)
    target = folder / environment
    stamp = target / "packages.txt"
    if not stamp.is_file() or stamp.read_text().split() != list(needs):
        shutil.rmtree(target, ignore_errors=True)
        _run(getattr(sys, "_base_executable", sys.executable), "-m", "venv", target)
        alone = environment in cases.ALONE
        _pip(target / "bin/python", "install", *([] if alone else ["--no-deps"]), *needs)
        if not alone:
            (site,) = target.glob("lib/python*/site-packages")
            (site / "beside.pth").write_text(sysconfig.get_path("purelib") + "\n")
        stamp.write_text("\n".join(needs) + "\n")
    return target / "bin/python"


def _pip(interpreter, *arguments):
    _run(interpreter, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check")


def _run(*command):
    done = subprocess.run(
        [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        said = [line for line in done.stdout.splitlines() if line.strip() and not line.startswith("WARNING")]
        raise RuntimeError(
            "\n".join([f"{' '.join(map(str, command[:4]))} … ended with {done.returncode}:", *said[-5:]])
        )
