"""Follows the lines `next: tftrt …` that commands print: each is read by a shell and run as it was printed, in the same folder."""

import os
import re
import signal
import subprocess
import sys

from tests.command_here import run_tftrt
from tests.conftest import ROOT
from tests.example_flags import check_flags
from tftrt_tools.base import errors

# The way of a model, in the order of its steps: a line leads to a later one.
WAY = (
    ("inspect", "data", "calibrate", "sensitivity"),
    ("export", "wrap", "tune"),
    ("convert", "build"),
    ("verify",),
    ("publish", "configure"),
    ("serve",),
    ("smoke",),
    ("bench", "regress"),
    ("history",),
)
ON_GPU = ", on a machine with a GPU"
NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}
_LINE = re.compile(r"^next(, [^\n]*?)?: (tftrt .*)$", re.MULTILINE)
_SERVES = 120  # seconds until a server that does not get ready is ended


def place(command):
    """Where a command stands on the way."""
    return next(number for number, names in enumerate(WAY) if command in names)


def as_shell_reads(line, folder):
    """The words of each command of a line, without `tftrt`."""
    script = "tftrt() { printf '%s\\0' \"$@\"; printf '\\1\\0'; }\n" + line
    read = subprocess.run(["sh", "-c", script], cwd=folder, capture_output=True, text=True, check=True, timeout=60)
    return [one.split("\0")[:-1] for one in read.stdout.split("\1\0")[:-1]]


class Way:
    """The commands that were run in a folder, in their order: `ran`; and the last lines that nothing can run here: `waits`."""

    def __init__(self, folder):
        self.folder, self.ran, self.waits = folder, [], []
        self.benches, self._servers = False, []  # a bench takes ten seconds: one test runs it

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in self._servers:
            server.send_signal(signal.SIGTERM)
            server.communicate(timeout=_SERVES)

    def follow(self, *words):
        """Run a command, and then what it and each one after it names as the next. Returns: the names of the commands, in their order."""
        before = len(self.ran)
        self._follow([str(word) for word in words])
        return [one[0] for one in self.ran[before:]]

    def _follow(self, words):
        printed = self._run(words)
        for needs, line in _LINE.findall(printed):
            *before, last = as_shell_reads(line, self.folder)
            for following in (*before, last):
                check_flags(["tftrt", *following])
                later = place(following[0]) - place(words[0])
                assert later > 0 or needs.startswith(ON_GPU) and not later, f"{line} leads back from {words[0]}"
            if needs.startswith(ON_GPU):
                self._on_gpu(last)
            elif needs:
                self.waits.append((needs, last))
            elif last[0] == "bench" and not self.benches:
                self.ran.append(last)
            else:
                for following in before:
                    self._run(following)
                self._follow(last)

    def _run(self, words):
        self.ran.append(words)
        if words[0] == "serve":
            return self._serve(words)
        done = run_tftrt(*words, cwd=self.folder, env=NO_GPU)
        assert done.returncode == errors.EXIT_DONE, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _on_gpu(self, words):
        """Here is none: it does what it can without, or says in a line that it needs one."""
        self.waits.append((ON_GPU, words))
        done = run_tftrt(*words, cwd=self.folder, env=NO_GPU)
        assert done.returncode == errors.EXIT_DONE or (
            done.returncode == errors.EXIT_FAILED and "GPU" in done.stderr
        ), f"{words}\n{done.stderr}"

    def _serve(self, words):
        """A server stays until the end of the test. Its port is any free one, because tests run side by side."""
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        server = subprocess.Popen(
            [sys.executable, "-m", "tftrt_tools", *words, "--port=0"],
            cwd=self.folder,
            env={**os.environ, **NO_GPU, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._servers.append(server)
        printed = ""
        for line in server.stdout:
            printed += line
            if line.startswith("next"):
                return printed
        raise AssertionError(f"{words}\n{printed}\n{server.communicate(timeout=_SERVES)[1]}")
