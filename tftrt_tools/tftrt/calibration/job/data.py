"""Calibration data: opened, read batch by batch, recorded. Importable without TensorFlow; reading some kinds of data needs it."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tftrt_tools.base import errors, records
from tftrt_tools.base.process import progress
from tftrt_tools.models.execution import arrays as array_reader
from tftrt_tools.models.execution import inputs as execution_inputs
from tftrt_tools.models.inputs import drawing, find
from tftrt_tools.models.inputs import options as options_module
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.inputs.rows import overlap, row_hashes
from tftrt_tools.models.inputs.sources_job import batching, row_shapes
from tftrt_tools.models.inputs.sources_job.request import Request
from tftrt_tools.models.inputs.value_ranges import Ranges
from tftrt_tools.tftrt.calibration.record import FILES_NAMED, ROWS_KEPT, DataRecord

if TYPE_CHECKING:
    import numpy.typing as npt

    from tftrt_tools.base.errors import UsageError
    from tftrt_tools.models.inputs.sources_job.batching import Arrays, Tally
    from tftrt_tools.models.savedmodel.shapes import InputSpec

__all__ = ["Batches", "DataOptions", "DataRecord", "Request", "open", "overlap", "row_hashes"]

USUAL_SAMPLES = 500
# The most batches of a function, which may never end, unless the user gives a number.
MOST_SAMPLES = 20_000
_AS_YIELDED = ("function", "random")


@dataclasses.dataclass(frozen=True)
class Elsewhere(records.Record):
    """What data may hold for a model's other signatures. names: of their arrays, INPUT and SIGNATURE/INPUT; unasked: those of them, and
    names of signatures, that nobody asked for."""

    names: tuple[str, ...] = ()
    unasked: tuple[str, ...] = ()

    @classmethod
    def of(cls, own: Sequence[str], asked: Sequence[str], specs: Mapping[str, Sequence[InputSpec]]) -> Elsewhere:
        """Args: own: the names of the signature's function. asked: all signatures that are calibrated, under all names. specs: {signature:
        InputSpecs} of the model."""
        own_names = array_reader.input_names({name: specs[name] for name in own})
        needed = array_reader.input_names({name: specs[name] for name in asked})
        every = array_reader.input_names(specs)
        return cls(tuple(sorted(every - own_names)), tuple(sorted({*(every - needed), *(set(specs) - set(asked))})))


class Batches:
    """The batches, each {input: np.ndarray} with the same number of rows; every iteration reads the data anew."""

    def __init__(
        self,
        request: Request,
        kind: str,
        read: Callable[[Tally], Iterable[tuple[str, Arrays]]],
        rest: Callable[[int], bool] = batching.none,
        alike: bool = True,
    ) -> None:
        """Args: kind: of find.Found, or "random". read: function of a Tally that yields (where, arrays), as a source returns it. rest,
        alike: as in `open`."""
        self._request, self._kind, self._read, self._rest, self._alike = request, kind, read, rest, alike
        self._record: DataRecord | None = None

    @property
    def record(self) -> DataRecord:
        """DataRecord of the last complete iteration. Raises: RuntimeError before there was one."""
        if self._record is None:
            raise RuntimeError("the batches were not read to their end")
        return self._record

    def __length_hint__(self) -> int:
        """How many batches were requested; 0 for all, because their number is not known before they are read."""
        return self._request.options.batches

    def __iter__(self) -> Iterator[dict[str, npt.NDArray[Any]]]:
        self._record = None
        options, tally, seen = self._request.options, batching.Tally(), _Seen(self._request.signature)
        with contextlib.closing(self._batches(tally)) as batches:
            for batch in batches:
                if self._kind == "function" and not options.batches and seen.samples >= MOST_SAMPLES:
                    tally.more = True
                    break
                seen.add(batch)
                progress.say(f"reading calibration data: {seen.samples} rows")
                yield batch
                if seen.batches == options.batches:
                    break
        if not seen.batches:
            raise self._too_few(tally)
        self._record = self._recorded(tally, seen)

    def _batches(self, tally: Tally) -> Generator[dict[str, npt.NDArray[Any]], None, None]:
        request, chunks = self._request, self._read(tally)
        if self._kind == "function" and not self._alike:
            return batching.items(chunks, request.signature, request.specs, tally, self._rest)
        if self._kind in _AS_YIELDED:
            return batching.whole(chunks, request.signature, request.specs, tally, self._rest)
        return batching.cut(chunks, request.signature, request.specs, request.options.batch_size, tally, self._rest)

    def _too_few(self, tally: Tally) -> UsageError:
        size, failed = (
            self._request.options.batch_size,
            f" ({len(tally.failed)} files could not be decoded)" if tally.failed else "",
        )
        source = self._request.options.source
        if self._kind == "function":
            others = f" for signature {self._request.signature!r}" if self._request.others else ""
            return errors.UsageError(
                f"--calibration_data={source} yields no rows{others}", "yield batches of {input name: array}"
            )
        if not tally.dropped:
            return errors.UsageError(
                f"--calibration_data={source} holds no rows{failed}", f"give at least {size}, one batch"
            )
        return errors.UsageError(
            f"--calibration_data={source} holds {tally.dropped} rows{failed}, fewer than one batch of {size}",
            f"give more data, or --calibration_batch_size={tally.dropped}",
        )

    def _recorded(self, tally: Tally, seen: _Seen) -> DataRecord:
        options = self._request.options
        return DataRecord(
            source=options.source,
            kind=self._kind,
            digest=seen.digest(),
            samples=seen.samples,
            batch_size=seen.batch_size,
            batches=seen.batches,
            dropped=tally.dropped,
            random=self._kind == "random",
            rows=tuple(seen.rows),
            failed_files=tuple(tally.failed[:FILES_NAMED]),
            failed_count=len(tally.failed),
            warnings=tuple(_warnings(self._request, tally, seen, self._kind)),
            ranges=seen.ranges.found,
        )


class _Seen:
    """Counts and hashes of the batches that were handed out."""

    def __init__(self, signature: str) -> None:
        self.batches = self.samples = self.batch_size = 0
        self.ranges, self._signature = Ranges(), signature
        self.rows: list[str] = []
        self._sha = hashlib.sha256()
        self.shapes: dict[str, tuple[int, ...]] = {}

    def add(self, batch: Mapping[str, npt.NDArray[Any]]) -> None:
        hashes = row_hashes(batch)
        self.ranges.add(self._signature, batch)
        self.batches += 1
        self.shapes = self.shapes or {name: array.shape for name, array in batch.items()}
        self.samples += len(hashes)
        self.batch_size = max(self.batch_size, len(hashes))
        self.rows += hashes[: max(0, ROWS_KEPT - len(self.rows))]
        self._sha.update("".join(hashes).encode())

    def digest(self) -> str:
        return "sha256:" + self._sha.hexdigest()


def _warnings(request: Request, tally: Tally, seen: _Seen, kind: str) -> Iterator[str]:
    options = request.options
    yield from tally.integers.lines(kind)
    if options.random:
        yield f"random data (seed {options.seed}): the ranges say nothing about real inputs"
        own = execution_inputs.parse_ranges(options.ranges, "--ranges")
        yield from (f"random: {line}" for line in drawing.drew(request.specs, [seen.shapes], own))
    if seen.samples < USUAL_SAMPLES:
        yield f"{seen.samples} samples: {USUAL_SAMPLES} or more are usual"
    if seen.batches < options.batches:
        yield f"{seen.batches} batches, and {options.batches} were asked for: the data has no more"
    if tally.dropped:
        yield f"{tally.dropped} rows at the end were left out: they do not fill a batch of {seen.batch_size}"
    if tally.failed:
        yield f"{len(tally.failed)} files could not be decoded"
    if tally.more:
        yield f"the function yields more: the first {seen.samples} rows were taken; --num_calibration_batches says how many batches"
    if tally.aside:
        yield f"left aside, because nobody asked for it: {', '.join(tally.aside)}"


def open(
    options: DataOptions,
    signature_name: str,
    specs: Sequence[InputSpec],
    twins: Sequence[str] = (),
    rest: Callable[[int], bool] = batching.none,
    alike: bool = True,
    elsewhere: Elsewhere = Elsewhere(),
) -> Batches:
    """Find the data and check it as far as possible without reading it.

    Args: options: DataOptions. signature_name: signature that the data is for. specs: its InputSpecs, in the signature's order. twins:
      other names of its function, by which the data may name the inputs. rest: whether a last batch of so many rows is of use; by
      default none is: TensorRT's calibrator takes one size. alike: whether all batches need the shapes of the first one, as for that
      calibrator; else an item of a function has shapes of its own. elsewhere: what the data may hold for other signatures.
    Returns: Batches; iterating it reads. Raises: UsageError, here and while reading.
    """
    options_module.checked(options)
    if not specs:
        raise errors.UsageError(f"signature {signature_name!r} has no inputs", "it needs no calibration: leave it out")
    files = find.Found("random", ()) if options.random else find.find(options.source)
    options_module.check_image_flags(options, files.kind)
    request = Request(
        options=options,
        signature=signature_name,
        specs=tuple(specs),
        files=files.files,
        rows=options.batches * options.batch_size,
        twins=tuple(twins),
        others=elsewhere.names,
        unasked=elsewhere.unasked,
    )
    if files.kind != "function":
        _check_batch_size(request)
    read = importlib.import_module(f"tftrt_tools.models.inputs.sources_job.{files.kind}").source(request)
    return Batches(request, files.kind, read, rest, alike)


def _check_batch_size(request: Request) -> None:
    fixed = {spec: spec.shape[0] for spec in request.specs if spec.shape and spec.shape[0] is not None}
    if len(set(fixed.values())) > 1:
        takes = ", ".join(f"{spec.name} {spec.text()}" for spec in fixed)
        raise errors.UsageError(
            f"{request.signature!r} takes {takes}, and a calibration batch has equally many rows of each input",
            "no batch size fits: choose another precision",
        )
    size = request.options.batch_size
    for spec, rows in fixed.items():
        if rows != size:
            # A later dimension can depend on how many rows there are.
            others = request.options.random and any(
                shape and shape[0] != rows for shape in row_shapes.declared(request).values()
            )
            raise errors.UsageError(
                f"{request.signature!r} takes {spec.name} {spec.text()}, and the calibration batch has {size} rows",
                f"give --calibration_batch_size={rows}{f', and --shapes of a batch of {rows}' * others}",
            )
