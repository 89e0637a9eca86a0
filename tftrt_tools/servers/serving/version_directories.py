"""Version directories below a model's base path, by TensorFlow Serving's rules. No TensorFlow here.

Every child of the base path whose name parses as an int64 is a version to the server: spaces around it, a minus sign and leading zeros
are allowed, a plus sign is not, and a file counts like a directory (TensorFlow Serving 2.14.1, file_system_storage_path_source.cc, and
safe_strto64 of TensorFlow's numbers.cc).
"""

import dataclasses
import os
import pathlib
import re

from tftrt_tools.base import errors

# A path of a directory.
Base = str | os.PathLike[str]
LARGEST = 2**63 - 1
_SMALLEST = -(2**63)
_NUMBER = re.compile(r"[ \t\n\v\f\r]*(-?[0-9]+)[ \t\n\v\f\r]*", re.ASCII)


@dataclasses.dataclass(frozen=True)
class Version:
    """A child of a base path that the server takes for a version. path: pathlib.Path."""

    number: int
    path: pathlib.Path


def parse(name: str) -> int | None:
    """The version number that a directory's name stands for, or None if the server ignores it."""
    match = _NUMBER.fullmatch(name)
    number = int(match[1]) if match else None
    return number if number is not None and _SMALLEST <= number <= LARGEST else None


def listing(base: Base) -> list[Version]:
    """The Versions below `base` (the directory of one model), the smallest first; [] where it does not exist.

    If two names mean the same number ("7" and "007"), the one that sorts last by its bytes is listed, because the server loads that one.
    Raises: OSError.
    """
    try:
        names = os.listdir(base)
    except FileNotFoundError:
        return []
    versions: dict[int, Version] = {}
    for name in sorted(names, key=os.fsencode):
        number = parse(name)
        if number is not None:
            versions[number] = Version(number, pathlib.Path(base) / name)
    return [versions[number] for number in sorted(versions)]


def latest(base: Base) -> int | None:
    """The number that the server's default policy serves, or None without a version. Raises: OSError."""
    found = listing(base)
    return found[-1].number if found else None


def following(base: Base) -> int:
    """The number after the largest, at least 1. Raises: OSError; TftrtError if int64 has no number left."""
    largest = latest(base)
    if largest == LARGEST:
        raise errors.TftrtError(
            f"{base} holds version {LARGEST}: there is no larger number",
            "remove that version, or use another --model_name",
        )
    return 1 if largest is None else max(largest + 1, 1)


def check(base: Base, number: int, allow_older: bool = False) -> None:
    """Refuse a version number that cannot be published, or would not be served.

    Args: base: the directory of one model. number: the wanted version. allow_older: accept one that is smaller than the largest.
    Raises: UsageError, OSError.
    """
    if not 1 <= number <= LARGEST:
        raise errors.UsageError(
            f"--model_version={number}: a version is a number from 1 to {LARGEST}", "leave it out for the next number"
        )
    there = {version.number: version.path for version in listing(base)}
    if number in there:
        raise errors.UsageError(
            f"version {number} exists: {there[number]}",
            "a version never changes: leave --model_version out for the next number",
        )
    largest = max(there, default=None)
    if largest is not None and number < largest and not allow_older:
        raise errors.UsageError(
            f"--model_version={number} is smaller than version {largest}: a server of the latest never loads it",
            "leave --model_version out for the next number, or add --allow_older_version",
        )
