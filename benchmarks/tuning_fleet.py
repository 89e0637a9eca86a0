"""`tftrt tune` on one GPU and on all of them (`--on=local`), one after the other, each with empty caches (GPU; two of one kind, and Ray).

    python -m benchmarks.tuning_fleet [--models resnet50,fer,keras3] [--max_trials N] [--models_dir DIR] [--output DIR]

ResNet-50 has random weights and drawn pictures; the others are those of `python -m benchmarks.real_models --make --models=fer,keras3`.
What is told: the seconds of both, their ratio, and whether both name the same winner; where not, whether the two winners are apart in
their last comparison. A search that is there is not done again.
"""

import argparse
import dataclasses
import json
import pathlib
import sys
import time

import numpy as np

from benchmarks import _models, _report
from benchmarks.real_models import cases
from saved_models import _export

NEEDS_GPU = True
BATCH = 8
WAYS = {"one": [], "all": ["--on=local"]}
GOALS = {"resnet50": "snr_db:threshold=8", "fer": "snr_db:threshold=20", "keras3": "snr_db:threshold=15"}


@dataclasses.dataclass(frozen=True)
class Searched:
    """A model with its data, as words of the command."""

    model: pathlib.Path
    data: pathlib.Path
    calibration: pathlib.Path
    shapes: str


def main(argv=None):
    """Returns: 0 where all searches ended with a winner."""
    build = _models.ROOT / "build"
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tuning_fleet",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(GOALS))
    parser.add_argument("--models_dir", type=pathlib.Path, default=build / "real_models/models")
    parser.add_argument("--output", type=pathlib.Path, default=build / "bench/tuning_fleet")
    parser.add_argument("--max_trials", type=int, help="of each search; by default the command's own number")
    parser.add_argument("--ways", type=lambda text: text.split(","), default=list(WAYS), help="one, all")
    options = parser.parse_args(argv)
    if unknown := sorted(set(options.models) - set(GOALS)) or sorted(set(options.ways) - set(WAYS)):
        parser.error(f"no {unknown[0]!r}; models: {', '.join(GOALS)}; ways: {', '.join(WAYS)}")
    output = options.output.absolute()
    output.mkdir(parents=True, exist_ok=True)
    for name in options.models:
        searched = _searched(name, options.models_dir.absolute(), output)
        for way in options.ways:
            _search(name, way, searched, output, options.max_trials)
    rows = table(
        {
            (name, way): document
            for name in GOALS
            for way in WAYS
            if (document := _read(output / f"{name}-{way}.json")) is not None
        }
    )
    print(_report.table([(key, key) for key in ("model", "one", "all", "ratio", "winners")], rows))
    return 0 if rows and all(row["winners"] != "none" for row in rows) else 1


def _searched(name, models_dir, output):
    if name != "resnet50":
        shapes = next(case.shapes for case in cases.CASES if case.name == name).format(*[BATCH] * 4)
        return Searched(
            models_dir / name, models_dir / f"{name}.rows.npz", models_dir / f"{name}.calibration.npz", shapes
        )
    model = output / "resnet50"
    if not model.is_dir():
        _models.command("-m", "saved_models", "resnet50", f"--output={output}", gpu=False)
    files = [output / "resnet50.rows.npz", output / "resnet50.calibration.npz"]
    for seed, path in enumerate(files):
        if not path.is_file():
            np.savez(path, image=_export.images(np.random.default_rng(seed), 4 * BATCH, 224))
    return Searched(model, *files, f"image:{BATCH}x224x224x3")


def _search(name, way, searched, output, max_trials):
    path = output / f"{name}-{way}.json"
    if path.is_file():
        return
    folder = output / f"{name}-{way}"
    folder.mkdir(exist_ok=True)
    start = time.monotonic()
    code, said = _models.tftrt(
        [
            "tune",
            searched.model,
            f"--data={searched.data}",
            f"--calibration_data={searched.calibration}",
            f"--calibration_batch_size={BATCH}",
            f"--shapes={searched.shapes}",
            f"--accuracy={GOALS[name]}",
            f"--work_dir={folder / 'work'}",
            f"--engine_cache_dir={folder / 'engines'}",
            f"--html={folder}.html",
            f"--json={folder / 'tuning.json'}",
            *([f"--max_trials={max_trials}"] if max_trials else []),
            *WAYS[way],
        ]
    )
    seconds = round(time.monotonic() - start, 1)
    print(f"{name}, {way}: exit {code}, {seconds} s", flush=True)
    if code:
        print("\n".join(said.splitlines()[-8:]), flush=True)
        return
    document = json.loads((folder / "tuning.json").read_text())
    path.write_text(json.dumps({"seconds": seconds, **document}))


def _read(path):
    return json.loads(path.read_text()) if path.is_file() else None


def table(found):
    """Rows of models. Args: found: {(model, way): the JSON of its search, with "seconds"}."""
    rows = []
    for name in dict.fromkeys(model for model, _ in found):
        one, every = (found.get((name, way)) for way in WAYS)
        row = {"model": name, "one": one and one["seconds"], "all": every and every["seconds"], "ratio": None}
        row["winners"] = "none"
        if one and every:
            row["ratio"] = round(every["seconds"] / one["seconds"], 2)
            row["winners"] = _compared(one, every)
        rows.append(row)
    return rows


def _compared(one, every):
    """Whether two searches name the same winner: "the same", "within the interval" of the last comparison, or both texts."""
    texts = [_text(document) for document in (one, every)]
    if texts[0] == texts[1]:
        return "the same"
    other = next((trial["number"] for trial in every["trials"] if _text(every, trial) == texts[0]), None)
    times = (every["final"] or {}).get("times_as_fast_as_tensorflow", {})
    mine, theirs = times.get(str(every["winner"])), times.get(str(other))
    if mine and theirs and theirs["high"] >= mine["low"]:
        return "within the interval"
    return " / ".join(texts)


def _text(document, trial=None):
    trial = trial or document["trials"][document["winner"] - 1]
    settings = trial["settings"]
    kept = [str(settings[key]) for key in ("precision_mode", "minimum_segment_size", "dynamic_shape_profile_strategy")]
    return " ".join([trial["backend"], *kept])


if __name__ == "__main__":
    sys.exit(main())
