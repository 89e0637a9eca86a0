"""Ctrl-C and SIGTERM while a module is being imported, or a process started."""

import signal
import subprocess
import sys
import time

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
import time
from tftrt_tools.base import errors
from tftrt_tools.base.process import signals
{before}
signals.install()
try:
    import impatient
    import time
    time.sleep(30)
except errors.Interrupted as error:
    print(error.cause)
except KeyboardInterrupt:
    print("Ctrl-C")
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
    before = (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); import time; time.sleep = lambda seconds: None"
    )
    assert run(tmp_path, "SIGINT", before) == ["imported"]


STARTING = """
import os, signal, subprocess, time
from tftrt_tools.base import errors
from tftrt_tools.base.process import signals
signals.install()
started = None
try:
    # The new process interrupts the one that starts it, which cannot know its number yet.
    started = subprocess.Popen(["sleep", "60"], preexec_fn=lambda: os.kill(os.getppid(), signal.{name}))
    time.sleep(30)
except KeyboardInterrupt as error:
    print(type(error).__name__, started is not None)
finally:
    started and started.kill()
"""


@pytest.mark.parametrize("name, told", [("SIGINT", "KeyboardInterrupt True"), ("SIGTERM", "Interrupted True")])
def test_a_process_that_is_being_started_is_known_to_who_is_interrupted(tmp_path, name, told):
    (tmp_path / "main.py").write_text(STARTING.format(name=name))
    done = subprocess.run([sys.executable, tmp_path / "main.py"], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == told.split(), done.stderr


def test_a_limit_of_time_ends_what_runs_and_its_child():
    from tftrt_tools.base import errors
    from tftrt_tools.base.process import child, signals

    start = time.monotonic()
    with pytest.raises(errors.Interrupted), signals.limit(1.0) as limit:
        child.run("time:sleep", 60)
    assert limit.over and time.monotonic() - start < 50


def test_a_limit_that_is_not_reached_says_so_and_is_gone():
    from tftrt_tools.base.process import signals

    with signals.limit(60.0) as limit:
        pass
    assert not limit.over and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


NOTED = """
import os, signal, sys
from tftrt_tools.base import errors
from tftrt_tools.base.process import signals
{before}
signals.install()
try:
    with signals.noted() as noted:
        print(noted.came)
        os.kill(os.getpid(), signal.{name})
        print(noted.came)
        {inside}
    os.kill(os.getpid(), signal.{name})
except errors.Interrupted:
    print("ended")
except KeyboardInterrupt:
    print("Ctrl-C")
else:
    print("ignored")
"""


@pytest.mark.parametrize(
    ("name", "before", "inside", "told"),
    [
        ("SIGINT", "", "", "False True Ctrl-C"),
        ("SIGTERM", "", "", "False True ended"),
        # The second one interrupts inside of the block, too.
        ("SIGINT", "", "os.kill(os.getpid(), signal.SIGINT); print('went on')", "False True Ctrl-C"),
        ("SIGINT", "signal.signal(signal.SIGINT, signal.SIG_IGN)", "", "False False ignored"),
    ],
)
def test_work_that_looks_by_itself_notes_the_first_interrupt(name, before, inside, told):
    code = NOTED.format(name=name, before=before, inside=inside or "pass")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == told.split(), done.stderr


def test_in_another_thread_nothing_is_noted():
    import threading

    from tftrt_tools.base.process import signals

    found = []

    def work():
        with signals.noted() as noted:
            found.append(noted.came)

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [False] and signal.getsignal(signal.SIGINT) is before
