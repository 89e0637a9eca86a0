"""What several callers of a plan get, and what holds them up (GPU).

    python -m benchmarks.plan_callers [PLAN [--rows ROWS.npz]] [--batch 128]

PLAN is by default that of fer in FP16 which `benchmarks.plans` made, and ROWS.npz the file that lies beside it.

Ways, each in a process of its own, without and with CUDA graphs:

  now      the runner as it is: ctypes lets go of Python's interpreter lock in each call of CUDA
  held     calls that only start something keep the lock; waiting lets go of it. Where threads fight for the lock, this is faster
  asleep   as now, and threads that wait for the GPU sleep in place of asking again and again (cudaDeviceScheduleBlockingSync)
"""

import argparse
import ctypes
import json
import pathlib
import subprocess
import sys

import numpy as np

from benchmarks import _loop, _models, _report

NEEDS_GPU = True
WAYS = ("now", "held", "asleep")
_BLOCKING_SYNC = 4
COLUMNS = [
    ("way", "way"),
    ("graphs", "graphs"),
    ("workers", "callers"),
    ("p50_ms", "p50 ms"),
    ("p99_ms", "p99 ms"),
    ("images_s", "rows/s"),
    ("problem", "problem"),
]


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.plan_callers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("plan", type=pathlib.Path, nargs="?", default=_models.ROOT / "build/bench/plans/fer-plan-fp16")
    parser.add_argument("--rows", type=pathlib.Path, help="an .npz file of inputs")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--callers", type=lambda text: [int(one) for one in text.split(",")], default=[1, 2, 4])
    parser.add_argument("--seconds", type=float, default=0.8, help="of each measurement")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args(argv)
    rows = options.rows or options.plan.with_name(f"{options.plan.name.partition('-plan')[0]}.rows.npz")
    results = _report.Results(options.json, "plan_callers")
    for graphs in (False, True):
        for way in WAYS:
            request = {
                "plan": str(options.plan.absolute()),
                "rows": str(rows.absolute()),
                "batch": options.batch,
                "way": way,
                "callers": options.callers,
                "seconds": options.seconds,
                "graphs": graphs,
            }
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.plan_callers", json.dumps(request)],
                cwd=_models.ROOT,
                text=True,
                env=_models.environment(True),
                capture_output=True,
                errors="replace",
                check=False,
            )
            last = ((done.stderr if done.returncode else done.stdout).strip().splitlines() or [""])[-1]
            for row in [{"problem": last[:300]}] if done.returncode else json.loads(last):
                results.add(way=way, graphs="yes" if graphs else "no", **row)
    print(_report.table(COLUMNS, results.rows))
    return 1 if any(row.get("problem") for row in results.rows) else 0


def held(cuda):
    """The class whose calls keep the interpreter lock, but for waits. Args: cuda: cudart.Cuda."""

    class Held(cuda):
        def __init__(self):
            super().__init__()
            waits = self._library.cudaStreamSynchronize
            library = ctypes.PyDLL(self._library._name)
            for name in (one for one in dir(self._library) if one.startswith("cuda")):
                getattr(library, name).argtypes = getattr(self._library, name).argtypes
            library.cudaGetErrorString.restype = ctypes.c_char_p
            self._library, self._copy, self._synchronize = library, library.cudaMemcpyAsync, waits

    return Held


def worker(request):
    """Rows of one way."""
    from tftrt_tools.models.execution.job import cuda_libraries, cudart
    from tftrt_tools.models.kinds.plan import runner_job

    if request["way"] == "asleep":
        ctypes.CDLL(cuda_libraries.runtime()).cudaSetDeviceFlags(_BLOCKING_SYNC)
    if request["way"] == "held":
        runner_job.Cuda = held(cudart.Cuda)
    with np.load(request["rows"]) as rows:
        feed = {name: np.resize(rows[name], (request["batch"], *rows[name].shape[1:])) for name in rows.files}
    loaded = runner_job.Loaded(request["plan"], request["graphs"])
    # Each caller has inputs of its own.
    calls = [loaded.ready("serving_default", feed) for _ in range(max(request["callers"]))]
    return [_loop.measure(calls[:count], request["batch"], request["seconds"]) for count in request["callers"]]


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].startswith("{"):
        print(json.dumps(worker(json.loads(sys.argv[1]))))
        sys.exit(0)
    sys.exit(main())
