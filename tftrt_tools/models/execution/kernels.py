"""In which arithmetic a GPU computes, told from the names of the kernels that ran.

In an INT8 engine TensorRT may take INT8; neither its op nor its answers tell whether it did. The names of the kernels that multiply tell
it: those of TensorRT 8.5, cuDNN 8.7 and cuBLAS 11, seen on an H200 (tests/data/kernels.txt).
"""

from __future__ import annotations

import collections
import re
from collections.abc import Mapping

from tftrt_tools.models.execution import trace

# The first one found in a name decides. A name has the types of inputs, products and sums; the narrowest comes first here.
_MARKS = (
    ("INT8", re.compile(r"_i8(i8|f32|f16)_|i8i32|imma|(?<!cu)int8|i8816|i16832", re.IGNORECASE)),
    ("BF16", re.compile(r"bf16", re.IGNORECASE)),
    ("FP16", re.compile(r"f16f16|f16f32|fp16|_f16_s\d+gemm|hmma|h(884|1688|16816)|hgemm", re.IGNORECASE)),
    ("TF32", re.compile(r"tf32|tensorop_s1688", re.IGNORECASE)),
    ("FP32", re.compile(r"f32f32|fp32|sgemm", re.IGNORECASE)),
)
OTHER = "other"
ARITHMETICS = (*(name for name, _ in _MARKS), OTHER)


def arithmetic(kernel: str) -> str:
    """One of ARITHMETICS: the arithmetic in which a kernel of this name multiplies; "other" if it does not multiply, or if its name does
    not tell."""
    return next((name for name, mark in _MARKS if mark.search(kernel)), OTHER)


def seconds(events: trace.Events) -> dict[str, float]:
    """{arithmetic: seconds of the GPU's kernels}, of those that ran; copies are left out. Args: events: of profiling.events."""
    seconds_by_kind: dict[str, float] = collections.defaultdict(float)
    for name, start, end in runs(events):
        seconds_by_kind[arithmetic(name)] += end - start
    return {name: seconds_by_kind[name] for name in ARITHMETICS if name in seconds_by_kind}


def runs(events: trace.Events) -> list[tuple[str, float, float]]:
    """(kernel, start, end in seconds) of each that ran on a GPU. Args: events: of profiling.events."""
    return [one for plane, listed in events.items() if is_gpu(plane) for one in listed if not is_copy(one[0])]


def is_gpu(plane: str) -> bool:
    """Whether a plane of profiling.events is a GPU's."""
    return plane.startswith("/device:GPU")


def is_copy(event: str) -> bool:
    """Whether an event of a GPU copies or fills memory; all others are kernels."""
    return event.lower().startswith(("memcpy", "memset"))


def not_taken(precision: str, found: Mapping[str, float]) -> str:
    """A warning if no kernel computed in the precision that the engines were built for, or "".

    Args: precision: the lowest of the model's engines; found: of `seconds`, summed over the calls in which engines ran.
    """
    told = {name: share for name, share in found.items() if name != OTHER}
    if precision not in ("INT8", "FP16") or not told or precision in told:
        return ""
    return (
        f"{precision} was asked for and not taken: no kernel that ran says that it computes in {precision} (of the kernels' time: "
        f"{text(found)}). " + _REASONS[precision]
    )


_REASONS = {
    "INT8": "TensorRT takes INT8 where both ends of a layer have a range and its kernel is the faster one (`tftrt build "
    "--layer_precisions` tells layer by layer); without it the model is what FP16 gives, built longer",
    "FP16": "TensorRT found FP32 as fast; small layers gain nothing from FP16",
}


def text(found: Mapping[str, float]) -> str:
    """For people: "INT8 61 %, FP16 4 %, names that do not tell 35 %"."""
    total = sum(found.values()) or 1.0
    return ", ".join(
        f"{_TOLD.get(name, name)} {100 * found[name] / total:.0f} %" for name in ARITHMETICS if name in found
    )


_TOLD = {OTHER: "names that do not tell"}
