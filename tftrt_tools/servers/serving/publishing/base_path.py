"""The directory of a model's versions: may it take one?"""

import os
import pathlib

from tftrt_tools.base import errors
from tftrt_tools.base.files import whole_file


def of(model: str | os.PathLike[str], model_name: str, base_path: str, what: str) -> pathlib.Path:
    """The directory of `model_name` in --base_path, which need not exist.

    Args: what: it, or the folder around it, is called in messages. Raises: UsageError where it cannot be made, or lies in the model.
    """
    base = pathlib.Path(os.path.abspath(base_path)) / model_name
    whole_file.check_named(base)
    source, real = pathlib.Path(os.path.realpath(model)), pathlib.Path(os.path.realpath(base))
    if source == real or source in real.parents:
        raise errors.UsageError(f"{what} {base} lies inside the model {model}", "choose another --base_path")
    first = whole_file.nearest(base)
    if not first.is_dir():
        raise errors.UsageError(f"{first} is no directory", "choose another --base_path")
    if not whole_file.takes_files(first):
        raise errors.UsageError(
            f"{first} cannot be written to by this user", "choose another --base_path, or fix its rights"
        )
    return base
