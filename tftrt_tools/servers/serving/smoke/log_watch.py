"""Reads a server's log during requests, and interprets TF-TRT's lines in it."""

import os
import pathlib
import re
import time
from collections.abc import Collection, Iterable

from tftrt_tools.base import errors
from tftrt_tools.base.logs import engine_lines, index
from tftrt_tools.base.logs.known import fallback
from tftrt_tools.models.execution import trace
from tftrt_tools.servers.serving.smoke.engine_evidence import CERTAIN, LIKELY, NO, NOTHING, YES, Evidence

# A log that a parent process passes on arrives a little late.
_QUIET_SECONDS, _LONGEST_SECONDS = 0.25, 3
_ENGINE = re.compile(r"TRTEngineOp_\w+")


class LogWatch:
    """Reads what is added to a log file from now on. Raises: UsageError where it cannot be read."""

    def __init__(self, path: str | pathlib.Path) -> None:
        self._path = path
        try:
            with open(path, "rb") as file:
                self._position = file.seek(0, os.SEEK_END)
        except OSError as error:
            raise errors.UsageError(
                f"--server_log={path}: {error.strerror}", "give the file that the server writes its log to"
            ) from None

    def new(self) -> str:
        """What was written since the last call, as text; waits until the file is quiet."""
        end = time.monotonic() + _LONGEST_SECONDS
        size = self._size()
        while time.monotonic() < end:
            time.sleep(_QUIET_SECONDS)
            before, size = size, self._size()
            if size == before:
                break
        if size < self._position:
            self._position = 0  # rotated
        try:
            with open(self._path, "rb") as file:
                file.seek(self._position)
                raw = file.read()
        except FileNotFoundError:
            return ""
        self._position += len(raw)
        return raw.decode(errors="replace")

    def _size(self) -> int:
        try:
            return os.path.getsize(self._path)
        except FileNotFoundError:
            return 0


def read(
    text: str, call: str, engines: Collection[str] | None, sent: int, left: Collection[str] = ()
) -> tuple[list[Evidence], int]:
    """The Evidence that a call left in the log.

    Args: text: written while the call ran. call: its text. engines: names of the signature's engine ops, None where not known. sent: how
      many requests there were. left: names of further engine ops, which the build left native: lines about them say nothing.
    Returns: [Evidence], and how many engines were built.
    """
    text = "\n".join(line for line in text.splitlines() if _concerns(line, engines))
    seen = trace.combine({}, text)
    warned = [engine_lines.name(engine) for engine in index.all_of(fallback.REASONS, text, "engine")]
    native = dict.fromkeys([*seen.fallback, *warned])
    lines = []
    if native or seen.reasons and not left:
        why = f": {seen.reasons[0]}" if seen.reasons else ""
        lines.append(
            Evidence(
                source="log",
                seen=f"TF-TRT logs that {_names(native) or 'an engine'} ran natively{why}",
                speaks=NO,
                weight=CERTAIN,
                call=call,
            )
        )
    if seen.calibration:
        lines.append(
            Evidence(
                source="log",
                seen=f"TF-TRT logs that {_names(seen.calibration)} still calibrates, natively",
                speaks=NO,
                weight=CERTAIN,
                call=call,
            )
        )
    if seen.engine and not lines:
        whole = min(seen.engine.values()) >= sent and (engines is None or set(engines) <= set(seen.engine))
        lines.append(
            Evidence(
                source="log",
                seen=f"TF-TRT logs {sum(seen.engine.values())} engine runs ({_names(seen.engine)}) in {sent} requests",
                speaks=YES,
                weight=CERTAIN if whole else LIKELY,
                call=call,
            )
        )
    if seen.build:
        text = f"TF-TRT logs that {_names(seen.build)} was built inside a request"
        lines.append(Evidence(source="log", seen=text, speaks=NOTHING if lines else YES, weight=LIKELY, call=call))
    if not lines:
        lines.append(
            Evidence(
                source="log",
                seen="no line of TF-TRT: it warns five times a process, so that silence says nothing",
                speaks=NOTHING,
                call=call,
            )
        )
    return lines, sum(seen.build.values())


def _concerns(line: str, engines: Collection[str] | None) -> bool:
    named = set(_ENGINE.findall(line))
    return engines is None or not named or bool(named & set(engines))


def _names(counts: Iterable[str]) -> str:
    return ", ".join(sorted(counts))
