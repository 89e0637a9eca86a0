"""A server that runs in a container, and what is asked of it from inside."""

import json
import time

from tests.images.podman import CONFINED, limits

_ASK = (
    "import sys, urllib.request; "
    "print(urllib.request.urlopen(sys.argv[1], sys.argv[2].encode() if len(sys.argv) > 2 else None, 60).read().decode())"
)


class Server:
    """Args: podman: Podman. name: of the container. options: of `podman run`. arguments: the server's, the image's where there are none."""

    def __init__(self, podman, image, name, options=(), arguments=()):
        self._podman, self.name = podman, name
        # Without systemd nothing would run the check by itself.
        podman(
            "run",
            "--detach",
            f"--name={name}",
            "--health-interval=disable",
            *CONFINED,
            *limits(),
            *options,
            image,
            *arguments,
        )

    def healthy(self):
        return self._podman("healthcheck", "run", self.name, check=False).returncode == 0

    def wait(self, seconds=180):
        """Returns: whether it was found unhealthy before it was healthy."""
        end, unhealthy = time.monotonic() + seconds, False
        while not self.healthy():
            unhealthy = True
            assert self.state()["Running"] and time.monotonic() < end, self.log()
            time.sleep(1)
        return unhealthy

    def open(self, port, seconds=180):
        """Wait for a port as a probe of Kubernetes does."""
        end = time.monotonic() + seconds
        command = ("exec", self.name, "healthcheck.sh", port)
        while self._podman(*command, check=False).returncode:
            assert self.state()["Running"] and time.monotonic() < end, self.log()
            time.sleep(1)

    def ask(self, path, request=None, port=8501):
        """What a GET, or a POST of `request`, returns by REST."""
        body = [] if request is None else [json.dumps(request)]
        return self._podman("exec", self.name, "python", "-c", _ASK, f"http://127.0.0.1:{port}{path}", *body).stdout

    def sh(self, script):
        return self._podman("exec", self.name, "sh", "-c", script).stdout

    def state(self):
        (found,) = json.loads(self._podman("container", "inspect", self.name).stdout)
        return found["State"]

    def wait_for_the_end(self, seconds=120):
        """Returns: its exit code."""
        return int(self._podman("wait", self.name, timeout=seconds).stdout)

    def stop(self):
        """Returns: (seconds until it ended, exit code)."""
        start = time.monotonic()
        self._podman("stop", "--time=60", self.name)
        return time.monotonic() - start, self.state()["ExitCode"]

    def log(self):
        return self._podman("logs", self.name, check=False).stdout

    def remove(self):
        self._podman("rm", "--force", "--time=1", self.name, check=False)
