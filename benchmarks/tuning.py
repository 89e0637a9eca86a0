"""What `tftrt tune` finds (GPU): the fastest conversion of each sample model that keeps a goal, for the tuned columns of `precision`.

    python -m benchmarks.tuning --output=DIR [--models=resnet50,digits_cnn]
    python -m benchmarks.precision --precision=FP16,tuned @DIR/tuned.flags

Models, data and tables are those of `precision` (--models_dir). Each search is one run of the command: its trials, page and flagfile stay
in DIR/MODEL, and a search that was cut short goes on from there.
"""

import argparse
import json
import pathlib
import shlex
import subprocess
import sys
import time

import numpy as np

from benchmarks import _models, _precision_run, _report
from benchmarks import _precision_cases as cases
from tftrt_tools.studies.tuning import space
from tftrt_tools.tftrt.conversion.settings import Settings

NEEDS_GPU = True
# Models with random weights have thin margins: what they have to keep is the original's own classes, or its numbers.
GOALS = {
    "resnet50": "top1:threshold=0.9",
    "mobilenet_v2": "top1:threshold=0.9",
    "bert_encoder": "snr_db:threshold=20",
    "digits_cnn": "top1:max-degradation=0.01",
    "spread_cnn": "top1:max-degradation=0.01",
}
_TABLE = "entropy"
# What `precision` says itself.
_NOT_TUNED = ("--model=", "--calibration_table=", "--shapes=")


def main(argv=None):
    """Returns: 0 where every search has a winner."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuning", description=__doc__.splitlines()[0])
    build = _models.ROOT / "build"
    parser.add_argument(
        "--output", type=pathlib.Path, default=build / "tuning", metavar="DIR", help="trials, pages and flags"
    )
    parser.add_argument(
        "--models_dir",
        type=pathlib.Path,
        default=build / "precision_models",
        metavar="DIR",
        help="models and data; large",
    )
    parser.add_argument(
        "--models", type=lambda text: text.split(","), default=list(GOALS), help="by default " + ",".join(GOALS)
    )
    parser.add_argument(
        "--batches",
        type=lambda text: [int(one) for one in text.split(",")],
        default=[32],
        help="the last one is sped up",
    )
    parser.add_argument("--image_size", type=int, default=224, help="of resnet50 and mobilenet_v2")
    parser.add_argument("--length", type=int, default=128, help="tokens of a row of bert_encoder")
    parser.add_argument("--calibration", type=int, default=500, help="rows")
    parser.add_argument("--calibration_batch", type=int, default=10, help="rows of a calibration batch")
    parser.add_argument("--scoring", type=int, default=256, help="rows, of models without held-back images")
    parser.add_argument("--max_trials", type=int, default=8)
    parser.add_argument(
        "--max_minutes", type=float, default=8, help="no trial of a model begins after so many minutes of trials"
    )
    parser.add_argument(
        "--max_trial_minutes", type=float, default=4, help="a trial that takes longer counts as failed; 0 for no limit"
    )
    parser.add_argument(
        "--timeout", type=float, default=1800, help="seconds after which the preparing of a model is given up"
    )
    options = parser.parse_args(argv)
    if unknown := sorted(set(options.models) - set(GOALS)):
        parser.error(f"--models: no {unknown[0]!r}; there are: {', '.join(GOALS)}")
    options.output, options.models_dir = options.output.absolute(), options.models_dir.absolute()
    options.output.mkdir(parents=True, exist_ok=True)
    rows, tuned = [], []
    for name in options.models:
        found, flags = _tuned(options, cases.case(name, options.image_size, options.length, {}))
        rows += trials(name, found) if found else []
        tuned += [f"--tuned={name}:{flags}"] if flags else []
        (options.output / "tuned.flags").write_text("".join(one + "\n" for one in tuned))
    print(table(rows))
    return 0 if len(tuned) == len(options.models) else 1


def _tuned(options, case):
    """(the result of `tftrt tune` as a dict, or None where it failed; the winner's flags for `precision --tuned`, or "")."""
    files = _precision_run.prepared(case, [_TABLE], options)
    folder, flagfile = options.output / case.name, options.output / case.name / "winner.flags"
    folder.mkdir(exist_ok=True)
    with np.load(files["scoring"]) as arrays:
        shapes = cases.shapes({name: arrays[name] for name in arrays.files}, options.batches)
    start = time.monotonic()
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tftrt_tools",
            "tune",
            files["model"],
            f"--data={files['scoring']}",
            f"--accuracy={GOALS[case.name]}",
            *([f"--labels={files['labels']}"] if files["labels"] else []),
            f"--shapes={shapes}",
            # The winner's flags are those of a conversion: plans would only be compared.
            "--backend=tftrt",
            f"--max_trials={options.max_trials}",
            f"--max_minutes={options.max_minutes}",
            f"--max_trial_minutes={options.max_trial_minutes}",
            f"--calibration_table={files['tables'][_TABLE]}",
            f"--work_dir={folder}",
            f"--output_flagfile={flagfile}",
            f"--html={folder / 'tuning.html'}",
            f"--log_file={folder / 'log'}",
        ],
        cwd=_models.ROOT,
        env=_models.environment(gpu=True),
        check=False,
    )
    print(f"{case.text}: tuned in {time.monotonic() - start:.0f} s, exit code {done.returncode}", flush=True)
    if done.returncode not in (0, 3):
        return None, ""
    flags = flags_of(flagfile.read_text()) if done.returncode == 0 else ""
    return json.loads((folder / "tuning.json").read_text()), flags


def flags_of(text):
    """The winner's flags for `precision --tuned`, quoted for a shell. Args: text: of the flagfile."""
    kept = [line for line in text.splitlines() if not line.startswith(_NOT_TUNED)]
    return shlex.join(kept if any(line.startswith("--precision") for line in kept) else ["--precision=FP32", *kept])


def trials(name, found):
    """Rows of the table. Args: found: the JSON of `tftrt tune`."""
    native = found["native"][found["objective"]]["ms"]
    rows = [{"model": name, "what": "native TensorFlow", "ms": native, "accuracy": found["original"]}]
    for one in found["trials"]:
        ms = one["latencies"].get(found["objective"], {}).get("ms")
        rows.append(
            {
                "model": name,
                "what": space.text(Settings.from_dict(one["settings"]), one["high_precision"], one["backend"]),
                "ms": ms,
                "times": ms and native / ms,
                "accuracy": one["accuracy"],
                "kept": "yes" if one["kept"] else "no",
                "build": one["build_seconds"],
                "winner": one["failure"] or ("winner" if one["number"] == found["winner"] else ""),
            }
        )
    return rows


def table(rows):
    """Aligned text."""
    return _report.table(
        [
            ("model", "model"),
            ("what", "trial"),
            ("ms", "latency, ms"),
            ("times", "times as fast as native"),
            ("accuracy", "goal's metric"),
            ("kept", "kept"),
            ("build", "build, s"),
            ("winner", ""),
        ],
        rows,
    )


if __name__ == "__main__":
    sys.exit(main())
