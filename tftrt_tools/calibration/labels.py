"""The classes of rows: of pictures their folders, of TFRecords a feature. No TensorFlow here."""

import dataclasses
import pathlib

from tftrt_tools import errors


@dataclasses.dataclass(frozen=True)
class Class:
    """A class: its index, its folder ("" for that of a record), how many rows are of it."""

    index: int
    name: str
    rows: int


def of_folders(files, source, names):
    """{path: class} of pictures. Each class has a folder directly below `source`, or, where that is no folder (a glob), around them.

    Args: names: of the folders in the order of their classes; () for the folders that are there, sorted.
    Raises: UsageError where there is one folder only, or one without a class.
    """
    folders = {path: folder(path, source) for path in files}
    there = sorted(set(folders.values()))
    if len(there) < 2 or "" in there:
        raise errors.UsageError(f"{source} has pictures outside of folders" if "" in there else f"{source} has one folder of pictures only",
                                "put those of each class into a folder of its own, or leave --output_labels out")
    for name in there:
        if names and name not in names:
            raise errors.UsageError(f"--classes does not name the folder {name!r}", "give each folder a line, in the order of the classes")
    return {path: (list(names) or there).index(name) for path, name in folders.items()}


def folder(path, source):
    """The folder that is a picture's class; "" for a picture beside the folders."""
    if not pathlib.Path(source).is_dir():
        return pathlib.Path(path).parent.name
    parts = pathlib.Path(path).relative_to(source).parts
    return parts[0] if len(parts) > 1 else ""


def counted(labels, names):
    """[Class] of the labels that occur, by index. Args: labels: int64 [rows]. names: {class: name}, or {}."""
    return tuple(Class(int(index), names.get(int(index), ""), int((labels == index).sum())) for index in sorted(set(labels.tolist())))
