"""SavedModels of the cases with their rows: made once in a folder, each in the environment of its case."""

import pathlib
import shutil
import subprocess

from benchmarks import _models
from benchmarks.real_models import cases, packages

_PICTURES = "scikit-image"
_PARTS = ("rows.npz", "calibration.npz", "labels.npy")


def part(models: pathlib.Path, case: cases.Case, name: str) -> pathlib.Path:
    """A file beside a model: rows.npz, calibration.npz or labels.npy."""
    return models / f"{case.name}.{name}"


def made(models: pathlib.Path, case: cases.Case) -> bool:
    """Whether it is there."""
    return (models / case.name / "saved_model.pb").is_file() and part(models, case, "rows.npz").is_file()


def make(models: pathlib.Path, case: cases.Case) -> None:
    """Write MODELS/NAME and the files beside it. Raises: RuntimeError: what pip or the maker says."""
    folder = models / ".packages"
    folder.mkdir(parents=True, exist_ok=True)
    for name in filter(None, (case.package, _PICTURES if "scikit-image's" in case.data else "")):
        packages.unpacked(name, folder)
    interpreter = packages.python(case.environment, models / ".environments")
    scratch = models / ".partial" / case.name
    shutil.rmtree(scratch.parent, ignore_errors=True)
    scratch.parent.mkdir()
    module = case.make.__module__
    done = subprocess.run(
        [
            str(interpreter),
            "-m",
            "benchmarks.real_models._worker",
            module,
            case.make.__name__,
            str(folder),
            str(scratch),
        ],
        cwd=_models.ROOT,
        env=_models.environment(gpu=False),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{case.name} could not be made:\n" + "\n".join(done.stdout.strip().splitlines()[-5:]))
    for name in _PARTS:
        if (there := part(scratch.parent, case, name)).is_file():
            shutil.move(there, part(models, case, name))
    shutil.rmtree(models / case.name, ignore_errors=True)
    shutil.move(scratch, models / case.name)
    shutil.rmtree(scratch.parent)
