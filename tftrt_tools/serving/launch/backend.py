"""The interface of a backend: a way to start a server that takes tensorflow_model_server's flags."""

import dataclasses
import signal
from collections.abc import Mapping

from tftrt_tools.serving.launch import readiness
from tftrt_tools.serving.launch.serve_plan import Plan


@dataclasses.dataclass(frozen=True)
class Command:
    """How a server is started and ended.

    Attributes:
      argv: the command line.
      env: environment variables to set in it.
      ready_probe: readiness.Probe that says when it accepts requests. death_signal: the signal that the system sends to the child if
      this process is killed. cleanup: command lines that remove what the child may leave behind, run after its end.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    ready_probe: readiness.Probe
    death_signal: int = signal.SIGKILL
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
