"""Fleets of this machine (--on=local), each in a process of its own, as a command has it: what they leave, where they listen."""

import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from tests import fleets
from tests.command_line import processes_marked
from tests.conftest import ROOT

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: the extra `fleet`"),
    pytest.mark.slow,
]

SCRIPT = """
import pathlib, sys
from tests import fleets
from tftrt_tools.base.process import signals
from tftrt_tools.fleet import place, session
signals.install()
for _ in range(int(sys.argv[2])):
    with session.opened(place.parse("local")) as fleet:
        for one in fleets.run(fleet, *(fleets.task(str(n), "L4", **eval(sys.argv[1])) for n in range(2))).values():
            print(one.status, one.answer["visible"], flush=True)
"""


def started(request, mark, tmp_path, before=(), times=1):
    env = {**os.environ, **fleets.COUNTED, "TFTRT_TEST_MARK": mark, "TMPDIR": str(tmp_path)}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), env.get("PYTHONPATH")]))
    return subprocess.Popen(
        [*before, sys.executable, "-c", SCRIPT, repr(request), str(times)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )


def left(mark):
    for _ in range(100):
        if not (found := processes_marked(mark)):
            return []
        time.sleep(0.1)
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_no_process_and_no_file(number, tmp_path):
    began, folder = tmp_path / "began", tmp_path / "tmp"
    folder.mkdir()
    one = started({"sleep": 600, "began": str(began)}, f"fleet-{number}-{os.getpid()}", folder)
    while not began.exists():
        assert one.poll() is None, one.communicate()
        time.sleep(0.1)
    one.send_signal(number)
    one.communicate(timeout=120)
    assert one.returncode and not left(f"fleet-{number}-{os.getpid()}")
    assert not list(folder.iterdir())


def test_an_interrupt_while_ray_starts_leaves_nothing_either(tmp_path):
    mark = f"starting-{os.getpid()}"
    one = started({}, mark, tmp_path)
    # Its first process is there, and more are to come.
    while len(processes_marked(mark)) < 2:
        assert one.poll() is None, one.communicate()
        time.sleep(0.05)
    one.send_signal(signal.SIGINT)
    out, _ = one.communicate(timeout=120)
    assert one.returncode and not out and not left(mark) and not list(tmp_path.iterdir())


def test_a_process_opens_one_fleet_after_the_other(tmp_path):
    """Each has a token of its own, and Ray keeps what it has read."""
    one = started({"wait": 2}, "in turn", tmp_path, times=2)
    out, error = one.communicate(timeout=200)
    assert one.returncode == 0 and sorted(out.split("\n")) == ["", *["done 0"] * 2, *["done 1"] * 2], error


def test_ray_that_is_too_slow_is_started_once_more(tmp_path):
    """Ray gives its own start 30 s. Here it has started, and says that it has not."""
    slow = """
from tftrt_tools.fleet import session
imported, said = session._imported, []
def slow():
    ray = imported()
    init = ray.init
    def late(*given, **options):
        init(*given, **options)
        if len(said) < {times}:
            said.append(1)
            raise Exception("The current node timed out during startup. This could happen because …")
    ray.init = late
    return ray
session._imported = slow
"""
    for times in (1, 2):
        with open(tmp_path / f"{times}.py", "w") as file:
            file.write(slow.format(times=times) + SCRIPT)
        mark = f"slow-{os.getpid()}-{times}"
        env = {**os.environ, **fleets.COUNTED, "TFTRT_TEST_MARK": mark, "TMPDIR": str(tmp_path)}
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), env.get("PYTHONPATH")]))
        done = subprocess.run(
            [sys.executable, tmp_path / f"{times}.py", "{}", "1"], env=env, capture_output=True, text=True
        )
        if times == 1:
            assert done.returncode == 0 and done.stdout.count("done") == 2, done.stderr
        else:
            assert "Ray does not start within 30 s" in done.stderr, done.stderr
        assert not processes_marked(mark)


def test_two_fleets_on_one_machine_do_not_meet(tmp_path):
    both = [started({"wait": 2}, f"two-{name}-{os.getpid()}", tmp_path) for name in "ab"]
    for one in both:
        out, err = one.communicate(timeout=240)
        # Nothing of Ray's own on stdout, where a result goes.
        assert sorted(out.splitlines()) == ["done 0", "done 1"], (out, err)


def test_a_local_fleet_listens_on_the_loopback_alone_and_leaves_nothing_at_home(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    began, mark = tmp_path / "began", f"loop-{os.getpid()}"
    one = started({"sleep": 2, "began": str(began)}, mark, tmp_path)
    while not began.exists():
        assert one.poll() is None, one.communicate()
        time.sleep(0.1)
    heard = listening(mark)
    out, err = one.communicate(timeout=120)
    assert one.returncode == 0, err
    assert heard and all(address.endswith("0100007F") for address in heard), heard
    assert not list(home.rglob("*token*"))


def listening(mark):
    """The addresses, in the kernel's hexadecimal, at which the processes of a mark listen."""
    inodes = set()
    for number in processes_marked(mark):
        for link in pathlib.Path(f"/proc/{number}/fd").glob("*"):
            try:
                inodes.add(os.readlink(link))
            except OSError:
                continue
    lines = [line.split() for name in ("tcp", "tcp6") for line in open(f"/proc/net/{name}").readlines()[1:]]
    return {line[1].partition(":")[0] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in inodes}


def test_a_small_dev_shm_is_enough(tmp_path):
    inside = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"', "-"]
    if os.getuid() or subprocess.run([*inside, "true"], capture_output=True).returncode:
        pytest.skip("only root makes /dev/shm small")
    one = started({"make": 150_000_000}, f"shm-{os.getpid()}", tmp_path, before=inside)
    out, err = one.communicate(timeout=240)
    assert sorted(out.splitlines()) == ["done 0", "done 1"], err
