"""Libraries of custom ops (--op_library): named once by the command, loaded by each process that loads a model."""

import functools
import os
import pathlib

from tftrt_tools.base import errors

_VARIABLE = "TFTRT_OP_LIBRARIES"


def variables(paths: list[str]) -> dict[str, str]:
    """Environment variables that tell child processes to load these files. Raises: UsageError for a file that does not exist."""
    for path in paths:
        if not pathlib.Path(path).is_file():
            raise errors.UsageError(
                f"--op_library={path}: no such file", "give the shared library (.so) that the op was built into"
            )
    # The flag's files replace those of an outer process.
    return {_VARIABLE: os.pathsep.join(str(pathlib.Path(path).absolute()) for path in paths)} if paths else {}


def named() -> list[str]:
    """The absolute paths of the libraries that the command named for this process."""
    return [path for path in os.environ.get(_VARIABLE, "").split(os.pathsep) if path]


@functools.cache
def load() -> None:
    """Load these libraries into this process's TensorFlow. Raises: UsageError."""
    for path in named():
        import tensorflow as tf

        try:
            tf.load_op_library(path)
        except (tf.errors.OpError, RuntimeError, OSError) as error:
            raise unusable(path, str(error)) from None


def unusable(path: str, why: str) -> errors.UsageError:
    """The error for a library that TensorFlow cannot load."""
    return errors.UsageError(
        f"--op_library={path} cannot be loaded: {errors.first_line(why)}",
        "build it against this TensorFlow, with the flags of tf.sysconfig.get_compile_flags() and get_link_flags()",
    )
