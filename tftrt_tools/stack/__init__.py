"""This machine: what is installed, what loads, what can be done here. TensorFlow is never imported in this process."""


import typing

from tftrt_tools import errors

if typing.TYPE_CHECKING:
    from tftrt_tools.stack.diagnosis import Diagnosis


def diagnose(seconds: float = 30) -> "Diagnosis":
    """The Diagnosis of this machine; takes about as long as importing TensorFlow.

    Args: seconds: what each of the two child processes may take.
    """
    from tftrt_tools.stack import diagnosis

    return diagnosis.diagnose(seconds)


def check_can_convert() -> None:
    """Refuse in milliseconds where a conversion cannot work: no TF-TRT in the installed TensorFlow, no TensorRT found.

    It reads files only, so what it lets pass can still fail to load; `diagnose` finds that.

    Raises: TftrtError.
    """
    from tftrt_tools.stack import installed, problems

    tensorflow = installed.tensorflow()
    problem = problems.in_installation(tensorflow) or problems.in_files(tensorflow)
    if problem:
        raise errors.TftrtError(problem.cause, problem.mend)
