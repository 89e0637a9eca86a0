"""Models on their way to a plan: those that others trained (`benchmarks.real_models`), ONNX files that others made
(`benchmarks.onnx_files`), and small PyTorch modules (`tests.torch_families`).

Steps; each goes on where an earlier run of it was cut, and writes FOLDER/results.jsonl as it goes:

  --export    on a CPU, with all frameworks: `tftrt export` of each model in FP32, FP16 and INT8 for TensorRT 8.5, and `tftrt verify` of
              each file against the model. PyTorch's models are exported by --torch_python, the Python of `make test-new`
  --pack      what a GPU machine needs of FOLDER, as FOLDER.parts/part-00, part-01, … of at most 52 MB; --unpack=PARTS puts FOLDER
              together again
  --make      on a GPU: `convert --backend=tensorrt` of the FP16 file (of the FP32 one where that missed a bound) and of the INT8
              file, `verify` of each plan; and TF-TRT in FP16 of SavedModels. Several at once with --jobs (then under NVIDIA's MPS)
  --measure   alone on the GPU: `bench` of TF-TRT, the plans and TensorFlow, in turns in one process, at two batch sizes; without a
              SavedModel of the two plans. Its rule is that of `regress`. The next models are loaded while those before have their rounds
  (none)      the table of what is there, as text; --markdown as Markdown. FOLDER/plans_of_models.json has its rows
"""

import argparse
import concurrent.futures
import json
import lzma
import pathlib
import shutil
import sys
import tarfile
import time

from benchmarks import _models, _plan_models, _plan_models_table, _precision_run, _report
from benchmarks.real_models import run

NEEDS_GPU = True
_PART = 52_000_000  # bytes
_SLACK = 5.0  # seconds that a step gets at least
# What builds longest, begun first.
_LONG = ("deeplc", "deepcut", "tcn", "basic_pitch", "320n", "ppocr_v4_det", "ppocr_v4_rec", "ppocr_v2_cls", "detector")


def main(argv: list[str] | None = None) -> int:
    """Returns: 0 where every step of this run ended as it may: with a model, or with the reason why there is none."""
    options = parse(argv)
    if options.pack:
        print("\n".join(str(path) for path in pack(options.folder)))
        return 0
    if options.unpack:
        unpack(options.unpack, options.folder)
        return 0
    options.folder.mkdir(parents=True, exist_ok=True)
    journal = _precision_run.Journal(options.folder / run.FILE)
    if phase := next((name for name in _plan_models.PHASES if getattr(options, name)), ""):
        journal.add(kind="run", phase=phase, machine=_report.machine(), jobs=options.jobs)
        left = _through(phase, options, journal)
        print(
            f"\n{left} steps of --{phase} are left: the same command goes on"
            if left
            else f"\nnothing of --{phase} is left"
        )
    lines = _precision_run.read(journal.path)
    rows = _plan_models_table.rows(lines)
    (options.folder / "plans_of_models.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    print("\n" + (_plan_models_table.markdown(rows) if options.markdown else _plan_models_table.text(rows)))
    return 1 if any(line.get("traceback") for line in lines) else 0


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The options; wrong ones end the process with the reason."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.plans_of_models",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    folder, build = pathlib.Path, _models.ROOT / "build"
    parser.add_argument("models", nargs="*", help="by default all: " + ", ".join(_plan_models.NAMES))
    phases = parser.add_mutually_exclusive_group()
    for name in _plan_models.PHASES:
        phases.add_argument(f"--{name}", action="store_true")
    phases.add_argument("--pack", action="store_true")
    phases.add_argument("--unpack", type=folder, metavar="PARTS")
    parser.add_argument("--folder", type=folder, default=build / "plans_of_models", help="files and results")
    parser.add_argument(
        "--models_dir", type=folder, default=build / "real_models/models", help="of `benchmarks.real_models --make`"
    )
    parser.add_argument(
        "--torch_python", type=folder, default=_models.ROOT / ".venv-new/bin/python", help="a Python with PyTorch"
    )
    parser.add_argument("--jobs", type=int, default=4, help="models at once, of --export and --make")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds of the run")
    parser.add_argument("--timeout", type=float, default=560, help="seconds of a step")
    parser.add_argument("--rounds", type=int, default=14, help="of `tftrt bench`")
    parser.add_argument("--again", action="store_true", help="run every step, whatever results are there")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    options = parser.parse_args(argv)
    if unknown := [name for name in options.models if name not in _plan_models.NAMES]:
        parser.error(f"no model {unknown[0]!r}; there are: {', '.join(_plan_models.NAMES)}")
    for name in ("folder", "models_dir", "unpack"):
        if getattr(options, name):
            setattr(options, name, getattr(options, name).absolute())
    return options


def _through(phase, options, journal):
    """Run what is left of a phase: models at once while they are exported and built, their rounds one after the other where they are timed.

    Returns: how many steps could still run.
    """
    chosen = [model for model in _plan_models.MODELS if not options.models or model.name in options.models]
    chosen.sort(key=lambda model: model.name not in _LONG)
    end = time.monotonic() + options.budget
    if phase == "measure":
        # What says most comes first, of every model.
        planned = [(model, step) for model in chosen for step in _plan_models.steps(model, options, (phase,))]
        planned.sort(key=lambda each: each[1].rank)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda each: _step(*each, options, journal, end), planned))
        return _left(chosen, phase, options, journal)

    def one(model):
        if phase == "export":
            try:
                _plan_models.prepare(model, options)
            except (RuntimeError, FileNotFoundError) as error:
                journal.add(kind="lost", model=model.name, column="", message=str(error).splitlines()[-1])
                return
        for step in _plan_models.steps(model, options, (phase,)):
            _step(model, step, options, journal, end)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for done in [pool.submit(one, model) for model in chosen]:
            done.result()
    return _left(chosen, phase, options, journal)


def _left(chosen, phase, options, journal):
    lines = _precision_run.read(journal.path)
    return sum(
        all(path.exists() for path in step.wants) and not _finished(model, step, options, lines)
        for model in chosen
        for step in _plan_models.steps(model, options, (phase,))
    )


def _step(model, step, options, journal, end):
    """Run a step unless it has ended, or what it wants is missing: then another line says why."""
    left = end - time.monotonic()
    if left < _SLACK or not all(path.exists() for path in step.wants):
        return
    if not options.again and _finished(model, step, options, _precision_run.read(journal.path)):
        return
    if step.step.makes:
        _removed(step.step.makes)
    journal.add(**run.one(model.name, step.step, options.folder, options.timeout, left))


def _finished(model, step, options, lines):
    after = tuple(other.step for other in _plan_models.steps(model, options) if step.step.makes in other.wants)
    return run.finished(model.name, step.step, after, lines)


def _removed(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def pack(folder: pathlib.Path) -> list[pathlib.Path]:
    """Write FOLDER.parts. Returns: the parts."""
    parts = folder.with_name(f"{folder.name}.parts")
    shutil.rmtree(parts, ignore_errors=True)
    parts.mkdir()
    whole = parts / "whole"
    # Quick, but with a large dictionary: the files of one model hold the same weights.
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 1 << 26}]
    with (
        lzma.open(whole, "wb", filters=filters) as packed,
        tarfile.open(None, "w|", packed, dereference=True) as archive,
    ):
        for path in sorted(folder.iterdir()):
            if _plan_models.carried(path):
                archive.add(path, path.name)
    made = []
    with open(whole, "rb") as source:
        while content := source.read(_PART):
            made.append(parts / f"part-{len(made):02}")
            made[-1].write_bytes(content)
    whole.unlink()
    return made


def unpack(parts: pathlib.Path, folder: pathlib.Path) -> None:
    """Put FOLDER together from its parts; what is there already is replaced, but for the results."""
    whole = parts / "whole"
    with open(whole, "wb") as target:
        for path in sorted(parts.glob("part-*")):
            with open(path, "rb") as source:
                shutil.copyfileobj(source, target)
    kept = (folder / run.FILE).read_bytes() if (folder / run.FILE).exists() else None
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(whole) as archive:
        archive.extractall(folder, filter="data")
    whole.unlink()
    if kept is not None:
        (folder / run.FILE).write_bytes(kept)


if __name__ == "__main__":
    sys.exit(main())
