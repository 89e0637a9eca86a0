"""Where the directory of a new model grows.

To Triton every directory of a repository is a model, whatever its name: one without a configuration or a version is an error, and a Triton
that starts then ends with it (seen with core 2.51.0; a running one only logs it). So the first version of a model grows beside the
repository, and the model's directory appears there with one rename. Later versions grow in it, where Triton takes no notice of them.
"""

import contextlib
import os
import pathlib
import secrets
import shutil
import time
from collections.abc import Iterator

from tftrt_tools import errors
from tftrt_tools.serving.publishing import placing

_PREFIX = ".tftrt-new-model-"
# Seconds after which a publisher that left one is surely gone.
_ABANDONED = 24 * 3600


@contextlib.contextmanager
def directory(base: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield the directory to publish a version in: `base`, the model's own, or one that becomes `base` when the context ends well.

    Raises: TftrtError where another publisher has made `base` meanwhile; OSError.
    """
    if base.exists() or not _can_grow_beside(base.parent):
        yield base
        return
    beside = base.parent.parent
    _sweep(beside)
    grown = beside / (_PREFIX + secrets.token_hex(4))
    try:
        yield grown
        try:
            os.rename(grown, base)
        except OSError as error:
            if not base.exists():
                raise
            raise errors.TftrtError(f"another publisher has made {base} meanwhile ({error.strerror})", "publish again") from None
        placing.flush_folder(base.parent)
    finally:
        shutil.rmtree(grown, ignore_errors=True)


def _can_grow_beside(repository: pathlib.Path) -> bool:
    """Whether a directory beside the repository can be moved into it. No server has a repository that is not there yet."""
    if not repository.is_dir() or repository.is_symlink() or not os.access(repository.parent, os.W_OK | os.X_OK):
        return False
    return repository.stat().st_dev == repository.parent.stat().st_dev


def _sweep(folder: pathlib.Path) -> None:
    """Remove what killed publishers left long ago."""
    for left in folder.glob(_PREFIX + "*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _ABANDONED:
                shutil.rmtree(left, ignore_errors=True)
