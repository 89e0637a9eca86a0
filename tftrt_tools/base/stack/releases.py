"""The version numbers of this project: which TensorFlow goes with which TensorRT, CUDA and cuDNN. No other file states one.

Sources: CUDA and cuDNN from the "tested build configurations" of tensorflow.org and the pins of the wheels' `and-cuda`
extra; TensorRT from the library names that each wheel asks the loader for. If the installed wheel itself states something else (its
`cuda_config.h`, its linked version), the wheel counts.
"""

import dataclasses
import re
import sys
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True)
class Release:
    """What one TensorFlow minor release was built with.

    tensorrt: major version, which the loaded TensorRT must share.
    nvinfer: the part after "libnvinfer.so." in the name that TensorFlow loads.
    cuda: version it was built with; any of the same major version will do.
    cudnn: the oldest (major, minor) it accepts.
    """

    tensorrt: int
    nvinfer: str
    cuda: str
    cudnn: tuple[int, int]


RELEASES = {
    (2, 9): Release(7, "7", "11.2", (8, 1)),
    (2, 10): Release(7, "7", "11.2", (8, 1)),
    (2, 11): Release(7, "7", "11.2", (8, 1)),
    (2, 12): Release(8, "8", "11.8", (8, 6)),
    (2, 13): Release(8, "8", "11.8", (8, 6)),
    (2, 14): Release(8, "8", "11.8", (8, 6)),
    (2, 15): Release(8, "8.6.1", "12.2", (8, 8)),
    (2, 16): Release(8, "8.6.1", "12.3", (8, 9)),
    (2, 17): Release(8, "8.6.1", "12.3", (8, 9)),
}
OLDEST, NEWEST = min(RELEASES), max(RELEASES)

# The wheel whose own search path finds the TensorRT, CUDA and cuDNN wheels, and the Pythons TensorRT 8.5.3.1 has wheels for.
RECOMMENDED = "2.14.1"
PYTHONS = ((3, 9), (3, 10))
# The last TensorFlow with TF-TRT, for newer Pythons. Its TensorRT is on NVIDIA's own index alone (docs/dev/stack.md).
LAST = "2.17.1"
LAST_PYTHONS = ((3, 9), (3, 12))
TENSORRT_OF_LAST = "pip install --no-deps tensorrt-libs==8.6.1 --extra-index-url https://pypi.nvidia.com"

# TensorRT's Python package: the release that comes with the recommended stack, that of the last, the Pythons that have the latter, and its
# installation. PyPI's tensorrt-bindings alone has no module `tensorrt`.
BINDINGS, LAST_BINDINGS = (8, 5), (8, 6)
BINDINGS_PYTHONS = ((3, 10), (3, 11))
BINDINGS_OF_LAST = "pip install tensorrt==8.6.1 --extra-index-url https://pypi.nvidia.com"

# Suffix of each CUDA library's name, by CUDA major version (used where the wheel has no cuda_config.h).
CUDA_LIBRARIES = {
    11: {"CUDART": "11.0", "CUBLAS": "11", "CUFFT": "10", "CUSOLVER": "11", "CUSPARSE": "11"},
    12: {"CUDART": "12", "CUBLAS": "12", "CUFFT": "11", "CUSOLVER": "11", "CUSPARSE": "12"},
}
# Suffix of NVRTC's library in its wheel; cuDNN 8 opens it by the bare name libnvrtc.so.
NVRTC = {11: "11.2", 12: "12"}
# The oldest driver that runs any CUDA of that major version (NVIDIA's CUDA compatibility guide).
OLDEST_DRIVER = {11: "450.80.02", 12: "525.60.13"}
# The newest compute capability that a TensorRT major version builds engines for.
NEWEST_COMPUTE_CAPABILITY = {7: (8, 6), 8: (9, 0)}
# Major versions of TensorRT that a vendor's TensorFlow may bring, the newest first.
TENSORRTS = (10, 8, 7)
# The first without implicit batch mode, and the first that deprecates the calibrators through which TF-TRT hands over INT8's ranges
# (docs/dev/stack.md). This project has run with none from FIRST_EXPLICIT on.
FIRST_EXPLICIT, CALIBRATORS_DEPRECATED = 10, "10.1"


def minor(version: str | None) -> tuple[int, int] | None:
    """ "2.14.1" -> (2, 14); None where it is no version."""
    match = re.match(r"(\d+)\.(\d+)", version or "")
    return (int(match[1]), int(match[2])) if match else None


def release(version: str | None) -> Release | None:
    """The Release of a TensorFlow version, or None where this project does not know it."""
    return RELEASES.get(minor(version) or (0, 0))


def has_implicit_batch(tensorrt: int | None) -> bool:
    """Whether a TensorRT of this major version has implicit batch mode; one that is not known counts as one that has it."""
    return tensorrt is None or tensorrt < FIRST_EXPLICIT


def text(version: Iterable[int]) -> str:
    """(8, 5, 3) -> "8.5.3"."""
    return ".".join(map(str, version))


def install_command() -> str:
    """The line that installs a stack, for the running Python."""
    package, here = f'"tensorflow[and-cuda]=={RECOMMENDED}"', sys.version_info[:2]
    if here in PYTHONS:
        return f"pip install {package}"
    if LAST_PYTHONS[0] <= here <= LAST_PYTHONS[1]:
        return f'pip install "tensorflow[and-cuda]=={LAST}" && {TENSORRT_OF_LAST}   (then `tftrt doctor` again)'
    python = text(PYTHONS[-1])
    return f"python{python} -m venv tftrt-env && tftrt-env/bin/pip install {package}   (it needs Python {python})"
