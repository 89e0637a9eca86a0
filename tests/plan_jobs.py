"""What tests of plans run in a child process, with child.run."""

import threading

import numpy as np


def at_once(request):
    """Calls of a plan from several threads, each with inputs of its own.

    Args: request: {"plan", "input", "shapes": those of a thread's calls in turns, "threads", "calls": of each, "graph"}.
    Returns: {"wrong": calls that answered otherwise than the same call made alone, "contexts", "captured"}.
    """
    from tftrt_tools.models.plan import runner_job

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


def built(request):
    """In place of plans.build_job.job, which needs a GPU: writes a plan that nothing runs, and answers for it."""
    import pathlib

    from tftrt_tools.models.onnx import file

    ends = file.overview(request["onnx"]).signatures["serving_default"]
    pathlib.Path(request["plan"]).write_bytes(repr(sorted(request["ranges"].items())).encode())
    return {"tensorrt": "8.5.3.1", "gpu": {"name": "a GPU", "compute_capability": "9.0", "driver": "1"},
            "inputs": [[one.name, one.dtype] for one in ends.inputs], "outputs": [[one.name, one.dtype] for one in ends.outputs],
            "profiles": len(request["profiles"]), "creators": [["Own 1"] for _ in request["settings"]["plugins"]], "flags": ["FP16"],
            "ranged": len(request["ranges"]), "seconds": {"parse": 0.1, "build": 1.0}, "known_timings": 0, "layers": {"Layers": []}}
