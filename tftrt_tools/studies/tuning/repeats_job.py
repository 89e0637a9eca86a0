"""The child's side of `repeats`: one model, loaded once, and timed block by block when its turn comes."""

from __future__ import annotations

from tftrt_tools.models.execution import kept_job, npz, run_job
from tftrt_tools.models.execution.job import timing
from tftrt_tools.models.execution.runner import Arrays, Ready, Wanted
from tftrt_tools.models.kinds.savedmodel import runner_job
from tftrt_tools.studies.tuning import turns_job
from tftrt_tools.studies.tuning.repeats import Answer, Request, kept_answer

# Makes each call of the model.
_READY: list[Ready] = []


def job(request: Request) -> Answer:
    """One request. Raises: TftrtError."""
    if request.load is None:
        blocks = (turns_job.block(one, count) for one, count in zip(_READY, request.counts, strict=True))
        return Answer(seconds=tuple(map(tuple, blocks)))
    asked = request.load
    _READY.clear()
    model = kept_job.kept(runner_job.load, asked.model, Wanted(label="a build", tags=asked.tags))
    for number, (signature, path) in enumerate(asked.calls):
        inputs = run_job.objects(npz.load(path))
        ready = _whole(model, signature, inputs) if asked.from_host else model.ready(signature, inputs)
        for _ in range(timing.WARM_UP_CALLS):
            answers = ready()
        if asked.answers:
            npz.save(kept_answer(asked.answers, number), answers)
        _READY.append(ready)
    return Answer(counts=tuple(turns_job.count(one) for one in _READY))


def _whole(model: runner_job.Loaded, signature: str, inputs: Arrays) -> Ready:
    """A call from arrays on the host to arrays on the host."""
    make, answer, read = model.stages(signature, inputs)
    return lambda: read(answer(make()))
