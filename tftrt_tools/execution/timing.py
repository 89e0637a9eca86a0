"""Latency of two models side by side, in one child process, call by call in turn, so that what disturbs one disturbs both."""

from __future__ import annotations

import functools
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tftrt_tools import child, progress
from tftrt_tools.savedmodel.shapes import InputSpec

WARM_UP_CALLS = 20
# (label, {input: shape}, the signature's inputs) of each.
Calls = Sequence[tuple[str, Mapping[str, tuple[int, ...]], Sequence[InputSpec]]]


def compare(original: str | os.PathLike[str], converted: str | os.PathLike[str], signature: str, calls: Calls,
            repeats: int = 200) -> Any:
    """Time two SavedModels on the same inputs.

    Args: signature: its name in both. calls: [(label, {input: shape}, [InputSpec])]. repeats: timed calls of each model.
    Returns: {"device", "rows": [{"batch": label, "native_ms", "converted_ms"}]}: medians of one call at a time, input already on the
      device, answer copied to the host.
    """
    request = {"original": str(original), "converted": str(converted), "signature": signature, "repeats": repeats,
               "calls": [[label, {name: list(shape) for name, shape in shapes.items()}, [spec.to_dict() for spec in specs]]
                         for label, shapes, specs in calls]}
    return child.run("tftrt_tools.execution.timing:job", request, env={"TF_CPP_MIN_LOG_LEVEL": "1"}).result


def job(request: dict[str, Any]) -> dict[str, Any]:
    """The child's side of `compare`."""
    import tensorflow as tf

    from tftrt_tools.execution import gpu, guard, inputs
    from tftrt_tools.savedmodel import loading
    from tftrt_tools.savedmodel.shapes import InputSpec

    for which in ("original", "converted"):
        guard.refuse_foreign_engines(request[which])
    # Both loaded objects stay alive: engines die with theirs.
    models = [loading.load(request[which]) for which in ("original", "converted")]
    functions = [model.root.signatures[request["signature"]] for model in models]
    rows = []
    for number, (label, shapes, specs) in enumerate(request["calls"]):
        progress.say(f"timing batch {label}", number, len(request["calls"]))
        arrays = inputs.random([InputSpec.from_dict(spec) for spec in specs], {name: tuple(shape) for name, shape in shapes.items()}, 0)
        feed = {name: tf.identity(tf.constant(value)) for name, value in arrays.items()}
        native, converted = map(statistics.median, interleaved(functions, feed, request["repeats"]))
        rows.append({"batch": label, "native_ms": 1e3 * native, "converted_ms": 1e3 * converted})
    seen = gpu.seen()
    return {"device": seen["name"] if seen else "CPU", "rows": rows}


def interleaved(functions: Sequence[Any], feed: Mapping[str, Any], repeats: int) -> list[list[float]]:
    """Call each function in turn, again and again: what disturbs one disturbs all. Calls to warm up come first and do not count.

    Args: functions: of a loaded model's signature. feed: {input: tensor}. repeats: timed calls of each.
    Returns: for each function a list of seconds, from the call until all of its answers are on the host.
    """
    from tftrt_tools.savedmodel import loading

    calls = [functools.partial(loading.answers, function, feed) for function in functions]
    taken: list[list[float]] = [[] for _ in calls]
    for turn in range(WARM_UP_CALLS + repeats):
        for call, found in zip(calls, taken, strict=True):
            one = seconds(call)
            if turn >= WARM_UP_CALLS:
                found.append(one)
    return taken


def seconds(call: Callable[[], object]) -> float:
    """How long one call takes. Args: call: function without arguments."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
