"""The progress of an engine's build: which engine, for what shapes, for how long, and the layer that TensorRT times now."""

import os
import re

from tftrt_tools import progress

_TAIL_BYTES = 1 << 16
# A line of TensorRT's verbose log, which --layers asks for.
_TIMED = re.compile(r"Timing Runner: (.+?) \((\w+)\)")
_LONGEST = 60


class Shown:
    """The line of the build under way. Its methods are called from the thread that builds and from the one that waits for it."""

    def __init__(self) -> None:
        self._what, self._details, self._state = "", "", ""
        self._logged: int | None = None

    def begin(self, what: str, details: str) -> None:
        """An engine begins. Args: what: its name for people; details: of its build."""
        self._what, self._details, self._state = what, details, "begins"

    def waits(self, text: str) -> None:
        """It waits for another process."""
        self._state = "waits"
        progress.say(f"{self._what}: {text}")

    def runs(self, logged: int | None) -> None:
        """TensorRT builds it. Args: logged: of native_log.position."""
        self._state, self._logged = "runs", logged
        progress.say(f"{self._what} {self._details}")

    def tick(self, seconds: float) -> None:
        """Some time has passed. Args: seconds: since `begin`."""
        if self._state == "runs":
            timed = _timed(self._logged)
            progress.say(f"{self._what} {self._details}, {_duration(seconds)}" + (f", times {timed}" if timed else ""))


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def _timed(logged: int | None) -> str:
    """The last layer in TensorRT's log, or ""."""
    if logged is None:
        return ""
    with open("/proc/self/fd/2", "rb") as file:
        file.seek(max(os.fstat(file.fileno()).st_size - _TAIL_BYTES, logged))
        found = _TIMED.findall(file.read().decode(errors="replace"))
    return f"{found[-1][0][-_LONGEST:]} ({found[-1][1]})" if found else ""
