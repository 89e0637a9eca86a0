"""Finds and reads the data that a flag names: as rows, or as whole calls. No TensorFlow in this process."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.models.execution import arrays as array_reader
from tftrt_tools.models.execution import run
from tftrt_tools.models.inputs import cutting, find, read, user_calls
from tftrt_tools.models.inputs import options as options_module
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.inputs.value_ranges import Integers
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.models.savedmodel.signatures import Once

# The flag that names the data of most commands.
FLAG = "--data"
_NAMED = 5


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Given:
    """The user's data before it is cut into calls."""

    # {input, or signature/input: array with the rows in front}; {} for a function.
    arrays: dict[str, npt.NDArray[Any]]
    # {signature: its calls} for a function, which gives whole calls; else {}.
    calls: dict[str, list[run.Call]]
    # Rows of files that were read for this; None for one file of arrays and for a function.
    rows: read.Rows | None
    # Names of its arrays that belong to signatures that are not called; of a function, of those signatures.
    aside: tuple[str, ...] = ()
    # Float inputs that got integers, a line each.
    integers: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know about the data, a line each."""
        failed = self.rows.failed if self.rows else ()
        named = ", ".join(failed[:_NAMED]) + (", …" if len(failed) > _NAMED else "")
        undecoded = (f"{len(failed)} pictures could not be decoded: {named}",) if failed else ()
        what = "items" if self.calls else "arrays"
        aside = ", ".join(self.aside[:_NAMED]) + (", …" if len(self.aside) > _NAMED else "")
        return (
            *undecoded,
            *self.integers,
            *([f"{what} of signatures that were not asked for were left aside: {aside}"] if aside else []),
        )

    def cut(
        self, specs: Mapping[str, Sequence[InputSpec]], batch_sizes: Sequence[int]
    ) -> tuple[dict[str, list[run.Call]], int]:
        """Calls of the signatures that the data fills, as cutting.calls_of_arrays makes them. Returns: ({signature: calls}, rows
        dropped)."""
        return (self.calls, 0) if self.calls else cutting.calls_of_arrays(self.arrays, specs, batch_sizes, self.aside)


def given(
    source: str,
    specs: Mapping[str, Sequence[InputSpec]],
    folder: str | pathlib.Path,
    reading: DataOptions | None = None,
    rows: int = 0,
    said: str = FLAG,
    files_rows: int = 0,
    walked: Once | None = None,
    optional: Mapping[str, frozenset[str]] | None = None,
    others: Mapping[str, Sequence[InputSpec]] | None = None,
) -> Given:
    """Read the data that a flag names.

    Args:
      source: .npz or .npy, TFRecords, pictures, .csv, .txt, encoded files, a folder or glob of one of these, or module:function.
      specs: {signature: InputSpecs}.
      folder: for the read rows; has to live as long as the arrays.
      reading: how pictures and TFRecords are read; None for the defaults.
      rows: the most rows to read, for pictures spread over all files, else the first ones; 0 for all.
      said: the flag, for messages.
      files_rows: replaces `rows` for files that have to be read one after the other.
      walked: the signatures of `specs`, with further names of their functions, which the data may also use.
      optional: {signature: inputs that the data may leave out}.
      others: {signature: InputSpecs} of the model's other signatures, whose arrays are left aside.

    Returns: Given. Raises: UsageError.
    """
    files = find.find(source, said)
    reading = dataclasses.replace(reading or DataOptions(), source=source)
    options_module.check_image_flags(reading, files.kind)
    folder = pathlib.Path(folder)
    if files.kind == "function":
        if rows:
            raise errors.UsageError(
                f"--data_rows does not cut what a function yields, and {said}={source} is one",
                "let it yield fewer rows",
            )
        seen = Integers()
        yielded = user_calls.calls(source, specs, folder / "user", said, walked, optional, others, seen)
        return Given(arrays={}, calls=yielded.calls, rows=None, aside=yielded.aside, integers=seen.lines())
    unwanted = array_reader.input_names(others or {}) - array_reader.input_names(specs)
    if files.kind == "arrays" and len(files.files) == 1:
        arrays = array_reader.load(files.files[0])
        needed = {
            name: cutting.without((optional or {}).get(name, frozenset()), inputs, ()) for name, inputs in specs.items()
        }
        if "" in arrays and all(len(inputs) != 1 for inputs in needed.values()):
            raise cutting.unnamed(files.files[0], needed)
        arrays = walked.renamed(arrays) if walked else arrays
        arrays = {name: array[:rows] if rows and array.ndim else array for name, array in arrays.items()}
        return Given(
            arrays=arrays,
            calls={},
            rows=None,
            aside=tuple(name for name in arrays if name in unwanted),
            integers=_integers(arrays, specs),
        )
    held = array_reader.names(files.files[0]) if files.kind == "arrays" else ()
    has, aside = ([name for name in held if (name in unwanted) == out] for out in (False, True))
    required = {
        name: cutting.without((optional or {}).get(name, frozenset()), inputs, has) for name, inputs in specs.items()
    }
    read_rows = read.read(
        files, required, reading, folder / "rows", files_rows or rows, said, walked, {**(others or {}), **specs}
    )
    return Given(arrays=read_rows.arrays, calls={}, rows=read_rows, aside=tuple(aside), integers=read_rows.integers)


def _integers(arrays: Mapping[str, npt.NDArray[Any]], specs: Mapping[str, Sequence[InputSpec]]) -> tuple[str, ...]:
    seen = Integers()
    for signature, inputs in specs.items():
        for spec in inputs:
            array = array_reader.pick(arrays, signature, spec.name, len(inputs))
            if array is not None:
                seen.add(array, spec)
    return seen.lines()
