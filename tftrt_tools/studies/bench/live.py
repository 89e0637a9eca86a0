"""Progress of a benchmark: a live table on a terminal, a line for each point elsewhere. On stderr, because stdout may carry the result."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from tftrt_tools.base import terminal
from tftrt_tools.base.process import progress

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from rich.console import Console

    from tftrt_tools.servers.load.load_plan import Progress
    from tftrt_tools.studies.bench.measurements import Row


@dataclasses.dataclass(frozen=True, kw_only=True)
class Moment:
    """The state of a point while it runs."""

    # As in load_plan.Progress.
    phase: str
    # Seconds since the phase began, and planned for the measurement; None where they are not known.
    seconds: float
    total: float | None
    # Requests so far.
    answered: int
    failed: int
    # Answers a second.
    rate: float
    # Percentiles of the latest answers, None where these are too few.
    p50_ms: float | None
    p99_ms: float | None

    @classmethod
    def of(
        cls,
        progress: Progress,
        total: float | None,
        answered: int,
        recent: Sequence[tuple[float, npt.NDArray[np.int64]]],
    ) -> Moment:
        """Args: progress: load_plan.Progress. total: seconds planned, or None. answered: so far in this phase. recent: [(seconds, int64 ns
        latencies)], the latest ones, the last second at least."""
        import numpy as np

        from tftrt_tools.servers.load import latency_statistics

        times = np.concatenate([times for _, times in recent]) if recent else np.zeros(0, np.int64)
        last_second = sum(times.size for seconds, times in recent if progress.seconds - seconds < 1)
        p50, p99 = (latency_statistics.percentile(times, share).value for share in (0.5, 0.99))
        return cls(
            phase=progress.phase,
            seconds=progress.seconds,
            total=total if progress.phase == "measure" else None,
            answered=answered,
            failed=progress.failed,
            rate=last_second / max(min(progress.seconds, 1.0), 0.1),
            p50_ms=p50 and p50 / 1e6,
            p99_ms=p99 and p99 / 1e6,
        )


class Lines:
    """A line when a point begins to be measured and one when it is done."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say

    def note(self, text: str) -> None:
        """Print a note that the user should read before the result."""
        self._say(text)

    def begin(self, number: int, total: int | None, text: str) -> None:
        """A point begins. Args: number: from 1; total: None where it is not known."""
        self._text = f"{number}/{total}" if total else f"probe {number}"
        self._say(f"{self._text}  {text}")

    def moment(self, moment: Moment) -> None:
        """Show the state of the point."""

    def done(self, row: Row) -> None:
        """A point is done, with its measurements.Row."""
        self._say(f"{self._text}  {summary(row)}")


class Table(Lines):
    """A live table: the finished points, and the running one."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._console, self._now = console, ""
        self._rows: list[tuple[str, str]] = []
        self._moment: Moment | None = None
        self._live = Live(console=console, refresh_per_second=8, transient=True, get_renderable=self._drawn)

    def __enter__(self) -> Table:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def note(self, text: str) -> None:
        self._console.print(text, highlight=False)

    def begin(self, number: int, total: int | None, text: str) -> None:
        self._now, self._moment = f"{number}/{total}  {text}" if total else f"probe {number}  {text}", None

    def moment(self, moment: Moment) -> None:
        self._moment = moment

    def done(self, row: Row) -> None:
        self._rows.append((self._now, summary(row)))
        self._now = ""

    def _drawn(self) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        for _ in range(3):
            table.add_column()
        for text, found in self._rows[-12:]:
            table.add_row(Text(text), Text(found), "")
        if self._now:
            moment = self._moment
            bar = (
                ProgressBar(total=moment.total, completed=min(moment.seconds, moment.total), width=24)
                if moment and moment.total
                else ""
            )
            table.add_row(Text(self._now, style="bold"), Text(_text(moment), style="bold"), bar)
        return Group(table)


@contextlib.contextmanager
def view(stream: TextIO | None = None) -> Iterator[Lines]:
    """Yields: Table on a terminal, else Lines. Args: stream: by default that of progress.note."""
    shown = stream or sys.stderr
    if not shown.isatty():
        yield Lines(progress.note if stream is None else lambda text: print(text, file=stream, flush=True))
        return
    with Table(terminal.console(shown)) as table:
        yield table


def summary(row: Row) -> str:
    """A row in a line: 1234.5/s, p50 1.23 ms, p99 2.34 ms, 0 failed."""
    parts = [f"{row.throughput:.1f}/s"]
    known = row.response.percentiles
    parts += [f"{name} {known[name]:.2f} ms" for name in ("p50", "p99") if known.get(name) is not None]
    parts.append(f"{row.failed} failed" + (f" ({row.refused} refused: no gRPC thread left)" if row.refused else ""))
    if row.goal:
        parts.append({True: "goal kept", False: "goal missed", None: "goal not decided"}[row.kept])
    return ", ".join(parts)


def _text(moment: Moment | None) -> str:
    if moment is None:
        return "starting"
    parts = [moment.phase, f"{moment.rate:.0f}/s"]
    parts += [
        f"{name} {value:.2f} ms"
        for name, value in (("p50", moment.p50_ms), ("p99", moment.p99_ms))
        if value is not None
    ]
    return ", ".join([*parts, f"{moment.failed} failed"])
