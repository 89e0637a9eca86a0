"""What tests of plans run in a child process, with child.run."""

import dataclasses
import os
import pathlib
import signal
import threading
from collections.abc import Callable

import numpy as np

from tftrt_tools.base.process import jobs
from tftrt_tools.tensorrt.plans import building
from tftrt_tools.tensorrt.plans.building import Answer, Gpu, Request, Seconds


def at_once(request):
    """Calls of a plan from several threads, each with inputs of its own.

    Args: request: {"plan", "input", "shapes": those of a thread's calls in turns, "threads", "calls": of each, "graph"}.
    Returns: {"wrong": calls that answered otherwise than the same call made alone, "contexts", "captured"}.
    """
    from tftrt_tools.models.kinds.plan import runner_job

    loaded = runner_job.Loaded(request["plan"], request["graph"])

    def inputs(thread, call):
        shape = request["shapes"][(thread + call) % len(request["shapes"])]
        return {request["input"]: np.random.default_rng([thread, call]).random(shape).astype(np.float32)}

    keys = [(thread, call) for thread in range(request["threads"]) for call in range(request["calls"])]
    ready = {key: loaded.ready("serving_default", inputs(*key)) for key in keys}
    alone = {key: ready[key]() for key in keys}
    wrong, failed = [], []

    def work(thread):
        try:
            for call in range(request["calls"]):
                found, wanted = ready[thread, call](), alone[thread, call]
                if not all(np.array_equal(found[name], wanted[name]) for name in wanted):
                    wrong.append([thread, call])
        except Exception as error:
            failed.append(str(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(request["threads"])]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return {"wrong": wrong, "failed": failed, "contexts": loaded.pool.contexts, "captured": loaded.pool.captured}


GPU = Gpu(name="a GPU", compute_capability="9.0", driver="1")


def died(_request):
    """Ends the process as TensorRT 8.5's parser does."""
    os.kill(os.getpid(), signal.SIGSEGV)


@jobs.job
def dying() -> Callable[[Request], Answer]:
    """In place of building.build."""
    return died


def built(request, more=b""):
    """In place of plans.build_job.job, which needs a GPU: writes a plan that nothing runs, and answers for it. The engine cache is real."""
    from tftrt_tools.models.engine_cache.timings import Timings
    from tftrt_tools.models.kinds.onnx import file
    from tftrt_tools.tensorrt.plans.job import cached

    ends = file.overview(request.onnx).signatures["serving_default"]
    store, plan, known = request.cache and request.cache.store(), pathlib.Path(request.plan), []

    def build():
        timings = Timings(store.folder if store else None, {"for": "tests"})
        known.append(len(timings.read()))
        timings.write(b"times")
        plan.write_bytes(repr(sorted(request.ranges.items())).encode() + more)
        return 1.0

    made, _ = cached.made(
        store, lambda: cached.key(request, "8.5.3.1", GPU), request, GPU.driver, build, plan.read_bytes
    )
    return Answer(
        tensorrt="8.5.3.1",
        gpu=GPU,
        inputs={one.name: one.dtype for one in ends.inputs},
        outputs={one.name: one.dtype for one in ends.outputs},
        creators=tuple(("Own 1",) for _ in request.settings.plugins),
        flags=("FP16",),
        ranged=len(request.ranges),
        held=0,
        seconds=Seconds(parse=0.1, build=made.seconds),
        cached=made.cached,
        known_timings=sum(known),
        layers={"Layers": []},
        cache_problem=store.problem if store else "",
    )


def built_anew(request):
    """The same, and no two builds make the same bytes."""
    return built(request, os.urandom(8))


def checked(_request):
    """In place of plans.build_job.check."""
    return building.Machine(**GPU.to_dict(), tensorrt="8.5.3.1")


def choosing(request):
    """As `built`. Where there are ranges, every other product of the file computes in INT8, as an inspector says it."""
    import onnx

    answer = built(request)
    products = [node.name for node in onnx.load(request.onnx).graph.node if node.op_type == "MatMul"]
    kinds = ("FP16", "INT8") if request.ranges else ("FP32",)
    layers = [
        {
            "Name": name,
            "LayerType": "CaskGemm",
            "Outputs": [],
            "Inputs": [{"Name": "x", "Format/Datatype": f"Row major linear {kinds[number % len(kinds)]}"}],
        }
        for number, name in enumerate(products)
    ]
    return dataclasses.replace(answer, layers={"Layers": layers})


def refusing(request):
    """As `built`, by a TensorRT that takes no ranges."""
    from tftrt_tools.base import errors

    if request.ranges:
        raise errors.TftrtError(
            "TensorRT 11.4 takes no calibration table here: the graph's types decide",
            "write the scales into the ONNX file",
        )
    return built(request)
