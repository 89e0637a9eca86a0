"""TF-TRT against TensorRT alone, ResNet-50 (GPU): latency and throughput, and where the difference goes.

Both sides get an engine or profile for exactly each batch size. TensorRT's comes from the same SavedModel through ONNX.
Every time is that of a whole synchronous call, measured in a closed loop of one or more callers (threads), unless it says
otherwise. Sections run one after another, each in a process of its own, and add to --json as they go:

  trt       TensorRT alone: device time, and calls from GPU, ordinary and pinned memory; then the engine that the TF-TRT
            model carries, run without TensorFlow, which tells a worse engine from costs around the engine
  tftrt     the TF-TRT model, called in several ways: how much is Python, TensorFlow's executor, copies
  profile   kernels and copies on the GPU, and the host's work, by TensorFlow's profiler
  variants  what a user can set: thread modes, allocators, a TF1 session as in TensorFlow Serving, several processes
  native    TensorFlow without TensorRT, for reference

What a section needs (model, engines) is made in --workdir once and used again by later runs.
"""

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

from benchmarks import _models, _report

NEEDS_GPU = True
SECTIONS = ("trt", "tftrt", "profile", "variants", "native")
# name: (environment, extra of the request)
VARIANTS = {
    "gpu_private": ({"TF_GPU_THREAD_MODE": "gpu_private", "TF_GPU_THREAD_COUNT": "2"}, {}),
    "inter_op_1": ({}, {"inter_op": 1}),
    "cuda_malloc_async": ({"TF_GPU_ALLOCATOR": "cuda_malloc_async"}, {}),
    "session": ({}, {"section": "session"}),
    "session_no_final_sync": ({"TF_SYNC_ON_FINISH": "false"}, {"section": "session"}),
}
PROCESSES = {"processes_2": 2, "processes_4": 4}
_HOST_EVENTS = 14
_COLUMNS = [
    ("batch", "batch"),
    ("model", "model"),
    ("way", "way"),
    ("workers", "callers"),
    ("n", "n"),
    ("p50_ms", "p50 ms"),
    ("p99_ms", "p99 ms"),
    ("images_s", "images/s"),
]


def main(argv=None):
    options = _options(argv)
    start = time.monotonic()
    results = _report.Results(options.json, "engine_efficiency", resume=options.resume)
    results.note("options", {key: str(value) for key, value in vars(options).items()})
    request = {
        "json": str(options.json),
        "benchmark": "engine_efficiency",
        "batches": options.batches,
        "seconds": options.seconds,
        "workers": options.callers,
        "size": options.size,
        "workdir": str(options.workdir),
        "answers": str(options.workdir),
        "precision": options.precision,
    }
    failed = []
    with _said("preparing", start):
        model, onnx, converted = _prepare(options, results)
    options.deadline = start + options.budget
    for section in options.sections:
        with _said(section, start):
            failed += _section(section, request, model, onnx() if section == "trt" else None, converted, options)
        results = _report.Results(options.json, "engine_efficiency", resume=True)
    results.note("failed", failed)
    print("\n" + summary(results, options))
    print(f"\n{time.monotonic() - start:.0f} s; failed: {', '.join(failed) or 'nothing'}")
    return 1 if failed else 0


def _options(argv):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.engine_efficiency",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    numbers = lambda text: [int(one) for one in text.split(",")]  # noqa: E731
    parser.add_argument(
        "--sections", type=lambda text: text.split(","), default=list(SECTIONS), help="of " + ",".join(SECTIONS)
    )
    parser.add_argument(
        "--variants",
        type=lambda text: text.split(","),
        default=[*VARIANTS, *PROCESSES],
        help="of " + ",".join([*VARIANTS, *PROCESSES]),
    )
    parser.add_argument("--batches", type=numbers, default=[1, 128])
    parser.add_argument("--callers", type=numbers, default=[1, 2, 4])
    parser.add_argument("--precision", default="FP16", choices=("FP16", "FP32"))
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--quick", action="store_true", help="0.3 s each, 1 and 4 callers, two variants")
    parser.add_argument("--workdir", type=pathlib.Path, default=_models.ROOT / "build/bench")
    parser.add_argument(
        "--converted_dir", type=pathlib.Path, help="TF-TRT ResNet-50 with profiles for the batches; made when not given"
    )
    parser.add_argument("--json", type=pathlib.Path, help="default: WORKDIR/engine_efficiency.json")
    parser.add_argument("--resume", action="store_true", help="add to the rows that --json holds")
    parser.add_argument(
        "--rehearse", action="store_true", help="no GPU: the TensorFlow sections on the native model, to try the script"
    )
    parser.add_argument(
        "--budget", type=float, default=540, help="seconds after which no section starts and a running one is ended"
    )
    options = parser.parse_args(argv)
    for name, known in (("sections", SECTIONS), ("variants", [*VARIANTS, *PROCESSES])):
        if unknown := set(getattr(options, name)) - set(known):
            parser.error(f"--{name}: {', '.join(sorted(unknown))} is not one of {', '.join(known)}")
    if options.quick:
        options.seconds, options.callers, options.variants = 0.3, [1, 4], ["session", "processes_2"]
    options.workdir = options.workdir.absolute()
    options.json = (options.json or options.workdir / "engine_efficiency.json").absolute()
    return options


@contextlib.contextmanager
def _said(what, start):
    print(f"[{time.monotonic() - start:4.0f} s] {what}", flush=True)
    yield


def _prepare(options, results):
    """Returns: (SavedModel, function that waits for the ONNX file and returns its path, TF-TRT SavedModel)."""
    options.workdir.mkdir(parents=True, exist_ok=True)
    model = _models.native(options.workdir, options.size)
    exporting = _Background(lambda: _models.onnx(options.workdir, model)) if "trt" in options.sections else None
    converted, seconds = options.converted_dir, None
    if options.rehearse:
        converted = model
    elif converted is None:
        if exporting:
            exporting.value()  # engines choose their kernels by timing them: nothing else runs meanwhile
        print("  converting (builds engines)", flush=True)
        converted, seconds = _models.converted(options.workdir, model, options.precision, options.batches, options.size)
    results.note(
        "prepared", {"model": str(model), "converted": str(converted), "convert_s": seconds and round(seconds, 1)}
    )
    return model, (exporting.value if exporting else lambda: None), converted


class _Background:
    """A function that runs in a thread; `value` waits for it."""

    def __init__(self, function):
        self._result, self._error = None, None
        self._thread = threading.Thread(target=self._run, args=(function,), daemon=True)
        self._thread.start()

    def _run(self, function):
        try:
            self._result = function()
        except Exception as error:
            self._error = error

    def value(self):
        self._thread.join()
        if self._error:
            raise self._error
        return self._result


def _section(section, request, model, onnx, converted, options):
    """Run one section. Returns: names of what failed."""
    engine = {**request, "section": section, "model": str(converted), "label": f"TF-TRT {options.precision}"}
    if section == "trt":
        if options.rehearse:
            return []
        request = {**request, "onnx": str(onnx), "converted": str(converted)}
        return _worker("benchmarks._trt_worker", request, "trt", options, {})
    if section == "native":
        return _worker(
            "benchmarks._tf_worker",
            {**request, "section": "native", "model": str(model), "label": "TensorFlow"},
            section,
            options,
            {},
        )
    if section != "variants":
        return _worker("benchmarks._tf_worker", engine, section, options, {})
    failed = []
    for name in options.variants:
        if name in PROCESSES:
            failed += _processes(engine, PROCESSES[name], options)
        else:
            env, extra = VARIANTS[name]
            variant = {**engine, "section": "variant", "label": f"{engine['label']}, {name}", **extra}
            failed += _worker("benchmarks._tf_worker", variant, name, options, env)
    return failed


def _environment(env):
    # Without its engine a TF-TRT model would run in TensorFlow, and the wrong thing would be timed; so it fails instead.
    return _models.environment(True, TF_TRT_ALLOW_ENGINE_NATIVE_SEGMENT_EXECUTION="0", PYTHONUNBUFFERED="1", **env)


def _worker(module, request, name, options, env):
    left = options.deadline - time.monotonic()
    if left < 20:
        print(f"  skipped {name}: the time is up", flush=True)
        return [name]
    log = options.workdir / f"{name}.log"
    with open(log, "wb") as stderr:
        try:
            code = subprocess.run(
                [sys.executable, "-m", module, json.dumps(request)],
                cwd=_models.ROOT,
                env=_environment(env),
                stderr=stderr,
                timeout=left,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            code = "the time is up"
    if code:
        print(
            f"  FAILED {name} ({code}):\n" + "\n".join(log.read_text(errors="replace").splitlines()[-12:]), flush=True
        )
        return [name]
    return []


def _processes(request, count, options):
    """Several processes with the model, one caller each, at once. Returns: names of what failed."""
    results = _report.Results(options.json, "engine_efficiency", resume=True)
    for batch in options.batches:
        if options.deadline - time.monotonic() < 30:
            return [f"processes_{count}"]
        one = json.dumps({**request, "section": "process", "batches": [batch]})
        log = open(options.workdir / f"processes_{count}.log", "wb")
        with log, contextlib.ExitStack() as stack:
            started = [
                stack.enter_context(
                    subprocess.Popen(
                        [sys.executable, "-m", "benchmarks._tf_worker", one],
                        cwd=_models.ROOT,
                        env=_environment({}),
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=log,
                        text=True,
                    )
                )
                for _ in range(count)
            ]
            watch = threading.Timer(options.deadline - time.monotonic(), _kill, [started])
            watch.daemon = True
            watch.start()
            ready = [process.stdout.readline().strip() == "READY" for process in started]
            for process in started:
                with contextlib.suppress(OSError):
                    process.stdin.write("go\n")
                    process.stdin.close()
            answers = [process.stdout.readline() for process in started]
            watch.cancel()
        if not all(ready) or not all(answers):
            return [f"processes_{count}"]
        each = [json.loads(answer) for answer in answers]
        results.add(
            section="processes",
            model=f"{request['label']}, {count} processes",
            batch=batch,
            way="input on GPU, answer to host",
            workers=count,
            n=sum(row["n"] for row in each),
            p50_ms=max(row["p50_ms"] for row in each),
            p99_ms=max((row["p99_ms"] for row in each if row["p99_ms"]), default=None),
            images_s=sum(row["images_s"] for row in each),
        )
    return []


def _kill(processes):
    for process in processes:
        process.kill()


def summary(results, options):
    """The tables: every row by batch, then the efficiency, then what the profiler saw."""
    order = {batch: index for index, batch in enumerate(options.batches)}
    rows = sorted(results.rows, key=lambda row: order.get(row["batch"], len(order)))
    text = [
        _report.table(_COLUMNS, rows),
        "",
        *(f"error: {row['model']}, {row['way']}: {row['error']}" for row in rows if "error" in row),
    ]
    shares = efficiency(rows)
    if shares:
        text += [
            "TF-TRT as a share of TensorRT alone (its p50 / TF-TRT's, and TF-TRT's images/s / its):",
            _report.table(
                [
                    ("batch", "batch"),
                    ("way", "way"),
                    ("workers", "callers"),
                    ("latency", "latency"),
                    ("throughput", "throughput"),
                ],
                shares,
            ),
        ]
    for key, value in results.data.items():
        if key.startswith("profile"):
            plain = {name: one for name, one in value.items() if name != "host_ms_per_call"}
            host = list(value.get("host_ms_per_call", {}).items())[:_HOST_EVENTS]
            text += [
                f"{key}: " + ", ".join(f"{name} {_report.cell(one)}" for name, one in plain.items()),
                "  host, ms a call (nested): " + "; ".join(f"{name[-40:]} {one}" for name, one in host),
            ]
    text += differences(options.workdir)
    return "\n".join(text)


def efficiency(rows):
    """Shares of TensorRT alone, for each batch, way and number of callers that both sides were measured in."""
    alone = {
        (row["batch"], row["way"], row["workers"]): row
        for row in rows
        if row["model"] == "TensorRT alone" and "p50_ms" in row
    }
    found = []
    for row in rows:
        key = (row["batch"], row["way"], row.get("workers"))
        if row["section"] == "tftrt" and key in alone and "images_s" in row:
            found.append(
                {
                    "batch": key[0],
                    "way": key[1],
                    "workers": key[2],
                    "latency": alone[key]["p50_ms"] / row["p50_ms"],
                    "throughput": row["images_s"] / alone[key]["images_s"],
                }
            )
        if row["model"].startswith("engine of the TF-TRT model") and "(CUDA events)" in row["way"] and key in alone:
            found.append(
                {
                    "batch": key[0],
                    "way": f"{row['model']}, {row['way']}",
                    "workers": key[2],
                    "latency": alone[key]["p50_ms"] / row["p50_ms"],
                    "throughput": None,
                }
            )
    return found


def differences(workdir):
    """How far the answers of the sections lie apart, for the same image: are these the same network?"""
    import numpy as np

    answers = {
        path.stem.removeprefix("answer-"): np.load(path) for path in sorted(pathlib.Path(workdir).glob("answer-*.npy"))
    }
    if len(answers) < 2:
        return []
    base = "native" if "native" in answers else next(iter(answers))
    spread = float(answers[base].std())
    return [
        f"answers against {base} (standard deviation {spread:.3g}), largest difference: "
        + ", ".join(
            f"{name} {float(np.abs(value - answers[base]).max()):.3g}"
            for name, value in answers.items()
            if name != base
        )
    ]


if __name__ == "__main__":
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    sys.exit(main())
