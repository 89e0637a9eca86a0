"""INT8 in the graph (Q/DQ) beside implicit INT8 with the same ranges, and FP16 in the graph beside the FP16 flag, in TensorRT alone (GPU).

    python -m benchmarks.qdq --make DIR [--trained DIR]      on a CPU: ONNX files of models by `tftrt export`, rows and float32 answers
    python -m benchmarks.qdq --gpu --input DIR [--output DIR]    on a GPU, with TensorRT and NumPy alone: build, score and time
    python -m benchmarks.qdq --table DIR                     Markdown of the results

Ways: "qdq": the Q/DQ graph, flags INT8 and FP16; "implicit": the FP32 graph with the ranges of the same calibration set on all its tensors,
flags INT8 and FP16; "fp16 graph": casts and FP16 weights in the graph; "fp16 flag": the FP32 graph with the flag; "fp32": without flags;
"qdq alone": the Q/DQ graph without the flag FP16; "chosen": the Q/DQ graph with nodes only where "implicit", which has to come before it,
took INT8 (`tftrt export --int8_as`). Each engine is built, scored and timed in a process of its own. Scores are against ONNX
Runtime's float32 answers on a CPU, on rows that did not calibrate. One timing cache serves the engines of a model, so that later builds are
faster than they would be alone.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time

from benchmarks import _models, _report

NEEDS_GPU = True
_COLUMNS = [
    ("model", "model"),
    ("way", "way"),
    ("ms", "ms a call"),
    ("graph_ms", "ms, as a graph"),
    ("call_ms", "ms, awaited"),
    ("db", "SNR dB"),
    ("top1_same", "top-1 same"),
    ("accuracy", "accuracy"),
    ("accuracy_fp32", "of float32"),
    ("layers", "layers"),
    ("int8_layers", "that read INT8"),
    ("mb", "MB"),
    ("build_s", "build s"),
    ("error", "error"),
]
_FIRST = ["resnet50", "fer"]


def main(argv=None):
    """Returns: 0 if everything was made or measured."""
    options = _parse(argv)
    if options.table:
        print(markdown(json.loads((options.table / "qdq.json").read_text())))
        return 0
    return make(options) if options.make else measure(options)


def _parse(argv):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.qdq", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    folder, build = pathlib.Path, _models.ROOT / "build"
    parser.add_argument("--make", type=folder, metavar="DIR", help="make the inputs of --gpu in DIR")
    parser.add_argument(
        "--trained",
        type=folder,
        default=build / "real_models" / "models",
        help="models with trained weights, their rows and labels (benchmarks/real_models makes them)",
    )
    parser.add_argument("--work", type=folder, default=build / "qdq_work", help="sample models; large")
    parser.add_argument("--method", default="auto", help="of calibration")
    parser.add_argument("--gpu", action="store_true", help="measure")
    parser.add_argument("--input", type=folder, default=build / "qdq", metavar="DIR", help="what --make made")
    parser.add_argument(
        "--output",
        type=folder,
        default=build / "qdq_results",
        metavar="DIR",
        help="results, and the layers of each engine",
    )
    parser.add_argument("--models", type=lambda text: text.split(","), default=[], help="by default all")
    parser.add_argument(
        "--ways", type=lambda text: text.split(","), default=["qdq", "implicit", "fp16 graph", "fp16 flag"]
    )
    parser.add_argument(
        "--batches",
        type=lambda text: [int(one) for one in text.split(",")],
        default=[1, 32],
        help="a profile each; scores are of the largest",
    )
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds after which no engine is begun")
    parser.add_argument("--timeout", type=float, default=400, help="seconds after which an engine is given up")
    parser.add_argument("--table", type=folder, metavar="DIR", help="print the results of DIR")
    options = parser.parse_args(argv)
    if not (options.make or options.gpu or options.table):
        parser.error("say --make DIR, --gpu or --table DIR")
    return options


def make(options):
    """The CPU's part."""
    from benchmarks import _qdq_make

    names = options.models or [
        *_qdq_make.SAMPLES,
        *(name for name in _qdq_make.TRAINED if (options.trained / name).is_dir()),
    ]
    results, failed = _report.Results(options.make / "cpu.json", "qdq", resume=True), []
    for name in names:
        try:
            row = _qdq_make.make(
                _qdq_make.case(name, options.work, options.trained), options.make, options.work, options.method
            )
        except Exception as error:  # another model may do
            failed.append(name)
            print(f"{name}: {error}", flush=True)
            continue
        results.data["rows"] = [one for one in results.rows if one["model"] != name]
        results.add(**row)
    size = sum(path.stat().st_size for path in options.make.rglob("*") if path.is_file())
    print(f"{options.make}: {size / 1e6:.0f} MB" + (f"; not made: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


def measure(options):
    """The GPU's part."""
    from benchmarks import _shared_weights

    end = time.monotonic() + options.budget
    folders = sorted(path.parent for path in options.input.glob("*/case.json"))
    folders = [one for one in folders if not options.models or one.name in options.models]
    # What matters most comes first.
    first = options.models or _FIRST
    folders.sort(key=lambda one: first.index(one.name) if one.name in first else len(first))
    results = _report.Results(options.output / "qdq.json", "qdq", resume=True)
    done = {(row["model"], row["way"], row["batch"]) for row in results.rows}
    missing = []
    for folder in folders:
        _shared_weights.restore(folder)
        for way in options.ways:
            if all((folder.name, way, batch) in done for batch in options.batches):
                continue
            if time.monotonic() > end:
                missing.append(f"{folder.name} {way}")
                continue
            for row in _measured(folder, way, options, min(options.timeout, max(60.0, end - time.monotonic()))):
                results.add(**row)
    print("\n" + markdown(results.data))
    if missing:
        print("not measured: " + ", ".join(missing))
    return 1 if missing else 0


def _measured(folder, way, options, seconds):
    """Rows of one engine, one a batch."""
    case = json.loads((folder / "case.json").read_text())
    label = f"{folder.name}.{way.replace(' ', '_')}"
    options.output.mkdir(parents=True, exist_ok=True)
    if way == "chosen":
        from benchmarks import _qdq_chosen
        from tftrt_tools.base import errors

        try:
            print(
                f"  {_qdq_chosen.write(folder, options.output / f'{folder.name}.implicit.layers.json', case['scales'])} nodes in INT8"
            )
        except (OSError, errors.UsageError) as error:
            return [
                {"model": folder.name, "way": way, "batch": batch, "error": str(error)} for batch in options.batches
            ]
    request = options.output / f"{label}.request.json"
    request.write_text(
        json.dumps(
            {
                "folder": str(folder),
                "way": way,
                "batches": options.batches,
                "scales": case["scales"],
                "shapes": case["shapes"],
                "cache": str(options.output / f"{folder.name}.timing"),
                "layers": str(options.output / f"{label}.layers.json"),
            }
        )
    )
    facts = {"model": folder.name, "way": way}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks._qdq_worker", str(request)],
            cwd=_models.ROOT,
            capture_output=True,
            text=True,
            env=_models.environment(True),
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [{**facts, "batch": batch, "error": f"given up after {seconds:.0f} s"} for batch in options.batches]
    finally:
        request.unlink()
    if done.returncode:
        (options.output / f"{label}.log").write_text(done.stdout + done.stderr)
        last = next(iter(reversed(done.stderr.strip().splitlines())), f"ended with {done.returncode}")
        return [{**facts, "batch": batch, "error": last[:300]} for batch in options.batches]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    (options.output / f"{label}.json").write_text(json.dumps(found, indent=1))
    times = ("ms", "call_ms", "graph_ms")
    kept = {
        key: value
        for key, value in found.items()
        if key not in ("warnings", "dbs") and not key.startswith(tuple(f"{name}_" for name in times))
    }
    return [
        {**facts, "batch": batch, **{name: found[f"{name}_{batch}"] for name in times}, **kept}
        for batch in options.batches
    ]


def markdown(data):
    """A table for each batch."""
    parts = [f"{data['machine']['gpu']}, TensorRT {data['machine']['tensorrt']}, {data['machine']['time']}"]
    for batch in sorted({row["batch"] for row in data["rows"]}):
        rows = [row for row in data["rows"] if row["batch"] == batch]
        columns = [(key, text) for key, text in _COLUMNS if any(row.get(key) is not None for row in rows)]
        lines = ["| " + " | ".join(_report.cell(row.get(key)) for key, _ in columns) + " |" for row in rows]
        head = ["| " + " | ".join(text for _, text in columns) + " |", "|" + " --- |" * len(columns)]
        parts.append(f"Batch {batch}:\n\n" + "\n".join([*head, *lines]))
    return "\n\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
