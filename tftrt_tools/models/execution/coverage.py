"""Is each declared shape served by a saved engine? Answered by running it in a fresh process."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.base.files import scratch
from tftrt_tools.models.execution import inputs, run
from tftrt_tools.models.execution.trace import CallTrace


def check(
    model: run.Runnable, signatures: Mapping[str, Any], started: run.Started | None
) -> tuple[dict[str, Any], ...]:
    """Run each declared call of a model on the GPU.

    Args: model: run.Runnable. signatures: {name: SignatureResult with `calls`}. started: of run.worker; a process that has not
      seen the engines yet.
    Returns: ({"signature", "shapes", "engines": {engine: times}}, …), one for each call.
    Raises: CheckFailed where an engine fell back or was built inside a call; TftrtError where the process sees no GPU.
    """
    drawn = [
        run.Call(name, inputs.random(signature.inputs, shapes, seed=0))
        for name, signature in signatures.items()
        for shapes in signature.calls
    ]
    calls, done = answered(model, drawn, started)
    traces = [trace for trace in done.traces if trace]
    if len(traces) < len(calls):
        raise errors.TftrtError(
            "the process that checks the declared shapes sees no GPU, though the engines were built on one",
            "look whether the GPU or its MPS server has gone (nvidia-smi), and convert again",
        )
    unbuilt = {engine.name for signature in signatures.values() for engine in signature.unbuilt}
    missed = [text for call, trace in zip(calls, traces, strict=True) for text in misses(call, trace, unbuilt)]
    if missed:
        raise errors.CheckFailed(
            f"{len(missed)} declared shapes are not served by a saved engine: {missed[0]}",
            "choose another --dynamic_shape_profile_strategy, or look at the other shapes with --log_file",
        )
    return tuple(
        {
            "signature": call.signature,
            "shapes": {name: list(shape) for name, shape in call.shapes.items()},
            "engines": trace.engine,
        }
        for call, trace in zip(calls, traces, strict=True)
    )


def answered(
    model: run.Runnable, calls: Sequence[run.Call], started: run.Started | None
) -> tuple[Sequence[run.Call], run.Run]:
    """Run the calls. If the model refuses their values (a float that serves as an index, a string that is no picture), run calls of the
    same shapes with plain ones.

    Returns: the calls that it answered, and their Run. Raises: CallFailed.
    """
    try:
        return calls, _run(model, calls, started)
    except errors.CallFailed:
        calls = [run.Call(call.signature, inputs.plain(call.inputs)) for call in calls]
        return calls, _run(model, calls, None)


def _run(model: run.Runnable, calls: Sequence[run.Call], started: run.Started | None) -> run.Run:
    with scratch.folder("coverage") as folder:
        return run.run(
            model,
            run.save_calls(calls, folder + "/in"),
            folder + "/out",
            "the declared shapes",
            trace=True,
            started=started,
        )


def misses(call: run.Call, trace: CallTrace, unbuilt: Collection[str] = ()) -> list[str]:
    """One line for each engine that fell back, calibrated or was built inside `call`.

    Args: unbuilt: names of engine ops that are known to have no engine; they are left out.
    """
    remark = (
        ("fallback", "ran natively"),
        ("build", "was built inside the call"),
        ("calibration", "is still in calibration mode"),
    )
    reason = f" ({trace.reasons[0]})" if trace.reasons else ""
    return [
        f"{name} {verb} in {call.text()}{reason if kind == 'fallback' else ''}"
        for kind, verb in remark
        for name in getattr(trace, kind)
        if not (kind == "fallback" and name in unbuilt)
    ]
