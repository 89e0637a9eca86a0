"""The progress of an engine's build: which engine, for what shapes, for how long, and where TensorRT is with it."""

import contextlib
from collections.abc import Iterator

from tftrt_tools.base.process import native_log, progress
from tftrt_tools.tftrt.conversion.job.timing_log import TimingLog


class Shown:
    """The line of the build under way. Its methods are called from the thread that builds and from the one that waits for it."""

    def __init__(self) -> None:
        self._what, self._details, self._state = "", "", ""
        self._position: int | None = None
        self._log = TimingLog()

    def begin(self, what: str, details: str) -> None:
        """Begin with an engine. Args: what: its name in messages; details: of its build."""
        self._what, self._details, self._state = what, details, "begins"

    def waits(self, text: str) -> None:
        """The build waits for another process."""
        self._state = "waits"
        progress.say(f"{self._what}: {text}")

    @contextlib.contextmanager
    def beside(self) -> Iterator[None]:
        """Inside the block the engine is built by another process, on another GPU."""
        before = self._details
        self._details += ", on another GPU"
        self.runs(None)
        try:
            yield
        finally:
            self._details = before

    def runs(self, logged: int | None) -> None:
        """TensorRT builds the engine. Args: logged: of native_log.position."""
        self._position, self._log, self._state = logged, TimingLog(), "runs"
        progress.say(f"{self._what} {self._details}")

    def tick(self, seconds: float) -> None:
        """Show the elapsed time. Args: seconds: since `begin`."""
        if self._state == "runs":
            new, self._position = native_log.after(self._position)
            self._log.feed(new)
            told = self._log.text()
            progress.say(f"{self._what} {self._details}, {_duration(seconds)}" + (f": {told}" if told else ""))


class Silent(Shown):
    """Shows nothing: of a build beside the one that is shown."""

    def waits(self, text: str) -> None:
        """Say nothing."""

    def runs(self, logged: int | None) -> None:
        """Say nothing."""


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
