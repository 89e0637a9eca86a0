"""Which lines of a server's log are shown: those of the user's TF_CPP_MIN_LOG_LEVEL. The server itself is started at level 0, because
readiness and failed loads are read in its log."""

from __future__ import annotations

import os

from tftrt_tools.logs import heads

_LEVELS = "VIWEF"


class Shown:
    """Takes the log's lines in order."""

    def __init__(self) -> None:
        text = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "").strip()
        self._hidden = _LEVELS[:int(text) + 1] if text.isdecimal() and int(text) else ""
        self._show = True

    def shows(self, line: str) -> bool:
        """Whether the next line is shown; one without a level goes with the line before it."""
        if self._hidden and (head := heads.read(line)):
            self._show = head.level not in self._hidden
        return self._show
