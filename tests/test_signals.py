"""Ctrl-C and SIGTERM while a module is being imported."""

import subprocess
import sys

import pytest

# The module sends the signal to its own process and then goes on importing, as numpy does when its user is impatient.
MODULE = """
import os, signal, time
os.kill(os.getpid(), signal.{name})
for _ in range(10):
    time.sleep(0.01)
print("imported", flush=True)
"""
MAIN = """
import sys
from tftrt_tools import errors, signals
{before}
signals.install()
try:
    import impatient
    import time
    time.sleep(30)
except KeyboardInterrupt:
    print("Ctrl-C")
except errors.Interrupted as error:
    print(error.cause)
"""


def run(tmp_path, name, before=""):
    (tmp_path / "impatient.py").write_text(MODULE.format(name=name))
    (tmp_path / "main.py").write_text(MAIN.format(before=before))
    done = subprocess.run([sys.executable, tmp_path / "main.py"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("name, told", [("SIGINT", "Ctrl-C"), ("SIGTERM", "ended by SIGTERM")])
def test_a_signal_waits_for_the_import(tmp_path, name, told):
    assert run(tmp_path, name) == ["imported", told]


@pytest.mark.parametrize("name, told", [("SIGINT", "Ctrl-C"), ("SIGTERM", "ended by SIGTERM")])
def test_but_not_for_ever(tmp_path, name, told):
    assert run(tmp_path, name, "signals.PATIENCE_SECONDS = 0") == [told]


def test_an_ignored_sigint_stays_ignored(tmp_path):
    before = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); import time; time.sleep = lambda seconds: None"
    assert run(tmp_path, "SIGINT", before) == ["imported"]
