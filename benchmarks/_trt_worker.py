"""The TensorRT side of engine_efficiency, in one process without TensorFlow: python -m benchmarks._trt_worker REQUEST

REQUEST is JSON: {"onnx", "converted", "precision", "workdir", "json", "benchmark", "batches", "seconds", "workers", "size"}.
"""

import json
import pathlib
import sys

import numpy as np

from benchmarks import _loop, _report, _tensorrt
from tftrt_tools.studies.profiling.job import plan_context

ALONE, TAKEN_OUT = "TensorRT alone", "engine of the TF-TRT model"
_ONE_CALLER = {
    "on_gpu": "input and answer on GPU",
    "answer_to_host": "input on GPU, answer to host",
    "pageable": "NumPy to NumPy",
    "pinned": "pinned host to pinned host",
}
_MORE_CALLERS = {key: _ONE_CALLER[key] for key in ("on_gpu", "pageable", "pinned")}


def main(request):
    results = _report.Results(request["json"], request["benchmark"], resume=True)
    cuda = _tensorrt.cuda()
    plans = {batch: _plan(request, results, batch) for batch in request["batches"]}
    saved = _tensorrt.saved_engines(request["converted"]) if request.get("converted") else []
    if len(saved) > 1:
        results.note("engines in the TF-TRT model", len(saved))
        saved = []  # then no single engine is the network
    for batch in request["batches"]:
        shape = (batch, request["size"], request["size"], 3)
        _alone(results, cuda, plan_context.load(plans[batch].read_bytes()), shape, request)
        if saved:
            _taken_out(results, cuda, saved[0], shape, request)


def _plan(request, results, batch):
    target = pathlib.Path(request["workdir"]) / f"alone-{request['precision'].lower()}-{batch}.plan"
    if not target.exists():
        partial = target.with_suffix(".partial")
        seconds = _tensorrt.build(request["onnx"], batch, partial, request["precision"])
        partial.rename(target)
        results.note(f"TensorRT alone, batch {batch}", {"build_s": round(seconds, 1), "bytes": target.stat().st_size})
    return target


def _alone(results, cuda, engine, shape, request):
    """One engine; each caller has a context, a stream and buffers of its own."""
    batch = shape[0]
    contexts = [_tensorrt.Context(cuda, engine, shape) for _ in range(max(request["workers"]))]
    first = contexts[0]
    _keep_answer(request, "trt", first, shape)
    rows = _tensorrt.timed(first, batch, 300)
    rows += _tensorrt.closed_loops([first], batch, request["seconds"], _ONE_CALLER)
    _add(results, ALONE, batch, rows)
    for workers in request["workers"]:
        if workers > 1:
            _add(
                results,
                ALONE,
                batch,
                _tensorrt.closed_loops(contexts[:workers], batch, request["seconds"], _MORE_CALLERS),
            )
    # Last, and with a context of its own: a failed capture can leave the context unusable.
    _add(results, ALONE, batch, [_graph_row(_tensorrt.Context(cuda, engine, shape), batch, request["seconds"])])


def _graph_row(context, batch, seconds):
    way = "as a CUDA graph, input and answer on GPU"
    try:
        return {"way": way, **_loop.measure([context.graph_call()], batch, seconds)}
    except Exception as error:
        return {"way": way, "error": str(error)[:200]}


def _taken_out(results, cuda, serialized, shape, request):
    """TF-TRT's own engine without TensorFlow; each caller has a copy, since a profile serves one context at a time."""
    batch = shape[0]
    contexts = [_tensorrt.Context(cuda, plan_context.load(serialized), shape) for _ in range(max(request["workers"]))]
    _keep_answer(request, "raw", contexts[0], shape)
    rows = _tensorrt.timed(contexts[0], batch, 300)
    rows += _tensorrt.closed_loops(contexts[:1], batch, request["seconds"], _ONE_CALLER)
    for workers in request["workers"]:
        if workers > 1:
            rows += _tensorrt.closed_loops(
                contexts[:workers], batch, request["seconds"], {"on_gpu": _ONE_CALLER["on_gpu"]}
            )
    _add(results, TAKEN_OUT, batch, rows)
    again = _tensorrt.Context(cuda, plan_context.load(serialized), shape, like_tftrt=True)
    rows = _tensorrt.timed(again, batch, 300)
    rows += _tensorrt.closed_loops([again], batch, request["seconds"], {"on_gpu": _ONE_CALLER["on_gpu"]})
    _add(results, TAKEN_OUT + ", shape and scratch set in each call", batch, rows)


def _keep_answer(request, name, context, shape):
    """For the first image of seed 0, as the TensorFlow sections do."""
    images = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    np.save(pathlib.Path(request["workdir"]) / f"answer-{name}.npy", context.answer(images)[:1])


def _add(results, model, batch, rows):
    for row in rows:
        results.add(section="trt", model=model, batch=batch, **row)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
