"""Files are replaced whole, links are followed, and what is no file is written to as it is."""

import os
import stat
import subprocess
import sys
import threading

import pytest

from tests.conftest import ROOT
from tftrt_tools.base import errors
from tftrt_tools.base.files import renaming, whole_file
from tftrt_tools.studies.bench import tables


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path):
    (tmp_path / "a").write_text("before")
    with pytest.raises(ZeroDivisionError), whole_file.replacing(tmp_path / "a") as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert (tmp_path / "a").read_text() == "before"
    whole_file.write_text(tmp_path / "a", "after")
    assert (tmp_path / "a").read_text() == "after" and os.listdir(tmp_path) == ["a"]


def test_links_stay_and_what_they_name_is_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "latest").symlink_to("folder/result")
    for text in ("made", "replaced"):
        whole_file.write_text(tmp_path / "latest", text)
        assert (tmp_path / "latest").is_symlink() and (tmp_path / "folder/result").read_text() == text
    (tmp_path / "one").symlink_to("other")
    (tmp_path / "other").symlink_to("one")
    with pytest.raises(OSError, match="one|other"):
        whole_file.write_text(tmp_path / "one/x", "")


def test_a_pipe_stays_a_pipe(tmp_path):
    """So do devices: a root user's --json=/dev/null once made a file of it."""
    os.mkfifo(tmp_path / "pipe")
    read = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()))
    reader.start()
    whole_file.write_text(tmp_path / "pipe", "said")
    reader.join(timeout=60)
    assert read == ["said"] and stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode) and os.listdir(tmp_path) == ["pipe"]
    assert (
        whole_file.is_stream(tmp_path / "pipe")
        and whole_file.is_stream("/dev/null")
        and whole_file.is_stream("/dev/stdout")
    )
    assert not whole_file.is_stream(tmp_path / "new") and not whole_file.is_stream(tmp_path)
    whole_file.check_places(["/dev/null", "/dev/null"])
    with pytest.raises(errors.UsageError, match="is no regular file"):
        tables.RequestsFile(tmp_path / "pipe")


def test_a_folder_that_cannot_be_written_in_is_refused_and_none_is_made(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for path in ("folder/new", ".", str(tmp_path)):
        whole_file.check_folder(tmp_path / path, "--work_dir")
    for path in ("file", "file/new"):
        with pytest.raises(errors.UsageError, match="--work_dir=.*file is no folder"):
            whole_file.check_folder(tmp_path / path, "--work_dir")
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    with pytest.raises(errors.UsageError, match=f"--work_dir=.*new: {tmp_path} cannot be written to by this user"):
        whole_file.check_folder(tmp_path / "folder/new", "--work_dir")
    with pytest.raises(errors.UsageError, match="cannot be written to by this user") as error:
        whole_file.check_folder(tmp_path / "folder/new", "the folder of the output")
    assert error.value.mend == "choose another place, or fix its rights"
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_that_is_open_is_added_to(tmp_path):
    with open(tmp_path / "log", "wb") as file:
        file.write(b"first ")
        file.flush()
        node = os.fstat(file.fileno()).st_ino
        whole_file.write_text(f"/dev/fd/{file.fileno()}", "second")
    assert (tmp_path / "log").read_text() == "first second" and os.stat(tmp_path / "log").st_ino == node


def test_a_command_writes_its_json_to_its_own_output(tmp_path):
    table = tmp_path / "a.table"
    table.write_text("TRT-8503-EntropyCalibration2\na: 3c03156f\n")
    done = subprocess.run(
        [sys.executable, "-m", "tftrt_tools", "table", "diff", table, table, "--json=/dev/fd/1"],
        cwd=ROOT,
        text=True,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0 and '"kind": "calibration_difference"' in done.stdout, done.stderr


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_appears_meanwhile_stays_and_the_finished_one_is_kept(links, whole, tmp_path, monkeypatch):
    if not whole:  # a file system without renameat2
        monkeypatch.setattr(renaming, "_renamed", lambda source, target, flag: False)
    if not links:
        monkeypatch.setattr(os, "link", lambda source, target: os.open(source, os.O_DIRECTORY))
    place = tmp_path / "rows.npz"
    for number in ("", "-2"):
        with (
            pytest.raises(errors.UsageError, match=f"appeared there meanwhile.*rows.npz.finished{number}$"),
            whole_file.replacing(place, overwrite=False) as file,
        ):
            file.write(b"mine")
            place.write_text("theirs")
        place.unlink()
    whole_file.write_text(place, "new", overwrite=False)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "rows.npz": "new",
        "rows.npz.finished": "mine",
        "rows.npz.finished-2": "mine",
    }


def test_a_file_may_have_the_longest_name(tmp_path):
    whole_file.write_text(tmp_path / ("x" * 255), "x")
    assert [path.name for path in tmp_path.iterdir()] == ["x" * 255]
