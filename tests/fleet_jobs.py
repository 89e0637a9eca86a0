"""Jobs of the tests of `fleet`. They run in children of Ray's workers."""

import os
import pathlib
import signal
import time
from collections.abc import Callable
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.base.process import jobs, progress
from tftrt_tools.fleet.task import Given, Said


def first_time(marker):
    """Whether nobody has asked for this marker before."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


def kill_worker_after_this_process(here, worker):
    """Kill the worker when this process has answered and ended: it sends what was made then."""
    if os.fork():
        return
    os.setsid()
    while os.getppid() == here:
        time.sleep(0.001)
    os.kill(worker, signal.SIGKILL)
    os._exit(0)


def told(given):
    request, output = given.request, pathlib.Path(given.output)
    if marker := request.get("counted"):
        with open(marker, "a") as file:
            file.write(request["name"] + "\n")
    time.sleep(request.get("wait", 0))
    if path := request.get("worker"):
        pathlib.Path(path).write_text(str(os.getppid()))
    if (marker := request.get("kill_worker")) and first_time(marker):
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    if (marker := request.get("kill_child")) and first_time(marker):
        os.kill(os.getpid(), signal.SIGKILL)
    if request.get("always_die"):
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    if request.get("abort"):
        os.abort()
    if request.get("refuse"):
        raise errors.UsageError("no", "ask for something else")
    if request.get("full"):
        raise OSError(28, os.strerror(28), "engine.bin")
    if seconds := request.get("sleep"):
        progress.say("sleeping", 1, 2)
        pathlib.Path(request["began"]).write_text(str(os.getpid()))
        time.sleep(seconds)
    if request.get("make"):
        output.mkdir()
        (output / "made.bin").write_bytes(os.urandom(request["make"]))
    if (marker := request.get("kill_after")) and first_time(marker):
        kill_worker_after_this_process(os.getpid(), os.getppid())
    read = sorted(one.name for one in pathlib.Path(given.content).rglob("*")) if given.content else []
    return {"visible": os.environ.get("CUDA_VISIBLE_DEVICES"), "read": read, "process": os.getpid()}


@jobs.job
def work() -> Callable[[Given], Any]:
    """What a request says."""
    return told


class Kept:
    """Answers a post's calls, and remembers how many there were."""

    def __init__(self):
        self.calls = 0

    def __call__(self, said):
        self.calls += 1
        if said.facts.get("refuse"):
            raise errors.UsageError("no", "ask for something else")
        if said.facts.get("break"):
            raise ValueError("broken")
        if said.facts.get("die"):
            os.kill(os.getpid(), signal.SIGKILL)
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        return Said({"calls": self.calls, "visible": visible, "process": os.getpid()}, said.content[::-1])


@jobs.job
def kept() -> Callable[[Said], Said]:
    """Keeps a count between calls."""
    return Kept()
