"""This machine: what is installed, what loads, what it can do. TensorFlow is never imported in this process."""

import typing

from tftrt_tools.base import errors

if typing.TYPE_CHECKING:
    from tftrt_tools.base.stack.diagnosis import Diagnosis


def diagnose(seconds: float = 30) -> "Diagnosis":
    """The Diagnosis of this machine; takes about as long as importing TensorFlow.

    Args: seconds: the most time for each of the two child processes.
    """
    from tftrt_tools.base.stack import diagnosis

    return diagnosis.diagnose(seconds)


def tensorrt_major() -> int | None:
    """The major version of the TensorRT that the installed TensorFlow loads, by files alone; None where they do not say it."""
    from tftrt_tools.base.stack import installed, libraries

    tensorflow = installed.tensorflow()
    name = libraries.tensorrt(tensorflow) if tensorflow else None
    return int(name.split(".")[0]) if name else None


def has_implicit_batch() -> bool:
    """Whether the TensorRT here has implicit batch mode, as far as files say."""
    from tftrt_tools.base.stack import releases

    return releases.has_implicit_batch(tensorrt_major())


def check_can_convert() -> None:
    """Refuse in milliseconds if a conversion cannot work: no TF-TRT in the installed TensorFlow, no TensorRT found.

    It reads only files, so libraries that it accepts can still fail to load; `diagnose` finds that.

    Raises: TftrtError.
    """
    from tftrt_tools.base.stack import installed, problems

    tensorflow = installed.tensorflow()
    problem = problems.in_installation(tensorflow) or problems.in_files(tensorflow)
    if problem:
        raise errors.TftrtError(problem.cause, problem.mend)


def check_thoroughly() -> None:
    """Refuse if a conversion cannot work, with what `tftrt doctor` says; takes as long as that. For those who have seen one fail.

    Raises: TftrtError.
    """
    capability = diagnose().can("convert")
    if not capability.can:
        raise errors.TftrtError(capability.cause, capability.mend)
