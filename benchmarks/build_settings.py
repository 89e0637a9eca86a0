"""What each setting that can be reached costs a build, and what it gives (GPU): seconds, engine size, milliseconds of a call.

One model is converted once for each setting, with an empty engine cache and no timing cache; nothing else differs. Then each result is
called alone, one after the other. Builds run one at a time; with --jobs several run at once, which shares the GPU alike: then compare
their seconds with each other only. Settings of TensorRT that TF-TRT does not pass on (tactic sources, profiling verbosity, refit,
optimization level) cannot be reached and have no row.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time

from benchmarks import _models, _report

NEEDS_GPU = True
COLUMNS = [
    ("setting", "setting"),
    ("build_s", "build s"),
    ("command_s", "command s"),
    ("engine_mb", "engines MB"),
    ("peak_mb", "peak MB"),
    ("log_mb", "log MB"),
    ("first_ms", "ms, first shape"),
    ("last_ms", "ms, last shape"),
    ("sparse", "layers with sparse weights"),
    ("problem", "problem"),
]
_SPARSE = re.compile(r"\(Sparsity\) TRT inference plan picked sparse implementation for layers: ?(.*)")


@dataclasses.dataclass(frozen=True)
class Setting:
    """name: for the table. flags: more flags of `tftrt convert`. env: variables of its process. shapes: which of the shapes to build for,
    None for all."""

    name: str
    flags: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    shapes: int | None = None


SETTINGS = (
    Setting("none: the defaults"),
    Setting("none, once more"),
    Setting("one profile (the last shape)", shapes=1),
    Setting("implicit batch", ("--nouse_dynamic_shape",)),
    Setting("workspace 1 MiB", ("--max_workspace_size_bytes=1048576",)),
    Setting("workspace 64 MiB", ("--max_workspace_size_bytes=67108864",)),
    Setting("workspace 1 GiB", ("--max_workspace_size_bytes=1073741824",)),
    Setting("CUDA_MODULE_LOADING=LAZY", env=(("CUDA_MODULE_LOADING", "LAZY"),)),
    Setting("CUDA_MODULE_LOADING=EAGER", env=(("CUDA_MODULE_LOADING", "EAGER"),)),
    Setting("TF_TRT_SPARSE_MODE=0", env=(("TF_TRT_SPARSE_MODE", "0"),)),
    Setting("TF_TRT_ENABLE_LAYOUT_OPTIMIZER=0", env=(("TF_TRT_ENABLE_LAYOUT_OPTIMIZER", "0"),)),
    Setting("TF_TRT_FIXED_ALGORITHM_ID=0", env=(("TF_TRT_FIXED_ALGORITHM_ID", "0"),)),
    Setting("NVIDIA_TF32_OVERRIDE=0", env=(("NVIDIA_TF32_OVERRIDE", "0"),)),
    Setting("verbose log (--layer_precisions)", ("--layer_precisions",)),
)


def main(argv=None):
    options = _options(argv)
    options.workdir.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + options.budget
    results = _report.Results(options.json, "build_settings")
    results.note("options", {key: str(value) for key, value in vars(options).items()})
    model, shapes, name = _model(options)
    chosen = [one for one in SETTINGS if not options.settings or one.name in options.settings]
    lock = threading.Lock()

    def built(setting):
        row = _built(setting, model, name, shapes, options.workdir, options.precision, end)
        with lock:
            results.add(setting=setting.name, **row)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(built, chosen))
    for row in results.rows:
        setting = next(one for one in chosen if one.name == row["setting"])
        if "problem" not in row and (options.timed is None or setting.name in options.timed):
            row |= _called(
                _folder(setting, options.workdir),
                name,
                shapes if setting.shapes is None else shapes[-setting.shapes :],
                end,
            )
            results.note("last called", setting.name)  # writes the rows, too
    print(_report.table(COLUMNS, results.rows))
    return 0


def _options(argv):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.build_settings",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--model", type=pathlib.Path, help="SavedModel with one input; by default a perceptron with 2:4 sparse weights"
    )
    parser.add_argument("--shapes", help="of its input: NAME:SHAPE,…; needed with --model")
    parser.add_argument("--precision", default="FP16")
    parser.add_argument("--jobs", type=int, default=1, help="builds at a time")
    parser.add_argument(
        "--settings",
        nargs="*",
        metavar="SETTING",
        help="to build with, by default all: " + "; ".join(one.name for one in SETTINGS),
    )
    parser.add_argument(
        "--timed", nargs="*", metavar="SETTING", help="whose results are called, by default all: they take 12 s each"
    )
    parser.add_argument("--budget", type=float, default=570, help="seconds")
    parser.add_argument("--workdir", type=pathlib.Path, default=_models.ROOT / "build/bench/build_settings")
    parser.add_argument("--json", type=pathlib.Path, help="default: WORKDIR/build_settings.json")
    options = parser.parse_args(argv)
    if unknown := set(options.settings or ()) - {one.name for one in SETTINGS}:
        parser.error(f"no setting {min(unknown)!r}")
    if options.model and not options.shapes:
        parser.error("--model needs --shapes")
    options.workdir = options.workdir.absolute()
    options.json = (options.json or options.workdir / "build_settings.json").absolute()
    return options


def _model(options):
    """(folder, [shape text], name of its input)."""
    if options.model:
        name, _, listed = options.shapes.partition(":")
        return options.model.absolute(), listed.split(","), name
    target = options.workdir / "sparse"
    with _models.made(target) as partial:
        if partial:
            _models.command(
                "-c", f"from benchmarks import build_settings; build_settings.save_sparse({str(partial)!r})", gpu=False
            )
    return target, ["1x1024", "256x1024"], "features"


def save_sparse(path, width=1024, layers=4, seed=0):
    """A perceptron of square layers; of each four weights that follow each other in a product's sum, two are zero, as sparse tensor cores
    want it."""
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(seed)
    module = tf.Module()
    module.weights = [
        tf.Variable(_two_of_four(rng.normal(0, width**-0.5, (width, width)).astype(np.float32))) for _ in range(layers)
    ]

    @tf.function(input_signature=[tf.TensorSpec((None, width), name="features")])
    def serve(features):
        for weights in module.weights:
            features = tf.nn.relu(tf.matmul(features, weights))
        return {"scores": features}

    tf.saved_model.save(module, path, signatures={"serving_default": serve})


def _two_of_four(weights):
    """The weights with the two smaller of each four in a column set to zero. Args: weights: (summed, outputs), summed a multiple of 4."""
    import numpy as np

    fours = weights.reshape(-1, 4, weights.shape[1]).copy()
    np.put_along_axis(fours, np.argsort(np.abs(fours), axis=1)[:, :2], 0, axis=1)
    return fours.reshape(weights.shape)


def _folder(setting, workdir):
    return workdir / re.sub(r"\W+", "-", setting.name).strip("-")


def _built(setting, model, name, shapes, workdir, precision, end):
    """The figures of one conversion, or {"problem"}."""
    folder = _folder(setting, workdir)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    wanted = shapes if setting.shapes is None else shapes[-setting.shapes :]
    command = [
        sys.executable,
        "-m",
        "tftrt_tools",
        "convert",
        f"--model={model}",
        f"--output={folder / 'out'}",
        f"--precision={precision}",
        f"--shapes={name}:{','.join(wanted)}",
        "--noengine_cache",
        f"--log_file={folder / 'log'}",
        f"--json={folder / 'json'}",
        *setting.flags,
    ]
    env = _models.environment(True, **dict(setting.env))
    start = time.monotonic()
    try:
        done = subprocess.run(
            command,
            cwd=_models.ROOT,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=max(1, end - start),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return {"problem": f"not ended after {error.timeout:.0f} s"}
    taken = time.monotonic() - start
    if done.returncode:
        return {"problem": (done.stdout.strip().splitlines() or [f"ended with {done.returncode}"])[-1][:200]}
    said = json.loads((folder / "json").read_text())
    built = [engine for signature in said["signatures"] for engine in signature["built"]]
    log = folder / "log"
    sparse = _SPARSE.findall(log.read_text(errors="replace"))
    seconds = sum(one["build_seconds"] or 0 for one in said["signatures"])
    return {
        "build_s": round(seconds, 1),
        "command_s": round(taken, 1),
        "engine_mb": round(sum(one["bytes"] for one in built) / 1e6, 2),
        "peak_mb": round(max(one["peak_memory_bytes"] or 0 for one in built) / 1e6, 1),
        "log_mb": round(log.stat().st_size / 1e6, 2),
        "sparse": sum(len(line.split(",")) for line in sparse if line.strip())
        if "--layer_precisions" in setting.flags
        else None,
    }


def _called(folder, name, shapes, end):
    """{"first_ms", "last_ms"}: medians of a call with its input on the GPU, alone."""
    arguments = str(folder / "out"), name, shapes, str(folder / "times")
    code = f"from benchmarks import build_settings; build_settings.time_calls{arguments!r}"
    try:
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=_models.ROOT,
            check=True,
            timeout=max(1, end - time.monotonic()),
            env=_models.environment(True, TF_TRT_ALLOW_ENGINE_NATIVE_SEGMENT_EXECUTION="0"),
        )
    except (subprocess.SubprocessError, OSError) as error:
        return {"problem": str(error)[:200]}
    times = json.loads((folder / "times").read_text())
    return {"first_ms": times[0], "last_ms": times[-1]}


def time_calls(model, name, shapes, path, calls=300):
    """Write the median milliseconds of each shape to `path`. Needs engines for them."""
    import numpy as np
    import tensorflow as tf

    root = tf.saved_model.load(model)
    function = root.signatures["serving_default"]
    found = []
    for shape in shapes:
        tensor = tf.identity(
            tf.constant(np.random.default_rng(0).random([int(one) for one in shape.split("x")], np.float32))
        )
        times = []
        for _ in range(calls):
            start = time.perf_counter()
            for answer in function(**{name: tensor}).values():
                answer.numpy()
            times.append(time.perf_counter() - start)
        found.append(round(1e3 * float(np.median(times[calls // 6 :])), 3))
    pathlib.Path(path).write_text(json.dumps(found))


if __name__ == "__main__":
    sys.exit(main())
