"""Holds a model between calls; the child's side of `held`."""

from __future__ import annotations

import importlib

from tftrt_tools.base.process import progress
from tftrt_tools.models.execution import kept_job, npz, run_job
from tftrt_tools.models.execution.held import Asked
from tftrt_tools.models.execution.runner import Runner, Wanted, Where

# The model of this process: {token: its runner}.
_held: dict[str, Runner] = {}


def call(asked: Asked) -> Where:
    """Make a call. Returns: where the model runs. Raises: TftrtError."""
    runner = _held.get(asked.token) or _loaded(asked)
    if asked.signature:
        inputs = run_job.objects(npz.load(asked.inputs))
        npz.save(asked.output, runner.ready(asked.signature, inputs)())
    return runner.where


def _loaded(asked: Asked) -> Runner:
    _held.clear()
    progress.say(f"loading {asked.label}")
    load = importlib.import_module(asked.loader).load
    runner: Runner = kept_job.kept(load, asked.path, Wanted(label=asked.label))
    _held[asked.token] = runner
    return runner
