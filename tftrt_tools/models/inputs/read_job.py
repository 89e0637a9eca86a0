"""Reads rows into files that can be mapped; the child's side of `read`."""

from __future__ import annotations

import contextlib
import importlib
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.models.execution import npz
from tftrt_tools.models.inputs import find
from tftrt_tools.models.inputs.read import Place, Saved, SignatureRows
from tftrt_tools.models.inputs.read import Request as RowsRequest
from tftrt_tools.models.inputs.sources_job import batching
from tftrt_tools.models.inputs.sources_job.request import Request

_SAID_EVERY = 50
# These kinds name their parts INPUT or SIGNATURE/INPUT; only reading shows whether a file fits a signature.
_NAMED_PARTS = ("arrays", "tables", "tfrecords")


class _Unfit(Exception):
    """The source does not fit the signature. error: UsageError that says why."""

    def __init__(self, error: errors.UsageError) -> None:
        super().__init__(str(error))
        self.error = error


def job(request: RowsRequest) -> Saved:
    """The job read.save."""
    folder = pathlib.Path(request.folder)
    folder.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Place] = {}
    reads: dict[str, _Reading] = {}
    unfit: list[errors.UsageError] = []
    for signature in request.signatures:
        # Signatures with the same inputs get the same rows, unless files name a row's parts SIGNATURE/INPUT.
        key = repr((signature.specs, signature.name if request.kind in _NAMED_PARTS else ""))
        if key not in reads:
            try:
                reads[key] = _Reading(request, signature, folder / str(len(reads))).read()
            except _Unfit as caught:
                unfit.append(caught.error)
                continue
        arrays |= {f"{signature.name}/{name}": place for name, place in reads[key].places.items()}
    if not reads:
        raise unfit[0]
    first = next(iter(reads.values()))
    return Saved(
        arrays=arrays,
        names=tuple(first.names),
        numbers=tuple(first.numbers),
        total=first.total,
        failed=tuple(pathlib.Path(path).name for path in first.tally.failed),
        integers=tuple(
            dict.fromkeys(line for read in reads.values() for line in read.tally.integers.lines(request.kind))
        ),
    )


class _Reading:
    """One reading of the source, for the inputs of a signature. places: {input: its file} when it is done."""

    def __init__(self, request: RowsRequest, one: SignatureRows, folder: pathlib.Path) -> None:
        self._limit, self._kind, self._source = request.rows, request.kind, request.options.source
        self._request = Request(
            options=request.options,
            signature=one.name,
            specs=one.specs,
            files=request.files,
            said=request.said,
            rows=self._limit,
            twins=one.twins,
            others=one.others,
        )
        self._folder = folder
        self.places: dict[str, Place] = {}
        self.names: list[str] = []
        self.numbers: list[int] = []
        self.tally = batching.Tally()
        self._by_file = find.Found(self._kind, self._request.files).by_file
        self.total = len(request.files) if self._by_file else 0

    def read(self) -> _Reading:
        """Read all rows of the source. Returns: self. Raises: _Unfit, UsageError."""
        try:
            chunks = importlib.import_module(f"tftrt_tools.models.inputs.sources_job.{self._kind}").source(
                self._request
            )(self.tally)
        except errors.UsageError as error:
            raise _Unfit(error) from None
        self._folder.mkdir(exist_ok=True)
        writers, count = {}, 0
        with (
            contextlib.closing(
                batching.cut(self._noted(chunks), self._request.signature, self._request.specs, 1, self.tally)
            ) as rows,
            contextlib.ExitStack() as opened,
        ):
            for row in self._checked(rows):
                for number, (name, array) in enumerate(row.items()):
                    if name not in writers:
                        writers[name] = opened.enter_context(_Writer(self._folder / str(number), array))
                    writers[name].add(array)
                count += 1
                if count % _SAID_EVERY == 0:
                    progress.say("reading rows", count, self._limit or None)
                if count == self._limit:
                    break
        if not count:
            failed = f": {len(self.tally.failed)} files could not be decoded" if self.tally.failed else ""
            raise errors.UsageError(
                f"{self._request.said}={self._source} holds no rows{failed}", "give data with one row at least"
            )
        self._count(count)
        self.places = {name: writer.place() for name, writer in writers.items()}
        return self

    def _noted(
        self, chunks: Iterator[tuple[str, dict[str, npt.NDArray[Any]]]]
    ) -> Iterator[tuple[str, dict[str, npt.NDArray[Any]]]]:
        for where, arrays in chunks:
            self.names.append(where)
            yield where, arrays

    def _checked(self, rows: Iterator[dict[str, npt.NDArray[Any]]]) -> Iterator[dict[str, npt.NDArray[Any]]]:
        """The rows; an error before the first row means that the source does not fit the signature."""
        try:
            first = next(rows, None)
        except errors.UsageError as error:
            if self._kind in _NAMED_PARTS:
                raise _Unfit(error) from None
            raise
        if first is not None:
            yield first
            yield from rows

    def _count(self, count: int) -> None:
        if not self._by_file:
            self.names, self.numbers = [], list(range(count))
            return
        place = {path: number for number, path in enumerate(self._request.files)}
        self.names = self.names[:count]
        self.numbers = [place[name] for name in self.names]


class _Writer:
    """Writes the rows of an input to a file, one after the other. A scalar is the same for all rows, and written once."""

    def __init__(self, path: pathlib.Path, first: npt.NDArray[Any]) -> None:
        self._path, self._first, self._count = path, first, 0
        self._texts: list[npt.NDArray[Any]] = []
        self._file = None if first.dtype == object else open(path, "wb")

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file:
            self._file.close()

    def add(self, array: npt.NDArray[Any]) -> None:
        if self._count and not array.ndim:
            return
        self._count += 1
        if self._file:
            self._file.write(np.ascontiguousarray(array).tobytes())
        else:
            self._texts.append(array)

    def place(self) -> Place:
        """The Place of the file that holds the rows."""
        shape = (self._count, *self._first.shape[1:]) if self._first.ndim else ()
        if self._file:
            return Place(path=str(self._path), dtype=self._first.dtype.name, shape=shape)
        npz.save(self._path, {"values": np.concatenate(self._texts) if self._first.ndim else self._first})
        return Place(path=str(self._path), dtype="", shape=shape)
