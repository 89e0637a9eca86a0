"""The models that the benchmarks measure: ResNet-50, its conversions and its ONNX form, each made once in a work folder."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
INPUT, OUTPUT = "image", "logits"
OPSET = 13  # what TensorRT 8.5's ONNX parser knows in full


def environment(gpu, **changes):
    """Variables for a child Python: this repository importable, quiet, and no GPU where it must not matter."""
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONPATH": paths}
    if not gpu:
        env["CUDA_VISIBLE_DEVICES"] = "-1"
    return env | {name: str(value) for name, value in changes.items()}


def command(*arguments, gpu, **changes):
    """Run this Python with `arguments`. Returns: seconds. Raises: RuntimeError with the end of its output."""
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        env=environment(gpu, **changes),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(map(str, arguments))} ended with {done.returncode}:\n"
            + "\n".join(done.stdout.splitlines()[-15:])
        )
    return time.monotonic() - start


def tftrt(words, end=float("inf"), gpu=True):
    """Run `tftrt WORDS` until `end`, by time.monotonic; then it is ended, and ends its own children. Returns: (exit code, what it said)."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tftrt_tools", *map(str, words)],
        cwd=ROOT,
        env=environment(gpu),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        errors="replace",
    )
    try:
        said, _ = process.communicate(timeout=None if end == float("inf") else max(1.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.terminate()
        said, _ = process.communicate(timeout=20)
    return process.returncode, said


def native(workdir, size=224):
    """The SavedModel. Built on the CPU: its batch statistics need one pass, for which a GPU would compile its kernels first."""
    target = pathlib.Path(workdir) / f"resnet50-{size}"
    with made(target) as partial:
        if partial:
            code = f"import saved_models; saved_models.build('resnet50', {str(partial)!r}, size={size})"
            command("-c", code, gpu=False)
    return target


def onnx(workdir, model):
    """The same network as ONNX, image layout and dynamic batch as in the SavedModel."""
    target = pathlib.Path(workdir) / (pathlib.Path(model).name + ".onnx")
    with made(target) as partial:
        if partial:
            command("-m", "benchmarks._onnx", model, partial, gpu=False)
    return target


def converted(workdir, model, precision, batches, size=224):
    """A TF-TRT SavedModel with one engine profile for each batch size, made by `tftrt convert`. Returns: (path, seconds or None)."""
    target = pathlib.Path(workdir) / f"{pathlib.Path(model).name}-{precision.lower()}-{'-'.join(map(str, batches))}"
    seconds = None
    if not target.exists():
        shapes = f"{INPUT}:" + ",".join(f"{batch}x{size}x{size}x3" for batch in batches)
        seconds = command(
            "-m",
            "tftrt_tools",
            "convert",
            f"--model={model}",
            f"--output={target}",
            f"--precision={precision}",
            f"--shapes={shapes}",
            "--noengine_cache",
            f"--log_file={target}.log",
            gpu=True,
        )
    return target, seconds


@contextlib.contextmanager
def made(target):
    """Yield a path to write where `target` is missing, else None. An interrupted run must not look like a finished one."""
    if target.exists():
        yield None
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".partial-{target.name}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.unlink(missing_ok=True)
    yield partial
    partial.rename(target)
