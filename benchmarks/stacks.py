"""Two stacks side by side: what one TensorFlow with its TensorRT builds of real models, against another (GPU).

Run it once for each stack, with that stack's Python, and each on a GPU of its own of one host; then --compare their folders:

  --make      `convert` in FP16 for two batch sizes and in INT8 for the larger one, several at once, and `verify` of each
  --measure   `bench` of native TensorFlow, FP16 and INT8 at the larger batch size, and of the first two at the smaller one
  --larger    both for the larger batch size alone, in about half the time
  --compare   the table of two folders

A run that was cut goes on. FOLDER/results.jsonl has a line for each step. benchmarks/stacks_on_gpu.sh does all of it.
"""

import argparse
import concurrent.futures
import pathlib
import sys
import time

from benchmarks import _models, _precision_run, _report
from benchmarks.real_models import cases, run, steps
from benchmarks.real_models import make as maker

NEEDS_GPU = True
# Ten that differ, and whose engines are built within minutes.
MODELS = (
    *("tcn", "musicnn", "fer", "distilbert", "detector"),
    *("mtcnn_onet", "mtcnn_rnet", "mtcnn_pnet", "keras3", "stft_tagger"),
)
PRECISIONS = ("FP16", "INT8")
_LEAST = 5.0  # seconds that a step gets
_COLUMNS = [
    ("model", "model"),
    ("precision", "precision"),
    ("build", "build, s"),
    ("ratio", "second / first"),
    ("snr", "SNR, dB"),
    ("batch", "batch"),
    ("p50", "p50, ms"),
    ("native", "native, ms"),
    ("times", "times as fast as native"),
    ("result", "what failed"),
]


def main(argv: list[str] | None = None) -> int:
    """Returns: 0, or 1 where a step ended with a traceback."""
    options = parse(argv)
    if options.compare:
        first, second = (_precision_run.read(folder / run.FILE) for folder in options.compare)
        print(_report.table(_COLUMNS, rows(first, second)))
        return 0
    options.folder.mkdir(parents=True, exist_ok=True)
    journal = _precision_run.Journal(options.folder / run.FILE)
    journal.add(kind="run", machine=_report.machine(), jobs=options.jobs, measure=options.measure)
    end = time.monotonic() + options.budget
    # What says most comes first, of every model.
    work = [lane for lanes in zip(*(_lanes(case, options) for case in options.models), strict=True) for lane in lanes]
    with concurrent.futures.ThreadPoolExecutor(2 if options.measure else options.jobs) as pool:
        for done in [pool.submit(_through, case, lane, options, journal, end) for case, lane in work]:
            done.result()
    return 1 if any(line.get("traceback") for line in _precision_run.read(journal.path)) else 0


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The options; wrong ones end the process with the reason."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.stacks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    folder = pathlib.Path
    parser.add_argument("models", nargs="*", help="of benchmarks.real_models; by default " + ", ".join(MODELS))
    phases = parser.add_mutually_exclusive_group(required=True)
    phases.add_argument("--make", action="store_true")
    phases.add_argument("--measure", action="store_true")
    phases.add_argument("--compare", type=folder, nargs=2, metavar="FOLDER")
    parser.add_argument("--larger", action="store_true", help="for the larger batch size alone")
    parser.add_argument("--folder", type=folder, default=_models.ROOT / "build/stack", help="results and models")
    parser.add_argument(
        "--models_dir",
        type=folder,
        default=_models.ROOT / "build/real_models/models",
        help="of `benchmarks.real_models --make`",
    )
    parser.add_argument("--jobs", type=int, default=4, help="conversions at once")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds of the run")
    parser.add_argument("--timeout", type=float, default=560, help="seconds of a step")
    parser.add_argument("--rounds", type=int, default=14, help="of `tftrt bench`")
    options = parser.parse_args(argv)
    try:
        options.models = cases.chosen(options.models or list(MODELS))
    except KeyError as error:
        parser.error(f"no model {error.args[0]!r}; there are: {', '.join(cases.NAMES)}")
    for case in () if options.compare else options.models:
        if not (options.models_dir / case.name).is_dir():
            parser.error(
                f"{options.models_dir / case.name} is missing: python -m benchmarks.real_models --make makes it"
            )
    for folder in options.compare or ():
        if not (folder / run.FILE).is_file():
            parser.error(f"no {folder / run.FILE}: --make --folder={folder} writes it")
    options.folder, options.models_dir = options.folder.absolute(), options.models_dir.absolute()
    return options


def _lanes(case, options):
    """[(case, its steps one after the other)] of one model; what says most first."""
    if options.measure:
        return [(case, [_bench(case, options, batch)]) for batch in _batches(case, options)[::-1]]
    return [(case, list(_build(case, options, precision))) for precision in PRECISIONS]


def _batches(case, options):
    return case.batches[-1:] if options.larger else case.batches


def place(folder: pathlib.Path, case: cases.Case, precision: str) -> pathlib.Path:
    """Where a converted model is."""
    return folder / "models" / f"{case.name}-{precision}"


def _build(case, options, precision):
    model, target = options.models_dir / case.name, place(options.folder, case, precision)
    wanted = [f"--shapes={case.shape(*(_batches(case, options) if precision == 'FP16' else case.batches[-1:]))}"]
    if precision == "INT8":
        wanted.append(f"--calibration_data={maker.part(options.models_dir, case, 'calibration.npz')}")
    words = ["convert", f"--model={model}", f"--output={target}"]
    words += [f"--precision={precision}", "--overwrite", *wanted]
    yield steps.Step("convert", precision, tuple(words), makes=target)
    words = ["verify", str(model), str(target), *steps.rows(case, options.models_dir)]
    yield steps.Step("verify", precision, tuple(words), needs=target)


def _bench(case, options, batch):
    """INT8 has engines for the larger batch alone."""
    there = [place(options.folder, case, one) for one in (PRECISIONS if batch == case.batches[-1] else PRECISIONS[:1])]
    there = [path for path in there if path.exists()]
    (data,) = steps.rows(case, options.models_dir, labels=False)
    needs = there[0] if there else place(options.folder, case, PRECISIONS[0])
    return steps.bench([options.models_dir / case.name, *there], data, batch, options.rounds, needs)


def _through(case, lane, options, journal, end):
    (options.folder / "models").mkdir(parents=True, exist_ok=True)
    for step in lane:
        left = end - time.monotonic()
        if left < _LEAST or (step.needs and not step.needs.exists()):
            continue
        after = tuple(other for other in lane if step.makes and other.needs == step.makes)
        if not run.finished(case.name, step, after, _precision_run.read(journal.path)):
            journal.add(**run.one(case.name, step, options.folder, options.timeout, left))


def rows(first: list[dict], second: list[dict]) -> list[dict]:
    """One row for each model, precision and batch size that either journal has; figures of both as "first, second"."""
    both = [
        {(line["model"], line["column"]): line for line in lines if line["kind"] in ("step", "cut")}
        for lines in (first, second)
    ]
    models = dict.fromkeys(model for lines in both for model, _ in lines)
    return [row for model in models for precision in PRECISIONS for row in _rows(model, precision, both)]


def _rows(model, precision, both):
    converted, verified = (
        [lines.get((model, f"{kind} {precision}"), {}) for lines in both] for kind in ("convert", "verify")
    )
    if not any(converted):
        return
    seconds = [line.get("build_seconds") for line in converted]
    failed = [
        f"{name}: {line['message'] or line['exit']}"
        for name, lines in (("first", (converted[0], verified[0])), ("second", (converted[1], verified[1])))
        for line in lines
        if line.get("exit")
    ]
    start = {
        "model": model,
        "precision": precision,
        "build": _pair(seconds, ".1f"),
        "ratio": f"{seconds[1] / seconds[0]:.2f}" if all(seconds) else None,
        "snr": _pair([_float(line.get("snr_db")) for line in verified], ".1f"),
        "result": "; ".join(failed),
    }
    batches = sorted(
        {
            line["column"].rpartition(" ")[2]
            for lines in both
            for (of, column), line in lines.items()
            if of == model and line.get("benched")
        },
        key=int,
    )
    timed = [row for batch in batches if (row := _timed(model, precision, batch, both))]
    yield {**start, **(timed[0] if timed else {})}
    yield from timed[1:]


def _timed(model, precision, batch, both):
    found = [lines.get((model, f"bench batch {batch}"), {}).get("benched") or {} for lines in both]
    mine = [(one.get(f"{model}-{precision}") or {}).get("p50_ms") for one in found]
    native = [(one.get(model) or {}).get("p50_ms") for one in found]
    if not any(mine):
        return None
    times = [its / one if its and one else None for its, one in zip(native, mine, strict=True)]
    return {"batch": batch, "p50": _pair(mine, ".3f"), "native": _pair(native, ".3f"), "times": _pair(times, ".2f")}


def _pair(values, form):
    return ", ".join("?" if value is None else format(value, form) for value in values)


def _float(value):
    return None if value is None else float(value)


if __name__ == "__main__":
    sys.exit(main())
