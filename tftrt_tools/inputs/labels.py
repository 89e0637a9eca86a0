"""The classes of rows: of pictures their folders, of TFRecords a feature. No TensorFlow here."""

import dataclasses
import pathlib

from tftrt_tools import errors

# Under this name a source gives the class of a row, where it is asked for.
LABEL = "label of the row"


@dataclasses.dataclass(frozen=True)
class Class:
    """A class: its index, its folder ("" for that of a record), how many rows are of it."""

    index: int
    name: str
    rows: int


def of_folders(files, source, names):
    """The classes of pictures. Each has a folder directly below `source`, or, where that is no folder (a glob), around its pictures.

    Args: names: of the folders in the order of their classes; () for the folders that are there, sorted.
    Returns: ({path: class}, {class: folder}). Raises: UsageError where there is one folder only, or one without a class.
    """
    below = pathlib.Path(source).is_dir()
    folders = {path: _first_folder(path, source) if below else pathlib.Path(path).parent.name for path in files}
    there = sorted(set(folders.values()))
    if len(there) < 2 or "" in there:
        raise errors.UsageError(f"{source} has pictures outside of folders" if "" in there else f"{source} has one folder of pictures only",
                                "put those of each class into a folder of its own, or leave --output_labels out")
    for name in there:
        if names and name not in names:
            raise errors.UsageError(f"--classes does not name the folder {name!r}", "give each folder a line, in the order of the classes")
    classes = {name: number for number, name in enumerate(names or there)}
    return {path: classes[name] for path, name in folders.items()}, {number: name for name, number in classes.items()}


def _first_folder(path, source):
    """The folder directly below `source` that holds a picture; "" for a picture beside the folders."""
    parts = pathlib.Path(path).relative_to(source).parts
    return parts[0] if len(parts) > 1 else ""


def counted(labels, names):
    """[Class] of the labels that occur, by index. Args: labels: int64 [rows]. names: {class: name}, or {}."""
    return tuple(Class(int(index), names.get(int(index), ""), int((labels == index).sum())) for index in sorted(set(labels.tolist())))
