"""`make demo`: train, export, convert, verify, publish, serve, load, compare; with a GPU also build the engines and time both models.

Each step is a `tftrt` command as a user would type it; this script only prepares the files and prints the commands.
"""

import contextlib
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import time

import numpy as np

FOLDER = pathlib.Path("build/demo")
BATCHES = (1, 8, 32)
_NATIVE, _MODEL = "digits_native", "digits"
# What `tftrt regress` ends with where it came to a verdict: the demo shows it, whatever it is.
_VERDICTS = (0, 3, 4)
_START_SECONDS = 120


def main():
    """Run the demo. Returns: the exit code."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    original, converted = FOLDER / "digits_cnn", FOLDER / "digits_cnn_fp16"
    print("training a small CNN on images of handwritten digits", flush=True)
    _run([sys.executable, "-m", "saved_models", "digits_cnn", f"--output={FOLDER}"], shown=False)
    _held_back(FOLDER)
    gpu = _has_gpu()
    shapes = [f"--shapes=image:{','.join(f'{batch}x8x8x1' for batch in BATCHES)}"] if gpu else []
    if not gpu:
        print("no usable GPU here: the graph is converted and verified; engines are not built and nothing is timed")
    _tftrt("convert", f"--input_saved_model_dir={original}", f"--output_saved_model_dir={converted}", "--precision_mode=FP16", *shapes)
    _tftrt("verify", str(original), str(converted), f"--data={FOLDER}/held_back.npz", f"--labels={FOLDER}/labels.npy",
           f"--html={FOLDER}/report.html")
    if gpu:
        _time(original, converted)
    base = FOLDER / "models"
    _tftrt("publish", str(original), f"--model_name={_NATIVE}", f"--base_path={base}", "--warmup_shapes=image:1x8x8x1")
    _tftrt("publish", str(converted), f"--model_name={_MODEL}", f"--base_path={base}", "--warmup_shapes=image:1x8x8x1")
    _tftrt("configure", f"--output_dir={FOLDER / 'config'}", *(f"--model={name}={base / name}" for name in (_NATIVE, _MODEL)))
    with _served(gpu, f"--model_config_file={FOLDER / 'config/models.config'}") as address:
        _tftrt("bench", address, f"--model_name={_MODEL}", "--concurrency=1,4", "--duration_seconds=5", f"--html={FOLDER}/bench.html")
        _tftrt("regress", f"--server={address}", f"--native={_NATIVE}", f"--candidate={_MODEL}", f"--native_dir={original}",
               f"--candidate_dir={converted}", f"--data={FOLDER}/held_back.npz", f"--labels={FOLDER}/labels.npy", "--batch_size=8",
               "--accuracy=top1:max-degradation=0.01", "--accuracy_output=serving_default/probabilities", f"--html={FOLDER}/regress.html",
               *(["--no_engine_fallback"] if gpu else []), allowed=_VERDICTS)
    print(f"\nreports: {FOLDER}/report.html (the answers), {FOLDER}/bench.html (the load), {FOLDER}/regress.html (the verdict)")
    return 0


@contextlib.contextmanager
def _served(gpu, *arguments):
    """A development server in the background; on a GPU, one in which a request fails rather than pass its engine by. Yields: its gRPC
    address."""
    ready = FOLDER / "ready.json"
    command = [sys.executable, "-m", "tftrt_tools", "serve", "--backend=local", "--port=0", *arguments, f"--json={ready}"]
    gate = {"TF_TRT_ALLOW_ENGINE_NATIVE_SEGMENT_EXECUTION": "False"} if gpu else {}
    print("\n$ " + "".join(f"{name}={value} " for name, value in gate.items()) + "tftrt " + shlex.join(command[3:]) + " &", flush=True)
    with open(FOLDER / "server.log", "w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **gate})
    try:
        until = time.monotonic() + _START_SECONDS
        while not ready.exists():
            if server.poll() is not None or time.monotonic() > until:
                sys.exit(f"the server did not start: {FOLDER}/server.log")
            time.sleep(0.2)
        yield json.loads(ready.read_text())["grpc"]
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


def _held_back(folder):
    from saved_models import digits_cnn

    images, labels = digits_cnn.held_back()
    np.savez(folder / "held_back.npz", image=images)
    np.save(folder / "labels.npy", labels)
    np.savez(folder / "training.npz", image=digits_cnn.training_images()[0][:512])


def _has_gpu():
    from tftrt_tools import stack

    return stack.diagnose().can("build").can


def _time(original, converted):
    """Time both models and put the plot into the report."""
    from tftrt_tools.accuracy import verify
    from tftrt_tools.execution.job import timing
    from tftrt_tools.inputs import calls
    from tftrt_tools.report import html
    from tftrt_tools.savedmodel import passport
    from tftrt_tools.savedmodel.shapes import InputSpec

    specs = [InputSpec("image", "float32", (None, 8, 8, 1))]
    timed = timing.compare(original, converted, "serving_default", [(batch, {"image": (batch, 8, 8, 1)}, specs) for batch in BATCHES])
    for row in timed["rows"]:
        ratio = row["native_ms"] / row["converted_ms"]
        print(f"batch {row['batch']:>3}: native {row['native_ms']:.3f} ms, TF-TRT {row['converted_ms']:.3f} ms, ratio {ratio:.2f}")
    (FOLDER / "timing.json").write_text(json.dumps(timed, indent=2) + "\n")
    options = verify.Options(asked=calls.Asked(data=str(FOLDER / "held_back.npz")), labels=str(FOLDER / "labels.npy"))
    done = verify.verify(original, converted, options)
    html.write_verification(done, passport.read(converted, passport.MANIFEST), FOLDER / "report.html", timed)


def _tftrt(*arguments, allowed=(0,)):
    _run([sys.executable, "-m", "tftrt_tools", *arguments], allowed=allowed)


def _run(command, shown=True, allowed=(0,)):
    if shown:
        print("\n$ tftrt " + shlex.join(command[3:]), flush=True)
    done = subprocess.run(command, check=False, stderr=None if shown else subprocess.DEVNULL)
    if done.returncode not in allowed:
        sys.exit(done.returncode)


if __name__ == "__main__":
    sys.exit(main())
