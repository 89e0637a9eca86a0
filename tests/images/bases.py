"""Images under the names in the FROM lines of serving/Dockerfile, made here, where no registry of images is asked."""

import pathlib
import shutil
import subprocess
import tarfile
import tempfile

from tests.conftest import ROOT

HERE = pathlib.Path(__file__).parent
DEBIAN = "bookworm"
# What the slim image has beyond the smallest Debian, for Python's own modules.
_PACKAGES = (
    "ca-certificates,netbase,tzdata,libbz2-1.0,libcrypt1,libdb5.3,libexpat1,libffi8,libgdbm6,liblzma5,libncursesw6,libnsl2,"
    "libreadline8,libsqlite3-0,libssl3,libtirpc3,libuuid1,zlib1g"
)
# Folders of Python's library that the official images lack, or that pip fills.
_LEFT_OUT = {"__pycache__", "test", "tests", "idlelib", "site-packages"}


def interpreter(version):
    """The path of this machine's Python, or None."""
    done = subprocess.run(
        [ROOT / ".ci/find_python", "--installed", version], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or None


def python(podman, version):
    """Makes python:VERSION-slim-bookworm. Args: version: such as 3.10."""
    with tempfile.TemporaryDirectory(dir=podman.folder / "tmp") as folder:
        context = pathlib.Path(folder)
        shutil.copy(_debian(podman.folder), context / "debian.tar")
        _pack(version, context / "python.tar")
        name = f"docker.io/library/python:{version}-slim-{DEBIAN}"
        podman.build(HERE / "python.Dockerfile", context, tag=name, arguments=[f"VERSION={version}"])


def serving(podman, tensorflow, base):
    """Makes tensorflow/serving:TENSORFLOW-gpu. Args: base: an image with that TensorFlow and this project."""
    name = f"docker.io/tensorflow/serving:{tensorflow}-gpu"
    podman.build(HERE / "serving.Dockerfile", HERE, tag=name, arguments=[f"BASE={base}", f"TENSORFLOW={tensorflow}"])


def _debian(folder):
    made = folder / "debian.tar"
    if not made.exists():
        part = made.with_name("part.tar")
        subprocess.run(
            ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={_PACKAGES}", DEBIAN, part], check=True
        )
        part.rename(made)
    return made


def _pack(version, path):
    """A Python finds its library beside itself, so it can be moved; the libraries that it needs are Debian's."""
    asked = [interpreter(version), "-c", "import sys; print(sys.base_prefix)"]
    prefix = pathlib.Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())

    def kept(one):
        name = pathlib.PurePosixPath(one.name).name
        return None if name in _LEFT_OUT or name.startswith("config-") else one

    with tarfile.open(path, "w") as packed:
        for part in (f"bin/python{version}", f"lib/python{version}", *_libraries(prefix, version)):
            packed.add(prefix / part, part, filter=kept)


def _libraries(prefix, version):
    return [path.relative_to(prefix).as_posix() for path in prefix.glob(f"lib/libpython{version}.so*")]
