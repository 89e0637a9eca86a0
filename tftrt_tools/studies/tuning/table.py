"""The one table of a search: the original, every trial, and its calls as CUDA graphs, a row each. Text, pages and JSON are made of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tftrt_tools.base import records
from tftrt_tools.base.choices import Server
from tftrt_tools.studies import backends
from tftrt_tools.studies.tuning.latency import Latency

if TYPE_CHECKING:
    from tftrt_tools.studies.tuning.tried import Trial, Tuning

GRAPHS = "with CUDA graphs"
_WINS, COMPARED = "winner", "only compared"
# A column of a table is narrow.
_SHORT: dict[Server, str] = {"tensorflow": "TF Serving", "triton": "Triton"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row(records.Record):
    """One model, called in one way."""

    # Number of the trial, 0 for the original.
    trial: int
    what: str
    # Whether its calls are launched as CUDA graphs.
    graphs: bool = False
    # {call as text: Latency}, one call at a time.
    latencies: Mapping[str, Latency]
    # Rows of one caller in a second at the call that counts; None where that failed.
    rows_per_second: float | None = records.field(digits=1, default=None)
    # The goal's metric, and the SNR of the worst float output against the original's, in dB.
    accuracy: float | None = None
    snr_db: float | None = None
    # Whether the goal is kept; None for the original.
    kept: bool | None = None
    # Seconds that its engines took when they were built; None for the original.
    build_seconds: float | None = records.field(digits=1, default=None)
    # Bytes of the engines, and of all files of the model.
    engine_bytes: int = 0
    model_bytes: int = 0
    # What serves it.
    servers: tuple[Server, ...] = ()
    # "winner", or "only compared" where it cannot be that; "" for a trial that others beat.
    remark: str = ""
    # Why there is no model, or "".
    failure: str = ""

    @property
    def served_by(self) -> str:
        """For people."""
        return ", ".join(_SHORT[one] for one in self.servers)


def headings(calls: Sequence[str]) -> tuple[str, ...]:
    """Of the latencies of calls, without the signature's name if there is only one."""
    one = len({call.partition("(")[0] for call in calls}) == 1
    return tuple(f"{call.partition('(')[2].rstrip(')') if one else call}, ms" for call in calls)


def rows(done: Tuning) -> tuple[Row, ...]:
    """The Rows: trials in the order of the search, each followed by its calls as CUDA graphs, and the original last."""
    found = [row for one in done.trials for row in _of_trial(one, done)]
    native = Row(
        trial=0,
        what=done.runtime,
        latencies=done.native,
        rows_per_second=_rate(done.native, done),
        accuracy=done.original,
        model_bytes=done.model_bytes,
        servers=done.model_servers,
    )
    return (*found, native)


def _of_trial(one: Trial, done: Tuning) -> list[Row]:
    servers, measured = backends.servers(one.backend), one.measured
    remark = _WINS if one == done.winner else COMPARED if one.compared else ""
    row = Row(
        trial=one.number,
        what=one.text,
        latencies=measured.latencies,
        rows_per_second=_rate(measured.latencies, done),
        accuracy=measured.accuracy,
        snr_db=measured.snr_db,
        kept=one.kept,
        build_seconds=measured.build_seconds,
        engine_bytes=measured.engine_bytes,
        model_bytes=measured.model_bytes,
        servers=servers,
        remark=remark,
        failure=measured.failure,
    )
    if not measured.graphs:
        return [row]
    launched = dataclasses.replace(
        row,
        what=f"{one.text}, {GRAPHS}",
        graphs=True,
        latencies=measured.graphs,
        rows_per_second=_rate(measured.graphs, done),
        remark="" if remark == _WINS else remark,
    )
    return [row, launched]


def _rate(latencies: Mapping[str, Latency], done: Tuning) -> float | None:
    found = latencies.get(done.objective)
    return done.objective_rows / (found.ms / 1e3) if found and found.ms > 0 and done.objective_rows else None
