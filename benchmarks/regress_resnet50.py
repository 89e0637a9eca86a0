"""`tftrt regress` of ResNet-50 (GPU): native TensorFlow against FP16 and INT8, served and in process, at batch 1, 8 and 32.

Each row of the table is one run of the command, with its exit code and its verdict; its page and its JSON stay in --output. Engines have to
run (--no_engine_fallback), the answers are held against the native model's. INT8 is calibrated here by the toolkit, on the CPU.

    python -m benchmarks.regress_resnet50 --output=DIR [--precision=FP16] [--budget=SECONDS]
    python -m benchmarks.regress_resnet50 --dry_cpu --size=64     tries the script without a GPU: no engines, and no figures of TensorRT

A run that was cut short goes on where it was; what is there is not measured again.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time

import numpy as np

from benchmarks import _models, _report
from benchmarks import _precision_cases as cases

NEEDS_GPU = True
BATCHES = (1, 8, 32)
PRECISIONS = ("FP16", "INT8")
THROUGH = ("server", "in process")
_CALIBRATION_ROWS, _TIMED_ROWS = 500, 64
# Random weights: the margins of top-1 are thin (FP16 keeps it for 95 % of pictures), and INT8 is coarser than the bounds that
# `tftrt verify` has for trained models.
_BOUNDS = {"FP16": "snr_db>=25;top1>=0.9", "INT8": "snr_db>=10;cosine>=0.9;top1>=0.5"}


def main(argv=None):
    """Returns: 0 where every run came to a verdict."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.regress_resnet50", description=__doc__.splitlines()[0])
    build = _models.ROOT / "build"
    parser.add_argument("--output", type=pathlib.Path, default=build / "regress_resnet50", help="results and pages")
    parser.add_argument("--workdir", type=pathlib.Path, default=build / "models", help="models; large")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batches", type=lambda text: [int(one) for one in text.split(",")], default=list(BATCHES))
    parser.add_argument("--precision", type=lambda text: text.split(","), default=list(PRECISIONS))
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds after which no run is begun")
    parser.add_argument("--dry_cpu", action="store_true", help="without a GPU, to try the script")
    options = parser.parse_args(argv)
    options.output.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + options.budget
    native = _models.native(options.workdir, options.size)
    data = _data(options)
    rows = []
    for precision in options.precisions:
        candidate = _candidate(options, native, precision, data["calibration"])
        for through in THROUGH:
            for batch in options.batches:
                if time.monotonic() < deadline:
                    rows.append(_row(options, native, candidate, precision, through, batch, data["timed"]))
                    print(rows[-1], flush=True)
    print(table(rows))
    wanted = len(options.precisions) * len(THROUGH) * len(options.batches)
    return 0 if len(rows) == wanted and all(row["code"] in (0, 3) for row in rows) else 1


def _data(options):
    """{"calibration", "timed"}: paths of .npz files with pictures."""
    case, found = cases.case("resnet50", options.size, 0, {}), {}
    for name, make, count in (
        ("calibration", cases.calibration, _CALIBRATION_ROWS),
        ("timed", lambda one, rows: cases.scoring(one, rows)[0], _TIMED_ROWS),
    ):
        found[name] = options.workdir / f"{case.label}-{name}-{count}.npz"
        with _models.made(found[name]) as partial:
            if partial:
                with open(partial, "wb") as file:
                    np.savez(file, **make(case, count))
    return found


def _candidate(options, native, precision, calibration):
    target = options.workdir / f"{native.name}-{precision.lower()}{'-no-engines' if options.dry_cpu else ''}"
    if target.exists():
        return target
    shapes = f"{_models.INPUT}:" + ",".join(f"{batch}x{options.size}x{options.size}x3" for batch in options.batches)
    flags = [f"--precision={precision}"]
    if precision == "INT8":
        flags += [f"--calibration_data={calibration}", "--calibrator=toolkit"]
    if not options.dry_cpu:
        flags.append(f"--shapes={shapes}")
    seconds = _models.command(
        "-m", "tftrt_tools", "convert", f"--model={native}", f"--output={target}", *flags, gpu=not options.dry_cpu
    )
    print(f"{target.name}: converted in {seconds:.0f} s", flush=True)
    return target


def _row(options, native, candidate, precision, through, batch, data):
    """One run of the command."""
    path = options.output / f"{precision.lower()}-{through.replace(' ', '_')}-batch{batch}.json"
    if not path.exists() or json.loads(path.read_text())["exit_code"] not in (0, 3):
        flags = [] if options.dry_cpu else ["--no_engine_fallback"]
        flags += ["--in_process"] if through != "server" else []
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "tftrt_tools",
                "regress",
                f"--native={native}",
                f"--candidate={candidate}",
                f"--data={data}",
                f"--batch_size={batch}",
                "--distinct=8",
                f"--thresholds={_BOUNDS[precision]}",
                *flags,
                f"--json={path}",
                f"--html={path.with_suffix('.html')}",
            ],
            cwd=_models.ROOT,
            env=_models.environment(gpu=not options.dry_cpu),
            check=False,
        )
        if not path.exists():
            return {"precision": precision, "through": through, "batch": batch, "code": done.returncode}
    return {"precision": precision, "through": through, "batch": batch, **read(json.loads(path.read_text()))}


def read(document):
    """The columns of a result of `tftrt regress`. Args: document: its JSON."""
    found = {one["metric"]: one for one in (document["verdict"] or {}).get("judgements", ())}
    p50, p99, rate = (found.get(name, {}) for name in ("p50", "p99", "throughput"))
    wanted = lambda one, key, scale=1.0: None if one.get(key) is None else scale * one[key]  # noqa: E731
    speed_up = [1 / p50[key] for key in ("ratio", "high", "low")] if p50.get("ratio") else None
    return {
        "code": document["exit_code"],
        "outcome": document["outcome"],
        "native_ms": wanted(p50, "native", 1e3),
        "candidate_ms": wanted(p50, "candidate", 1e3),
        "speed_up": speed_up and "{:.2f} ({:.2f} to {:.2f})".format(*speed_up),
        "p99": p99.get("verdict"),
        "rate": wanted(rate, "candidate"),
        "engines": _engines(document),
        "rounds": len(document["rounds"]["native_p50"]),
        "snr_db": _snr(document),
    }


def _engines(document):
    one = document["engines"]
    return f"{one['answer']} ({one['certainty']})" if one and one["certainty"] else one and one["answer"]


def _snr(document):
    values = [
        float(one["snr_db"]) for one in (document["answers"] or {}).get("comparisons", ()) if one["snr_db"] is not None
    ]
    return min(values) if values else None


def table(rows):
    """Aligned text."""
    return _report.table(
        [
            ("precision", "precision"),
            ("through", "through"),
            ("batch", "batch"),
            ("native_ms", "native p50, ms"),
            ("candidate_ms", "TF-TRT p50, ms"),
            ("speed_up", "times as fast"),
            ("p99", "p99"),
            ("rate", "requests/s"),
            ("snr_db", "SNR, dB"),
            ("engines", "engines ran"),
            ("rounds", "rounds"),
            ("outcome", "outcome"),
        ],
        rows,
    )


if __name__ == "__main__":
    sys.exit(main())
