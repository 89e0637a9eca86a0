"""Reads rows and writes them to files; the child's side of `export`."""

from __future__ import annotations

import contextlib
import importlib
import pathlib
import zipfile
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tftrt_tools.base import errors, terminal
from tftrt_tools.base.files import whole_file
from tftrt_tools.base.process import progress
from tftrt_tools.models.inputs import find
from tftrt_tools.models.inputs import labels as labels_module
from tftrt_tools.models.inputs.export import DEFAULT_CALIBRATION_ROWS, Wanted, Written
from tftrt_tools.models.inputs.export import Request as WriteRequest
from tftrt_tools.models.inputs.read import Rows
from tftrt_tools.models.inputs.rows import row_hashes
from tftrt_tools.models.inputs.sources_job import batching
from tftrt_tools.models.inputs.sources_job.request import Request
from tftrt_tools.models.savedmodel.shapes import InputSpec

_SAID_EVERY = 50


def job(request: WriteRequest) -> Written:
    """The job export.write."""
    wanted, kind, specs, files = request.wanted, request.kind, request.specs, request.files
    source = wanted.options.source
    of_path: dict[str, int] = {}
    folders: dict[int, str] = {}
    if wanted.labels and not wanted.answers and find.Found(kind, files).by_file:
        of_path, folders = labels_module.of_folders(files, source, wanted.classes)
    rows, labels, wheres, tally = _read(wanted, specs, request.others, kind, files, of_path)
    answers = _answers(wanted, kind, files, wheres, len(rows))
    scored, others = _dealt(wanted, len(rows))
    scored_hashes = {row_hashes(rows[number])[0] for number in scored} if others else set()
    kept = [number for number in others if row_hashes(rows[number])[0] not in scored_hashes]
    if others and not kept:
        raise errors.UsageError(
            f"all {len(others)} rows to calibrate on are equal to rows that are scored", "give more data"
        )
    prefix, overwrite = request.prefix, request.overwrite
    inputs = _write(wanted.output, [rows[number] for number in scored], specs, prefix, overwrite)
    classes: tuple[labels_module.Class, ...] = ()
    if wanted.labels:
        values = answers[scored] if wanted.answers else np.array([labels[number] for number in scored], np.int64)
        with whole_file.replacing(wanted.labels, overwrite=overwrite) as file:
            np.save(file, values)
        classes = labels_module.counted(values, folders) if values.dtype.kind in "iu" and values.ndim == 1 else ()
    if wanted.calibration:
        _write(wanted.calibration, [rows[number] for number in kept], specs, prefix, overwrite)
    size, failed = pathlib.Path(wanted.output).stat().st_size, tuple(pathlib.Path(path).name for path in tally.failed)
    return Written(
        wanted=wanted,
        source_kind=kind,
        rows=len(scored),
        calibration_rows=len(kept),
        in_both=len(others) - len(kept),
        bytes=size,
        inputs=inputs,
        classes=classes,
        failed=failed,
    )


def _read(
    wanted: Wanted,
    specs: tuple[InputSpec, ...],
    others: tuple[str, ...],
    kind: str,
    files: tuple[str, ...],
    of_path: dict[str, int],
) -> tuple[list[dict[str, npt.NDArray[Any]]], list[int], list[str], batching.Tally]:
    """([{input: array of one row}], [class of each] or [], [the file of each chunk], Tally). Args: others: as of Request.
    of_path: {picture: class}, or {}."""
    held_back = wanted.calibration_rows or DEFAULT_CALIBRATION_ROWS
    rows_needed = wanted.rows + (held_back if wanted.calibration else 0) if wanted.rows else 0
    request = Request(
        options=wanted.options,
        signature=wanted.signature,
        specs=specs,
        files=files,
        said=find.POSITIONAL,
        rows=rows_needed,
        label_feature=wanted.label_feature,
        others=others,
    )
    tally, labels, rows, wheres = batching.Tally(), [], [], []
    chunks = importlib.import_module(f"tftrt_tools.models.inputs.sources_job.{kind}").source(request)(tally)

    def noted() -> Iterator[tuple[str, dict[str, npt.NDArray[Any]]]]:
        for where, arrays in chunks:
            wheres.append(where)
            if wanted.labels and not wanted.answers:
                labels.append(of_path[where] if of_path else arrays[labels_module.LABEL])
            yield where, arrays

    with contextlib.closing(batching.cut(noted(), wanted.signature, specs, 1, tally)) as batches:
        for row in batches:
            rows.append(row)
            if len(rows) % _SAID_EVERY == 0:
                progress.say("reading rows", len(rows), rows_needed or None)
            if len(rows) == rows_needed:
                break
    if not rows:
        failed = f": {len(tally.failed)} files could not be decoded" if tally.failed else ""
        raise errors.UsageError(f"{wanted.options.source} holds no rows{failed}", "give data with one row at least")
    return rows, labels, wheres, tally


def _answers(wanted: Wanted, kind: str, files: tuple[str, ...], wheres: list[str], count: int) -> npt.NDArray[Any]:
    """The right answers of the rows that were read, [rows, …]; empty if no file has them.

    Args: wheres: the file of each chunk, which is a row if each file is one. count: rows that were read. Raises: UsageError.
    """
    if not wanted.answers:
        return np.zeros(0)
    by_file, place = find.Found(kind, files).by_file, {path: number for number, path in enumerate(files)}
    names = tuple(wheres[:count]) if by_file else ()
    read = Rows(
        arrays={},
        kind=kind,
        names=names,
        numbers=tuple(place[name] for name in names) or tuple(range(count)),
        failed=(),
        total=len(files) if by_file else 0 if wanted.rows else count,
    )
    values = labels_module.read(wanted.answers, read, wanted.label_column)
    if not values.ndim or len(values) != count:
        raise errors.UsageError(
            f"--labels={wanted.answers} holds {len(values) if values.ndim else 1} values, and {wanted.options.source} "
            f"{count} rows",
            "give one for each row, in their order",
        )
    values = labels_module.numbered(values, wanted.classes) if wanted.classes else values
    return values.astype(str) if values.dtype == object else values


def _dealt(wanted: Wanted, total: int) -> tuple[list[int], list[int]]:
    """([numbers of the rows to score], [numbers of the rows to calibrate on]). The rows to score are spread evenly over the others.
    Raises: UsageError."""
    if not wanted.calibration:
        return list(range(total)), []
    beside = total - wanted.rows if wanted.rows else total // 4
    count = wanted.calibration_rows or max(min(DEFAULT_CALIBRATION_ROWS, beside), 1)
    if total <= count or total < wanted.rows + count:
        counts = (
            f"{wanted.rows} rows to score and {count} to calibrate on"
            if wanted.rows
            else f"some of them to score and {count} to calibrate on"
        )
        raise errors.UsageError(
            f"{wanted.options.source} holds {terminal.counted(total, 'row')}, and {counts} are needed",
            "ask for fewer, or give more data",
        )
    chosen = set(find.spread(total, count))
    return [number for number in range(total) if number not in chosen], sorted(chosen)


def _write(
    path: str, rows: list[dict[str, npt.NDArray[Any]]], specs: tuple[InputSpec, ...], prefix: str, overwrite: bool
) -> dict[str, str]:
    """Write rows as an .npz without a second copy in memory. Args: overwrite: as whole_file.replacing. Returns: {array: "dtype[shape]"}."""
    details = {}
    with whole_file.replacing(path, overwrite=overwrite) as target, zipfile.ZipFile(target, "w") as archive:
        for spec in specs:
            parts = [_storable(row[spec.name], spec.name) for row in rows]
            if parts and not parts[0].ndim:
                parts = parts[:1]
            shape = (len(parts), *parts[0].shape[1:]) if parts[0].ndim else ()
            dtype = max((part.dtype for part in parts), key=lambda array: array.itemsize)
            with archive.open(f"{prefix}{spec.name}.npy", "w", force_zip64=True) as file:
                header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}  # type: ignore[no-untyped-call]
                np.lib.format.write_array_header_1_0(file, header)  # type: ignore[no-untyped-call]
                for part in parts:
                    file.write(np.ascontiguousarray(part, dtype).tobytes())
            details[prefix + spec.name] = (
                f"{'string' if dtype.kind == 'S' else dtype.name}[{','.join(map(str, shape))}]"
            )
    return details


def _storable(array: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    """An array that a file can hold without pickled objects: strings of a fixed width, bfloat16 as float32."""
    if array.dtype == ml_dtypes.bfloat16:
        return array.astype(np.float32)
    if array.dtype != object:
        return array
    fixed = array.astype("S")
    if fixed.astype(object).tolist() != array.tolist():
        raise errors.UsageError(
            f"strings of input {name!r} end in zero bytes, which an .npz cannot keep",
            "give such data by module:function",
        )
    return fixed
