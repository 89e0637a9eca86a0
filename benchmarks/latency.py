"""TF-TRT against TensorFlow, ResNet-50 (GPU): milliseconds a call at several batch sizes.

All models are in one process and are called in turn, some calls each, again and again, so that drift hits all alike. A call:
input on the GPU, one call at a time, answer copied to the host. The table shows medians. TensorFlow computes matrix products
in TF32 where the GPU has it, and so do FP32 engines.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time

from benchmarks import _models, _report

NEEDS_GPU = True
MODELS = ("native", "FP32", "FP16")


def main(argv=None):
    options = _options(argv)
    start = time.monotonic()
    results = _report.Results(options.json, "latency")
    results.note("options", {key: str(value) for key, value in vars(options).items()})
    models = _prepared(options, results, start)
    print(f"[{time.monotonic() - start:4.0f} s] measuring", flush=True)
    request = {
        "section": "latency",
        "models": models,
        "json": str(options.json),
        "benchmark": "latency",
        "batches": options.batches,
        "rounds": options.rounds,
        "calls": options.calls,
        "size": options.size,
    }
    log = options.workdir / "latency.log"
    left = max(30.0, options.budget - (time.monotonic() - start))
    with open(log, "wb") as stderr:
        # Without its engine a TF-TRT model would run in TensorFlow, and the wrong thing would be timed; so it fails instead.
        env = _models.environment(True, TF_TRT_ALLOW_ENGINE_NATIVE_SEGMENT_EXECUTION="0", PYTHONUNBUFFERED="1")
        try:
            code = subprocess.run(
                [sys.executable, "-m", "benchmarks._tf_worker", json.dumps(request)],
                cwd=_models.ROOT,
                env=env,
                stderr=stderr,
                timeout=left,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            code = "the time is up"
    if code:
        print(f"FAILED ({code}):\n" + "\n".join(log.read_text(errors="replace").splitlines()[-12:]))
    print("\n" + summary(_report.Results(options.json, "latency", resume=True).rows))
    print(f"\n{time.monotonic() - start:.0f} s")
    return 1 if code else 0


def _options(argv):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.latency", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--precision", type=lambda text: text.split(","), default=["FP32", "FP16"], help="of the TF-TRT models"
    )
    parser.add_argument(
        "--models", type=lambda text: text.split(","), default=["native", "tftrt"], help="native, tftrt or both"
    )
    parser.add_argument("--batches", type=lambda text: [int(one) for one in text.split(",")], default=[1, 8, 32, 128])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=20, help="of each model in each round")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--workdir", type=pathlib.Path, default=_models.ROOT / "build/bench")
    parser.add_argument(
        "--converted_dir",
        type=lambda text: dict(one.split("=", 1) for one in text.split(",")),
        default={},
        help="models that are there: FP16=DIR,FP32=DIR",
    )
    parser.add_argument("--json", type=pathlib.Path, help="default: WORKDIR/latency.json")
    parser.add_argument("--budget", type=float, default=540, help="seconds after which the measurement is ended")
    parser.add_argument(
        "--rehearse", action="store_true", help="no GPU: the native model in place of TF-TRT's, to try the script"
    )
    options = parser.parse_args(argv)
    if unknown := set(options.models) - {"native", "tftrt"}:
        parser.error(f"--models: {', '.join(sorted(unknown))}")
    options.workdir = options.workdir.absolute()
    options.json = (options.json or options.workdir / "latency.json").absolute()
    return options


def _prepared(options, results, start):
    """{label: SavedModel}, native first: the others are compared with the first."""
    options.workdir.mkdir(parents=True, exist_ok=True)
    native = _models.native(options.workdir, options.size)
    models = {"TensorFlow": str(native)} if "native" in options.models else {}
    for precision in options.precisions if "tftrt" in options.models else ():
        print(f"[{time.monotonic() - start:4.0f} s] converting {precision}", flush=True)
        path, seconds = options.converted_dir.get(precision), None
        if options.rehearse:
            path = native
        elif path is None:
            path, seconds = _models.converted(options.workdir, native, precision, options.batches, options.size)
        results.note(f"converted {precision}", {"path": str(path), "seconds": seconds and round(seconds, 1)})
        models[f"TF-TRT {precision}"] = str(pathlib.Path(path).absolute())
    return models


def summary(rows):
    """One line a batch size: medians of each model, then how many times faster than the first one."""
    labels = list(dict.fromkeys(row["model"] for row in rows))
    lines = {}
    for row in rows:
        line = lines.setdefault(row["batch"], {"batch": row["batch"], "n": row["n"]})
        line[row["model"]] = row["p50_ms"]
        line["x " + row["model"]] = row["speedup"]
        line["d " + row["model"]] = row["largest_difference"]
    columns = [
        ("batch", "batch"),
        *((label, f"{label} ms") for label in labels),
        *(("x " + label, f"{label} x") for label in labels[1:]),
        *(("d " + label, f"{label} diff") for label in labels[1:]),
        ("n", "calls each"),
    ]
    return _report.table(columns, list(lines.values()))


if __name__ == "__main__":
    sys.exit(main())
