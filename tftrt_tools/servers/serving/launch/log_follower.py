"""Follows a server's log and says what could not be loaded and why: the server itself tries again for minutes, among many other lines."""

import dataclasses
import re
import threading
from collections.abc import Mapping

from tftrt_tools.base.logs import load_failure
from tftrt_tools.base.logs.known import loading

# A line without a date belongs to the message before it.
_DATED = re.compile(r"\d{4}-\d\d-\d\d ")
_LONGEST_LINES = 20


@dataclasses.dataclass(frozen=True)
class News:
    """A problem in one line, and its mend ("" where none is known)."""

    cause: str
    mend: str

    @property
    def text(self) -> str:
        """The problem and its mend, for people."""
        return "\n  ".join(filter(None, [f"tftrt: warning: {self.cause}", self.mend]))


class Follower:
    """Takes the log's lines from one thread (`note`), and gives each piece of news once to another (`news`)."""

    def __init__(self, values: Mapping[str, object]) -> None:
        """Args: values: the server's flags by name, which say how often it tries again."""
        self._again = _again(values)
        self._lock = threading.Lock()
        self._complete: list[News] = []
        self._told: set[News] = set()
        # A load that failed: (name, version), and the lines of its message so far.
        self._which = ("", "")
        self._open: list[str] = []
        self._grown = False

    def note(self, line: str) -> None:
        """Take a line of the log."""
        with self._lock:
            failed = loading.FAILED.find(line)
            if self._open and (failed or _DATED.match(line) or len(self._open) >= _LONGEST_LINES):
                self._close()
            if failed:
                self._which, self._open, self._grown = (failed["model"], failed["version"]), [failed["said"]], True
            elif self._open:
                self._open.append(line)
                self._grown = True
            else:
                self._note_base_path(line)

    def news(self) -> list[News]:
        """The news since the last call. A message without an end is complete once it has not grown between two calls."""
        with self._lock:
            if self._open and not self._grown:
                self._close()
            self._grown = False
            complete, self._complete = self._complete, []
            return complete

    def _close(self) -> None:
        (name, version), said = self._which, "\n".join(self._open)
        self._open = []
        cause, mend = load_failure.explain(said)
        self._add(News(f"{name} version {version} did not load: {cause}", "; ".join(filter(None, [mend, self._again]))))

    def _note_base_path(self, line: str) -> None:
        if match := loading.FILE_SYSTEM.find(line):
            self._add(
                News(
                    f"the server finds no versions, of no model: {match['said']}",
                    "it looks again by itself once that is fixed",
                )
            )
        elif match := loading.NO_VERSION.find(line):
            self._add(News(f"{match['model']} has no version under {match['path']}", loading.NO_VERSION.mend))

    def _add(self, news: News) -> None:
        if news not in self._told:
            self._told.add(news)
            self._complete.append(news)


def _again(values: Mapping[str, object]) -> str:
    tries, pause = int(str(values["max_num_load_retries"])), int(str(values["load_retry_interval_micros"])) / 1e6
    if tries <= 0:
        return ""
    times = f"{tries} more time{'s' if tries > 1 else ''}"
    return f"the server tries {times}, one each {pause:g} s (--max_num_load_retries, --load_retry_interval_micros)"
