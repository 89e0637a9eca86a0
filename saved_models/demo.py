"""`make demo`: train and export a model, hand it to `tftrt optimize`, serve the result and load it, then compare it with the original.

Without a GPU both models run as TensorFlow: the answers are compared, and there is no verdict on speed. Each step
is a `tftrt` command as a user would type it; this script only prepares the files and prints the commands.
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
# What `tftrt optimize` and `tftrt regress` end with where they came to a verdict: the demo shows it, whatever it is, and ends well.
_VERDICTS = (0, 3, 4)
_START_SECONDS = 120


def main():
    """Run the demo. Returns: the exit code."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    original, converted, work = FOLDER / "digits_cnn", FOLDER / "digits_demo", FOLDER / "optimize"
    print("training a small CNN on images of handwritten digits", flush=True)
    _run([sys.executable, "-m", "saved_models", "digits_cnn", f"--output={FOLDER}"], shown=False)
    _held_back(FOLDER)
    _tftrt(
        "optimize",
        str(original),
        f"--data={FOLDER}/held_back.npz",
        f"--labels={FOLDER}/labels.npy",
        f"--calibration_data={FOLDER}/training.npz",
        "--accuracy=top1:max-degradation=0.01",
        "--accuracy_output=serving_default/probabilities",
        f"--batch_size={','.join(map(str, BATCHES))}",
        f"--output={converted}",
        f"--work_dir={work}",
        f"--html={FOLDER}/optimize.html",
        f"--json={FOLDER}/optimize.json",
        f"--output_flagfile={FOLDER}/demo.flags",
        allowed=_VERDICTS,
    )
    shutil.copy(work / "verify.html", FOLDER / "report.html")
    gpu = bool(json.loads((FOLDER / "optimize.json").read_text())["gpu"])
    base = FOLDER / "models"
    _tftrt("publish", str(original), f"--model_name={_NATIVE}", f"--base_path={base}", "--warmup_shapes=image:1x8x8x1")
    _tftrt("publish", str(converted), f"--model_name={_MODEL}", f"--base_path={base}", "--warmup_shapes=image:1x8x8x1")
    _tftrt(
        "configure", f"--output={FOLDER / 'config'}", *(f"--model={name}={base / name}" for name in (_NATIVE, _MODEL))
    )
    with _served(gpu, f"--model_config_file={FOLDER / 'config/models.config'}") as address:
        _tftrt(
            "bench",
            address,
            f"--model_name={_MODEL}",
            "--concurrency=1,4",
            "--duration_seconds=5",
            f"--html={FOLDER}/bench.html",
        )
    _tftrt(
        "regress",
        f"--native={original}",
        f"--candidate={converted}",
        f"--data={FOLDER}/held_back.npz",
        f"--labels={FOLDER}/labels.npy",
        "--batch_size=8",
        "--accuracy=top1:max-degradation=0.01",
        "--accuracy_output=serving_default/probabilities",
        f"--html={FOLDER}/regress.html",
        f"--json={FOLDER}/regress.json",
        *(["--no_engine_fallback"] if gpu else []),
        allowed=_VERDICTS,
    )
    print(_last_screen(gpu, json.loads((FOLDER / "regress.json").read_text())))
    return 0


def _last_screen(gpu, compared):
    """What was shown, for somebody who sees it for the first time. Args: compared: the document of `tftrt regress`."""
    verdict = (
        compared["headline"]
        if gpu
        else f"it compared both models' answers to {compared['answers']['requests']} requests, and {_right(compared)}; this machine has no "
        "GPU,\n            so both ran as TensorFlow, and there is no verdict on speed: with a GPU the same command gives one"
    )
    return f"""
What you have seen
  optimize  what TensorRT takes of the model, the conversion, and its accuracy on images that training never saw
  bench     a served model under load: answers a second, and how long they take
  regress   {verdict}

Pages to open in a browser
  {FOLDER}/optimize.html the report of optimize
  {FOLDER}/report.html   the answers, output for output
  {FOLDER}/bench.html    the load
  {FOLDER}/regress.html  the comparison

Next: the same with your model, `tftrt optimize --help`; the pages in docs/ begin with README.md."""


def _right(compared):
    return (
        "they are as right as the original's"
        if not compared["answers"]["problems"]
        else "they are NOT as right as the original's"
    )


@contextlib.contextmanager
def _served(gpu, *arguments):
    """A development server in the background; on a GPU, one in which a request fails rather than pass its engine by. Yields: its gRPC
    address."""
    ready = FOLDER / "ready.json"
    command = [
        sys.executable,
        "-m",
        "tftrt_tools",
        "serve",
        "--launch=local",
        "--port=0",
        *arguments,
        f"--json={ready}",
    ]
    gate = {"TF_TRT_ALLOW_ENGINE_NATIVE_SEGMENT_EXECUTION": "False"} if gpu else {}
    print(
        "\n$ "
        + "".join(f"{name}={value} " for name, value in gate.items())
        + "tftrt "
        + shlex.join(command[3:])
        + " &",
        flush=True,
    )
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
