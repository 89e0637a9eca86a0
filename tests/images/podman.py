"""Podman without a daemon, with a storage of its own. It builds with buildah's code."""

import json
import os
import pathlib
import resource
import shutil
import subprocess

from tests.conftest import ROOT

PROGRAMS = ("podman", "runc", "mmdebstrap")
_HOUR = 3600
_FEW = 4096
_CERTIFICATES = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
# As compose.yaml and the pods of kubernetes/ run the images. --read-only alone would leave more than /tmp open.
CONFINED = (
    "--read-only",
    "--read-only-tmpfs=false",
    "--tmpfs=/tmp:rw,noexec,nosuid,nodev,mode=1777",
    "--cap-drop=all",
    "--security-opt=no-new-privileges",
    "--network=none",
)


def missing():
    """Why nothing can be built here, or an empty text."""
    absent = [name for name in PROGRAMS if not shutil.which(name)]
    if absent:
        return f"no {', '.join(absent)} here: apt-get install --no-install-recommends {' '.join(PROGRAMS)}"
    return "" if os.geteuid() == 0 else "only root can make a base by mmdebstrap and run containers"


class Podman:
    """Args: folder: its images and containers, and temporary files of builds."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        for name in ("tmp", "root", "run"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        # pip in the images asks the indexes by this machine's certificates.
        (self.folder / "pip.conf").write_text(f"[global]\ncert = {_CERTIFICATES}\n")

    def __call__(self, *arguments, check=True, timeout=_HOUR):
        """Returns: CompletedProcess, with stdout and stderr as one text."""
        storage = [f"--root={self.folder}/root", f"--runroot={self.folder}/run", f"--tmpdir={self.folder}/tmp/podman"]
        # overlay: vfs would copy the whole image for each layer.
        storage += ["--storage-driver=overlay", "--runtime=runc", "--cgroup-manager=cgroupfs", "--events-backend=none"]
        done = subprocess.run(
            ["podman", *storage, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "TMPDIR": f"{self.folder}/tmp"},
            timeout=timeout,
            check=False,
        )
        assert not check or done.returncode == 0, f"podman {arguments}: {done.returncode}\n{done.stdout[-6000:]}"
        return done

    def build(self, file, context=ROOT, target="", tag="", arguments=(), ignore="", check=True):
        """Returns: CompletedProcess. Steps that were built before are taken from the storage."""
        options = ["--isolation=chroot", "--layers", "--pull=never", "--format=docker", f"--file={file}"]
        options += [f"--volume={self.folder}/pip.conf:/etc/pip.conf:ro"]
        options += [f"--volume={_CERTIFICATES}:{_CERTIFICATES}:ro"] if _CERTIFICATES.exists() else []
        options += [f"--target={target}"] if target else []
        options += [f"--tag={tag}"] if tag else []
        options += [f"--ignorefile={ignore}"] if ignore else []
        options += [f"--build-arg={one}" for one in arguments]
        return self("build", *options, context, check=check)

    def run(self, image, *arguments, options=(), check=True):
        """Runs a container of an image, confined, until it ends. Returns: CompletedProcess."""
        return self("run", "--rm", "--no-healthcheck", *CONFINED, *limits(), *options, image, *arguments, check=check)

    def inspect(self, image):
        """The image's configuration and size, as Docker shows them."""
        (found,) = json.loads(self("image", "inspect", image).stdout)
        return found

    def clear(self):
        """Removes every container and image."""
        self("rm", "--all", "--force", "--time=1")
        self("rmi", "--all", "--force")

    def remove(self):
        """Removes the storage itself. It is mounted on itself."""
        self.clear()
        subprocess.run(["umount", self.folder / "root" / "overlay"], stderr=subprocess.DEVNULL, check=False)
        shutil.rmtree(self.folder)


def limits():
    """Podman asks for more files and processes than a machine may allow it to give."""
    kinds = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
    highest = {name: resource.getrlimit(kind)[1] for name, kind in kinds.items()}
    few = {name: _FEW if most == resource.RLIM_INFINITY else min(most, _FEW) for name, most in highest.items()}
    return [f"--ulimit={name}={most}:{most}" for name, most in few.items()]
