"""The right answers, --labels: one for each row of --data. Their kind follows from the array and from the output that they are about.

classes  whole numbers, [rows]: an output [rows, classes] holds a number for each class; or the class's number; or, of labels 0 and 1, the
         probability of class 1. [rows, steps] with outputs [rows, steps, classes] as well
tags     0 and 1, [rows, tags]: an output of that shape says how likely each tag is
values   floats, in the shape of the output: a regression
masks    whole numbers, [rows, height, width]: the class of each pixel; an output [rows, height, width, classes], or of one number each
texts    strings, in the shape of the output, which is strings too; for other outputs they are names of classes
boxes    an .npz with `boxes` and `classes`: of detectors. boxes [rows, most, 4] and classes [rows, most], where boxes without area and
         classes below 0 fill up; or boxes [n, 4], classes [n] and `rows` [n], the row (from 0) that each belongs to. Corners as the
         detector gives them
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.models.execution import arrays as array_reader
from tftrt_tools.models.execution import npz
from tftrt_tools.models.inputs import labels as files
from tftrt_tools.models.inputs.read import Rows

CLASSES, TAGS, VALUES, MASKS, TEXTS, BOXES = "classes", "tags", "values", "masks", "texts", "boxes"
_TWO = 2


@dataclasses.dataclass(frozen=True, eq=False)
class Labels:
    """arrays: {"": the array}, or for boxes {"boxes": …, "classes": …} and perhaps "rows". names: for labels that are names of classes,
    these names in the model's order; () for the names that occur, sorted."""

    arrays: Mapping[str, npt.NDArray[Any]]
    names: tuple[str, ...] = ()

    @property
    def boxes(self) -> bool:
        """Whether the labels are boxes."""
        return "boxes" in self.arrays

    @property
    def flat(self) -> bool:
        """Whether the boxes of all rows form one list."""
        return "rows" in self.arrays

    @property
    def array(self) -> npt.NDArray[Any]:
        """The labels as one array; for boxes, their classes."""
        return self.arrays["classes" if self.boxes else ""]

    @property
    def texts(self) -> bool:
        """Whether the labels are strings: texts, or names of classes."""
        return not self.boxes and self.array.dtype.kind in "OSU"

    @property
    def one_hot(self) -> bool:
        """Whether each row holds a single 1 among zeros."""
        array = self.array
        numbers = not self.boxes and array.dtype.kind in "iubf" and array.ndim > 1 and array.shape[-1] > 1
        return bool(numbers and np.all((array == 0) | (array == 1)) and np.all(array.sum(axis=-1) == 1))

    def shaped_as(self, answer: npt.NDArray[Any]) -> bool:
        """Whether labels and answers have the same shape, but for the rows and for axes of one."""
        return _without_ones(self.array.shape[1:]) == _without_ones(answer.shape[1:])

    def of(self, start: int, rows: int) -> "Labels":
        """The labels of some rows."""
        if not self.flat:
            return Labels({name: array[start : start + rows] for name, array in self.arrays.items()}, self.names)
        inside = (self.arrays["rows"] >= start) & (self.arrays["rows"] < start + rows)
        cut = {name: array[inside] for name, array in self.arrays.items()}
        return Labels(cut | {"rows": cut["rows"] - start}, self.names)

    def as_numbers(self, classes: int = 0) -> "Labels":
        """Names of classes, and numbers of classes that are floats, as integers.

        Args: classes: how many the output has, 0 if not known. Raises: UsageError for a name that --classes lacks, and if without
          --classes there are not as many names as the output has classes: their order would not be the model's.
        """
        there = len(set(self.array.reshape(-1).tolist())) if self.texts and not self.names else classes
        if classes and there != classes:
            raise errors.UsageError(
                f"--labels has {there} names of classes, and the output {classes} classes: which is which is not clear",
                "name all classes in the model's order by --classes=FILE, one a line",
            )
        return self if self.boxes else Labels({"": files.numbered(self.array, self.names)}, self.names)

    def kind(self, answer: npt.NDArray[Any]) -> str:
        """The kind of these labels for an output; "" if they do not fit it. Args: answer: to the rows of these labels."""
        if self.boxes or not self.array.ndim or not answer.ndim:
            return ""
        own_shape, theirs = _without_ones(self.array.shape[1:]), answer.shape[1:]
        same, by_row = (
            own_shape == _without_ones(theirs),
            bool(theirs) and theirs[-1] > 1 and own_shape == _without_ones(theirs[:-1]),
        )
        if answer.dtype.kind in "OSU":
            return TEXTS if self.texts and same else ""
        if self.array.dtype.kind == "f" and same:
            return VALUES
        sort = self.array.dtype.kind
        if sort not in "iubfOSU" or sort == "f" and not np.array_equal(self.array, np.round(self.array)):
            return ""
        if by_row:
            return MASKS if len(own_shape) > 1 else CLASSES
        return (
            _of_numbers(self.array, answer, len(own_shape)) if same and not self.texts or same and not own_shape else ""
        )

    def save(self, path: str | pathlib.Path) -> None:
        """Write them to a file of this package's own."""
        npz.save(
            path,
            {**{f"array {name}": array for name, array in self.arrays.items()}, "names": np.array(self.names, object)},
        )

    @classmethod
    def load(cls, path: str | pathlib.Path) -> "Labels":
        """Load the labels that `save` wrote."""
        loaded = npz.load(path)
        return cls(
            {name.removeprefix("array "): array for name, array in loaded.items() if name != "names"},
            tuple(loaded["names"]),
        )


def _of_numbers(array: npt.NDArray[Any], answer: npt.NDArray[Any], dimensions: int) -> str:
    """The kind of labels that are numbers, or names of classes, for an output with so many dimensions beside the rows."""
    if dimensions > 1:
        return MASKS
    if answer.dtype.kind in "iub" or np.all(answer == np.round(answer)):
        return CLASSES
    if array.dtype.kind in "OSU":
        return CLASSES if len(set(array.reshape(-1).tolist())) <= _TWO else ""
    if not set(np.unique(array).tolist()) <= {0, 1}:
        return VALUES
    return TAGS if dimensions else CLASSES


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def read(path: str, rows: Rows | None = None, column: str = "", classes: str = "") -> Labels:
    """Read --labels.

    Args: path: as inputs.labels.read takes it, or an .npz of boxes. rows: of the data, where they were read from files. column: of a table.
      classes: path of the file with the classes' names, or "".
    Raises: UsageError.
    """
    if path.lower().endswith(".npz") and pathlib.Path(path).is_file():
        arrays = array_reader.load(path)
        if "boxes" in arrays:
            return _checked_boxes(arrays, path)
    return Labels({"": files.read(path, rows, column)}, files.class_names(classes))


def _checked_boxes(arrays: Mapping[str, npt.NDArray[Any]], path: str) -> Labels:
    example = "boxes [rows, most, 4] with classes [rows, most]; or boxes [n, 4], classes [n] and rows [n]"
    unknown = [name for name in arrays if name not in ("boxes", "classes", "rows")]
    boxes, classes, rows = (arrays.get(name) for name in ("boxes", "classes", "rows"))
    if unknown or boxes is None or classes is None:
        raise errors.UsageError(f"--labels={path} holds {', '.join(arrays)}", f"labels of detectors are {example}")
    right = (
        boxes.dtype.kind in "fiu" and boxes.shape == (*classes.shape, 4) and classes.ndim == (2 if rows is None else 1)
    )
    if not right or rows is not None and (rows.shape != classes.shape or rows.dtype.kind not in "iu"):
        shapes = ", ".join(f"{name} {array.dtype}{list(array.shape)}" for name, array in arrays.items())
        raise errors.UsageError(f"--labels={path} holds {shapes}", f"labels of detectors are {example}")
    return Labels(dict(arrays))


def check_count(labels: Labels, rows: int, dropped: int = 0) -> None:
    """Refuse labels that cannot be one for each row. Args: rows: the rows that are sent; dropped: the most rows of the data that are
    left out.
    Raises: UsageError."""
    array = labels.array
    if labels.flat:
        last = int(labels.arrays["rows"].max(initial=-1))
        if last >= rows + dropped:
            raise errors.UsageError(
                f"--labels has boxes of row {last} (counted from 0), and --data has {rows + dropped} rows",
                "give the labels of these rows",
            )
        return
    count = len(array) if array.ndim else 1
    if not rows <= count <= rows + dropped:
        beside = f" and at most {dropped} that fill no batch" if dropped else ""
        raise errors.UsageError(
            f"--labels holds {count} {array.dtype} values for {rows} rows{beside}",
            "give one for each row, in their order",
        )
