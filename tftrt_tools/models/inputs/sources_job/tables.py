"""Tables (.csv, .tsv) whose columns are inputs. No TensorFlow here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.models.inputs import find
from tftrt_tools.models.inputs import table as tables
from tftrt_tools.models.inputs.sources_job import request as requests
from tftrt_tools.models.inputs.sources_job.batching import Tally
from tftrt_tools.models.savedmodel.shapes import InputSpec

_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")


# Characters of a header in a message.
_SHOWN = 200


def source(request: requests.Request) -> Callable[[Tally], Iterator[tuple[str, dict[str, npt.NDArray[Any]]]]]:
    """Each line is a row. A header that names inputs (INPUT or SIGNATURE/INPUT) says which column is which; other columns are skipped.
    Without one, the columns are the values of an only input, in order."""
    for spec in request.specs:
        if requests.row_size(spec) is None:
            raise errors.UsageError(
                f"input {spec.name!r} {spec.text()} has no row of a known length, as a table needs it",
                "give the data as .npz or by module:function",
            )
    return lambda tally: _chunks(request)


def _chunks(request: requests.Request) -> Iterator[tuple[str, dict[str, npt.NDArray[Any]]]]:
    for path in request.files:
        table = tables.read(path)
        columns, start = _columns(table, request)
        if start < len(table.rows):
            yield path, {spec.name: _array(table, columns[spec.name], start, spec) for spec in request.specs}


def _columns(table: tables.Table, request: requests.Request) -> tuple[dict[str, list[int]], int]:
    """({input: numbers of its columns}, number of the first row of data)."""
    header = [cell.strip() for cell in table.rows[0]]
    named = {spec.name: _named(header, request, spec.name) for spec in request.specs}
    if all(number is not None for number in named.values()):
        for spec in request.specs:
            if requests.row_size(spec) != 1:
                raise errors.UsageError(
                    f"{table.path}: column {spec.name!r} has one value a row, and {request.takes}",
                    "a column holds one value a row: give the data as .npz",
                )
        return {name: [number] for name, number in named.items() if number is not None}, 1
    if len(request.specs) == 1 and requests.row_size(request.specs[0]) == table.width:
        return {request.specs[0].name: list(range(table.width))}, 0 if _fits(header, request.specs[0]) else 1
    if any(find.is_picture(cell) for row in table.rows[:2] for cell in row):
        raise errors.UsageError(
            f"{table.path} lists pictures, and holds none", "give their folder to --data, and the table to --labels"
        )
    missing = next(name for name, number in named.items() if number is None)
    shown = ", ".join(header)
    raise errors.UsageError(
        f"{table.path} has no column {missing!r}; its first line is {shown if len(shown) <= _SHOWN else shown[:_SHOWN] + '…'}",
        _mend(table, request),
    )


def _mend(table: tables.Table, request: requests.Request) -> str:
    """What a table has to be for these inputs, of which it names not all."""
    wide = next((spec for spec in request.specs if requests.row_size(spec) != 1), None)
    if wide is None:
        return f"{request.takes}: name its columns like the inputs, in the first line"
    if len(request.specs) > 1:
        return (
            f"{request.takes}: a table gives inputs of one value a row, or a single input; give the data as .npz, with an array for "
            "each input"
        )
    return (
        f"{request.takes}: a table for it has exactly {requests.row_size(wide)} columns, in order, and this one has {table.width}; "
        "leave the others out, or give the data as .npz"
    )


def _named(header: list[str], request: requests.Request, name: str) -> int | None:
    return next((header.index(one) for one in request.paths(name) if one in header), None)


def _fits(cells: list[str], spec: InputSpec) -> bool:
    """Whether the cells of the first line are values: above columns of numbers, a header has words."""
    try:
        for cell in cells:
            _value(cell, spec.dtype)
    except ValueError:
        return False
    return True


def _array(table: tables.Table, columns: list[int], start: int, spec: InputSpec) -> npt.NDArray[Any]:
    """[rows, …] as the input's shape says: object of bytes, bool, int64 or float64. Raises: UsageError."""
    values = []
    for number, row in enumerate(table.rows[start:], start + 1):
        for column in columns:
            try:
                values.append(_value(row[column], spec.dtype))
            except ValueError:
                raise errors.UsageError(
                    f"{table.path}: row {number}, column {column + 1} holds {row[column]!r}, and input {spec.name!r} "
                    f"takes {spec.dtype}",
                    "clean the data first",
                ) from None
    array = np.empty(len(values), object) if spec.dtype == "string" else np.empty(len(values), _stored(spec.dtype))
    array[:] = values
    return array.reshape(len(table.rows) - start, *requests.row_shape(spec)[1:])


def _stored(dtype: str) -> type[np.generic]:
    return np.bool_ if dtype == "bool" else np.int64 if dtype.startswith(("int", "uint")) else np.float64


def _value(cell: str, dtype: str) -> bytes | bool | int | float:
    """Raises: ValueError."""
    if dtype == "string":
        return cell.encode()
    if dtype == "bool":
        word = cell.strip().lower()
        if word not in (*_TRUE, *_FALSE):
            raise ValueError
        return word in _TRUE
    return int(cell) if dtype.startswith(("int", "uint")) else float(cell)
