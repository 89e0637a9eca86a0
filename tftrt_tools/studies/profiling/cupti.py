"""Why the profiler saw no kernel, from what CUPTI and TensorFlow say, and what mends it."""

from __future__ import annotations

import re
from collections.abc import Iterable

# (words of a message, its meaning, the mend).
_KNOWN = (
    (
        r"INSUFFICIENT_PRIVILEGES|ERR_NVGPUCTRPERM",
        "the driver lets only administrators trace the GPU",
        "run as root, give the container --cap-add=SYS_ADMIN, or set NVreg_RestrictProfilingToAdminUsers=0 for the kernel module nvidia",
    ),
    (
        r"MULTIPLE_SUBSCRIBERS|already (in use|subscribed)|ALREADY_EXISTS",
        "another profiler is attached to this process or GPU",
        "end it (nsys, ncu, DCGM's profiling) and run this again",
    ),
    (
        r"could not be loaded|cannot open shared object|dlerror|symbol could not be found|NOT_FOUND.*cupti|libcupti",
        "CUPTI cannot be loaded",
        "`tftrt doctor` says whether libcupti.so is there; it comes with the wheel nvidia-cuda-cupti-cu11",
    ),
)


def why(lines: Iterable[str]) -> str:
    """One line: why the trace has no kernels, and the mend.

    Args: lines: what the profiler complained about, and lines of the log about CUPTI.
    """
    text = "\n".join(lines)
    for pattern, cause, mend in _KNOWN:
        if re.search(pattern, text, re.IGNORECASE):
            return f"the GPU's work was not traced: {cause}; {mend}"
    return (
        "the GPU's work was not traced, and the profiler does not say why: the parts are the host's alone, and hold its waiting for "
        "the GPU; --log_file=FILE keeps the whole log"
    )
