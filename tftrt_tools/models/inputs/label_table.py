"""Labels in a table: which column holds them, and which row is of which file. No TensorFlow here."""

from __future__ import annotations

import collections
import pathlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.models.inputs import find
from tftrt_tools.models.inputs.table import Table

_WORDS = ("label", "labels", "class", "class_id", "class_name", "label_id", "category", "target", "y")


def read(table: Table, files: tuple[str, ...], column: str = "") -> tuple[npt.NDArray[Any], bool]:
    """The labels of a table.

    Args: files: paths of the data's rows, () where they are no files. column: as `labels.read` takes it.
    Returns: (labels as `typed` gives them, whether they were matched with `files` and are in their order). Raises: UsageError.
    """
    header = [cell.strip() for cell in table.rows[0]]
    number, titled = _column(table, header, column)
    titled = titled or header[number].lower() in _WORDS
    place = _file_column(table, files, number)
    names = _Names(files) if place is not None else None
    # A table without names of files is not searched for them.
    at = place or 0
    others = next((cell for row in table.rows for cell in row if find.is_picture(cell)), "")
    if files and names is None and others:
        raise errors.UsageError(
            f"{table.path} speaks of {others}, and of none of --data's files, such as {pathlib.Path(files[0]).name}",
            "give each file of --data a row FILE,LABEL",
        )
    body = table.rows[1:] if titled or names and not names.knows(header[at]) else table.rows
    cells = [row[number].strip() for row in body]
    if (
        names is None
        and not titled
        and len(cells) > 1
        and typed(cells).dtype == object
        and typed(cells[1:]).dtype != object
    ):
        body, cells = body[1:], cells[1:]  # only the first one is not a number
    if not all(cells):
        line = cells.index("") + 1 + len(table.rows) - len(body)
        raise errors.UsageError(
            f"{table.path}: row {line} has no label in column {number + 1}", "give each row its label"
        )
    if names is None:
        return typed(cells), False
    return typed(names.matched(table.path, [row[at] for row in body], cells)), True


def typed(values: list[str]) -> npt.NDArray[Any]:
    """int64 where all are integers, else float64 where all are numbers, else object of str; each [len(values)]."""
    for convert, dtype in ((int, np.int64), (float, np.float64)):
        try:
            return np.array([convert(value) for value in values], dtype)
        except (ValueError, OverflowError):
            continue
    return objects(values)


def objects(values: list[str]) -> npt.NDArray[Any]:
    """object [len(values)] of str."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _column(table: Table, header: list[str], wanted: str) -> tuple[int, bool]:
    """(number of the labels' column, whether the first line is known to be a header)."""
    if wanted.isdigit() and 1 <= int(wanted) <= table.width:
        return int(wanted) - 1, False
    if wanted in header:
        return header.index(wanted), True
    if wanted:
        raise errors.UsageError(
            f"--label_column={wanted}: {table.path} has no such column; its first line is {', '.join(header)}"[:300],
            f"name one of them, or give its number, 1 to {table.width}",
        )
    usual = [number for number, cell in enumerate(header) if cell.lower() in _WORDS]
    return (usual[0], True) if len(usual) == 1 else (table.width - 1, False)


def _file_column(table: Table, files: tuple[str, ...], labels: int) -> int | None:
    """The number of the column with the files' names; None where no column names a file."""
    if not files:
        return None
    names = _Names(files)
    return next(
        (
            number
            for number in range(table.width)
            if number != labels and any(names.knows(row[number]) for row in table.rows)
        ),
        None,
    )


class _Names:
    """The files of the data, by their possible names in a table: any last part of the path, with or without the ending."""

    def __init__(self, files: tuple[str, ...]) -> None:
        self._files = files
        self._bare = collections.Counter(pathlib.Path(path).name for path in files)
        self._known = {*self._bare, *(pathlib.Path(name).stem for name in self._bare)}

    def knows(self, cell: str) -> bool:
        """Whether a cell names one of the files."""
        return _parts(cell)[-1:] != () and _parts(cell)[-1] in self._known

    def matched(self, table: str, cells: Sequence[str], labels: Sequence[str]) -> list[str]:
        """The label of each file. Args: table: its path, for messages. cells: names in its rows; labels: of these.
        Raises: UsageError, also for a file without a label."""
        rows: dict[tuple[str, ...], str] = {}
        elsewhere: dict[tuple[str, ...], list[tuple[str, ...]]] = collections.defaultdict(list)
        for cell, label in zip(cells, labels, strict=True):
            if rows.setdefault(_parts(cell), label) != label:
                raise errors.UsageError(
                    f"{table} has two labels for {cell.strip()}: {rows[_parts(cell)]} and {label}", "give one"
                )
            elsewhere[_parts(cell)[-1:]].append(_parts(cell))
        keys = [self._key(path, rows, elsewhere, table) for path in self._files]
        lost = [pathlib.Path(path).name for path, key in zip(self._files, keys, strict=True) if key is None]
        if lost:
            more = f" and {len(lost) - 1} more of {len(self._files)} files" if len(lost) > 1 else ""
            raise errors.UsageError(
                f"{table} has no label for {lost[0]}{more}", "give each file of --data a row FILE,LABEL"
            )
        return [rows[key] for key in keys if key is not None]

    def _key(
        self,
        path: str,
        names_of_rows: Collection[tuple[str, ...]],
        elsewhere: Mapping[tuple[str, ...], list[tuple[str, ...]]],
        table: str,
    ) -> tuple[str, ...] | None:
        """The parts of a file's name in the table, or None."""
        names = list(_names_of(path))
        key = next((name for name in names if name in names_of_rows), None)
        if key is None:
            # The files may have moved.
            moved = [place for name in names if len(name) == 1 for place in elsewhere.get(name, ())]
            key = moved[0] if len(moved) == 1 else None
        if key and len(key) == 1 and self._bare[pathlib.Path(path).name] > 1:
            raise errors.UsageError(
                f"{table} names {key[0]}, and --data has several files of that name",
                "name them with their folder, such as cat/1.jpg",
            )
        return key


def _parts(name: str) -> tuple[str, ...]:
    return pathlib.PurePosixPath(name.strip().replace("\\", "/")).parts


def _names_of(path: str) -> Iterator[tuple[str, ...]]:
    """The names under which a table may have a file, the longest first."""
    whole = pathlib.PurePosixPath(path)
    for one in (whole, whole.with_suffix("")):
        yield from (one.parts[start:] for start in range(len(one.parts)))
