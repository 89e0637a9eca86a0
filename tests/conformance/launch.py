"""The project's own server as a process on free ports of 127.0.0.1, for tests and benchmarks."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

from tests import forks

ROOT = pathlib.Path(__file__).resolve().parents[2]


def free_ports(count):
    """Ports of 127.0.0.1 that were free a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for item in sockets:
            item.bind(("127.0.0.1", 0))
        return [item.getsockname()[1] for item in sockets]
    finally:
        for item in sockets:
            item.close()


class LocalServer:
    """Args: flags: those of tensorflow_model_server, less the ports. log: path its output goes to. root: a checkout of the project.
    looked_at: its command line or environment is read from /proc, which shows those of a fork's parent."""

    def __init__(
        self,
        flags,
        log,
        ports=None,
        command=(sys.executable, "-m", "tftrt_tools.servers.serving.local"),
        env=None,
        root=ROOT,
        looked_at=False,
    ):
        self.flags, self.log, self._root = list(flags), pathlib.Path(log), root
        self.port, self.rest_port = ports or free_ports(2)
        self.command = [*command, f"--port={self.port}", f"--rest_api_port={self.rest_port}", *self.flags]
        path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
        self._env = {**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "1", **(env or {})}
        self.process, self._start = None, subprocess.Popen if looked_at else forks.popen

    @property
    def grpc_address(self):
        return f"127.0.0.1:{self.port}"

    @property
    def rest_address(self):
        return f"127.0.0.1:{self.rest_port}"

    def start(self, timeout=120):
        """Both ports are open when it returns: the models configured at start are AVAILABLE then."""
        with self.log.open("ab") as log:
            self.process = self._start(
                self.command,
                env=self._env,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=self._root,
            )
        deadline = time.monotonic() + timeout
        while not (_open(self.port) and _open(self.rest_port)):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                text = self.log.read_text(errors="replace")[-4000:]
                raise AssertionError(f"no server after {timeout} s, exit code {self.process.returncode}:\n{text}")
            time.sleep(0.05)
        return self

    def kill(self):
        """SIGKILL, and wait for its end."""
        self._end(signal.SIGKILL)

    def stop(self, timeout=30):
        """SIGTERM. Returns: the exit code; a server that does not end in time is killed and that is an error."""
        self._end(signal.SIGTERM, timeout)
        return self.process.returncode

    def _end(self, number, timeout=30):
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(
                f"the server did not end within {timeout} s of signal {number}; its log is {self.log}"
            ) from None

    def __enter__(self):
        return self if self.process else self.start()

    def __exit__(self, *error):
        if self.process.poll() is None:
            self.kill()


def _open(port):
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
