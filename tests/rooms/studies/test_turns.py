"""Processes that build on one GPU take turns."""

import os
import subprocess
import sys
import threading

import pytest

from tests.conftest import ROOT
from tftrt_tools.models.engine_cache.job import turns

_HOLDER = """
import sys
from tftrt_tools.models.engine_cache.job import turns
with turns.turn(sys.argv[1], lambda text: print(text, flush=True)) as held:
    print("held" if held else "free", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where the lock files of this process lie, and of those that it starts."""
    monkeypatch.setenv(turns.SWITCH, str(tmp_path))
    return tmp_path


def holder(gpu):
    return subprocess.Popen(
        [sys.executable, "-c", _HOLDER, gpu], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )


def test_the_second_process_waits_and_says_so(folder):
    with holder("ab12") as first, holder("cd34") as other:
        assert first.stdout.readline() == "held\n" and other.stdout.readline() == "held\n"
        with holder("ab12") as second:
            assert second.stdout.readline() == turns.WAITS + "\n"
            first.stdin.close()
            assert second.stdout.readline() == "held\n"
            second.stdin.close()
        other.stdin.close()


def test_a_process_that_dies_gives_its_turn_back(folder):
    with holder("ab12") as first:
        assert first.stdout.readline() == "held\n"
        first.kill()
        first.wait()
        with turns.turn("ab12", pytest.fail) as held:
            assert held


@pytest.mark.parametrize(("gpu", "switch"), [("", ""), ("ab12", "0")])
def test_without_a_gpu_and_where_it_is_switched_off_nobody_waits(gpu, switch, folder, monkeypatch):
    monkeypatch.setenv(turns.SWITCH, switch or str(folder))
    with turns.turn(gpu, pytest.fail) as held, turns.turn(gpu, pytest.fail):
        assert not held
    assert not list(folder.iterdir())


def test_the_lock_file_of_another_user_will_do(folder):
    """Read-only, as another user's is to us."""
    turns.place("ab12").touch(mode=0o444)
    said, done = [], threading.Event()
    with turns.turn("ab12", pytest.fail) as held:
        thread = threading.Thread(target=lambda: _wait(said, done))
        thread.start()
        assert held and not done.wait(0.2)
    thread.join(10)
    assert said == [turns.WAITS] and done.is_set()


def _wait(said, done):
    with turns.turn("ab12", said.append):
        done.set()


def test_where_no_lock_can_be_had_the_work_is_done_all_the_same(folder, monkeypatch):
    os.symlink("/nowhere", turns.place("ab12"))
    with turns.turn("ab12", pytest.fail) as held:
        assert not held


def test_the_folder_is_not_a_processs_own(monkeypatch):
    monkeypatch.delenv(turns.SWITCH, raising=False)
    monkeypatch.setenv("TMPDIR", "/own")
    assert str(turns.place("ab12")) == "/tmp/tftrt-gpu-ab12.lock"
