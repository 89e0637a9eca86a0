"""Where a version grows: beside the repository, because Triton looks at everything inside it (seen with core 2.51.0).

- Every directory of a repository is a model, whatever its name. One without a configuration or a version is an error, and a Triton that
  starts then ends with it. So a new model grows beside the repository and appears there with one rename.
- Anything that appears or changes in a model's directory, whatever its name, makes a Triton that polls load the served version again, at
  each look while a file grows. So a later version grows beside the repository too.

A repository that is a volume of its own has no such place. Versions then grow in the model's directory.
"""

import contextlib
import dataclasses
import os
import pathlib
import re
import secrets
import shutil
import time
from collections.abc import Iterator

from tftrt_tools.base import errors
from tftrt_tools.base.files import renaming
from tftrt_tools.servers.serving import version_directories
from tftrt_tools.servers.serving.publishing import placing

_PREFIX = ".tftrt-new-model-"
# Seconds after which a publisher that left one is surely gone.
_ABANDONED = 24 * 3600
_MOUNTS = pathlib.Path("/proc/self/mountinfo")
_COST = (
    "the version grew in the model's directory, because nothing can be moved into {0} from beside it: a Triton that polled meanwhile "
    "loaded the served version again at each look. A repository in a folder of its volume, not at its root, avoids that"
)


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a version is put and where it grows."""

    # The directory to put it in: the model's own, or one that becomes the model's own.
    home: pathlib.Path
    # For placing.staged; on the file system of `home`.
    workplace: pathlib.Path
    # A remark for the user, "" for none.
    note: str = ""


@contextlib.contextmanager
def place(base: pathlib.Path) -> Iterator[Place]:
    """Yield where a version of the model grows. A new model becomes `base`, its directory in the repository, when the context ends well.

    Raises: UsageError where another publisher has made `base` meanwhile; OSError.
    """
    base = pathlib.Path(os.path.realpath(base.parent)) / base.name
    # No server has a repository that is not there yet.
    if not base.parent.is_dir():
        yield Place(base, base)
    elif not _can_grow_beside(base):
        yield Place(
            base, base, _COST.format(base.parent) if base.is_dir() and version_directories.listing(base) else ""
        )
    elif base.exists():
        with _beside(base) as workplace:
            yield Place(base, workplace)
    else:
        with _new_model(base) as grown:
            yield Place(grown, grown)


@contextlib.contextmanager
def _beside(base: pathlib.Path) -> Iterator[pathlib.Path]:
    """A directory for the stages of all publishers of this model."""
    repository = base.parent
    workplace = repository.parent / f".tftrt-publish-{repository.name}" / base.name
    try:
        yield workplace
    finally:
        for folder in (workplace, workplace.parent):
            with contextlib.suppress(OSError):
                folder.rmdir()  # fails while another publisher is at work


@contextlib.contextmanager
def _new_model(base: pathlib.Path) -> Iterator[pathlib.Path]:
    beside = base.parent.parent
    _sweep(beside)
    grown = beside / (_PREFIX + secrets.token_hex(4))
    try:
        yield grown
        try:
            renaming.new(grown, base, served=True)
        except OSError as error:
            if error.errno not in renaming.TAKEN:
                raise
            raise errors.UsageError(
                f"what is at {base} appeared there meanwhile, and is left as it is", "publish again"
            ) from None
        placing.flush_folder(base.parent)
    finally:
        shutil.rmtree(grown, ignore_errors=True)


def _can_grow_beside(base: pathlib.Path) -> bool:
    """Whether a directory beside the repository can be moved into it, and into the model's directory where there is one."""
    repository = base.parent
    if not os.access(repository.parent, os.W_OK | os.X_OK):
        return False
    inside = [folder for folder in (repository, base) if folder.exists()]
    # A rename fails between two mounts, also where they are of one device.
    mounts, device = _mount_points(), repository.parent.stat().st_dev
    return not any(folder.is_symlink() or str(folder) in mounts or folder.stat().st_dev != device for folder in inside)


def _mount_points() -> set[str]:
    """The paths where something is mounted; none where the system does not tell."""
    try:
        lines = _MOUNTS.read_text().splitlines()
    except OSError:
        return set()
    # proc_pid_mountinfo(5): the fifth field, with blanks and the like as octal numbers.
    return {re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), line.split()[4]) for line in lines}


def _sweep(folder: pathlib.Path) -> None:
    """Remove what killed publishers left long ago."""
    for left in folder.glob(_PREFIX + "*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _ABANDONED:
                shutil.rmtree(left, ignore_errors=True)
