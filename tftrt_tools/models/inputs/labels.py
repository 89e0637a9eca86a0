"""The classes of rows: for pictures their folders, for TFRecords a feature; or labels from a separate file. No TensorFlow here."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.models.execution import arrays as array_reader
from tftrt_tools.models.inputs import foreign, label_table, text_lines
from tftrt_tools.models.inputs import table as tables
from tftrt_tools.models.inputs.read import Rows

# The name under which a source gives the class of a row, if requested.
LABEL = "label of the row"


@dataclasses.dataclass(frozen=True)
class Class:
    """A class: its index, its folder ("" for a record's class), and how many rows it has."""

    index: int
    name: str
    rows: int


def of_folders(files: Sequence[str], source: str, names: Sequence[str]) -> tuple[dict[str, int], dict[int, str]]:
    """The classes of pictures. A class is a folder directly below `source`; if `source` is not a folder (a glob), it is the folder
    around its pictures.

    Args: names: of the folders in the order of their classes; () for the folders that are there, sorted.
    Returns: ({path: class}, {class: folder}). Raises: UsageError if there is only one folder, or a folder without a class.
    """
    below = pathlib.Path(source).is_dir()
    folders = {path: _first_folder(path, source) if below else pathlib.Path(path).parent.name for path in files}
    there = sorted(set(folders.values()))
    if len(there) < 2 or "" in there:
        raise errors.UsageError(
            f"{source} has pictures outside of folders" if "" in there else f"{source} has one folder of pictures only",
            "put those of each class into a folder of its own, or leave --output_labels out",
        )
    for name in there:
        if names and name not in names:
            raise errors.UsageError(
                f"--classes does not name the folder {name!r}", "give each folder a line, in the order of the classes"
            )
    classes = {name: number for number, name in enumerate(names or there)}
    return {path: classes[name] for path, name in folders.items()}, {number: name for name, number in classes.items()}


def _first_folder(path: str, source: str) -> str:
    """The folder directly below `source` that holds a picture; "" for a picture beside the folders."""
    parts = pathlib.Path(path).relative_to(source).parts
    return parts[0] if len(parts) > 1 else ""


def counted(labels: npt.NDArray[Any], names: Mapping[int, str]) -> tuple[Class, ...]:
    """[Class] of the labels that occur, by index. Args: labels: int64 [rows]. names: {class: name}, or {}."""
    return tuple(
        Class(int(index), names.get(int(index), ""), int((labels == index).sum()))
        for index in sorted(set(labels.tolist()))
    )


# ---- --labels
FOLDERS = "folders"
_FORMS = "give .npy, .npz, .csv, .txt with a label a line, or --labels=folders for pictures in a folder a class"


def read(path: str, rows: Rows | None = None, column: str = "", said: str = "--labels") -> npt.NDArray[Any]:
    """The labels of a file, one for each row of the data.

    Args:
      path: .npy or .npz (one array, as it is); .txt (one a line); .csv or .tsv (a column; `FILE,LABEL` rows are matched with the data's
        files by name); "folders" for the folder of each of the data's files.
      rows: the data's rows, where they were read from files; None for arrays and functions.
      column: of a table, its name in the first line or its number counted from 1; "" for a column called label, class, target or the
        like, else the last.
      said: the flag, for messages.

    Returns: [rows, …]: the array of an .npy as it is; else int64 [rows] where all labels are integers, float64 [rows] where all are
      numbers, else object [rows] of str: names of classes (for `numbered`) or texts. Raises: UsageError.
    """
    if path == FOLDERS and not pathlib.Path(path).exists():
        return _of_rows_folders(rows)
    if pathlib.Path(path).is_dir():
        raise errors.UsageError(
            f"{said}={path} is a folder", "--labels=folders takes the names of the folders that --data's files are in"
        )
    if not pathlib.Path(path).is_file():
        raise errors.UsageError(f"{said}={path}: no such file", _FORMS)
    ending = pathlib.Path(path).suffix.lower()
    if column and ending not in (".csv", ".tsv"):
        raise errors.UsageError(f"--label_column={column} speaks of a table, and {path} is none", "leave it out")
    if ending in (".csv", ".tsv"):
        labels, matched = label_table.read(tables.read(path), rows.names if rows else (), column)
        return labels if matched else _placed(labels, rows)
    if ending == ".txt":
        return _placed(label_table.typed(_decoded(path)), rows)
    if not foreign.is_arrays(path):
        what = foreign.kind(path) or (".tfrecord" in path.lower() and ("TFRecords", "")) or ("no file of labels", "")
        mend = (
            "`tftrt data … --label_feature=… --output_labels=labels.npy` takes labels out of TFRecords"
            if "TFR" in what[0]
            else _FORMS
        )
        raise errors.UsageError(f"{said}={path} is {what[0]}", mend)
    loaded = array_reader.load(path)
    if len(loaded) != 1:
        raise errors.UsageError(
            f"{said}={path} holds {len(loaded)} arrays: {', '.join(loaded)}", "give an .npy, or an .npz with one array"
        )
    (values,) = loaded.values()
    return _placed(values.astype(str).astype(object) if values.dtype.kind in "SU" else values, rows)


def numbered(values: npt.NDArray[Any], names: tuple[str, ...] = (), said: str = "--labels") -> npt.NDArray[Any]:
    """Names of classes as their numbers; labels that are numbers come back as they are.

    Args: values: what `read` returned. names: of the classes in the model's order; () for the names that occur, sorted.
    Returns: int64 [rows] of object [rows]. Raises: UsageError for a name that is not among `names`.
    """
    if values.dtype.kind == "f" and np.array_equal(values, np.round(values)):
        return values.astype(np.int64)
    if values.dtype != object:
        return values
    if not names and any(name.lstrip("-").isdigit() for name in values):
        odd = next(name for name in values if not name.lstrip("-").isdigit())
        raise errors.UsageError(
            f"{said} holds numbers of classes, and {odd!r}", "give numbers only, or names and --classes"
        )
    numbers = {name: number for number, name in enumerate(names or sorted(set(values.tolist())))}
    unknown = [name for name in values if name not in numbers]
    if unknown:
        raise errors.UsageError(
            f"{said} holds {unknown[0]!r}, which --classes does not name",
            "give each class a line, in the model's order",
        )
    return np.array([numbers[name] for name in values], np.int64)


def class_names(path: str) -> tuple[str, ...]:
    """The lines of a file of names, in the order of the model's classes; () for "". Raises: UsageError."""
    if not path:
        return ()
    try:
        names = tuple(filter(None, (line.strip() for line in pathlib.Path(path).read_text().splitlines())))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise errors.UsageError(
            f"--classes={path} cannot be read: {why}", "give a text file with a class's name in each line"
        ) from None
    if len(set(names)) != len(names) or not names:
        raise errors.UsageError(
            f"--classes={path} {'names a class twice' if names else 'is empty'}", "give each class a line of its own"
        )
    return names


def _of_rows_folders(rows: Rows | None) -> npt.NDArray[Any]:
    if rows is None or not rows.names:
        raise errors.UsageError(
            "--labels=folders needs --data with pictures or other files in a folder for each class", _FORMS
        )
    folders = [pathlib.Path(name).parent.name for name in rows.names]
    if len(set(folders)) < 2:
        raise errors.UsageError(
            f"--labels=folders: all files of --data are in the folder {folders[0]!r}",
            "put those of each class into a folder of its own",
        )
    return label_table.objects(folders)


def _placed(values: npt.NDArray[Any], rows: Rows | None) -> npt.NDArray[Any]:
    """The labels of the rows that were read, from a file with a label for every row of the source."""
    if rows is None or len(values) == len(rows.numbers) or not values.ndim:
        return values
    whole = rows.total or max(rows.numbers) + 1
    return (
        values[list(rows.numbers)] if len(values) >= whole and not (rows.total and len(values) > rows.total) else values
    )


def _decoded(path: str) -> list[str]:
    try:
        return [line.decode().strip() for line in text_lines.read(path)]
    except UnicodeDecodeError:
        raise errors.UsageError(f"{path} is no UTF-8 text", "save it as UTF-8") from None
