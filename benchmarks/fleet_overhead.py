"""What a task of a fleet costs beside a plain child process: the same job, in turns (CPU; Ray is the extra `fleet`).

The job does nothing. "child": in a child process of its own, as a command runs its jobs. "task": as a task of --on=local, which starts such
a child in a worker of Ray. The first task starts its worker, and is told apart; so is what opening the fleet takes. And what Ray costs a
command that does not use it: the modules of Ray that `tftrt --help` and `import tftrt_tools` load.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import time

from benchmarks import _models, _report, _stats
from tests import fleet_jobs
from tftrt_tools.fleet import place, running, session, stack
from tftrt_tools.fleet.task import Given, Task

NEEDS_GPU = False
_LOADED = "import sys; {0}; print(sum(name.partition('.')[0] == 'ray' for name in sys.modules))"
_WAYS = {
    "import tftrt_tools": "import tftrt_tools",
    "tftrt tune --help": "from tftrt_tools.command_line.commands import tune",
}


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fleet_overhead",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=pathlib.Path, default=_models.ROOT / "build/bench/fleet_overhead.json")
    options = parser.parse_args(argv)
    results = _report.Results(options.json.absolute(), "fleet_overhead")
    results.note("modules of Ray", {way: _loaded(code) for way, code in _WAYS.items()})
    start = time.monotonic()
    with session.opened(place.parse("local")) as fleet:
        results.note("opening_s", round(time.monotonic() - start, 2))
        wanted = stack.here()
        for number in range(-1, options.rounds):
            row = {"child_s": _child(), "task_s": _task(fleet, wanted, str(number))}
            if number < 0:
                results.note("first_task_s", row["task_s"])
            else:
                results.add(round=number, **row)
    print("\n" + summary(results.rows))
    return 0


def _loaded(code):
    done = subprocess.run([sys.executable, "-c", _LOADED.format(code)], capture_output=True, text=True, check=True)
    return int(done.stdout)


def _child():
    start = time.monotonic()
    fleet_jobs.work.run(Given(request={"name": "child"}, output="unused"))
    return round(time.monotonic() - start, 4)


def _task(fleet, wanted, name):
    start = time.monotonic()
    task = Task(name=name, job=fleet_jobs.work, request={"name": name}, gpus=0)
    (outcome,) = running.run(fleet, [task], wanted)
    assert outcome.status == "done", outcome.error
    return round(time.monotonic() - start, 4)


def summary(rows):
    """One line for people. Args: rows: with child_s and task_s."""
    child, task = ([row[key] for row in rows] for key in ("child_s", "task_s"))
    more = _stats.ratios(task, child)
    return (
        f"a task takes {statistics.median(task):.2f} s, a plain child {statistics.median(child):.2f} s: "
        f"{statistics.median(a - b for a, b in zip(task, child, strict=True)):.2f} s more "
        f"({more['median']:.2f} times, {more['min']:.2f} to {more['max']:.2f}, {more['n']} rounds)"
    )


if __name__ == "__main__":
    sys.exit(main())
