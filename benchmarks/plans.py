"""Plans of TensorRT itself against TF-TRT and TensorFlow: latency, throughput with several streams, build time, size, SNR (GPU).

The models: ResNet-50, MobileNetV2 and the encoder with random weights, and, with --models_dir, those that others have trained. Each becomes
an ONNX file, plans in FP32 and FP16 (INT8 where --int8 names a file with QuantizeLinear nodes, or --int8_table a calibration table of its
tensors), and a TF-TRT SavedModel in FP16, all with a profile for batch 1, 32 and 128.

Steps, each within --budget seconds; a later run goes on where one was cut:

  --export   the SavedModels of the zoo, their ONNX files, and the answers of ONNX Runtime on the CPU; needs no GPU
  --make     the engines, several at once with --jobs (then under NVIDIA's MPS); each plan twice, the second time with the timing cache of
             the first. Build times mean something with --jobs 1
  (neither)  the measurement, alone on the GPU

Whole calls go from arrays on the host to arrays on the host: TensorFlow's as TensorFlow Serving makes them, a plan's from page-locked
memory. "alone" is the ceiling, TensorRT without the toolkit's runner: a bare loop that only puts calls on a stream, input and output on the
GPU. "in turns": whole calls and the bare loop with the same copies, by turns, and the ratio of their times.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import pathlib
import subprocess
import sys
import threading
import time

from benchmarks import _models, _plans_table, _report

NEEDS_GPU = True
BATCHES = (1, 32, 128)
STREAMS = (1, 2, 4)
TFTRT, NATIVE = "TF-TRT FP16", "TensorFlow"
COLUMNS = [
    ("case", "model"),
    ("variant", "variant"),
    ("way", "way"),
    ("batch", "batch"),
    ("workers", "streams"),
    ("p50_ms", "p50 ms"),
    ("p99_ms", "p99 ms"),
    ("images_s", "rows/s"),
    ("ratio", "of bare"),
    ("ratio_low", "from"),
    ("ratio_high", "to"),
    ("snr_db", "SNR dB"),
    ("top1_same", "top-1 same"),
    ("problem", "problem"),
]
BUILDS = [
    ("case", "model"),
    ("variant", "variant"),
    ("first_s", "first s"),
    ("second_s", "second s"),
    ("share", "second/first"),
    ("mb", "MB"),
    ("jobs", "at once"),
    ("problem", "problem"),
]


@dataclasses.dataclass(frozen=True)
class Case:
    """A model. shapes: as --shapes, with {} for the batch. trained: whether it comes from --models_dir."""

    name: str
    shapes: str
    trained: bool = False

    def shape(self, *batches):
        """The text of --shapes with these batches."""
        parts = [one.split(":") for one in self.shapes.split(";")]
        return ";".join(f"{name}:" + ",".join(shape.format(batch) for batch in batches) for name, shape in parts)


CASES = (
    Case("resnet50", "image:{}x224x224x3"),
    Case("mobilenet_v2", "image:{}x224x224x3"),
    Case("bert_encoder", "input_ids:{}x128;input_mask:{}x128"),
    Case("fer", "input_1:{}x64x64x1", trained=True),
    Case("musicnn", "spectrogram:{}x187x96", trained=True),
    Case("deeplc", "input_133:{}x60x6;input_134:{}x30x6;input_135:{}x55;input_136:{}x60x20", trained=True),
)
# Variants of one model are made at once, and its export once.
_EXPORTING = {case.name: threading.Lock() for case in CASES}


def main(argv=None):
    options = _options(argv)
    if options.table:
        print(_plans_table.markdown(json.loads(options.table.read_text())))
        return 0
    options.workdir.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + options.budget
    cases = [case for name in options.cases for case in CASES if case.name == name]
    if options.export:
        problems = _at_once(options, [(case.name, _export, case, options, end) for case in cases])
    elif options.make:
        work = [
            (f"{case.name} {variant}", _make, case, variant, options, end)
            for case in cases
            for variant in _variants(case, options)
        ]
        problems = _at_once(options, work)
        print(_report.table(BUILDS, _builds(cases, options)))
    else:
        return _measure(cases, options, end)
    return 1 if any(problems) else 0


def _options(argv):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.plans", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", help="by default all: " + ", ".join(case.name for case in CASES))
    parser.add_argument("--export", action="store_true", help="only make what needs no GPU")
    parser.add_argument("--make", action="store_true", help="only build")
    parser.add_argument("--jobs", type=int, default=1, help="of --export and --make, at once")
    parser.add_argument("--once", action="store_true", help="build each plan once: no times of a second build")
    parser.add_argument("--budget", type=float, default=390, help="seconds")
    parser.add_argument("--seconds", type=float, default=0.8, help="of each measurement")
    parser.add_argument(
        "--precision", dest="precisions", type=lambda text: text.split(","), default=["FP32", "FP16"], help="of plans"
    )
    parser.add_argument(
        "--int8", action="append", default=[], metavar="CASE=FILE.onnx", help="with QuantizeLinear nodes"
    )
    parser.add_argument(
        "--int8_table", action="append", default=[], metavar="CASE=TABLE", help="ranges of the ONNX file's tensors"
    )
    parser.add_argument(
        "--without", type=lambda text: text.split(","), default=[], help=f"variants to leave out, such as {NATIVE!r}"
    )
    parser.add_argument("--models_dir", type=pathlib.Path, help="of benchmarks.real_models")
    parser.add_argument("--workdir", type=pathlib.Path, default=_models.ROOT / "build/bench/plans")
    parser.add_argument("--resume", action="store_true", help="go on with the rows of a run that was cut")
    parser.add_argument("--json", type=pathlib.Path, help="default: WORKDIR/plans.json")
    parser.add_argument("--table", type=pathlib.Path, metavar="JSON", help="print these results as Markdown, and leave")
    options = parser.parse_args(argv)
    if unknown := [name for name in options.cases if name not in {case.name for case in CASES}]:
        parser.error(f"no case {unknown[0]!r}; there are: {', '.join(case.name for case in CASES)}")
    options.cases = options.cases or [case.name for case in CASES if options.models_dir or not case.trained]
    options.workdir = options.workdir.absolute()
    options.models_dir = options.models_dir and options.models_dir.absolute()
    options.json = (options.json or options.workdir / "plans.json").absolute()
    options.int8, options.int8_table = (
        dict(one.split("=", 1) for one in given) for given in (options.int8, options.int8_table)
    )
    return options


def _variants(case, options):
    found = [f"plan {precision}" for precision in options.precisions]
    found += ["plan INT8 Q/DQ"] * (case.name in options.int8) + ["plan INT8 ranges"] * (case.name in options.int8_table)
    return [one for one in (*found, TFTRT, NATIVE) if one not in options.without]


def _at_once(options, work):
    """Problems of the work, each printed as it comes. Args: work: [(name, function, its arguments)]."""

    def guarded(item):
        name, function, *arguments = item
        start = time.monotonic()
        try:
            function(*arguments)
            problem = ""
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            problem = str(error)[-700:]
        print(f"{name}: {problem or 'made'} ({time.monotonic() - start:.0f} s)", flush=True)
        return problem

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        return list(pool.map(guarded, work))


def _tftrt(end, *words, gpu=True):
    if end - time.monotonic() < 5:
        raise RuntimeError("no time is left: run it again")
    code, said = _models.tftrt(words, end, gpu)
    if code:
        raise RuntimeError(
            f"tftrt {' '.join(map(str, words))} ended with {code}:\n" + "\n".join(said.splitlines()[-8:])
        )


# What is made ---------------------------------------------------------------------------------------------------------------------------


def _saved(case, options):
    return (options.models_dir if case.trained else options.workdir / "zoo") / case.name


def _onnx(case, options):
    return options.workdir / f"{case.name}.onnx"


def _place(case, variant, options):
    """Where a variant lies."""
    name = f"{case.name}-{variant.lower().replace(' ', '-').replace('/', '')}"
    return _saved(case, options) if variant == NATIVE else options.workdir / name


def _rows_file(case, options):
    return options.workdir / f"{case.name}.rows.npz"


def _export(case, options, end):
    """The SavedModel, its ONNX file, its rows and the answers of ONNX Runtime."""
    if not case.trained and not _saved(case, options).exists():
        _models.command("-m", "saved_models", case.name, f"--output={options.workdir / 'zoo'}", gpu=False)
    if not _rows_file(case, options).exists():
        given = options.models_dir / f"{case.name}.rows.npz" if case.trained else ""
        _models.command(
            "-m",
            "benchmarks._plan_worker",
            json.dumps(
                {
                    "do": "rows",
                    "case": case.name,
                    "given": str(given),
                    "shapes": case.shape(128),
                    "output": str(_rows_file(case, options)),
                }
            ),
            gpu=False,
        )
    if not _onnx(case, options).exists():
        _tftrt(
            end,
            "export",
            _saved(case, options),
            f"--output={_onnx(case, options)}",
            f"--data={_rows_file(case, options)}",
            "--data_rows=2",
            "--allow_constant_outputs",
            gpu=False,
        )
    answers = options.workdir / f"{case.name}.answers.npz"
    if not answers.exists():
        _models.command(
            "-m",
            "benchmarks._plan_worker",
            json.dumps(
                {
                    "do": "reference",
                    "onnx": str(_onnx(case, options)),
                    "rows": str(_rows_file(case, options)),
                    "output": str(answers),
                }
            ),
            gpu=False,
        )


def _make(case, variant, options, end):
    """The engines of a variant; of a plan twice."""
    if variant == NATIVE:
        return
    with _EXPORTING[case.name]:
        _export(case, options, end)
    target, source = _place(case, variant, options), _onnx(case, options)
    shapes = f"--shapes={case.shape(*BATCHES)}"
    if variant == TFTRT:
        if not target.exists():
            _tftrt(
                end,
                "convert",
                f"--model={_saved(case, options)}",
                f"--output={target}",
                "--precision=FP16",
                shapes,
                f"--engine_cache_dir={target}.cache",
            )
        return
    more = {"plan INT8 Q/DQ": [], "plan INT8 ranges": [f"--calibration_table={options.int8_table.get(case.name)}"]}.get(
        variant, []
    )
    source = options.int8[case.name] if variant == "plan INT8 Q/DQ" else source
    for place in (target, target.with_name(f"{target.name}-second"))[: 1 if options.once else 2]:
        if not place.exists():
            # The plans go, TensorRT's times stay: the second build is a real one.
            _tftrt(end, "cache", "clear", f"--engine_cache_dir={target}.cache", "--engine_cache_max_bytes=0", gpu=False)
            _tftrt(
                end,
                "convert",
                "--backend=tensorrt",
                f"--model={source}",
                f"--output={place}",
                f"--precision={variant.split()[1]}",
                shapes,
                f"--engine_cache_dir={target}.cache",
                *more,
            )
            (place / "assets.extra/jobs").write_text(str(options.jobs))


def _builds(cases, options):
    """Rows about the builds."""
    rows = []
    for case in cases:
        for variant in _variants(case, options):
            if variant == NATIVE:
                continue
            place = _place(case, variant, options)
            both = [_manifest(one) for one in (place, place.with_name(f"{place.name}-second"))]
            if not both[0]:
                rows.append({"case": case.name, "variant": variant, "problem": "not made"})
                continue
            first, second = (one and sum(each.get("build_seconds") or 0 for each in one["signatures"]) for one in both)
            size = sum(built["bytes"] for each in both[0]["signatures"] for built in each.get("built", ()))
            jobs = place / "assets.extra/jobs"
            problem = "the second plan came from the engine cache" if (both[1] or {}).get("cached") else None
            rows.append(
                {
                    "case": case.name,
                    "variant": variant,
                    "problem": problem,
                    "first_s": first,
                    "second_s": second,
                    "share": second / first if first and second else None,
                    "mb": size / 1e6,
                    "jobs": int(jobs.read_text()) if jobs.is_file() else None,
                }
            )
    return rows


def _manifest(place):
    path = place / "assets.extra/tftrt/manifest.json"
    return json.loads(path.read_text()) if path.is_file() else None


# What is measured -----------------------------------------------------------------------------------------------------------------------


def _measure(cases, options, end):
    results = _report.Results(options.json, "plans", resume=options.resume)
    failed = {(row["case"], row["variant"]) for row in results.rows if row.get("problem")}
    results.rows[:] = [row for row in results.rows if (row["case"], row["variant"]) not in failed]
    results.note("builds", _builds(cases, options))
    for case in cases:
        for variant in _variants(case, options):
            for graph in (False, True) if variant.startswith("plan") else (False,):
                shown = variant + (" as a CUDA graph" if graph else "")
                if any(row["case"] == case.name and row["variant"] == shown for row in results.rows):
                    continue
                left = end - time.monotonic()
                if left < 20:
                    print("no time is left: run it again with --resume", flush=True)
                    print(_report.table(COLUMNS, results.rows))
                    return 1
                for row in _one(case, variant, graph, options, left):
                    results.add(case=case.name, variant=shown, **row)
    print(_report.table(BUILDS, results.data["builds"]))
    print(_report.table(COLUMNS, results.rows))
    return 0


def _one(case, variant, graph, options, left):
    """Rows of a variant, measured in a process of its own."""
    place = _place(case, variant, options)
    if not place.exists():
        return [{"problem": "not made"}]
    name = f"{place.name}{'-graph' if graph else ''}"
    output = options.workdir / f"{name}.rows.json"  # models may be measured at once, each on a GPU of its own
    output.unlink(missing_ok=True)
    request = {
        "do": "measure",
        "model": str(place),
        "plan": variant.startswith("plan"),
        "graph": graph,
        "seconds": options.seconds,
        "rows": str(_rows_file(case, options)),
        "answers": str(options.workdir / f"{case.name}.answers.npz"),
        "batches": BATCHES,
        "streams": STREAMS,
        "output": str(output),
    }
    log = options.workdir / "logs" / f"{name}.log"
    log.parent.mkdir(exist_ok=True)
    problem = ""
    try:
        with open(log, "w") as said:
            subprocess.run(
                [sys.executable, "-m", "benchmarks._plan_worker", json.dumps(request)],
                cwd=_models.ROOT,
                check=True,
                env=_models.environment(True, TF_FORCE_GPU_ALLOW_GROWTH="true", CUDA_MODULE_LOADING="LAZY"),
                stdout=said,
                stderr=subprocess.STDOUT,
                timeout=left,
            )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        problem = "; ".join(log.read_text(errors="replace").splitlines()[-2:])[-300:] or "it was not done in time"
    rows = json.loads(output.read_text()) if output.exists() else []
    return [*rows, {"problem": problem}] if problem else rows


if __name__ == "__main__":
    sys.exit(main())
