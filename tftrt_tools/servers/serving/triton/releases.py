"""Which TensorRT and which CUDA a release of Triton's container carries.

A plan runs in the TensorRT that built it, so that a release decides which plans it can serve. NVIDIA's own table is the Deep Learning
Frameworks Support Matrix (docs.nvidia.com/deeplearning/frameworks/support-matrix), which could not be read here. Each row has the source
that was read; a release without one is not listed, and --triton_tensorrt names its TensorRT. The maintainers say that the TensorRT
container of the same tag always has a compatible TensorRT (triton-inference-server/server#5812), so that a source about it counts.
"""

import dataclasses
import re

from tftrt_tools.base import errors, records
from tftrt_tools.models.savedmodel import engine_assets

_COMPATIBILITY = "docs/compatibility.md of triton-inference-server/server, revision of 24.08"
_NOTES = "docs.nvidia.com/deeplearning/triton-inference-server/release-notes"
# The TensorFlow backend ended in the course of 2025; in which release, no source that was read says.
_SURELY_WITH_TENSORFLOW, _SURELY_WITHOUT = (24, 12), (26, 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Release(records.Record):
    """A release of nvcr.io/nvidia/tritonserver."""

    # The release, such as "24.05".
    name: str
    # Versions; TensorRT's may lack its last number. CUDA "" where not known.
    tensorrt: str
    cuda: str
    # Where this stands.
    source: str

    @property
    def tensorflow(self) -> bool | None:
        """Whether it has the TensorFlow backend; None where that is not known."""
        number = _number(self.name)
        return True if number <= _SURELY_WITH_TENSORFLOW else False if number >= _SURELY_WITHOUT else None

    def text(self) -> str:
        """The release in words: Triton 24.05: TensorRT 10.0.1.6, CUDA 12.4.1."""
        return f"Triton {self.name}: TensorRT {self.tensorrt}" + (f", CUDA {self.cuda}" if self.cuda else "")


RELEASES = tuple(
    Release(name=name, tensorrt=tensorrt, cuda=cuda, source=source)
    for name, tensorrt, cuda, source in (
        ("22.11", "8.5.1", "11.8.0", "TWCC's list of NGC images (docs.twcloud.ai)"),
        (
            "23.03",
            "8.5.3",
            "12.1.0",
            f"a public report from nvcr.io/nvidia/tensorrt:23.03-py3; CUDA: {_NOTES}/rel-23-03.html",
        ),
        ("23.04", "8.6.1.2", "12.1.0", f"triton-inference-server/server#5812; CUDA: {_NOTES}/rel-23-04.html"),
        ("24.04", "8.6.3", "12.4", f"{_COMPATIBILITY}; CUDA: {_NOTES}/rel-24-04.html"),
        ("24.05", "10.0.1.6", "12.4.1", f"{_COMPATIBILITY}; TWCC's list of NGC images (docs.twcloud.ai)"),
        ("24.06", "10.1.0", "12.5.0", _COMPATIBILITY),
        ("24.07", "10.2.0.19", "12.5.1", f"{_COMPATIBILITY}; CUDA: {_NOTES}/rel-24-07.html"),
        ("24.08", "10.3.0.26", "12.6.0", _COMPATIBILITY),
        ("24.12", "10.7.0.23", "12.6.3", "TWCC's list of NGC images (docs.twcloud.ai)"),
        ("25.06", "10.11.0", "", "a public report from nvcr.io/nvidia/tensorrt:25.06-py3"),
    )
)
_FORM = re.compile(r"(2[0-9])\.(0[1-9]|1[0-2])")


def release(name: str, tensorrt: str = "") -> Release:
    """The Release that --triton_release names. Args: tensorrt: text of --triton_tensorrt, "" to look it up. Raises: UsageError."""
    if not _FORM.fullmatch(name):
        raise errors.UsageError(
            f"--triton_release={name} is none", "it is the year and the month of the container's tag, such as 24.05"
        )
    matching = next((candidate for candidate in RELEASES if candidate.name == name), None)
    if tensorrt:
        return Release(name=name, tensorrt=tensorrt, cuda=matching.cuda if matching else "", source="--triton_tensorrt")
    if matching is None:
        raise errors.UsageError(
            f"which TensorRT Triton {name} has is not known here (known: {', '.join(candidate.name for candidate in RELEASES)})",
            f"--triton_tensorrt=VERSION says it; `docker run --rm nvcr.io/nvidia/tritonserver:{name}-py3 env` prints "
            "it as TRT_VERSION",
        )
    return matching


def with_tensorrt(version: str) -> tuple[str, ...]:
    """Names of the releases that run plans of that TensorRT."""
    return tuple(one.name for one in RELEASES if engine_assets.same_release(one.tensorrt, version))


def _number(name: str) -> tuple[int, int]:
    year, _, month = name.partition(".")
    return int(year), int(month)
