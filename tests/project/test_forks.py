"""Forks stand for started processes: the same arguments, folder, environment, files, signals and exit codes."""

import collections
import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from tests import forks
from tests.conftest import ROOT

ARGV = [sys.executable, "-m", "tests.project.test_forks", "a b"]


def tell():
    """What such a process is, to its output, and what it reads from its input; it exits with 7, or sleeps where it is told to."""
    said = sys.stdin.read()
    print(
        json.dumps(
            {
                "argv": sys.argv[1:],
                "cwd": os.getcwd(),
                "first": sys.path[0],
                "named": sys.path[1:3],
                "said": said,
                "session": os.getsid(0),
                "environment": {
                    name: os.environ.get(name) for name in ("TMPDIR", "PATH", "PYTEST_CURRENT_TEST", "TFTRT_TEST_MARK")
                },
                "given": os.read(int(os.environ["GIVEN"]), 10).decode() if "GIVEN" in os.environ else "",
                "tensorflow": "tensorflow" in sys.modules,
            }
        ),
        flush=True,
    )
    if said == "sleep":
        time.sleep(600)
    sys.exit(7)


@pytest.fixture(autouse=True)
def none_of_other_tests(monkeypatch):
    monkeypatch.setattr(forks, "_used", [])
    monkeypatch.setattr(forks, "_parents", collections.OrderedDict())


@pytest.fixture
def environment():
    return {**os.environ, "PYTHONPATH": f"/nowhere{os.pathsep}{ROOT}", "TFTRT_TEST_MARK": "here"}


def asked(start, text, env, **more):
    """(what it told, exit code or None, its id) of a process that reads `text`."""
    process = start(ARGV, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **more)
    process.stdin.write(text.encode())
    process.stdin.close()
    told = json.loads(process.stdout.readline())
    process.stdout.close()
    return told, process


def test_a_fork_is_what_a_started_process_is(environment, tmp_path):
    reader, writer = os.pipe()
    found = []
    environment["GIVEN"] = str(reader)
    with forks.used():
        for start in (subprocess.Popen, forks.popen):
            os.write(writer, b"0123456789")
            told, process = asked(
                start,
                "text",
                {**environment, "TMPDIR": str(tmp_path)},
                cwd=tmp_path,
                pass_fds=[reader],
                start_new_session=True,
            )
            assert process.wait(60) == process.poll() == 7 and told.pop("session") == process.pid
            found.append((type(process), told.pop("tensorflow"), told))
    os.close(reader)
    os.close(writer)
    (started, _, first), (forked, there, second) = found
    assert (started, forked, there) == (subprocess.Popen, forks.Fork, True)
    assert (
        first == second
        and first["given"] == "0123456789"
        and first["argv"] == ["a b"]
        and first["first"] == str(tmp_path)
    )


def test_threads_get_forks_too(environment):
    with forks.used(), concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: asked(forks.popen, "text", environment)[1], range(4)))
        assert [(type(one), one.wait(60)) for one in found] == [(forks.Fork, 7)] * 4 and len(
            {one.pid for one in found}
        ) == 4


def test_what_is_read_late_needs_no_parent_of_its_own(environment):
    with forks.used():
        found = []
        for mark in ("1", "2"):
            told, process = asked(
                forks.popen, "text", {**environment, "TFTRT_TEST_MARK": mark, "KERAS_BACKEND": "tensorflow"}
            )
            assert process.wait(60) == 7
            found.append(told["environment"]["TFTRT_TEST_MARK"])
        assert found == ["1", "2"] and len(forks._parents) == 1


def test_signals_and_limits_of_time(environment):
    with forks.used():
        told, process = asked(forks.popen, "sleep", environment)
        assert told["session"] != process.pid and process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05)
        process.terminate()
        assert process.wait(60) == -signal.SIGTERM
        process.kill()  # it has ended: nothing happens


def test_forks_end_with_their_parent_and_it_with_the_block(environment):
    with forks.used():
        _, process = asked(forks.popen, "sleep", environment)
        directory = pathlib.Path(f"/proc/{process.pid}")
        parent = (directory / "stat").read_text().rpartition(")")[2].split()[1]
    assert process.wait(60) == -signal.SIGKILL
    assert not pathlib.Path(f"/proc/{parent}").exists()


def test_where_they_are_not_used_processes_are_started(environment):
    for _ in range(2):
        _, process = asked(forks.popen, "", environment)
        assert isinstance(process, subprocess.Popen) and process.wait(60) == 7


def test_a_parent_with_a_running_fork_stays(environment, monkeypatch):
    with forks.used():
        monkeypatch.setattr(forks, "_KEPT", 1)
        server = forks.popen(
            [sys.executable, "-m", "timeit", "-n1", "-r1", "-s", "import time", "time.sleep(600)"],
            environment,
            stdout=subprocess.DEVNULL,
        )
        for number in range(forks._KEPT + 1):
            other = {**environment, "OTHER": str(number)}
            assert (
                forks.popen(
                    [sys.executable, "-m", "timeit", "-n1", "0"],
                    other,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                ).wait()
                == 0
            )
        assert server.poll() is None, "more environments than parents are kept"
        server.kill()
        assert server.wait() == -9


if __name__ == "__main__":
    tell()
