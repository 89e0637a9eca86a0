"""What `tftrt convert` costs beside a bare TrtGraphConverterV2 script: time and memory, ResNet-50, no GPU needed.

Each round runs four commands one after another: both conversions, and both again as far as their imports (start-up). Time is
the wall time of the whole command less that of its start-up in the same round, so that importing TensorFlow counts for neither;
everything else counts, also process exit, digests and forcing the files to disk. Noise of a shared machine hits both sides of
a round; the ratio is the median over the rounds. Memory is that of the whole command: of its largest process, and of all its
processes together.
"""

import argparse
import collections
import json
import pathlib
import shutil
import statistics
import sys
import tempfile

from benchmarks import _models, _process, _report, _stats

NEEDS_GPU = False
TARGETS = {"time": 1.10, "largest process": 1.15}
SIDES = ("tftrt", "bare")


def main(argv=None):
    options = _options(argv)
    results = _report.Results(options.json, "convert_overhead")
    results.note("options", {key: str(value) for key, value in vars(options).items()})
    model = _models.native(options.workdir, options.size)
    for number in range(-1, options.rounds):
        # The first round fills the page cache and is not counted.
        row = _round(model, options, turn=number % 2)
        if number >= 0:
            results.add(round=number, **row)
    ratios = summarize(results.rows)
    results.note("ratios", ratios)
    print("\n" + summary(ratios, results.rows))
    return 0


def _options(argv):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.convert_overhead",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--precision", default="FP16", choices=("FP16", "FP32"))
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--workdir", type=pathlib.Path, default=_models.ROOT / "build/bench")
    parser.add_argument("--json", type=pathlib.Path, help="default: WORKDIR/convert_overhead.json")
    options = parser.parse_args(argv)
    options.workdir = options.workdir.absolute()
    options.json = (options.json or options.workdir / "convert_overhead.json").absolute()
    return options


def _round(model, options, turn):
    """One of each. turn: which side goes first, so that neither always has the warmer machine."""
    row = {}
    for side in SIDES if turn else SIDES[::-1]:
        start_up, whole = _run(side, model, options, "--start_up"), _run(side, model, options)
        row |= {f"{side}_{key}": round(whole[key] - start_up[key], 3) for key in ("wall_s", "cpu_s")}
        row |= {f"{side}_{key}": round(whole[key], 1) for key in ("largest_mb", "tree_mb")}
        row[f"{side}_start_up_s"] = round(start_up["wall_s"], 3)
        for line in whole["output"].splitlines():
            if line.startswith("SECONDS "):
                row[f"{side}_inside_s"] = float(line.split()[1])
            elif line.startswith("STEPS "):
                row[f"{side}_steps"] = _steps(json.loads(line.split(maxsplit=1)[1]))
    return row


def _run(side, model, options, *flags):
    # Both write to the disk that holds the work folder, into a folder of their own.
    folder = tempfile.mkdtemp(dir=options.workdir, prefix="overhead-")
    try:
        command = [
            sys.executable,
            "-m",
            f"benchmarks._{side}_convert",
            str(model),
            f"{folder}/out",
            options.precision,
            *flags,
        ]
        env = {**_models.environment(gpu=False), "TF_CPP_MIN_LOG_LEVEL": "0"}
        return _process.run(command, _models.ROOT, env)
    finally:
        shutil.rmtree(folder)


def _steps(said):
    """{what ran: seconds} from [(what begins, since the start)]; the start holds process starts and imports."""
    spent = collections.Counter()
    for (text, start), (_, end) in zip(said, said[1:], strict=False):
        spent[text] += round(end - start, 3)
    return dict(spent)


def summarize(rows):
    """{measure: ratios of tftrt to bare, round by round}."""
    measures = {
        "time": "wall_s",
        "processor time": "cpu_s",
        "largest process": "largest_mb",
        "all processes": "tree_mb",
    }
    return {
        name: _stats.ratios([row[f"tftrt_{key}"] for row in rows], [row[f"bare_{key}"] for row in rows])
        | {side: statistics.median(row[f"{side}_{key}"] for row in rows) for side in SIDES}
        for name, key in measures.items()
    }


def summary(ratios, rows):
    """A table of the ratios, and the steps of `tftrt convert`."""
    lines = [{"measure": name, **found, "target": TARGETS.get(name)} for name, found in ratios.items()]
    columns = [
        ("measure", "measure"),
        ("tftrt", "tftrt"),
        ("bare", "bare"),
        ("median", "ratio, median"),
        ("min", "min"),
        ("max", "max"),
        ("of_medians", "of medians"),
        ("target", "target"),
        ("n", "rounds"),
    ]
    steps = [row["tftrt_steps"] for row in rows if "tftrt_steps" in row]
    medians = {name: statistics.median(one.get(name, 0.0) for one in steps) for name in (steps[0] if steps else ())}
    inside = statistics.median(row["bare_inside_s"] for row in rows)
    return "\n".join(
        [
            _report.table(columns, lines),
            "time in s, memory in MB (MiB)",
            "tftrt's steps, s: " + ", ".join(f"{name} {seconds:.2f}" for name, seconds in medians.items()),
            f"the bare script's own clock, from after its imports to before its exit: {inside:.2f} s",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
