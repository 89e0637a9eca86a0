"""INT8 by each calibration method: what the simulation promises beside what engines leave, dB of the worst output.

The simulation is that of `tftrt calibrate --compare_methods`, on batches of the calibration data. With a GPU each method is converted with
engines and verified on --data; without one that column is empty.
"""

import argparse
import json
import pathlib
import sys

import numpy as np

import saved_models
from benchmarks import _models, _report

NEEDS_GPU = False
METHODS = ("entropy", "percentile", "mse", "max")


def main(argv=None):
    options = _options(argv)
    results = _report.Results(options.json, "calibration_methods")
    results.note("options", {key: str(value) for key, value in vars(options).items()})
    if not options.model:
        _digits(options)
    promised, taken = simulated(options)
    measured = {method: _measured(options, method) for method in METHODS} if _report.gpu() else {}
    for method, level in promised.items():
        results.add(
            method=method, simulated_db=level, measured_db=measured.get(method.split()[0]), taken=method == taken
        )
    print("\n" + summary(results.rows))
    return 0


def _options(argv):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.calibration_methods",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--model", type=pathlib.Path, help="a SavedModel; by default the trained digits CNN with its own data"
    )
    parser.add_argument("--calibration_data", help="as for `tftrt convert`")
    parser.add_argument("--data", help="other rows, as for `tftrt verify`")
    parser.add_argument("--shapes", help="as for `tftrt convert`; needed with --model on a GPU")
    parser.add_argument(
        "--batch_size", type=int, default=40, help="rows of a batch of calibration data, and of a call of verify"
    )
    parser.add_argument("--flags", default="", help="more flags of `tftrt convert`, with blanks between")
    parser.add_argument("--workdir", type=pathlib.Path, default=_models.ROOT / "build/bench")
    parser.add_argument("--json", type=pathlib.Path, help="default: WORKDIR/calibration_methods.json")
    options = parser.parse_args(argv)
    if options.model and not (options.calibration_data and options.data):
        parser.error("--model needs --calibration_data and --data")
    options.workdir = options.workdir.absolute()
    options.json = (options.json or options.workdir / "calibration_methods.json").absolute()
    return options


def _digits(options):
    """Fill in the digits CNN, 400 rows to calibrate and 400 others to score."""
    builder = saved_models.builder("digits_cnn")
    options.workdir.mkdir(parents=True, exist_ok=True)
    options.model, options.shapes = (
        options.workdir / "digits_cnn",
        options.shapes or f"image:{options.batch_size}x8x8x1",
    )
    if not options.model.exists():
        builder.build(str(options.model))
    for name, images in (("calibration_data", builder.training_images()[0]), ("data", builder.held_back()[0])):
        path = options.workdir / f"digits_{name}.npz"
        np.savez(path, image=images[:400])
        setattr(options, name, str(path))


def simulated(options):
    """({method: dB of the worst output, in the order of the table}, the method that auto takes)."""
    result = options.workdir / "compared.json"
    _models.command(
        "-m",
        "tftrt_tools",
        "calibrate",
        options.model,
        "--compare_methods",
        f"--json={result}",
        "--use_dynamic_shape",
        *_flags(options),
        gpu=False,
    )
    found = json.loads(result.read_text())["comparison"]
    return found["worst_db"], found["taken"]


def _measured(options, method):
    """dB of the worst output that engines by that method leave."""
    target, result = options.workdir / f"by_{method}", options.workdir / "verified.json"
    _models.command(
        "-m",
        "tftrt_tools",
        "convert",
        f"--model={options.model}",
        f"--output={target}",
        "--overwrite",
        "--precision=INT8",
        f"--calibration_method={method}",
        f"--shapes={options.shapes}",
        *_flags(options),
        gpu=True,
    )
    # Bounds are not the question here: whatever is left is told.
    _models.command(
        "-m",
        "tftrt_tools",
        "verify",
        options.model,
        target,
        f"--data={options.data}",
        f"--batch_size={options.batch_size}",
        "--thresholds=snr_db>=-200,cosine>=-1,top1>=0",
        "--nowrite",
        f"--json={result}",
        gpu=True,
    )
    return min(
        float(one["snr_db"]) for one in json.loads(result.read_text())["comparisons"] if one["snr_db"] is not None
    )


def _flags(options):
    return [
        f"--calibration_data={options.calibration_data}",
        f"--calibration_batch_size={options.batch_size}",
        *options.flags.split(),
    ]


def summary(rows):
    """A table: a line for each method."""
    lines = [{**row, "method": row["method"] + (" (taken by auto)" if row["taken"] else "")} for row in rows]
    return _report.table(
        [("method", "method"), ("simulated_db", "simulated, dB"), ("measured_db", "engines, dB")], lines
    )


if __name__ == "__main__":
    sys.exit(main())
