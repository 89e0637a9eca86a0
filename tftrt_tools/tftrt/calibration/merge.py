"""Calibrations of one model made into one, such as those of several data sets."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.models.inputs import value_ranges
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.tftrt.calibration.file import Calibration, EngineTable
from tftrt_tools.tftrt.calibration.record import FILES_NAMED, ROWS_KEPT
from tftrt_tools.tftrt.calibration.table import Table

# How several scales of one tensor become one.
HOW: dict[str, Callable[[Sequence[float]], float]] = {
    "max": max,
    "min": min,
    "mean": statistics.fmean,
    "median": statistics.median,
    "first": lambda scales: scales[0],
}


def merge_tables(tables: Sequence[Table], how: str) -> Table:
    """One table of several of one engine: each tensor's scale by HOW[how], over those tables that have it; the newest header.

    Raises: TftrtError where TensorRT's major versions or the calibrators differ.
    """
    for what, values in (
        ("TensorRT", {table.tensorrt for table in tables}),
        ("calibrators", {table.calibrator for table in tables}),
    ):
        if len({value.split(".")[0] for value in values}) > 1:
            raise errors.TftrtError(
                f"tables of different {what} cannot be merged: {' and '.join(sorted(values))}",
                "calibrate again with one of them",
            )
    names = dict.fromkeys(name for table in tables for name in table.scales)
    scales = {name: HOW[how]([table.scales[name] for table in tables if name in table.scales]) for name in names}
    newest = max(tables, key=lambda table: tuple(map(int, table.tensorrt.split("."))))
    return Table(newest.header, scales)


def merge(calibrations: Sequence[Calibration], how: str, sources: Sequence[str]) -> Calibration:
    """Merge Calibrations of the same segments.

    Args: how: a key of HOW. sources: a name for each, for errors and provenance.

    A tensor that one of them leaves out on purpose stays out; with "first", the first table that mentions it decides. Tables of one
    segment, also of one file, become one table. Seen ranges are joined. Sample counts are added.

    Returns: Calibration. Raises: TftrtError for other segments, TensorRT's major versions, calibrators in the header, or, where segments
    are not known, for other tensors.
    """
    _check_segments(calibrations, sources)
    first, merged = calibrations[0], {}
    for segment in {engine.segment: None for engine in first.engines}:
        merged[segment] = _one_engine(
            [engine for each in calibrations for engine in each.engines if engine.segment == segment], how
        )
    engines: list[EngineTable] = []
    for one in first.engines:
        table, left_out, ranges = merged[one.segment]
        engines.append(dataclasses.replace(one, table=table, left_out=left_out, ranges=ranges))
    step = {
        "step": "merged",
        **passport.stamp(),
        "how": how,
        "sources": [_origin(source, calibration) for source, calibration in zip(sources, calibrations, strict=True)],
    }
    newest = max(
        calibrations, key=lambda calibration: [int(part) for part in calibration.tensorrt.split(".") if part.isdigit()]
    )
    return Calibration(
        **passport.stamp(),
        calibrator=_joined(calibration.calibrator for calibration in calibrations),
        method="merged",
        tensorrt=newest.tensorrt,
        tensorflow=_joined(calibration.tensorflow for calibration in calibrations),
        model=first.model,
        model_digest=first.model_digest if len({calibration.model_digest for calibration in calibrations}) == 1 else "",
        data=combined([calibration.data for calibration in calibrations]),
        engines=tuple(engines),
        provenance=(step,),
    )


def _check_segments(calibrations: Sequence[Calibration], sources: Sequence[str]) -> None:
    first = {engine.segment for engine in calibrations[0].engines}
    for source, other in zip(sources[1:], calibrations[1:], strict=True):
        segments = {engine.segment for engine in other.engines}
        if segments != first:
            lonely = next(
                engine
                for each in (calibrations[0], other)
                for engine in each.engines
                if engine.segment in first ^ segments
            )
            holder = sources[0] if lonely.segment in first else source
            raise errors.TftrtError(
                f"{sources[0]} and {source} were made for different graphs: only {holder} has a table for "
                f"{lonely.segment[:19] or 'an unknown graph'} ({lonely.label})",
                "only calibrations of one model with one set of settings can be merged",
            )
    unknown = [
        (engine, source)
        for source, each in zip(sources, calibrations, strict=True)
        for engine in each.engines
        if not engine.segment
    ]
    for table, source in unknown[1:]:
        different = sorted(_named(table) ^ _named(unknown[0][0]))
        if different:
            raise errors.TftrtError(
                f"{unknown[0][1]} and {source} are of different graphs: only one of them has {different[0]!r}",
                "only tables of the same graph can be merged",
            )


def _named(one: EngineTable) -> set[str]:
    """The tensors that an EngineTable mentions."""
    return {*one.table.scales, *dict(one.left_out)}


def _one_engine(
    parts: Sequence[EngineTable], how: str
) -> tuple[Table, tuple[tuple[str, str], ...], dict[str, dict[str, float]] | None]:
    """(Table, left_out, ranges) of EngineTables of one segment."""
    left_out: dict[str, set[str]] = {}
    for name, reason in (pair for part in parts for pair in part.left_out):
        if how != "first" or not _has_scale_first(name, parts):
            left_out.setdefault(name, set()).add(reason)
    table = merge_tables([part.table for part in parts], how)
    table = Table(table.header, {name: scale for name, scale in table.scales.items() if name not in left_out})
    return (
        table,
        tuple((name, "; ".join(sorted(reasons))) for name, reasons in sorted(left_out.items())),
        _ranges(parts),
    )


def _ranges(parts: Sequence[EngineTable]) -> dict[str, dict[str, float]] | None:
    """The union of the ranges that they saw; None if none has any."""
    seen: dict[str, dict[str, float]] = {}
    for name, value_range in (item for part in parts for item in (part.ranges or {}).items()):
        before = seen.get(name, value_range)
        seen[name] = {"min": min(before["min"], value_range["min"]), "max": max(before["max"], value_range["max"])}
    return seen or None


def _has_scale_first(name: str, parts: Sequence[EngineTable]) -> bool:
    """Whether the first part that mentions tensor `name` gives it a scale."""
    return next(name in part.table.scales for part in parts if name in part.table.scales or name in dict(part.left_out))


def combined(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One data record (calibration/record.py) of several; an entry that one of them lacks is None in the result."""
    rows = [row for record in records for row in record.get("rows") or ()]
    digests = [record["digest"] for record in records if record.get("digest")]
    failed = [name for record in records for name in record.get("failed_files") or ()]
    warnings = list(dict.fromkeys(text for record in records for text in record.get("warnings") or ()))
    if len(set(digests)) < len(digests) or len(set(rows)) < len(rows):
        warnings.append("the merged calibrations share data; samples are counted more than once")
    sizes = [record.get("batch_size") for record in records]
    return {
        "source": _joined(record.get("source") for record in records),
        "kind": _joined(record.get("kind") for record in records),
        "digest": digests[0] if len(digests) == len(records) and len(set(digests)) == 1 else "",
        "samples": _sum(records, "samples"),
        "batch_size": sizes[0] if sizes.count(sizes[0]) == len(sizes) else None,
        "batches": _sum(records, "batches"),
        "dropped": _sum(records, "dropped"),
        "random": any(record.get("random") for record in records),
        "rows": list(dict.fromkeys(rows))[:ROWS_KEPT],
        "failed_files": failed[:FILES_NAMED],
        "failed_count": _sum(records, "failed_count"),
        "warnings": warnings,
        "ranges": {
            name: value_range.to_dict()
            for name, value_range in value_ranges.combined(map(value_ranges.read, records)).items()
        },
    }


def _origin(source: str, calibration: Calibration) -> dict[str, Any]:
    """The facts about a merged file that are kept besides its scales; the hashes of its rows are in the merged record."""
    data = {name: value for name, value in calibration.data.items() if name != "rows"}
    return {
        "source": source,
        "created": calibration.created,
        "calibrator": calibration.calibrator,
        "method": calibration.method,
        "tensorrt": calibration.tensorrt,
        "model": calibration.model,
        "data": data,
        "provenance": list(calibration.provenance),
    }


def _sum(records: Sequence[Mapping[str, Any]], key: str) -> int | None:
    counts: list[Any] = [one.get(key) for one in records]
    return sum(counts) if all(isinstance(count, int) for count in counts) else None


def _joined(texts: Iterable[str | None]) -> str:
    return ", ".join(dict.fromkeys(filter(None, texts)))
