"""What a backend is: a way to start a server that takes tensorflow_model_server's flags."""

import dataclasses
import signal


@dataclasses.dataclass(frozen=True)
class Command:
    """How a server is started and ended.

    Attributes:
      argv: the command line.
      env: environment variables to set in it.
      ready_probe: readiness.Probe that says when it can be asked.
      death_signal: what the child gets from the system where this process is killed.
      cleanup: command lines that take away what the child may leave behind, run after it ended.
    """

    argv: tuple
    env: dict
    ready_probe: object
    death_signal: int = signal.SIGKILL
    cleanup: tuple = ()


class Backend:
    """One way to start a server."""

    name = ""

    def available(self):
        """(bool, reason in a few words)."""
        raise NotImplementedError

    def check(self, plan):
        """Refuse what this backend cannot do. Args: plan: plan.Plan. Raises: UsageError."""

    def command(self, plan):
        """The Command that starts the server for plan.Plan `plan`."""
        raise NotImplementedError
