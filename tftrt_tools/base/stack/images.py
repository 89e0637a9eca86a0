"""The contents of server images: TensorFlow, TensorRT, and whether a TF-TRT model can run there at all.

Sources: the Dockerfile.gpu of tensorflow/serving at its release tags (docs/dev/stack.md says which was read for
which release and what was not found). 2.18 and later install TensorRT without having an op that uses it (tensorflow/serving#4018).
"""

import dataclasses
import re

from tftrt_tools.base import errors
from tftrt_tools.base.stack import releases

STOCK = "tensorflow/serving"
OWN = "tftrt/serving"
# TensorFlow Serving links these libraries' ops beside TensorFlow's (SUPPORTED_TENSORFLOW_OPS in its model_servers/BUILD, since 2.11).
EXTRA_LIBRARIES = "TensorFlow Text's and TensorFlow Decision Forests'"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Image:
    """A server image."""

    # As the user names it.
    name: str
    # Version, "2.14" where only the minor release is known.
    tensorflow: str
    # It is built for CUDA.
    gpu: bool
    # Version; None if it has none, or if the version is not known.
    tensorrt: str | None
    # It has TF-TRT's ops.
    tftrt: bool


# TensorRT of the GPU images, by TensorFlow's minor release; None: not found.
_TENSORRT = {
    (2, 11): "7.2.2",
    (2, 12): None,
    (2, 13): "8.4.3",
    (2, 14): "8.4.3",
    (2, 15): "8.6.1",
    (2, 16): "8.6.1",
    (2, 17): "8.6.1",
    (2, 18): None,
    (2, 19): None,
}
# The last TensorFlow with TF-TRT.
_LAST_WITH_TFTRT = releases.NEWEST
# What serving/Dockerfile makes. In the first, the stock image's TensorRT is swapped for the one that builds the engines; in the second not.
OWN_IMAGES = tuple(
    Image(name=f"{OWN}:{tensorflow}", tensorflow=tensorflow, gpu=True, tensorrt=tensorrt, tftrt=True)
    for tensorflow, tensorrt in ((releases.RECOMMENDED, "8.5.3"), (releases.LAST, "8.6.1"))
)
# The one that a name without a tag means.
OWN_IMAGE = dataclasses.replace(OWN_IMAGES[0], name=OWN)
_TAG = re.compile(r"([0-9]+)\.([0-9]+)\.([0-9]+)(-gpu)?")
_OWN_NAMES = " and ".join(one.name for one in OWN_IMAGES)
_KNOWN = f"known are {_OWN_NAMES}, and {STOCK}:X.Y.Z or {STOCK}:X.Y.Z-gpu, from 2.11 to 2.19"


def image(reference: str) -> Image:
    """The Image that `reference` names, such as "tensorflow/serving:2.14.1-gpu" or "tftrt/serving:2.17.1".

    Raises: UsageError for an image that this project does not know, and for a tag that names no release.
    """
    name = reference.split("@")[0].removeprefix("docker.io/")  # a digest adds nothing to the tag before it
    own = next((one for one in (OWN_IMAGE, *OWN_IMAGES) if one.name == name), None)
    if own:
        return dataclasses.replace(own, name=reference)
    repository, _, tag = name.partition(":")
    if repository == OWN:
        raise errors.UsageError(f"--server_image={reference}: serving/Dockerfile makes no image with this tag", _KNOWN)
    if repository != STOCK:
        raise errors.UsageError(f"--server_image={reference}: nothing is known of this image", _KNOWN)
    match = _TAG.fullmatch(tag)
    if match is None:
        what = f"the tag {tag!r}" if tag else "it"
        raise errors.UsageError(f"--server_image={reference}: {what} does not name a release", _KNOWN)
    minor, gpu = (int(match[1]), int(match[2])), bool(match[4])
    if minor not in _TENSORRT:
        raise errors.UsageError(f"--server_image={reference}: nothing is known of that release", _KNOWN)
    return Image(
        name=reference,
        tensorflow=".".join(match.groups()[:3]),
        gpu=gpu,
        tensorrt=_TENSORRT[minor] if gpu else None,
        tftrt=gpu and minor <= _LAST_WITH_TFTRT,
    )


def of(tensorflow: str | None) -> tuple[str, str]:
    """The images for the models of a TensorFlow: this project's, and the stock one. Args: tensorflow: its version, None without one."""
    newer = (releases.minor(tensorflow) or (0, 0)) > (releases.minor(releases.RECOMMENDED) or (0, 0))
    version = releases.LAST if newer else releases.RECOMMENDED
    return f"{OWN}:{version}", f"{STOCK}:{version}-gpu"


def with_tensorrt(version: str) -> str | None:
    """The name of this project's image that reads engines of a TensorRT, None where none does."""
    return next((one.name for one in OWN_IMAGES if one.tensorrt == ".".join(version.split(".")[:3])), None)
