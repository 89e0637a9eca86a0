"""What runs in an actor of Ray that is held: it keeps a job's function between calls. Plain values and bytes come and go, so that a worker
of another version can still answer that it is one."""

from __future__ import annotations

import os
import pathlib
import socket
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.base.process import jobs
from tftrt_tools.fleet import stack
from tftrt_tools.fleet.task import Said, Where

_BOOT = pathlib.Path("/proc/sys/kernel/random/boot_id")


def boot() -> str:
    """The kernel's name of this start of the machine: processes of one machine have the same."""
    return _BOOT.read_text().strip()


class Keeper:
    """The actor. Its process ends with it, and sees no GPU."""

    def __init__(self, target: str) -> None:
        """Args: target: of a job that takes and gives Said."""
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        self._target = target
        self._kept: Callable[[Said], Said] | None = None

    def about(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """ "where", "boot", "cores" that it may use, "process", and "refused": why its stack is not `wanted`, "" where it is."""
        import ray

        node = ray.get_runtime_context().get_node_id()
        return {
            "where": Where(node=node, host=socket.gethostname()).to_dict(),
            "boot": boot(),
            "cores": len(os.sched_getaffinity(0)),
            "process": os.getpid(),
            "refused": stack.Stack.from_dict(wanted).refusal(stack.here(driver=False)),
        }

    def clock(self) -> int:
        """Nanoseconds on this machine's CLOCK_MONOTONIC."""
        return time.perf_counter_ns()

    def call(self, facts: Mapping[str, Any], content: bytes) -> dict[str, Any]:
        """Call the function. Returns: "answer" and "content", or "error", or "bug"."""
        try:
            if self._kept is None:
                self._kept = jobs.named(self._target).load()
            said = self._kept(Said(facts, content))
            return {"answer": dict(said.facts), "content": said.content}
        except errors.TftrtError as error:
            return {"error": error.to_dict()}
        except Exception:
            return {"bug": traceback.format_exc()}
