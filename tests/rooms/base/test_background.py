"""An exception in a thread is handed on, or ends what the process does."""

import subprocess
import sys
import threading
import types

import pytest

from tests.conftest import ROOT
from tftrt_tools.base import errors
from tftrt_tools.base.process import background, child
from tftrt_tools.servers.serving.launch import watched_process
from tftrt_tools.servers.serving.local import __main__ as local_server

# The command starts a thread that fails, and would go on for a minute.
COMMAND = """
import sys, threading, time
from tftrt_tools.base import errors
from tftrt_tools.base.process import signals
from tftrt_tools.command_line import cli

def fail():
    raise {error}

def told(argv):
    signals.install()
    try:
        threading.Thread(target=fail).start()
        time.sleep(60)
    except BaseException as error:
        print(type(error).__name__)
        raise

cli._told = told
sys.exit(cli.main(["x"]))
"""


def test_the_result_or_the_exception_of_a_thread_comes_with_its_future():
    assert background.start(lambda: 3).result() == 3
    with pytest.raises(ZeroDivisionError):
        background.start(lambda: 1 / 0).result()


@pytest.mark.parametrize(
    "error, code, says",
    [
        ("errors.CheckFailed('a check failed', 'fix it')", 3, "tftrt: error: a check failed\n  fix it\n"),
        (
            "OSError(2, 'No such file or directory', '/nowhere')",
            1,
            "tftrt: error: /nowhere: No such file or directory\n  check the path\n",
        ),
        ("KeyError('a bug')", 1, "KeyError: 'a bug'\n"),
    ],
)
def test_an_exception_that_a_thread_of_a_command_does_not_catch_ends_it(error, code, says):
    done = subprocess.run(
        [sys.executable, "-c", COMMAND.format(error=error)], capture_output=True, text=True, cwd=ROOT, timeout=50
    )
    assert done.returncode == code and done.stderr.endswith(says) and done.stdout == "Interrupted\n", done


@pytest.mark.parametrize("seconds", [0.5, 50])
def test_an_exception_that_a_thread_of_a_child_does_not_catch_ends_the_call(seconds):
    with pytest.raises(errors.TftrtError, match="/nowhere: No such file"):
        child.run("tests.thread_jobs:waits", seconds, timeout=40)
    with pytest.raises(child.ChildBug, match="IndexError"):
        child.run("tests.thread_jobs:bug", seconds, timeout=40)


def test_a_load_worker_ends_with_its_thread():
    code = (
        "import threading, time\nfrom tftrt_tools.base.process import background\nthreading.excepthook = background.end_process\n"
        "threading.Thread(target=lambda: 1 / 0).start()\ntime.sleep(60)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=50)
    assert done.returncode == 1 and done.stderr.splitlines()[-1] == "ZeroDivisionError: division by zero"


def test_the_development_server_ends_with_its_thread(monkeypatch, capsys):
    from tftrt_tools.servers.serving.local import server

    class Server:
        def __init__(self, options):
            pass

        def start(self):
            threading.Thread(target=lambda: 1 / 0).start()

        def stop(self):
            pass

    monkeypatch.setattr(server, "Server", Server)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    monkeypatch.setattr(local_server.signal, "signal", lambda *_: None)
    assert local_server._serve(types.SimpleNamespace()) == 255
    assert "A thread of the server failed, so it has ended: ZeroDivisionError" in capsys.readouterr().err


def test_a_server_whose_log_cannot_be_kept_goes_on(tmp_path):
    said = []
    command = types.SimpleNamespace(
        argv=[sys.executable, "-c", "for n in range(100_000): print(n)"],
        env={},
        death_signal=9,
        cleanup=(),
        folder=None,
    )
    one = watched_process.Child(command, said.append, "/dev/full")
    assert one.wait(60) == 0 and said[-1] == "99999"
    assert sum("No space left on device" in line for line in said) == 1
    one.end(1)
