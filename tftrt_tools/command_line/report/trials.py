"""What the table of a search's trials is made of, on its own page and in the report of an optimization."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tftrt_tools.studies.tuning import table

if TYPE_CHECKING:
    from tftrt_tools.studies.tuning.tried import Tuning


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trials:
    """calls: texts of those that were timed; headings: of their columns; metric: of the goal; high: {number of a trial: names of its nodes
    in a higher precision}; legend: what words and figures mean."""

    rows: Sequence[table.Row]
    calls: Sequence[str]
    headings: Sequence[str]
    metric: str
    high: Mapping[int, Sequence[str]]
    legend: str


def of_tuning(done: Tuning) -> Trials:
    """Of a search."""
    return Trials(
        rows=done.table,
        calls=done.calls,
        headings=done.headings,
        metric=done.goal.metric,
        high={one.number: one.high for one in done.trials if one.high},
        legend=done.legend,
    )


def of_document(document: Mapping[str, Any] | None) -> Trials | None:
    """Of a search's JSON; None where it has no table, as that of a version before."""
    if not document or "table" not in document:
        return None
    return Trials(
        rows=tuple(map(table.Row.from_dict, document["table"])),
        calls=document["calls"],
        headings=table.headings(document["calls"]),
        metric=document["goal"]["metric"],
        high={one["number"]: one["high_precision"] for one in document["trials"] if one["high_precision"]},
        legend=document["legend"],
    )
