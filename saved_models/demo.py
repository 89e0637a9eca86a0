"""`make demo`: train, export, convert, verify, report; with a GPU also build the engines and time both models.

Each step is a `tftrt` command as a user would type it; this script only prepares the files and prints the commands.
"""

import pathlib
import shlex
import shutil
import subprocess
import sys

import numpy as np

FOLDER = pathlib.Path("build/demo")
BATCHES = (1, 8, 32)


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
    print(f"report: {FOLDER}/report.html")
    return 0


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
    import json

    from tftrt_tools.accuracy import verify
    from tftrt_tools.execution import timing
    from tftrt_tools.report import html
    from tftrt_tools.savedmodel import passport
    from tftrt_tools.savedmodel.shapes import InputSpec

    specs = [InputSpec("image", "float32", (None, 8, 8, 1))]
    timed = timing.compare(original, converted, "serving_default", [(batch, {"image": (batch, 8, 8, 1)}, specs) for batch in BATCHES])
    for row in timed["rows"]:
        ratio = row["native_ms"] / row["converted_ms"]
        print(f"batch {row['batch']:>3}: native {row['native_ms']:.3f} ms, TF-TRT {row['converted_ms']:.3f} ms, ratio {ratio:.2f}")
    (FOLDER / "timing.json").write_text(json.dumps(timed, indent=2) + "\n")
    options = verify.Options(data=str(FOLDER / "held_back.npz"), labels=str(FOLDER / "labels.npy"))
    done = verify.verify(original, converted, options)
    html.write_verification(done, passport.read(converted, passport.MANIFEST), FOLDER / "report.html", timed)


def _tftrt(*arguments):
    _run([sys.executable, "-m", "tftrt_tools", *arguments])


def _run(command, shown=True):
    if shown:
        print("\n$ tftrt " + shlex.join(command[3:]), flush=True)
    done = subprocess.run(command, check=False, stderr=None if shown else subprocess.DEVNULL)
    if done.returncode:
        sys.exit(done.returncode)


if __name__ == "__main__":
    sys.exit(main())
