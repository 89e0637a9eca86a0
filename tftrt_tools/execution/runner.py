"""Runs calls on a SavedModel and keeps the answers; the child's side of `run`."""

import contextlib
import functools
import os
import pathlib
import time

import tensorflow as tf

from tftrt_tools import errors, native_log, progress, scratch
from tftrt_tools.execution import gpu as gpu_module
from tftrt_tools.execution import guard, kernels, native_copy, npz, trace
from tftrt_tools.savedmodel import loading
from tftrt_tools.savedmodel import shapes as shape_grammar


def job(request):
    """Run calls.

    Args:
      request: {"model": directory, "tags": […], "calls": [{"signature", "inputs": .npz path, "output": .npz path}], "trace": bool,
        "kernels": bool, "tf32": bool, "label": text for the progress line}.

    Returns: {"calls": [{"seconds", "trace": CallTrace dict or None}], "mode": "native segments" | "gpu" | "cpu", "gpu": {…} or None,
      "replaced": engines that ran through native segments, "kernels": {arithmetic: seconds} of one more call at each shape that engines
      served}.
    """
    gpu = gpu_module.seen()
    tf.config.experimental.enable_tensor_float_32_execution(request["tf32"])
    with contextlib.ExitStack() as stack:
        model, replaced, mode = request["model"], [], "gpu" if gpu else "cpu"
        if not gpu:
            copy = pathlib.Path(stack.enter_context(scratch.folder("native"))) / "model"
            replaced = native_copy.write(model, copy)
            if replaced:
                model, mode = copy, "native segments"
        results, kernel_seconds = _run_calls(model, request, bool(gpu) and request["trace"])
    return {"calls": results, "mode": mode, "gpu": gpu, "replaced": replaced, "kernels": kernel_seconds}


def _run_calls(model, request, traced):
    guard.refuse_foreign_engines(model)
    progress.say(f"loading {request['label']}")
    # The loaded object owns the engines; dropping it would destroy them before the first call.
    loaded = loading.load(model, tuple(request["tags"]))
    results, served = [], {}
    for number, call in enumerate(request["calls"]):
        progress.say(f"running {request['label']}", number, len(request["calls"]))
        feed = _feed(call)
        outputs, seconds, done = _one_call(loaded.root.signatures[call["signature"]], feed, traced, call["signature"])
        npz.save(call["output"], outputs)
        results.append({"seconds": seconds, "trace": done.to_dict() if done else None})
        if done and done.engine and not done.fallback:
            served.setdefault((call["signature"], *(tuple(value.shape) for value in feed.values())), call)
    return results, kernels.of_calls(_again(loaded, served.values())) if request["kernels"] else {}


def _again(loaded, calls):
    """A function without arguments for each of the calls."""
    for call in calls:
        yield functools.partial(loading.answers, loaded.root.signatures[call["signature"]], _feed(call))


def _feed(call):
    return {name: tf.constant(_strings(array)) for name, array in npz.load(call["inputs"]).items()}


def _strings(array):
    return array.astype(object) if array.dtype.kind in "SU" else array


def _one_call(function, feed, traced, signature):
    def call():
        start = time.perf_counter()
        answers = loading.answers(function, feed)
        return answers, time.perf_counter() - start

    try:
        if not traced:
            return *call(), None
        with native_log.captured() as log:
            (outputs, seconds), counts = trace.profiled(call)
        return outputs, seconds, trace.combine(counts, log[0])
    except tf.errors.OpError as error:
        shapes = shape_grammar.call_text({name: value.shape for name, value in feed.items()})
        gate = os.environ.get("TF_TRT_ALLOW_ENGINE_NATIVE_SEGMENT_EXECUTION", "")
        mend = "TF_TRT_ALLOW_ENGINE_NATIVE_SEGMENT_EXECUTION forbids native segments here" if gate.lower() in ("0", "false") else \
            "check the inputs: values and shapes must be what the model expects"
        raise errors.CallFailed(f"signature {signature!r} fails for {shapes}: {loading.first_line(error)}", mend) from None
