"""Measurements beside each other with faults of the tests: the files in the folder $FAULTS say which. They run in children of Ray's workers."""

import dataclasses
import os
import pathlib
import signal
import time
from collections.abc import Callable

from tftrt_tools.base import errors
from tftrt_tools.base.process import jobs
from tftrt_tools.fleet.task import Given
from tftrt_tools.studies.profiling.recording import Facts
from tftrt_tools.studies.regression.sizes import Compared


def fault(name: str) -> None:
    """What has to happen before the measurement of this name. Each beginning leaves a file there."""
    folder = pathlib.Path(os.environ["FAULTS"])
    (folder / f"began {name} {time.monotonic_ns()}").write_text(os.environ["CUDA_VISIBLE_DEVICES"])
    began = len(list(folder.glob(f"began {name} *")))
    if (folder / "wait").exists() or (folder / f"wait {name}").exists():
        time.sleep(600)
    if (folder / f"kill {name}").exists() and began == 1:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    if (folder / f"fail {name}").exists() and began <= int((folder / f"fail {name}").read_text()):
        raise errors.TftrtError("out of memory", "use a GPU with more of it")


@jobs.job
def shape() -> Callable[[Given], Facts]:
    """As spread.shape, without a GPU."""
    from tftrt_tools.studies.profiling import spread_job

    def job(given: Given) -> Facts:
        request = given.request["request"]
        (number,) = (place for place, call in enumerate(request["models"][0]["calls"], 1) if call)
        fault(f"shape {number}")
        asked = {**given.request, "request": {**request, "gpu": False}}
        return spread_job.job(dataclasses.replace(given, request=asked))

    return job


@jobs.job
def compare() -> Callable[[Given], Compared]:
    """As sizes.compare."""
    from tftrt_tools.studies.regression import sizes_job

    def job(given: Given) -> Compared:
        name = str(given.request["options"]["batch_size"])
        fault(name)
        done = sizes_job.job(given)
        pathlib.Path(os.environ["FAULTS"], f"ended {name}").touch()
        return done

    return job
