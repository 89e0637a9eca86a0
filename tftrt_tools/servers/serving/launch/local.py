"""The backend that runs this project's development server."""

import importlib.util
import os
import pathlib
import sys

import tftrt_tools.base
from tftrt_tools.base import errors
from tftrt_tools.base.process import starting
from tftrt_tools.servers.serving import server_flags
from tftrt_tools.servers.serving.launch import backend
from tftrt_tools.servers.serving.launch.serve_plan import Plan

_HOST = "127.0.0.1"
_ROOT = str(pathlib.Path(tftrt_tools.__file__).resolve().parents[1])


class Local(backend.Backend):
    """`python -m tftrt_tools.servers.serving.local`: TensorFlow Serving's answers from this Python's TensorFlow."""

    name = "local"

    def available(self) -> tuple[bool, str]:
        return True, "the development server of this package: right answers, not the speed of the real one"

    def check(self, plan: Plan) -> None:
        # TensorFlow is only searched, because this process does not load it.
        missing = [name for name in errors.EXTRA if importlib.util.find_spec(name) is None]
        if missing:
            raise errors.needs_extra(missing[0])

    def command(self, plan: Plan) -> backend.Command:
        host = plan.host or _HOST
        argv = (
            sys.executable,
            "-m",
            "tftrt_tools.servers.serving.local",
            f"--host={host}",
            *server_flags.to_arguments(plan.values),
        )
        folder, place = starting.start()
        return backend.Command(argv=argv, env=environment() | place, ready_probe=plan.probe(host), folder=folder)


def environment() -> dict[str, str]:
    """Environment variables with which a child Python finds this package."""
    return {
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": starting.search_path(last=_ROOT),
        "TF_FORCE_GPU_ALLOW_GROWTH": os.environ.get("TF_FORCE_GPU_ALLOW_GROWTH", "true"),
    }
