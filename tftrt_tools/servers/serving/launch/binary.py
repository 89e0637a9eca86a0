"""The backend that runs a tensorflow_model_server of this machine."""

import shutil

from tftrt_tools.base import errors
from tftrt_tools.servers.serving import server_flags
from tftrt_tools.servers.serving.launch import backend
from tftrt_tools.servers.serving.launch.serve_plan import Plan

PROGRAM = "tensorflow_model_server"
# What is wrong, and where it listens, is read from the log. A higher level would hide that.
LOG_ENV = {backend.LOG_LEVEL: "0"}


class Binary(backend.Backend):
    """tensorflow_model_server on PATH. It listens on all addresses and has no flag to change that."""

    name = "binary"

    def available(self) -> tuple[bool, str]:
        path = shutil.which(PROGRAM)
        return (True, path) if path else (False, f"no {PROGRAM} on PATH")

    def check(self, plan: Plan) -> None:
        refuse_port_zero(plan)
        if plan.host not in ("", "0.0.0.0"):
            raise errors.UsageError(
                f"--host={plan.host}: {PROGRAM} listens on all addresses and cannot be told otherwise",
                "leave --host out, or use --launch=docker or --launch=local",
            )

    def command(self, plan: Plan) -> backend.Command:
        return backend.Command(
            argv=(shutil.which(PROGRAM) or PROGRAM, *server_flags.to_arguments(plan.values)),
            env=LOG_ENV,
            ready_probe=plan.probe("0.0.0.0"),
        )


def refuse_port_zero(plan: Plan) -> None:
    """Raise UsageError if `plan` lets the server choose the gRPC port: only the development server can do that."""
    if plan.port == 0:
        raise errors.UsageError(
            f"--port=0: to {PROGRAM} that is no gRPC port at all", "name a port; --launch=local finds a free one for 0"
        )
