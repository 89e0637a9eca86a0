"""What shared memory saves a client of a Triton on the same machine: whole calls of a model that answers a thousand of its values.

Inputs are sent; or copied into shared memory in each call; or lie there already. The three come in turns. `make triton` fetches the server.
"""

import argparse
import pathlib
import statistics
import sys
import tempfile
import time

import numpy as np

from benchmarks import _models, _report
from tests.triton_server import TritonServer
from tftrt_tools.servers.client import SharedMemory, TritonClient

NEEDS_GPU = False
CASES = {
    "64 floats": (64,),
    "a picture": (224, 224, 3),
    "8 pictures": (8, 224, 224, 3),
    "32 pictures": (32, 224, 224, 3),
}
WAYS = ("sent", "copied", "there")
COLUMNS = [
    ("case", "input"),
    ("mb", "MB"),
    *((f"{way}_ms", f"{way}, ms") for way in WAYS),
    ("copied_ratio", "copied / sent"),
    ("there_ratio", "there / sent"),
]
_MODEL = """
import numpy as np
import triton_python_backend_utils as triton

class TritonPythonModel:
    def execute(self, requests):
        return [triton.InferenceResponse([triton.Tensor("y", one.inputs()[0].as_numpy().reshape(-1)[:1000].copy())]) for one in requests]
"""


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.triton_shared_memory", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--calls", type=int, default=8, help="in a row, of each way in a round")
    parser.add_argument("--json", type=pathlib.Path, default=_models.ROOT / "build/bench/triton_shared_memory.json")
    options = parser.parse_args(argv)
    results = _report.Results(options.json, "triton_shared_memory")
    with tempfile.TemporaryDirectory() as name:
        repository = pathlib.Path(name, "repository")
        (repository / "m/1").mkdir(parents=True)
        (repository / "m/1/model.py").write_text(_MODEL)
        # Any rank: a shape of one open size, so the inputs are sent flat.
        (repository / "m/config.pbtxt").write_text(
            'name: "m" backend: "python" input { name: "x" data_type: TYPE_FP32 dims: [-1] } '
            'output { name: "y" data_type: TYPE_FP32 dims: [-1] }'
        )
        with TritonServer(repository, name) as server, TritonClient(server.address) as client:
            for case, shape in CASES.items():
                results.add(
                    case=case,
                    **_measured(client, np.random.default_rng(0).random(int(np.prod(shape)), np.float32), options),
                )
    print(_report.table(COLUMNS, results.rows))
    return 0


def _measured(client, rows, options):
    """Medians over rounds of a call's time by each way, and of the ratios in each round."""
    with SharedMemory(rows.nbytes) as memory:
        client.register(memory)
        held = memory.array(rows.shape, rows.dtype)
        held[...] = rows

        def copied():
            held[...] = rows
            return client.predict("m", {"x": held})

        calls = {
            "sent": lambda: client.predict("m", {"x": rows}),
            "copied": copied,
            "there": lambda: client.predict("m", {"x": held}),
        }
        times = {way: [] for way in WAYS}
        for number in range(-2, options.rounds):
            for way in WAYS if number % 2 else WAYS[::-1]:
                start = time.perf_counter()
                for _ in range(options.calls):
                    answer = calls[way]()
                if number >= 0:
                    times[way].append((time.perf_counter() - start) / options.calls)
                assert np.array_equal(answer["y"], rows[:1000])
        client.unregister(memory)
    ratios = {
        f"{way}_ratio": statistics.median(one / other for one, other in zip(times[way], times["sent"], strict=True))
        for way in WAYS[1:]
    }
    return {"mb": rows.nbytes / 1e6, **{f"{way}_ms": 1e3 * statistics.median(times[way]) for way in WAYS}, **ratios}


if __name__ == "__main__":
    sys.exit(main())
