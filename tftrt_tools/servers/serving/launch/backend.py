"""The interface of a backend: a way to start a server that takes tensorflow_model_server's flags."""

import dataclasses
import signal
from collections.abc import Mapping

from tftrt_tools.servers.serving.launch import readiness
from tftrt_tools.servers.serving.launch.serve_plan import Plan

# How much TensorFlow logs: 0 is all, 3 nothing but what ends it.
LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """How a server is started and ended."""

    # The command line.
    argv: tuple[str, ...]
    # Environment variables to set in it.
    env: Mapping[str, str]
    # Where it starts; None for the current folder.
    folder: str | None = None
    # What says when it accepts requests.
    ready_probe: readiness.Probe
    # The signal that the system sends to the child if this process is killed.
    death_signal: int = signal.SIGKILL
    # Command lines that remove what the child may leave behind, run after its end.
    cleanup: tuple[tuple[str, ...], ...] = ()


class Backend:
    """One way to start a server."""

    name = ""

    def available(self) -> tuple[bool, str]:
        """(bool, reason in a few words)."""
        raise NotImplementedError

    def check(self, plan: Plan) -> None:
        """Refuse a plan that this backend cannot carry out. Raises: UsageError."""

    def command(self, plan: Plan) -> Command:
        """The Command that starts the server for `plan`."""
        raise NotImplementedError
