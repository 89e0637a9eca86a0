"""One process for each profile, side by side, whose timing caches are combined for the final build (GPU).

TensorRT takes the kernel times of another process, and of an engine with one profile for one with several. So each MODEL=SHAPES (several
shapes; without any, ResNet-50 at four batch sizes) is built in two ways, each from empty caches:

    whole  `tftrt convert` of all shapes, as today
    apart  `tftrt convert` of each shape alone, with the strategy Range, whose network has open sizes as the final one has; at once under
           MPS, else two at a time. Then ITimingCache.combine, and `tftrt convert` of all shapes, which finds the times

and `tftrt regress` says, shape by shape, whether the engines of `apart` are slower. The goal: 0.6 of the time, and no slower engine.
Kernels that are timed beside others may be chosen worse; that is what the last step is for.

--mps=auto starts a control daemon of its own where nvidia-cuda-mps-control is there, and ends it. Rows are kept as they come; what
--budget does not reach is left out, and --resume goes on.
"""

import argparse
import concurrent.futures
import contextlib
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from benchmarks import _models, _report, build_time

NEEDS_GPU = True
WITHOUT_MPS = 2
COLUMNS = [
    ("model", "model"),
    ("profiles", "profiles"),
    ("mps", "MPS"),
    ("at_once", "at once"),
    ("whole_s", "whole, s"),
    ("apart_s", "apart, s"),
    ("ratio", "of it"),
    ("single_s", "profiles alone, s"),
    ("combine_s", "combining, s"),
    ("final_s", "final build, s"),
    ("speed", "calls: apart over whole"),
    ("problem", "problem"),
]


def main(argv=None):
    options = _options(argv)
    options.workdir.mkdir(parents=True, exist_ok=True)
    results = _report.Results(options.json, "profiles_apart", options.resume)
    until = time.monotonic() + options.budget
    with mps(options.mps, options.workdir) as variables:
        for model, shapes in options.models or _default(options.workdir):
            if any(row["model"] == model.name and not row.get("problem") for row in results.rows):
                continue
            if until - time.monotonic() <= 0:
                print("the time is over; --resume goes on")
                break
            results.add(**measured(model, shapes, options, variables, until))
    print(_report.table(COLUMNS, results.rows))
    return 0


def _options(argv):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.profiles_apart",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="*", metavar="MODEL=SHAPES", type=_model)
    parser.add_argument("--precision", default="FP16")
    parser.add_argument("--flags", default="", help="more flags of tftrt convert, separated by blanks")
    parser.add_argument("--mps", choices=("auto", "yes", "no"), default="auto")
    parser.add_argument(
        "--at_once", type=int, default=0, help=f"builds at once; by default all under MPS, else {WITHOUT_MPS}"
    )
    parser.add_argument("--budget", type=float, default=570, help="seconds")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--workdir", type=pathlib.Path, default=_models.ROOT / "build/bench/profiles_apart")
    parser.add_argument("--json", type=pathlib.Path, help="default: WORKDIR/profiles_apart.json")
    options = parser.parse_args(argv)
    options.workdir = options.workdir.absolute()
    options.json = (options.json or options.workdir / "profiles_apart.json").absolute()
    if options.mps == "yes" and not shutil.which("nvidia-cuda-mps-control"):
        parser.error("--mps=yes, and nvidia-cuda-mps-control is not on the path")
    return options


def _model(text):
    path, found, shapes = text.partition("=")
    if not found or not pathlib.Path(path).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not DIRECTORY=SHAPES")
    try:
        alone(shapes)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return pathlib.Path(path).absolute(), shapes


def _default(workdir):
    return [(_models.native(workdir), "image:1x224x224x3,8x224x224x3,32x224x224x3,64x224x224x3")]


def alone(shapes):
    """The --shapes of each profile alone. Raises: ValueError for ranges, for a single shape, and for inputs with different numbers of
    shapes."""
    listed = {name: own.split(",") for name, _, own in (one.partition(":") for one in shapes.split(";"))}
    counts = {len(own) for own in listed.values()}
    if "=" in shapes or len(counts) > 1 or counts == {1}:
        raise ValueError(f"{shapes!r}: give a list of two or more shapes for each input, no range")
    return [";".join(f"{name}:{own[number]}" for name, own in listed.items()) for number in range(counts.pop())]


@contextlib.contextmanager
def mps(wanted, workdir):
    """Yields: variables for processes that share the GPU by MPS; {} without it. The daemon is one of our own, and ends with the block."""
    control = shutil.which("nvidia-cuda-mps-control")
    if wanted == "no" or not control:
        yield {}
        return
    # The path of its sockets must be short.
    with tempfile.TemporaryDirectory(prefix="mps") as pipes:
        variables = {"CUDA_MPS_PIPE_DIRECTORY": pipes, "CUDA_MPS_LOG_DIRECTORY": str(workdir)}
        started = subprocess.run([control, "-d"], env=_models.environment(gpu=True, **variables), check=False)
        if started.returncode:
            if wanted == "yes":
                raise SystemExit(f"nvidia-cuda-mps-control -d ended with {started.returncode}")
            yield {}
            return
        try:
            yield variables
        finally:
            env = _models.environment(gpu=True, **variables)
            subprocess.run([control], input="quit\n", text=True, env=env, timeout=60, check=False)


def measured(model, shapes, options, variables, until):
    """A row."""
    each = alone(shapes)
    at_once = options.at_once or (len(each) if variables else WITHOUT_MPS)
    row = {"model": model.name, "shapes": shapes, "precision": options.precision, "profiles": len(each)}
    row |= {"mps": bool(variables), "at_once": at_once}
    folder = options.workdir / model.name
    shutil.rmtree(folder, ignore_errors=True)
    try:
        row["whole_s"] = convert(model, shapes, folder / "whole", options, until)
        row |= apart(model, shapes, each, at_once, folder, options, variables, until)
        row["ratio"] = round(row["apart_s"] / row["whole_s"], 3)
        row["calls"] = []
        for shape in each:
            row["calls"].append(compared(folder, shape, until))
        row["speed"] = ", ".join("?" if one["ratio"] is None else f"{one['ratio']:.2f}" for one in row["calls"])
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        late = isinstance(error, subprocess.TimeoutExpired)
        said = f"not done after {error.timeout:.0f} s" if late else (str(error).strip().splitlines() or ["?"])[-1]
        row["problem"] = said[:300]
    return row


def apart(model, shapes, each, at_once, folder, options, variables, until):
    """Figures of the second way."""
    start = time.monotonic()
    places = [folder / f"profile{number}" for number in range(len(each))]
    shared = {**variables, "TFTRT_BUILD_TURNS": "0"}

    def single(number):
        return convert(model, each[number], places[number], options, until, *_AS_PART, **shared)

    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        seconds = list(pool.map(single, range(len(each))))
    combining = time.monotonic()
    caches = [str(place / "cache") for place in places]
    command = [sys.executable, "-m", "benchmarks._combine_timings", str(folder / "apart" / "cache"), *caches]
    said = build_time.run(command, _models.ROOT, until - time.monotonic())
    combined = time.monotonic()
    final = convert(model, shapes, folder / "apart", options, until)
    return {
        "apart_s": round(time.monotonic() - start, 1),
        "single_s": seconds,
        "combine_s": round(combined - combining, 1),
        "final_s": final,
        "timings": json.loads(said.splitlines()[-1]),
    }


# One profile of one shape, over a network of open sizes.
_AS_PART = ("--use_dynamic_shape", "--dynamic_shape_profile_strategy=Range")


def convert(model, shapes, folder, options, until, *flags, **variables):
    """Run tftrt convert, with the engine cache folder/cache. Returns: seconds."""
    command = [*build_time.convert_command(model, shapes, folder, options), *flags]
    start = time.monotonic()
    build_time.run(command, _models.ROOT, until - time.monotonic(), **variables)
    return round(time.monotonic() - start, 1)


def compared(folder, shape, until):
    """Whether the engines of `apart` are slower at a shape: {"shapes", "ratio": of p50, "low", "high", "headline"}."""
    file = folder / "regress.json"
    words = ["regress", f"--native={folder / 'whole' / 'out'}", f"--candidate={folder / 'apart' / 'out'}"]
    code, said = _models.tftrt([*words, f"--shapes={shape}", f"--json={file}"], until)
    if not file.is_file():
        raise RuntimeError(f"tftrt regress ended with {code}: {said}")
    document = json.loads(file.read_text())
    file.unlink()
    judged = next(
        (one for one in (document["verdict"] or {"judgements": ()})["judgements"] if one["metric"] == "p50"), {}
    )
    return {
        "shapes": shape,
        **{name: judged.get(name) for name in ("ratio", "low", "high")},
        "headline": document["headline"],
    }


if __name__ == "__main__":
    sys.exit(main())
