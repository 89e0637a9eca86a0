"""Arguments of Python as the words of a command line, and arrays as the files that the flags name."""

from __future__ import annotations

import collections
import os
import pathlib
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from tftrt_tools.base import errors

if TYPE_CHECKING:
    from absl import flags

# A path; arrays; or what yields them, batch by batch.
Path: TypeAlias = "str | os.PathLike[str]"
Batch: TypeAlias = "Mapping[str, Any] | tuple[str, Mapping[str, Any]]"
Data: TypeAlias = "Path | Mapping[str, Any] | Iterable[Batch] | Any"
# Flags that name rows, and those that say how many of them are used: (rows, times).
ROWS: dict[str, tuple[str, ...]] = {
    "data": ("data_rows",),
    "calibration_data": ("calibration_batch_size", "num_calibration_batches"),
    "warmup_data": (),
}
# Flags that name the right answers.
ANSWERS = ("labels",)
# What a program cannot want: results come back, and help() explains.
_NOT_TAKEN = {"help": "help(tftrt_tools) and docs/python.md explain the arguments", "h": "", "undefok": ""}


def check(function: str, known: flags.FlagValues, given: Iterable[str]) -> None:
    """Refuse arguments that the command has no flag for. Raises: UsageError, which names the nearest right one."""
    names = {name for name in known if name not in _NOT_TAKEN} | {"flagfile"}
    shown = sorted(name for name in names if name not in known or known[name].name == name)
    for name in given:
        if name not in names:
            raise errors.UsageError(f"{function}() has no argument {name!r}", errors.nearest(name, shown, 12))


def check_once(function: str, known: flags.FlagValues, given: Mapping[str, Any]) -> None:
    """Refuse a flag under two of its names: one value would be lost. Args: given: None where nothing was. Raises: UsageError."""
    seen: dict[str, str] = {}
    for name in given:
        if given[name] is None or name not in known:
            continue
        new = str(known[name].name)
        if new in seen:
            raise errors.UsageError(
                f"{function}() has {seen[new]}= and {name}=, which are one flag", f"give {new}= alone"
            )
        seen[new] = name


def words(function: str, known: flags.FlagValues, given: Mapping[str, Any]) -> list[str]:
    """The words that give flags these values; None leaves a flag as it is by default. Raises: UsageError for a value that no flag takes."""
    found: list[str] = []
    # As on a command line, flags override those of a file before them.
    for name in sorted(given, key=lambda name: name != "flagfile"):
        value = given[name]
        if value is None:
            continue
        if name == "json" and value == "-":
            raise errors.UsageError(
                "json='-' is stdout, where nothing is printed here", "name a file; or take to_dict() of the result"
            )
        found += _words(function, name, known[name] if name in known else None, value)
    return found


def _words(function: str, name: str, flag: flags.Flag | None, value: object) -> list[str]:
    from absl import flags

    from tftrt_tools.command_line.commands import _flags

    if isinstance(flag, flags.MultiFlag):
        several = isinstance(value, Iterable) and not isinstance(value, (str, os.PathLike))
        listed = list(cast("Iterable[object]", value)) if several else [value]
        return [f"--{name}={_text(function, name, one)}" for one in listed]
    if flag is not None and flag.boolean and isinstance(value, bool):
        return [f"--{name}" if value else f"--no{name}"]
    if isinstance(value, (list, tuple, set, frozenset, range)):
        if flag is None or not isinstance(flag.value, list) and not isinstance(flag.default, list):
            raise errors.UsageError(
                f"{function}({name}=…) takes one value, and a {type(value).__name__} came", "give one"
            )
        return [f"--{name}={_flags.listed([_text(function, name, one) for one in value])}"]
    return [f"--{name}={_text(function, name, value)}"]


def _text(function: str, name: str, value: object) -> str:
    if isinstance(value, bytes):
        return os.fsdecode(value)
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, (str, int)):
        return str(value)
    raise errors.UsageError(
        f"{function}({name}=…) takes a text or a number, and a {type(value).__name__} came",
        f"help(tftrt_tools.{function}) says what it takes",
    )


def is_path(value: object) -> bool:
    """Whether a value of one of ROWS or ANSWERS names a file, or module:function."""
    return value is None or isinstance(value, (str, bytes, os.PathLike))


def write_rows(name: str, value: object, folder: str, most: int) -> str:
    """Write rows to a file that `--data` reads. What an iterable raises comes through as it is.

    Args: name: of the argument, for messages. value: {input: array}, rows in front; an array for a model of one input; or an iterable of
      such mappings or of (signature, mapping), batch by batch. most: rows after which nothing more is asked for, 0 for all.
    Returns: the path. Raises: UsageError.
    """
    import numpy as np

    if isinstance(value, Mapping):
        arrays = _arrays(name, value, "")
    elif hasattr(value, "__array__"):
        path = pathlib.Path(folder) / f"{name}.npy"
        np.save(path, _plain(f"{name}", np.asarray(value)), allow_pickle=False)
        return str(path)
    elif isinstance(value, Iterable):
        arrays = _joined(name, value, most)
    else:
        raise errors.UsageError(
            f"{name}= takes a path, arrays or what yields them, and a {type(value).__name__} came",
            f"such as {name}={{'image': array}}",
        )
    path = pathlib.Path(folder) / f"{name}.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for key, array in arrays.items():
            with archive.open(f"{key}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)  # type: ignore[no-untyped-call]
    return str(path)


def write_answers(name: str, value: object, folder: str) -> str:
    """Write labels to a file that `--labels` reads: an array or a list, or a mapping of arrays. Returns: the path. Raises: UsageError."""
    import numpy as np

    if isinstance(value, Mapping):
        return write_rows(name, value, folder, 0)
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.asarray(None)
    if not array.ndim:
        raise errors.UsageError(
            f"{name}= takes a path or an array of labels, and a {type(value).__name__} came", "give one"
        )
    path = pathlib.Path(folder) / f"{name}.npy"
    np.save(path, _plain(name, array), allow_pickle=False)
    return str(path)


def _arrays(name: str, given: Mapping[str, Any], where: str) -> dict[str, Any]:
    import numpy as np

    if not given:
        raise errors.UsageError(f"{name}=: {where or 'the mapping'} has no arrays", "give {input: array}")
    found = {}
    for key, value in given.items():
        if not isinstance(key, str):
            raise errors.UsageError(f"{name}=: {key!r} is no name of an input", "give {input: array}")
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise errors.UsageError(
                f"{name}=: {key!r}{where and ' of ' + where} is no array: {error}", "give arrays"
            ) from None
        found[key] = _plain(f"{key}{where and ' of ' + where}", array)
    return found


def _plain(what: str, array: Any) -> Any:
    """The array in a form that a file holds without pickles: strings as fixed-width bytes or text."""
    import numpy as np

    if array.dtype != object:
        return array
    if all(isinstance(one, bytes) for one in array.flat):
        if any(one.endswith(b"\0") for one in array.flat):
            raise errors.UsageError(
                f"{what} has strings that end in a zero byte, which a file of arrays loses", "use TFRecords"
            )
        return np.array(array.tolist(), "S")
    if all(isinstance(one, str) for one in array.flat):
        return np.array(array.tolist(), "U")
    kinds = sorted({type(one).__name__ for one in array.flat})
    raise errors.UsageError(
        f"{what} is an array of Python objects ({', '.join(kinds)})", "give numbers, or str or bytes"
    )


def _joined(name: str, batches: Iterable[Any], most: int) -> dict[str, Any]:
    """The rows of all batches, {name: array}."""
    import numpy as np

    parts: dict[str, list[Any]] = collections.defaultdict(list)
    for number, batch in enumerate(_taken(name, batches, most)):
        where = f"batch {number}"
        for key, array in _arrays(name, batch, where).items():
            if not array.ndim:
                raise errors.UsageError(f"{name}=: {key!r} of {where} has no rows", "arrays have rows in front")
            first = parts[key][0] if parts[key] else array
            if array.shape[1:] != first.shape[1:] or array.dtype.kind != first.dtype.kind:
                raise errors.UsageError(
                    f"{name}=: {key!r} of {where} has rows of {_row(array)}, and the batches before it of {_row(first)}",
                    "rows of several shapes: name a module:function that yields them, in place of an iterable",
                )
            parts[key].append(array)
    if not parts:
        raise errors.UsageError(f"{name}= yields nothing", "an iterable that was read before is empty: make a new one")
    lengths = {key: sum(map(len, arrays)) for key, arrays in parts.items()}
    by_signature: dict[str, set[int]] = collections.defaultdict(set)
    for key, length in lengths.items():
        by_signature[key.rpartition("/")[0]].add(length)
    if any(len(one) > 1 for one in by_signature.values()):
        said = ", ".join(f"{key} {length}" for key, length in lengths.items())
        raise errors.UsageError(
            f"{name}=: the inputs have unlike numbers of rows: {said}", "each batch needs every input"
        )
    return {key: np.concatenate(arrays) for key, arrays in parts.items()}


def _taken(name: str, batches: Iterable[Any], most: int) -> Iterator[Mapping[str, Any]]:
    """The batches as {INPUT or SIGNATURE/INPUT: array}, no more than hold so many rows."""
    rows = 0
    for number, batch in enumerate(batches):
        signature = ""
        if isinstance(batch, tuple) and len(batch) == 2 and isinstance(batch[0], str):
            signature, batch = f"{batch[0]}/", batch[1]
        if not isinstance(batch, Mapping):
            raise errors.UsageError(
                f"{name}=: item {number} is a {type(batch).__name__}, and batches are {{input: array}}",
                "yield mappings, or (signature, mapping)",
            )
        yield {f"{signature}{key}": value for key, value in batch.items()}
        rows += max((len(value) for value in batch.values() if hasattr(value, "__len__")), default=0)
        if most and rows >= most:
            return


def _row(array: Any) -> str:
    return f"{array.dtype}{list(array.shape[1:])}"
