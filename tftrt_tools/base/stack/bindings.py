"""TensorRT's Python package, which builds and runs plans. TF-TRT does without it, and no Python after 3.11 has one of TensorRT 8."""

import importlib.util
import re
import sys

from tftrt_tools.base import errors
from tftrt_tools.base.stack import releases


def installed() -> bool:
    """Whether `import tensorrt` finds a package. A folder that merely has this name, such as one of plans, is none."""
    found = importlib.util.find_spec(errors.BINDINGS)
    return found is not None and found.origin is not None


def missing(why: str, built_with: str = "") -> errors.TftrtError:
    """The error where it is not installed. Args: why: what cannot be done without it. built_with: the TensorRT of the plan that has to run;
    "" where a plan is to be built."""
    return errors.TftrtError(f"{why}: {errors.no_bindings()}", _mend(built_with))


def note(loaded: str = "") -> str:
    """What a machine without it cannot do, for `tftrt doctor`. Args: loaded: the TensorRT of TensorFlow, where plans want that one, too."""
    return f"{errors.no_bindings()}: TF-TRT does without it, plans do not (`tftrt convert --backend=tensorrt`). For plans: {_mend(loaded)}"


def _mend(built_with: str) -> str:
    extra, able = errors.install_bindings(), sys.version_info[:2] in releases.BINDINGS_PYTHONS
    if not built_with:
        first = extra if not able or sys.version_info[:2] in releases.PYTHONS else releases.BINDINGS_OF_LAST
        return f"{first}; or install the tensorrt of your GPU's driver"
    release = releases.minor(built_with)
    if release == releases.BINDINGS:
        return extra
    if release == releases.LAST_BINDINGS:
        pythons = " or ".join(map(releases.text, releases.BINDINGS_PYTHONS))
        return f"{'' if able else f'with Python {pythons}: '}{releases.BINDINGS_OF_LAST}"
    # It is read from a file, and a line to be pasted into a shell. PyPI has a fourth number for some releases (10.8.0.43), for others none.
    exact = re.fullmatch(r"(\d+\.\d+\.\d+)(\.\d+)?", built_with)
    return f"pip install 'tensorrt=={exact[1]}.*'" if exact else "install the tensorrt that the plan was built with"
