"""The server of a published model: this machine, or an image."""

import dataclasses
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.base.process import child
from tftrt_tools.base.stack import gpus, images, installed, probes

LOCAL = "local"
# Seconds for asking the driver.
_DRIVER_SECONDS = 30


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """A server."""

    # "local" or an image.
    name: str
    # Versions; None if it has none, or if the version is not known.
    tensorflow: str | None
    tensorrt: str | None
    # Whether the server can use a GPU.
    gpu: bool
    # Whether it has TF-TRT's ops.
    tftrt: bool
    # Compute capabilities of its GPUs, such as "9.0"; () if not known.
    compute_capabilities: tuple[str, ...]
    # Whether the server runs in this machine's TensorFlow.
    own: bool = False

    def text(self) -> str:
        """The target in words: local: TensorFlow 2.14.1, TensorRT 8.5.3, compute capability 9.0."""
        parts = [
            f"TensorFlow {self.tensorflow or 'unknown'}",
            f"TensorRT {self.tensorrt or ('unknown' if self.tftrt else 'none')}",
        ]
        if self.compute_capabilities:
            parts.append("compute capability " + ", ".join(self.compute_capabilities))
        return f"{self.name}: " + ", ".join(parts)

    # Not a Record: `own` is not written.
    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "tensorflow": self.tensorflow,
            "tensorrt": self.tensorrt,
            "gpu": self.gpu,
            "tftrt": self.tftrt,
            "compute_capabilities": list(self.compute_capabilities),
        }


@dataclasses.dataclass(frozen=True)
class Machine:
    """What this machine has. compute_capabilities: of the GPUs that its driver lists, () without one."""

    tensorflow: str | None
    tensorrt: str | None
    compute_capabilities: tuple[str, ...]


def machine() -> Machine:
    """The Machine here; reads files and asks the driver, in a child process. Never raises for a broken driver."""
    tensorflow = installed.tensorflow()
    try:
        driver = probes.driver.run(None, timeout=_DRIVER_SECONDS).result
    except (errors.TftrtError, child.ChildBug):
        driver = gpus.Driver()
    capabilities = tuple(dict.fromkeys(gpu.compute_capability for gpu in driver.gpus))
    return Machine(tensorflow.version if tensorflow else None, installed.version_of("tensorrt"), capabilities)


def resolve(name: str, compute_capability: str, here: Machine) -> Target:
    """The Target that --target and --compute_capability name.

    Args: name: "local" or an image; compute_capability: such as "8.6", or "" for this machine's (local) or any (an image); here: Machine.
    Raises: UsageError for an unknown image, and for a text that is not a compute capability.
    """
    given = (_capability(compute_capability),) if compute_capability else ()
    if name == LOCAL:
        return Target(
            name=LOCAL,
            tensorflow=here.tensorflow,
            tensorrt=here.tensorrt,
            gpu=True,
            tftrt=True,
            compute_capabilities=given or here.compute_capabilities,
            own=True,
        )
    image = images.image(name)
    return Target(
        name=image.name,
        tensorflow=image.tensorflow,
        tensorrt=image.tensorrt,
        gpu=image.gpu,
        tftrt=image.tftrt,
        compute_capabilities=given,
    )


def _capability(text: str) -> str:
    major, dot, minor = text.partition(".")
    if not (dot and major.isdecimal() and minor.isdecimal()):
        raise errors.UsageError(
            f"--compute_capability={text} is none", "it is like 8.6; `tftrt doctor` on the server's machine prints it"
        )
    return f"{int(major)}.{int(minor)}"
