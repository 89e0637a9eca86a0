"""Turns chunks of rows, as a source yields them, into batches of one size. No TensorFlow here.

TensorRT's calibrator takes its sizes from the first batch and silently skips a batch of another size. Such a batch is an error here;
only a shorter last batch is dropped, and counted, unless whoever reads can use it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.models.execution import arrays as array_reader
from tftrt_tools.models.inputs.sources_job.request import Request
from tftrt_tools.models.inputs.value_ranges import Integers
from tftrt_tools.models.savedmodel import shapes as shape_grammar
from tftrt_tools.models.savedmodel.shapes import InputSpec

Arrays = Mapping[str, npt.NDArray[Any]]

# So many items without a row, one after the other, are no data.
_MOST_EMPTY = 1000
_ALIKE = "TensorRT skips a batch whose shape is not the first one's: bring all to one shape, by padding or cutting"


class Tally:
    """What happened while reading. dropped: rows of a last batch that is not full; failed: files that did not decode; integers: float
    inputs that got integers; aside: names of signatures and arrays that nobody asked for; more: whether the source has more than was
    taken."""

    def __init__(self) -> None:
        self.dropped = 0
        self.integers = Integers()
        self.failed: list[str] = []
        self.aside: dict[str, None] = {}
        self.more = False

    def leave(self, name: str, request: Request) -> None:
        """Note that a signature or an array was skipped, if nobody asked for it."""
        if name in request.unasked:
            self.aside[name] = None


def none(rows: int) -> bool:
    """No shorter last batch is of use."""
    return False


def cut(
    chunks: Iterable[tuple[str, Arrays]],
    signature: str,
    specs: Sequence[InputSpec],
    size: int,
    tally: Tally,
    rest: Callable[[int], bool] = none,
) -> Generator[dict[str, npt.NDArray[Any]], None, None]:
    """Batches of `size` rows, and a last one with fewer where `rest` says that so many are of use.

    Args:
      chunks: iterable of (where, {input: array with the rows in front}); `where` names the file or record.
      signature: its name. specs: its InputSpecs.
      tally: Tally; the rows left out are counted in it.

    Yields: {input: np.ndarray}, in memory of its own. Raises: UsageError.
    """
    pieces: list[Arrays] = []
    waiting, first = 0, None
    for where, given in chunks:
        arrays, rows = _checked(where, given, signature, specs, tally)
        first = _same_rows(where, arrays, first, signature, specs)
        del given
        start = 0
        while rows - start >= size - waiting:
            end = start + size - waiting
            yield _joined([*pieces, _part(arrays, start, end)])
            pieces, waiting, start = [], 0, end
        if start < rows:
            # A copy, so that the last rows of a large file do not keep all of it in memory.
            pieces.append({name: np.array(array) for name, array in _part(arrays, start, rows).items()})
            waiting += rows - start
        del arrays
    if waiting and rest(waiting):
        yield _joined(pieces)
    else:
        tally.dropped = waiting


def items(
    chunks: Iterable[tuple[str, Arrays]],
    signature: str,
    specs: Sequence[InputSpec],
    tally: Tally,
    rest: Callable[[int], bool] = none,
) -> Generator[dict[str, npt.NDArray[Any]], None, None]:
    """What the source yields, each in its own shapes; an input may have other rows than the others. An item of another number of rows than
    the first one is left out, and counted in `tally`, unless it is of use. Args, yields: as `cut`."""
    useful: dict[int | None, bool] = {}
    for _, arrays, rows in _accepted(chunks, signature, specs, tally):
        if rows not in useful:
            useful[rows] = rows is None or not useful or rest(rows)
        if useful[rows]:
            yield arrays
        else:
            tally.dropped += rows or 0


def _accepted(
    chunks: Iterable[tuple[str, Arrays]], signature: str, specs: Sequence[InputSpec], tally: Tally
) -> Iterator[tuple[str, dict[str, npt.NDArray[Any]], int | None]]:
    """(where, arrays, rows or None of unlike ones) of chunks in the shapes that the signature takes; without those that have no row."""
    empty = 0
    for where, given in chunks:
        arrays = _cast(where, given, signature, specs, tally)
        for spec in specs:
            if not spec.accepts(arrays[spec.name].shape):
                _refuse(where, arrays[spec.name].shape, spec, signature)
        shapes = {name: array.shape for name, array in arrays.items()}
        rows = shape_grammar.rows(specs, shapes)
        if not any(shapes.values()):
            raise errors.UsageError(
                f"{where} has no rows: all inputs are scalars", "calibration needs an input with a batch dimension"
            )
        empty = 0 if rows != 0 else empty + 1
        if empty > _MOST_EMPTY:
            raise errors.UsageError(f"{where} is the {empty}th item without a row", "yield arrays with rows in front")
        if rows != 0:
            yield where, arrays, rows


def whole(
    chunks: Iterable[tuple[str, Arrays]],
    signature: str,
    specs: Sequence[InputSpec],
    tally: Tally,
    rest: Callable[[int], bool] = none,
) -> Generator[dict[str, npt.NDArray[Any]], None, None]:
    """Batches as the source yields them, all of one shape; a last one with fewer rows is left out and counted in `tally`, unless it is of
    use. Args, yields: as `cut`."""
    following, first = _accepted(chunks, signature, specs, tally), None
    for where, arrays, rows in following:
        shapes = {name: array.shape for name, array in arrays.items()}
        first = first or shapes
        if shapes != first:
            shorter = all(
                got[1:] == want[1:] and got[:1] < want[:1] or got == want == ()
                for got, want in ((shapes[name], first[name]) for name in first)
            )
            if shorter and next(following, None) is None:
                if rows is not None and rest(rows):
                    yield arrays
                else:
                    tally.dropped = rows or 1
                return
            name = next(name for name in first if shapes[name] != first[name])
            raise errors.UsageError(
                f"{where} has {name!r} of shape {_text(shapes[name])}, the first batch {_text(first[name])}", _ALIKE
            )
        yield arrays


def _cast(
    where: str, given: Arrays, signature: str, specs: Sequence[InputSpec], tally: Tally
) -> dict[str, npt.NDArray[Any]]:
    """The arrays cast to the inputs' dtypes. Raises: UsageError where their rows have another shape."""
    for spec in specs:
        tally.integers.add(given[spec.name], spec)
    arrays = {spec.name: array_reader.prepared(given[spec.name], spec, f" in {where}") for spec in specs}
    for spec in specs:
        array, want = arrays[spec.name], spec.shape
        if want is not None and (
            array.ndim != len(want)
            or any(dim not in (None, got) for dim, got in zip(want[1:], array.shape[1:], strict=True))
        ):
            _refuse(where, array.shape, spec, signature)
    return arrays


def _checked(
    where: str, given: Arrays, signature: str, specs: Sequence[InputSpec], tally: Tally
) -> tuple[dict[str, npt.NDArray[Any]], int]:
    """The arrays cast to the inputs' dtypes, and how many rows they have."""
    arrays = _cast(where, given, signature, specs, tally)
    lengths = {name: len(array) for name, array in arrays.items() if array.ndim}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name} {rows}" for name, rows in lengths.items())
        raise errors.UsageError(
            f"{where} has inputs of different lengths: {counts}",
            "give equally many rows of each input; items in shapes of their own are what module:function yields",
        )
    if not lengths:
        raise errors.UsageError(
            f"{where} has no rows: all inputs are scalars", "calibration needs an input with a batch dimension"
        )
    return arrays, next(iter(lengths.values()))


def _refuse(where: str, shape: Sequence[int], spec: InputSpec, signature: str) -> NoReturn:
    mend = "give the data as the signature takes it"
    if spec.shape == ():
        mend = array_reader.scalar_text(spec)
    elif len(shape) + 1 == len(spec.shape or ()):
        mend = "the first dimension counts the rows"
    raise errors.UsageError(
        f"the data of input {spec.name!r} in {where} has shape {_text(shape)}, and {signature!r} takes {spec.text()}",
        mend,
    )


def _same_rows(
    where: str, arrays: Arrays, first: dict[str, Any] | None, signature: str, specs: Sequence[InputSpec]
) -> dict[str, Any]:
    """The row shapes (values, for scalars) of the first chunk. Raises: UsageError if those of `arrays` differ."""
    rows = {name: array.shape[1:] if array.ndim else array.item() for name, array in arrays.items()}
    if first is not None and rows != first:
        name = next(name for name in rows if rows[name] != first[name])
        if not arrays[name].ndim:
            raise errors.UsageError(
                f"input {name!r} is {rows[name]} in {where} and {first[name]} before it",
                "an input without rows needs one value for all",
            )
        raise errors.UsageError(
            f"{where} has rows of {name!r} of shape {_text(rows[name])}, those before it {_text(first[name])}", _ALIKE
        )
    return rows


def _part(arrays: Arrays, start: int, end: int) -> dict[str, npt.NDArray[Any]]:
    return {name: array[start:end] if array.ndim else array for name, array in arrays.items()}


def _joined(pieces: Sequence[Arrays]) -> dict[str, npt.NDArray[Any]]:
    return {
        name: np.concatenate([piece[name] for piece in pieces]) if array.ndim else array
        for name, array in pieces[0].items()
    }


def _text(shape: Sequence[int]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"
