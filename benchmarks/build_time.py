"""How long engines take to build (GPU): `tftrt convert --shapes` cold, again, beside another process, and TensorRT alone.

Each MODEL=SHAPES is a SavedModel with the --shapes to build for; without any, ResNet-50 and the digits CNN with two profiles. Cases:

    cold     empty engine cache and timing cache, alone on the GPU
    timings  the engines are gone, TensorRT's timing cache is there
    cached   the same conversion again
    beside   two such conversions at once, each with an empty cache of its own: the longer one
    tensorrt the same network by ONNX and TensorRT's Python alone, the same profiles, in a process of its own (signature
             serving_default; a model that ONNX does not take has no figure)

--baseline=DIR runs `cold` and `beside` with the tftrt_tools of another checkout, too, in turns. Rows are kept as they come, so that a run
that --budget ends leaves what it measured; --resume goes on with it.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

from benchmarks import _models, _report

NEEDS_GPU = True
CASES = ("cold", "timings", "cached", "beside", "tensorrt")
_OF_BASELINE = ("cold", "beside")


def main(argv=None):
    options = _options(argv)
    options.workdir.mkdir(parents=True, exist_ok=True)
    results = _report.Results(options.json, "build_time", options.resume)
    until = time.monotonic() + options.budget
    for model, shapes in options.models or _default(options.workdir):
        for case in options.cases:
            for side in ("now", *(["baseline"] if options.baseline and case in _OF_BASELINE else [])):
                if any((row["model"], row["case"], row["side"]) == (str(model), case, side) for row in results.rows):
                    continue
                left = until - time.monotonic()
                if left <= 0:
                    print("the time is over; --resume goes on")
                    return 1
                results.add(
                    model=str(model),
                    case=case,
                    side=side,
                    shapes=shapes,
                    precision=options.precision,
                    **_measured(case, side, model, shapes, options, left),
                )
    print(_summary(results.rows))
    return 0


def _options(argv):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.build_time",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="*", metavar="MODEL=SHAPES", type=_model)
    parser.add_argument("--cases", type=_cases, default=CASES, help="comma list of " + ", ".join(CASES))
    parser.add_argument("--precision", default="FP16")
    parser.add_argument("--flags", default="", help="more flags of tftrt convert, separated by blanks")
    parser.add_argument("--baseline", type=pathlib.Path, help="another checkout of this repository")
    parser.add_argument("--budget", type=float, default=570, help="seconds")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--workdir", type=pathlib.Path, default=_models.ROOT / "build/bench/build_time")
    parser.add_argument("--json", type=pathlib.Path, help="default: WORKDIR/build_time.json")
    options = parser.parse_args(argv)
    options.workdir = options.workdir.absolute()
    options.json = (options.json or options.workdir / "build_time.json").absolute()
    return options


def _model(text):
    path, found, shapes = text.partition("=")
    if not found or not pathlib.Path(path).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not DIRECTORY=SHAPES")
    return pathlib.Path(path).absolute(), shapes


def _cases(text):
    given = tuple(text.split(","))
    if unknown := [one for one in given if one not in CASES]:
        raise argparse.ArgumentTypeError(f"no case {unknown[0]!r}; there are {', '.join(CASES)}")
    return given


def _default(workdir):
    digits = workdir / "digits_cnn"
    with _models.made(digits) as partial:
        if partial:
            _models.command("-c", f"import saved_models; saved_models.build('digits_cnn', {str(partial)!r})", gpu=False)
    return [(digits, "image:1x8x8x1,64x8x8x1"), (_models.native(workdir), "image:1x224x224x3,64x224x224x3")]


def _measured(case, side, model, shapes, options, seconds):
    """A row's figures, or {"problem": why there is none}."""
    try:
        if case == "tensorrt":
            return _tensorrt(model, shapes, options, seconds)
        if case == "beside":
            return _beside(side, model, shapes, options, seconds)
        return _alone(case, side, model, shapes, options, seconds)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        late = isinstance(error, subprocess.TimeoutExpired)
        return {
            "problem": f"not done after {error.timeout:.0f} s"
            if late
            else (str(error).strip().splitlines() or ["?"])[-1][:300]
        }


def _folder(name, side, model, options):
    return options.workdir / f"{model.name}-{side}-{name}"


def _alone(case, side, model, shapes, options, seconds):
    folder = _folder("alone", side, model, options)
    if case == "cold":
        shutil.rmtree(folder, ignore_errors=True)
    if case == "timings":
        for entry in (folder / "cache").glob("[0-9a-f]*"):
            shutil.rmtree(entry, ignore_errors=True)
    return _convert(side, model, shapes, folder, options, seconds)


def _beside(side, model, shapes, options, seconds):
    folders = [_folder(f"beside{number}", side, model, options) for number in range(2)]
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        rows = list(pool.map(lambda folder: _convert(side, model, shapes, folder, options, seconds), folders))
    return max(rows, key=lambda row: row["seconds"])


def convert_command(model, shapes, folder, options):
    """The words of a tftrt convert into folder/out, with the engine cache folder/cache. The folder is made."""
    folder.mkdir(parents=True, exist_ok=True)
    return [
        sys.executable,
        "-m",
        "tftrt_tools",
        "convert",
        f"--model={model}",
        f"--output={folder / 'out'}",
        "--overwrite",
        f"--precision={options.precision}",
        f"--shapes={shapes}",
        f"--engine_cache_dir={folder / 'cache'}",
        f"--log_file={folder / 'log'}",
        *options.flags.split(),
    ]


def _convert(side, model, shapes, folder, options, seconds):
    """Run tftrt convert. Returns: {"seconds": of the whole command, "build_s": of the engines, "engines", "cached"}."""
    root = options.baseline.absolute() if side == "baseline" else _models.ROOT
    command = convert_command(model, shapes, folder, options)
    start = time.monotonic()
    run(command, root, seconds)
    taken = time.monotonic() - start
    said = json.loads((folder / "out/assets.extra/tftrt/manifest.json").read_text())
    built = [engine for signature in said["signatures"] for engine in signature["built"]]
    return {
        "seconds": round(taken, 1),
        "build_s": round(sum(one["build_seconds"] or 0 for one in said["signatures"]), 1),
        "engines": len(built),
        "cached": sum(one["cached"] for one in built),
    }


def _tensorrt(model, shapes, options, seconds):
    onnx = _models.onnx(options.workdir, model)
    command = [sys.executable, "-m", "benchmarks._trt_profiles", str(onnx), shapes, options.precision]
    return json.loads(run(command, _models.ROOT, seconds).splitlines()[-1])


def run(command, root, seconds, **changes):
    """Its output. Args: changes: variables of its environment. Raises: RuntimeError, subprocess.TimeoutExpired; its processes are ended
    then."""
    # The package is that of `root`; others may lie where PYTHONPATH says.
    paths = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    env = {**_models.environment(gpu=True, **changes), "PYTHONPATH": paths}
    process = subprocess.Popen(
        command,
        cwd=root,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=max(seconds, 1))
    except BaseException:
        # SIGTERM lets tftrt end its child.
        process.terminate()
        process.communicate()
        raise
    if process.returncode:
        raise RuntimeError(f"{output.rstrip()}\n{command[1:4]} ended with {process.returncode}".strip())
    return output


def _summary(rows):
    """A line for each model: seconds by case, and the ratio to the baseline."""
    lines = []
    for model in dict.fromkeys(row["model"] for row in rows):
        own = {(row["case"], row["side"]): row.get("seconds") for row in rows if row["model"] == model}
        parts = []
        for case in CASES:
            now, before = own.get((case, "now")), own.get((case, "baseline"))
            if now is not None:
                parts.append(f"{case} {now:.1f} s" + (f" ({now / before:.2f} of {before:.1f})" if before else ""))
        lines.append(f"{os.path.basename(model)}: " + ", ".join(parts))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
