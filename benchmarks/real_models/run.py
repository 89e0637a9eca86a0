"""Run the steps of models one after the other, keep each as it ends, and go on where an earlier run stopped."""

import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

from benchmarks import _models, _precision_run
from benchmarks.real_models import cases, steps

FILE = "results.jsonl"
_LATE = 124  # exit code of a step that was stopped, as of `timeout`
_GRACE = 20  # seconds between asking a step to end and ending it


@dataclasses.dataclass
class Limits:
    """Seconds: of the whole run, of a model, of a step; inf for none."""

    run: float
    model: float
    step: float


def run(chosen: tuple[cases.Case, ...], models: pathlib.Path, options, limits: Limits) -> None:
    """Run what is left of the models' steps. Results: OUTPUT/results.jsonl; logs and JSON beside it."""
    journal = _precision_run.Journal(options.output / FILE)
    end = time.monotonic() + limits.run
    (options.output / "models").mkdir(parents=True, exist_ok=True)
    for case in chosen:
        model_end = time.monotonic() + limits.model
        planned = tuple(steps.steps(case, models, options.output / "models", options))
        for step in planned:
            if time.monotonic() >= end:
                print("the time of the run is over; the same command goes on from here")
                return
            after = tuple(other for other in planned if step.makes and other.needs == step.makes)
            if not options.again and finished(case.name, step, after, _precision_run.read(journal.path)):
                continue
            if step.needs and not step.needs.exists():
                continue  # its conversion failed and says why
            line = one(
                case.name, step, options.output, min(limits.step, model_end - time.monotonic()), end - time.monotonic()
            )
            journal.add(**line)
        if not options.keep:
            for made in filter(None, (step.makes for step in planned)):
                shutil.rmtree(made, ignore_errors=True)
            for made in (options.output / "models").glob(f"{case.name}.*onnx*"):
                made.unlink()


def finished(model: str, step: steps.Step, after: tuple[steps.Step, ...], lines: list[dict]) -> bool:
    """Whether a step ended in an earlier run. A conversion whose model is gone is made anew while one of the steps after it is left."""
    ended = {line["column"]: line["exit"] for line in lines if line["kind"] == "step" and line["model"] == model}
    if step.name not in ended or ended[step.name] or not step.makes or step.makes.exists():
        return step.name in ended
    return {other.name for other in after} <= ended.keys()


def one(model: str, step: steps.Step, output: pathlib.Path, limit: float, left: float) -> dict:
    """Run a step. Args: output: of its log and its JSON; limit: seconds of the step; left: seconds of the whole run.

    Returns: the line to keep; its kind is "cut" where the time of the whole run, and not its own, was over.
    """
    name = f"{model}-{step.name}".replace(" ", "-")
    log, result = output / "logs" / f"{name}.log", output / "logs" / f"{name}.json"
    log.parent.mkdir(parents=True, exist_ok=True)
    result.unlink(missing_ok=True)
    start = time.monotonic()
    with open(log, "w") as said:
        exit_code = _ended(
            [step.python or sys.executable, "-m", step.module, *step.command, f"--json={result}"],
            said,
            max(0.0, min(limit, left)),
        )
    seconds = time.monotonic() - start
    text = log.read_text(errors="replace")
    kept = steps.figures(step.kind, _read(result))
    late = exit_code == _LATE
    if late and step.makes:
        # It may have been written in the last moment; what follows would measure a step that counts as not done.
        shutil.rmtree(step.makes, ignore_errors=True)
    words = f"not ended after {seconds:.0f} s" if late else steps.message(exit_code, text, kept)
    return {
        "kind": "cut" if late and left <= limit else "step",
        "model": model,
        "column": step.name,
        "exit": exit_code,
        "seconds": round(seconds, 1),
        "message": words,
        "traceback": steps.traceback(text),
        "command": list(step.command),
        **kept,
    }


def _ended(command, said, limit):
    """Run a command and its children. Returns: its exit code, or _LATE."""
    process = subprocess.Popen(
        command,
        cwd=_models.ROOT,
        env=_models.environment(gpu=True),
        stdout=said,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            pass
        return _LATE
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _read(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
