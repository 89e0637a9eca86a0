"""Measures, besides the load, the parts of a request that the load and the server's counters do not tell."""

import functools
import pathlib
import time
from collections.abc import Callable, Sequence

from tftrt_tools.base import errors
from tftrt_tools.base.process import child
from tftrt_tools.models.execution import run
from tftrt_tools.models.kinds.model import Model
from tftrt_tools.studies.bench import in_process, targets
from tftrt_tools.studies.bench.breakdown import Alone
from tftrt_tools.studies.bench.targets import Sent
from tftrt_tools.studies.bench.workload import Workload

_SECONDS = 0.3
# For loading the model, for its first calls, which may build engines, and for the traced ones.
_LOAD_SECONDS = 1800.0


def check(model: Model) -> None:
    """Refuse a model that cannot be traced. Raises: UsageError."""
    if not model.kind.of_tensorflow:
        raise errors.UsageError(
            f"--breakdown traces SavedModels, and {model.title} is none", "name the SavedModel that is served"
        )


def measure(
    server: targets.Server, load: Workload, sent: Sent, model: Model, here: bool, folder: pathlib.Path
) -> Alone:
    """Measure.

    Args: load, sent: of one batch size. model: of the served files. here: whether the server runs on this machine.
      folder: for files that parent and child exchange.
    Raises: TftrtError; child.ChildDied.
    """
    encoding = _mean([functools.partial(server.encoded, call) for call in load.calls])
    reading = _mean([functools.partial(server.read, answer) for answer in sent.answers])
    empty = server.empty_call_seconds()
    saved = run.save_calls(load.calls, folder)
    found = in_process.inside.run(
        run.LoadRequest(model=model.path, calls=tuple(run.named(saved))),
        silence=child.Silence(_LOAD_SECONDS, _LOAD_SECONDS),
    ).result
    return Alone(
        encoding_ms=1e3 * encoding,
        reading_ms=1e3 * reading,
        empty_call_ms=1e3 * empty,
        plain_ms=1e3 * found.plain_seconds,
        split=found.split,
        here=here,
        engine_ops=bool(model.contents.engines),
    )


def _mean(calls: Sequence[Callable[[], object]]) -> float:
    """Mean seconds of calls, made in turn; the first round does not count."""
    for call in calls:
        call()
    rounds, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < _SECONDS or not rounds:
        for call in calls:
            call()
        rounds += 1
    return (time.perf_counter() - begun) / (rounds * len(calls))
