"""Temporary folders, and what a killed process leaves of them."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from tests.conftest import ROOT
from tftrt_tools.base.files import scratch

LONG_AGO = time.time() - 3600
HOLDS = """
import os, pathlib, signal, sys, time
from tftrt_tools.base.files import scratch
with scratch.folder("held") as folder:
    pathlib.Path(folder, "engine").write_text("large")
    os.utime(folder, (1e9, 1e9))
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty folder for temporary files, of this process and of those that it starts."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


@pytest.fixture
def holder(place):
    """(a process that holds a folder, which seems to be of long ago; that folder)."""
    with subprocess.Popen([sys.executable, "-c", HOLDS], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, pathlib.Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_a_folder_goes_with_its_context(place):
    with scratch.folder("a") as first, scratch.folder("a") as second:
        assert first != second and os.listdir(first) == []
        pathlib.Path(first, "file").touch()
        assert set(os.listdir(place)) == {os.path.basename(first), os.path.basename(second)}
    with pytest.raises(ZeroDivisionError), scratch.folder("a"):
        raise ZeroDivisionError
    assert not os.listdir(place)


def test_a_folder_that_was_removed_meanwhile_is_no_error(place):
    with scratch.folder("a") as folder:
        os.rmdir(folder)


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_holds_is_not(holder):
    process, left = holder
    with scratch.folder("mine"):
        assert (left / "engine").is_file()
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (left / "engine").is_file()
    with scratch.folder("mine"):
        assert not left.exists()


def test_only_old_folders_of_this_kind_are_taken_for_abandoned(place):
    kept = [
        place / "tftrt-scratch-young",
        place / "another",
        place / "tftrt-scratch-file",
        place / "tftrt-scratch-link",
        place / "target",
    ]
    for path in (kept[0], kept[1], kept[4]):
        path.mkdir()
    kept[2].touch()
    kept[3].symlink_to(kept[4])
    old = place / "tftrt-scratch-old"
    old.mkdir()
    for path in (old, *kept[1:]):
        os.utime(path, (LONG_AGO, LONG_AGO), follow_symlinks=False)
    with scratch.folder("mine"):
        assert not old.exists() and all(path.exists() for path in kept)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
def test_folders_of_other_users_are_left_alone(place):
    other = place / "tftrt-scratch-other"
    other.mkdir()
    os.chown(other, 12345, 12345)
    os.utime(other, (LONG_AGO, LONG_AGO))
    with scratch.folder("mine"):
        assert other.exists()
