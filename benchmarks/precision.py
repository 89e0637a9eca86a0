"""Precision against speed and accuracy (GPU): native TensorFlow, FP32, FP16 and INT8 from several calibrations, model by model.

    python -m benchmarks.precision --output=DIR [--gpus=N]     measure
    python -m benchmarks.precision --precision=FP16,tuned @FILE   with the tuned columns that `benchmarks.tuning` found
    python -m benchmarks.precision --table DIR                 Markdown tables of what DIR holds; needs no GPU

A model has one process for all of its columns, in this order: FP32, FP16, INT8 with TensorRT's calibration, INT8 with the toolkit's.
TF-TRT's timing cache lives in that process, so that a later build is faster than it would be alone; the table says what was built
before. Latency: one call at a time, input on the GPU, answer copied to the host, in turn with the original in the same process.
Throughput: two callers. Scores are against the original on a CPU in float32, on inputs that were not calibrated on.

Models, data, float32 answers and the toolkit's tables are made on the CPU (niced) while engines are built. Measuring waits for that;
building does not. DIR/results.jsonl gets a line after every step: a run that is cut short, or ended by --budget, leaves what it has,
and the same command goes on from there. Failed columns are tried again.
"""

import argparse
import concurrent.futures
import os
import pathlib
import sys
import threading
import time

from benchmarks import _models, _precision_run, _precision_table, _report
from benchmarks import _precision_cases as cases
from tftrt_tools.base import errors

NEEDS_GPU = True
_CORES_EACH = 3  # of a model that is being prepared


def main(argv=None):
    options = parse(argv)
    if options.table:
        print(_precision_table.markdown(_precision_run.read(options.table / _precision_run.FILE)))
        return 0
    deadline = time.monotonic() + options.budget
    journal = _precision_run.Journal(options.output / _precision_run.FILE)
    journal.add(
        kind="run", machine=_report.machine(), options={key: str(value) for key, value in vars(options).items()}
    )
    work = _work(options, journal)
    pool = concurrent.futures.ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // _CORES_EACH))
    waiting = _precision_run.Waiting(work, _precision_run.prepare(pool, work, options))
    threads = [
        threading.Thread(target=_serve, args=(device, waiting, options, journal, deadline))
        for device in devices(options)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pool.shutdown(wait=False, cancel_futures=True)
    lines = _precision_run.read(journal.path)
    print("\n" + _precision_table.markdown(lines))
    missing = [f"{one.case.name} {column.name}" for one in work for column in one.left(lines)]
    if missing:
        print("not measured: " + ", ".join(missing))
    return 1 if missing else 0


def parse(argv):
    """The options; wrong ones end the process with the reason."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.precision",
        description=__doc__,
        fromfile_prefix_chars="@",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    folder, build = pathlib.Path, _models.ROOT / "build"
    parser.add_argument("--table", type=folder, metavar="DIR", help="print the tables of DIR and leave")
    parser.add_argument("--output", type=folder, default=build / "precision", metavar="DIR", help="results and logs")
    parser.add_argument(
        "--models_dir", type=folder, default=build / "precision_models", metavar="DIR", help="models and data; large"
    )
    parser.add_argument("--models", type=_listed, default=list(cases.NAMES), help="by default " + ",".join(cases.NAMES))
    parser.add_argument(
        "--precision",
        type=_listed,
        default=["FP32", "FP16", "INT8"],
        help="FP32, FP16, INT8, or single columns such as INT8-tensorrt, INT8-entropy, tuned",
    )
    parser.add_argument(
        "--methods",
        type=_listed,
        default=["entropy"],
        help="of the toolkit: entropy,percentile,mse,max,auto or all; those but entropy are scored and not timed",
    )
    parser.add_argument(
        "--tuned",
        action="append",
        default=[],
        metavar="MODEL:FLAGS",
        help="a further column: flags of `tftrt convert`, "
        "INT8 where they say no precision; MODEL: alone takes the column away",
    )
    parser.add_argument(
        "--model_options", action="append", default=[], metavar="MODEL:KEY=VALUE,...", help="of the model's builder"
    )
    parser.add_argument("--image_size", type=int, default=224, help="of resnet50 and mobilenet_v2")
    parser.add_argument("--length", type=int, default=128, help="tokens of a row of bert_encoder")
    parser.add_argument(
        "--batches",
        type=lambda text: [int(one) for one in text.split(",")],
        default=[1, 32, 128],
        help="the last one for throughput and scores, the others for latency; a single one for all",
    )
    parser.add_argument("--calibration", type=int, default=500, help="rows")
    parser.add_argument("--calibration_batch", type=int, default=10, help="rows of a calibration batch")
    parser.add_argument("--scoring", type=int, default=256, help="rows, of models without held-back images")
    parser.add_argument("--repeats", type=int, default=150, help="timed calls of each model at each batch size")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument(
        "--split",
        type=_listed,
        default=[],
        help="models whose INT8 columns get a GPU and a process of their own: sooner "
        "done, and their first build finds no FP16 kernels timed",
    )
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds after which no column is begun")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds after which a step is given up")
    parser.add_argument(
        "--dry_cpu", action="store_true", help="no GPU: native segments in place of engines, to try the script"
    )
    options = parser.parse_args(argv)
    options.methods = list(cases.METHODS) if "all" in options.methods else options.methods
    options.output, options.models_dir = options.output.absolute(), options.models_dir.absolute()
    try:
        _check(options)
        _chosen(options)
    except (ValueError, errors.UsageError) as error:
        parser.error(str(error))
    return options


def _listed(text):
    return [one for one in text.split(",") if one]


def _check(options):
    for name, given, known in (
        ("models", options.models, cases.NAMES),
        ("methods", options.methods, cases.METHODS),
        ("split", options.split, cases.NAMES),
    ):
        if unknown := sorted(set(given) - set(known)):
            raise ValueError(f"--{name}: no {unknown[0]!r}; there are: {', '.join(known)}")
    if min(options.batches) < 1 or options.gpus < 1:
        raise ValueError("--batches needs sizes of 1 or more, --gpus one GPU or more")


def _chosen(options):
    """[(Case, (Column, …))] of the options, in the order to begin them in. Raises: ValueError, UsageError."""
    tuned = cases.TUNED | dict(_named(text, "--tuned", options.models) for text in options.tuned)
    given = {}
    for text in options.model_options:
        name, pairs = _named(text, "--model_options", options.models)
        given[name] = {key: int(value) for key, _, value in (pair.partition("=") for pair in pairs.split(","))}
    return [
        (
            cases.case(name, options.image_size, options.length, given.get(name, {})),
            tuple(cases.columns(options.precisions, options.methods, tuned.get(name, ""))),
        )
        for name in cases.longest_first(options.models)
    ]


def _named(text, flag, known):
    name, colon, rest = text.partition(":")
    if not colon or name not in cases.NAMES:
        raise ValueError(f"{flag}={text} is not MODEL:…; models: {', '.join(known)}")
    return name, rest


def _work(options, journal):
    """[_precision_run.Work] that is left to do."""
    lines = _precision_run.read(journal.path)
    found = []
    for case, columns in _chosen(options):
        parts = [columns]
        if case.name in options.split:
            int8 = tuple(column for column in columns if column.precision == "INT8")
            parts = [part for part in (int8, tuple(column for column in columns if column not in int8)) if part]
        found += [_precision_run.Work(case, part, _precision_run.key(case, options)) for part in parts]
    return [one for one in found if one.left(lines)]


def devices(options):
    """CUDA_VISIBLE_DEVICES for each worker."""
    if options.dry_cpu:
        return ["-1"] * options.gpus
    visible = [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]
    return visible[: options.gpus] if visible else [str(number) for number in range(options.gpus)]


def _serve(device, waiting, options, journal, deadline):
    """One GPU: the next model that is ready, until none or no time is left."""
    while time.monotonic() < deadline and (work := waiting.take()):
        try:
            _precision_run.Runner(work, waiting.prepared, device, options, journal, deadline).run()
        except Exception as error:  # a bug with one model must not cost the others
            journal.add(
                kind="error",
                model=work.case.name,
                key=work.key,
                column="",
                flags="",
                step="run",
                error=f"{type(error).__name__}: {error}",
            )


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # what is still being prepared after --budget would be waited for
