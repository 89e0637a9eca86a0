"""Builds the images of serving/Dockerfile here, on bases that are made here: `make test-images` runs what they do.

usage: python -m tests.images.build FOLDER [TENSORFLOW…]
FOLDER keeps them: `podman --root=FOLDER/root --runroot=FOLDER/run --storage-driver=overlay images` lists them.
"""

import dataclasses
import re
import sys
import time
import urllib.request

from tests.conftest import ROOT
from tests.images import bases
from tests.images.podman import Podman, missing
from tftrt_tools.base.stack import images

DOCKERFILE = ROOT / "serving/Dockerfile"
VERSIONS = {one.tensorflow: one for one in images.OWN_IMAGES}
# The Python of each version's tools. The libraries for 2.14.1's server come out of a wheel for 3.10.
PYTHONS = {"2.14.1": "3.10", "2.17.1": "3.12"}
# The most that one version's images took on the way, in GB, with some to spare.
ROOM = 28
# As a release would be told; the other version goes without, as a checkout.
RELEASE = "9.8.7"
_STAND_IN = "8.6.0"


@dataclasses.dataclass(kw_only=True)
class Built:
    """The images of a version. refused: what the build says where 8.6.0 stands in for TensorRT 8.6.1, None where it does not.
    seconds: {step: how long it took}."""

    podman: Podman
    tensorflow: str
    tools: str
    serving: str
    refused: str | None
    seconds: dict

    @property
    def switch(self):
        """Options of `podman run`: the user's word for the TensorRT that stands in."""
        return [f"--env=TFTRT_ALLOW_TENSORRT={_STAND_IN}"] if self.refused else []


def build(podman, tensorflow):
    """Makes the bases and both images of a version. Returns: Built."""
    steps = _Steps()
    steps(f"base python:{PYTHONS[tensorflow]}", lambda: bases.python(podman, PYTHONS[tensorflow]))
    tools, serving = f"tftrt/tools:{tensorflow}", VERSIONS[tensorflow].name
    stands_in = tensorflow == "2.17.1" and not _index_is_reached()
    file = _with_a_stand_in(podman) if stands_in else DOCKERFILE
    steps("tools", lambda: target(podman, file, tensorflow, "tools", tools))
    refused = None
    if stands_in:
        # What is installed before the last step comes from the build above.
        refused = steps("tools, refused", lambda: target(podman, DOCKERFILE, tensorflow, "tools", "", check=False))
        assert refused.returncode
    base = f"localhost/stage-{tensorflow}"
    target(podman, file, tensorflow, f"tools-{tensorflow}", base)
    steps("base tensorflow/serving", lambda: bases.serving(podman, tensorflow, base))
    steps("serving", lambda: target(podman, file, tensorflow, "serving", serving))
    return Built(
        podman=podman,
        tensorflow=tensorflow,
        tools=tools,
        serving=serving,
        refused=refused and refused.stdout,
        seconds=steps.seconds,
    )


def target(podman, file, tensorflow, stage, tag, check=True):
    """Builds a target as serving/README.md says. Returns: CompletedProcess."""
    # Buildah 1.28 leaves out a stage whose name comes from an ARG's default.
    arguments = [f"TENSORFLOW={tensorflow}"]
    if tensorflow == "2.14.1":
        arguments.append(f"SETUPTOOLS_SCM_PRETEND_VERSION_FOR_TFTRT_TOOLS={RELEASE}")
    ignore = DOCKERFILE.with_name("Dockerfile.dockerignore")
    return podman.build(file, target=stage, tag=tag, arguments=arguments, ignore=ignore, check=check)


def _index_is_reached():
    """Whether TensorRT 8.6.1 can be had, as .ci/tensorrt asks for it."""
    try:
        urllib.request.urlopen("https://pypi.nvidia.com", timeout=10).close()
    except OSError:
        return False
    return True


def _with_a_stand_in(podman):
    """The Dockerfile, but it takes 8.6.0."""
    text, count = re.subn(r"(libnvinfer_builder_resource\.so\.)8\.6\.1 ", rf"\g<1>{_STAND_IN} ", DOCKERFILE.read_text())
    assert count == 1
    path = podman.folder / "Dockerfile"
    path.write_text(text)
    return path


class _Steps:
    def __init__(self):
        self.seconds = {}

    def __call__(self, name, function):
        start = time.monotonic()
        made = function()
        self.seconds[name] = time.monotonic() - start
        return made


def table(built):
    """Lines: how long each step took, and how large the images are."""
    lines = [f"{built.tensorflow}: {name}: {seconds:.0f} s" for name, seconds in built.seconds.items()]
    sizes = {name: built.podman.inspect(name)["Size"] / 1e9 for name in (built.tools, built.serving)}
    return [*lines, *(f"{name}: {size:.1f} GB" for name, size in sizes.items())]


def main():
    """Returns: the exit code."""
    if missing() or len(sys.argv) < 2:
        print(missing() or __doc__, file=sys.stderr)
        return 2
    podman = Podman(sys.argv[1])
    for tensorflow in sys.argv[2:] or VERSIONS:
        print(*table(build(podman, tensorflow)), sep="\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
