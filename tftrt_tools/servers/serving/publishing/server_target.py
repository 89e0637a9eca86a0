"""The server of a published model: this machine, or an image."""

import dataclasses
from typing import Any

from tftrt_tools.base import errors, tensorrt_rule
from tftrt_tools.base.process import child
from tftrt_tools.base.stack import gpus, images, installed, libraries, probes, releases

LOCAL = "local"
# Seconds for loading TensorRT and asking the driver.
_PROBE_SECONDS = 30


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
    # The version of the TensorRT that this TensorFlow finds and does not take, else "".
    refused: str = ""

    def text(self) -> str:
        """The target in words: local: TensorFlow 2.14.1, TensorRT 8.5.3, compute capability 9.0."""
        parts = [f"TensorFlow {self.tensorflow or 'unknown'}", f"TensorRT {self.tensorrt or self._without()}"]
        if self.compute_capabilities:
            parts.append("compute capability " + ", ".join(self.compute_capabilities))
        return f"{self.name}: " + ", ".join(parts)

    def _without(self) -> str:
        """What stands in place of a version."""
        if not self.own:
            return "unknown" if self.tftrt else "none"
        return f"none ({self.refused} is here, and TensorFlow does not take it)" if self.refused else "none"

    # Not a Record: `own` and `refused` are not written.
    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "tensorflow": self.tensorflow,
            "tensorrt": self.tensorrt,
            "gpu": self.gpu,
            "tftrt": self.tftrt,
            "compute_capabilities": list(self.compute_capabilities),
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """What this machine has.

    tensorrt: the version that its TensorFlow loads, None where it finds none that it takes. refused: the one that it finds and does not
    take, else "". compute_capabilities: of the GPUs that its driver lists, () without one. tftrt, gpu: whether its TensorFlow has TF-TRT,
    and CUDA.
    """

    tensorflow: str | None
    tensorrt: str | None
    compute_capabilities: tuple[str, ...]
    tftrt: bool = True
    gpu: bool = True
    refused: str = ""


def machine() -> Machine:
    """The Machine here: its files, and in a child process TensorRT's library and the driver. Never raises for broken ones of these."""
    tensorflow = installed.tensorflow()
    # A wheel's version would not do: TensorRT may lie in another one, in none, or in LD_LIBRARY_PATH.
    names = tuple(name for name, _ in libraries.needed(tensorflow) if libraries.stem(name) == "nvinfer")
    try:
        found = probes.machine.run(
            probes.Request(libraries=names, seconds=_PROBE_SECONDS),
            env={"LD_LIBRARY_PATH": ":".join(libraries.loader_path(tensorflow)) or None},
            timeout=_PROBE_SECONDS + 5,
        ).result
    except (errors.TftrtError, child.ChildBug):
        found = probes.Machine(libraries=(), gpus=gpus.Driver())
    version = tensorflow.version if tensorflow else None
    build = tensorflow.build if tensorflow else {}
    there = [one.version for one in found.libraries if tensorflow and one.version]
    taken = next((one for one in there if tensorflow and _taken(tensorflow, one)), None)
    return Machine(
        tensorflow=version,
        tensorrt=taken,
        refused=there[0] if there and not taken else "",
        compute_capabilities=tuple(dict.fromkeys(gpu.compute_capability for gpu in found.gpus.gpus)),
        tftrt=build.get("is_tensorrt_build") is not False and (releases.minor(version) or (0, 0)) <= releases.NEWEST,
        gpu=build.get("is_cuda_build") is not False,
    )


def _taken(tensorflow: installed.TensorFlow, tensorrt: str) -> bool:
    """Whether TensorFlow takes this TensorRT, where its release says which one it is linked with."""
    linked = [int(part) for part in (libraries.tensorrt(tensorflow) or "").split(".") if part]
    return len(linked) < 3 or tensorrt_rule.goes_with([int(part) for part in tensorrt.split(".")], linked)


def resolve(name: str, compute_capability: str, here: Machine) -> Target:
    """The Target that --server_image and --compute_capability name.

    Args: name: "local" or an image; compute_capability: such as "8.6", or "" for this machine's (local) or any (an image); here: Machine.
    Raises: UsageError for an unknown image, and for a text that is not a compute capability.
    """
    given = (_capability(compute_capability),) if compute_capability else ()
    if name == LOCAL:
        return Target(
            name=LOCAL,
            tensorflow=here.tensorflow,
            tensorrt=here.tensorrt,
            gpu=here.gpu,
            tftrt=here.tftrt,
            compute_capabilities=given or here.compute_capabilities,
            own=True,
            refused=here.refused,
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
