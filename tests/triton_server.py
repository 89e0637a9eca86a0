"""A real tritonserver, out of the wheel nvidia-pytriton: its Python backend runs models in this Python. It has no other backend.

`make triton` puts the wheel's files into build/triton; TFTRT_TEST_TRITON names another folder. A test that finds none is skipped.
"""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import sysconfig
import time

import pytest

from tests.conftest import ROOT
from tftrt_tools.servers.client import ServingError, TritonClient

_SECONDS = 60


def installed():
    """The folder that holds the package pytriton. Skips the test where there is none that can run here."""
    folder = pathlib.Path(os.environ.get("TFTRT_TEST_TRITON") or ROOT / "build/triton")
    stub = folder / f"pytriton/tritonserver/python_backend_stubs/3.{sys.version_info.minor}/triton_python_backend_stub"
    if not stub.is_file():
        pytest.skip("no tritonserver here: make triton")
    if not _library().is_file():
        pytest.skip(f"this Python has no shared library {_library()}, which Triton's Python backend loads")
    return folder


def _library():
    # A Python that was moved still tells the folder that it was built for.
    name = str(sysconfig.get_config_var("INSTSONAME"))
    folders = [pathlib.Path(sys.base_prefix) / "lib", pathlib.Path(sysconfig.get_config_var("LIBDIR"))]
    return next((one / name for one in folders if (one / name).is_file()), folders[-1] / name)


def _free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class TritonServer:
    """A context manager. Args: repository: the model repository. folder: for the log and the backend. flags: more of tritonserver's.
    environment: variables to set."""

    def __init__(self, repository, folder, *flags, environment=None):
        self._repository, self._folder, self._flags, self._environment = (
            repository,
            pathlib.Path(folder),
            flags,
            environment or {},
        )
        self.port, self.http_port = _free_ports(2)
        self.address = f"triton://127.0.0.1:{self.port}"
        self.log = self._folder / "triton.log"

    def __enter__(self):
        home = installed() / "pytriton/tritonserver"
        backend = self._folder / "backends/python"
        backend.mkdir(parents=True, exist_ok=True)
        stub = home / f"python_backend_stubs/3.{sys.version_info.minor}/triton_python_backend_stub"
        for file in (*(home / "backends/python").iterdir(), stub):
            if file.is_file() and not (backend / file.name).exists():
                (backend / file.name).symlink_to(file)
        # The stub starts an interpreter of its own, which finds this environment by its python on PATH.
        libraries = [
            str(installed() / "nvidia_pytriton.libs"),
            str(_library().parent),
            *filter(None, [os.environ.get("LD_LIBRARY_PATH")]),
        ]
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": ":".join(libraries),
            "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
            **self._environment,
        }
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [
                    home / "bin/tritonserver",
                    f"--model-repository={self._repository}",
                    f"--backend-directory={backend.parent}",
                    f"--grpc-port={self.port}",
                    f"--http-port={self.http_port}",
                    "--grpc-address=127.0.0.1",
                    "--http-address=127.0.0.1",
                    "--allow-metrics=false",
                    "--exit-on-error=false",
                    *self._flags,
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
            )
        self._wait()
        return self

    def _wait(self):
        end = time.monotonic() + _SECONDS
        with TritonClient(self.address, timeout=2, retries=0) as client:
            while True:
                try:
                    client.ready()
                    return
                except ServingError:
                    assert self.process.poll() is None and time.monotonic() < end, self.log.read_text()
                    time.sleep(0.1)

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def wait_for(condition, seconds=_SECONDS):
    """Until it holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.1)
