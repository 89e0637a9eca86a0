"""What calibrating without a GPU costs: time and memory of collecting the ranges of ResNet-50 over 500 images.

Two processes, one after another: the converted graph with its segments inlined runs over all images once without and once with every
tensor inside the engines counted. The difference is what the histograms cost, and that TensorFlow cannot fuse ops whose results are
counted. Loading and converting the model counts for neither time, but for both memories.
"""

import argparse
import pathlib
import sys

from benchmarks import _models, _process, _report

NEEDS_GPU = False
MODES = ("forward", "collect")


def main(argv=None):
    options = _options(argv)
    results = _report.Results(options.json, "calibration")
    results.note("options", {key: str(value) for key, value in vars(options).items()})
    model = _models.native(options.workdir, options.size)
    for batch in options.batches:
        row = {"batch": batch, "images": options.images // batch * batch}
        for mode in MODES:
            row |= _run(mode, model, batch, options.images // batch)
        results.add(**row)
    print("\n" + summary(results.rows))
    return 0


def _options(argv):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.calibration",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--batches", type=int, nargs="+", default=[10], help="images in a batch; each size is measured")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--workdir", type=pathlib.Path, default=_models.ROOT / "build/bench")
    parser.add_argument("--json", type=pathlib.Path, help="default: WORKDIR/calibration.json")
    options = parser.parse_args(argv)
    options.workdir = options.workdir.absolute()
    options.json = (options.json or options.workdir / "calibration.json").absolute()
    return options


def _run(mode, model, batch, batches):
    command = [sys.executable, "-m", "benchmarks._calibration_worker", str(model), str(batch), str(batches), mode]
    whole = _process.run(command, _models.ROOT, _models.environment(gpu=False))
    said = dict(
        line.split()
        for line in whole["output"].splitlines()
        if line.split(" ")[0] in ("SECONDS", "TENSORS", "VALUES", "SCALES")
    )
    row = {f"{mode}_s": float(said["SECONDS"]), f"{mode}_cpu_s": whole["cpu_s"], f"{mode}_mb": whole["largest_mb"]}
    if mode == "collect":
        row |= {"tensors": int(said["TENSORS"]), "values": int(said["VALUES"]), "scales_s": float(said["SCALES"])}
    return row


def summary(rows):
    """A table: a line for each batch size."""
    lines = [
        row
        | {
            "histograms_s": row["collect_s"] - row["forward_s"] - row["scales_s"],
            "million": row["values"] / row["images"] / 1e6,
        }
        for row in rows
    ]
    columns = [
        ("batch", "batch"),
        ("images", "images"),
        ("tensors", "tensors"),
        ("million", "million values an image"),
        ("collect_s", "all, s"),
        ("forward_s", "forward pass, s"),
        ("histograms_s", "histograms, s"),
        ("scales_s", "scales (entropy), s"),
        ("collect_mb", "memory, MiB"),
        ("forward_mb", "without histograms, MiB"),
    ]
    return _report.table(columns, lines)


if __name__ == "__main__":
    sys.exit(main())
