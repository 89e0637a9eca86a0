"""Directories and files are written whole or not at all."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from tftrt_tools import errors, whole_file
from tftrt_tools.savedmodel import files, passport, staging


def model(path, text="old"):
    path.mkdir(parents=True)
    (path / "saved_model.pb").write_text(text)
    return path


def names(path):
    return sorted(child.name for child in path.iterdir())


def test_a_new_target_appears_with_its_content(tmp_path):
    with staging.staged(tmp_path / "deep" / "out") as stage:
        (stage / "file").write_text("x")
        assert not (tmp_path / "deep" / "out").exists()
    assert (tmp_path / "deep" / "out" / "file").read_text() == "x"
    assert names(tmp_path / "deep") == ["out"]


def test_a_failure_leaves_nothing_not_even_the_parents(tmp_path):
    with pytest.raises(RuntimeError), staging.staged(tmp_path / "deep" / "out") as stage:
        (stage / "file").write_text("x")
        raise RuntimeError
    assert names(tmp_path) == []


def test_an_interrupt_behind_the_making_of_the_directory_leaves_nothing(tmp_path, monkeypatch):
    made, mkdir = [], pathlib.Path.mkdir

    def interrupted(self, *arguments, **options):
        mkdir(self, *arguments, **options)
        made.append(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(pathlib.Path, "mkdir", interrupted)
    with pytest.raises(KeyboardInterrupt), staging.staged(tmp_path / "out"):
        pytest.fail("never begun")
    assert len(made) == 1 and not list(tmp_path.iterdir())


@pytest.mark.parametrize("there", [True, False])
def test_a_symbolic_link_is_written_through_and_stays_one(there, tmp_path):
    if there:
        model(tmp_path / "v3")
    (tmp_path / "latest").symlink_to("v3")
    target = staging.check_target(tmp_path / "latest", overwrite=True)
    with staging.staged(target) as stage:
        (stage / "saved_model.pb").write_text("new")
    assert (tmp_path / "latest").is_symlink() and names(tmp_path) == ["latest", "v3"]
    assert (tmp_path / "v3" / "saved_model.pb").read_text() == "new"


def test_a_link_to_something_else_is_no_place_for_a_model(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "link").symlink_to("file")
    for name in ("loop", "link"):
        with pytest.raises(errors.UsageError, match="is no directory"):
            staging.check_target(tmp_path / name, overwrite=True)


def test_a_failure_leaves_the_old_target(tmp_path):
    model(tmp_path / "out")
    with pytest.raises(RuntimeError), staging.staged(tmp_path / "out") as stage:
        (stage / "saved_model.pb").write_text("new")
        raise RuntimeError
    assert names(tmp_path) == ["out"] and (tmp_path / "out" / "saved_model.pb").read_text() == "old"


@pytest.mark.parametrize("exchange", [True, False])
def test_an_old_target_is_replaced_whole(tmp_path, monkeypatch, exchange):
    if not exchange:  # a file system without renameat2's exchange
        monkeypatch.setattr(staging, "_exchange", lambda one, other: False)
    (model(tmp_path / "out") / "old_file").write_text("x")
    with staging.staged(tmp_path / "out") as stage:
        (stage / "saved_model.pb").write_text("new")
    assert names(tmp_path) == ["out"] and names(tmp_path / "out") == ["saved_model.pb"]


def test_what_a_killed_run_left_is_swept_and_a_running_one_is_not(tmp_path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    (tmp_path / f".out.tftrt-{gone.pid}").mkdir()
    (tmp_path / f".out.tftrt-{os.getppid()}").mkdir()
    with staging.staged(tmp_path / "out"):
        pass
    assert names(tmp_path) == [f".out.tftrt-{os.getppid()}", "out"]


@pytest.mark.parametrize("delay_ms", [0, 2, 5, 10, 20, 40])
def test_sigkill_at_any_moment_leaves_the_old_or_the_new(tmp_path, delay_ms):
    for part in ("a", "b", "c"):
        (model(tmp_path / "out") if part == "a" else tmp_path / "out").joinpath(part).write_text("old")
    code = ("import sys\nfrom tftrt_tools.savedmodel import staging\nprint('go', flush=True)\nwith staging.staged(sys.argv[1]) as stage:\n"
            "  for part in ('a', 'b', 'c', 'saved_model.pb'): (stage / part).write_text('new')\n")
    writer = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "out")], stdout=subprocess.PIPE)
    writer.stdout.readline()
    time.sleep(delay_ms / 1000)
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    assert len({(tmp_path / "out" / part).read_text() for part in ("a", "b", "c")}) == 1


def test_targets_that_must_not_be_written(tmp_path):
    source = model(tmp_path / "source")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "file").write_text("x")
    (tmp_path / "file").write_text("x")
    for target, overwrite, says in ((source, True, "inside one another"), (source / "out", True, "inside one another"),
                                    (tmp_path, True, "inside one another"), (tmp_path / "notes", False, "exists"),
                                    (tmp_path / "notes", True, "SavedModels and plan directories only"), (tmp_path / "file", True, "no directory")):
        with pytest.raises(errors.UsageError, match=says):
            staging.check_target(target, overwrite, [source])


def test_a_link_to_the_source_is_seen_through(tmp_path):
    source = model(tmp_path / "source")
    (tmp_path / "link").symlink_to(source)
    with pytest.raises(errors.UsageError, match="inside one another"):
        staging.check_target(tmp_path / "link" / "out", True, [source])


def test_an_empty_directory_is_taken(tmp_path):
    (tmp_path / "out").mkdir()
    assert staging.check_target(tmp_path / "out", False) == tmp_path / "out"
    with staging.staged(tmp_path / "out") as stage:
        (stage / "file").write_text("x")
    assert names(tmp_path / "out") == ["file"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_parent_is_a_clear_error(tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(errors.TftrtError, match="no permission"), staging.staged(tmp_path / "locked" / "out"):
        pass


def test_the_digest_sees_names_and_bytes_and_not_the_passport(tmp_path):
    path = model(tmp_path / "m")
    first = files.digest(path)
    passport.write(path, passport.VERIFY, {"passed": True})
    assert files.digest(path) == first
    (path / "saved_model.pb").rename(path / "saved_model.pbtxt")
    assert files.digest(path) != first


def test_a_damaged_or_newer_passport_is_a_clear_error(tmp_path):
    path = model(tmp_path / "m")
    assert passport.read(path, passport.MANIFEST) is None
    for text, says in (("{", "damaged"), ("[]", "damaged"), ('{"schema_version": 99}', "newer")):
        passport.write(path, passport.MANIFEST, text)
        with pytest.raises(errors.TftrtError, match=says):
            passport.read(path, passport.MANIFEST)


def test_missing_variables_are_found_without_tensorflow(tmp_path):
    path = model(tmp_path / "m")
    (path / "variables").mkdir()
    (path / "variables" / "variables.index").write_text("x")
    with pytest.raises(errors.TftrtError, match="variables are missing"):
        files.check(path)
    (path / "variables" / "variables.data-00000-of-00002").write_text("x")
    with pytest.raises(errors.TftrtError, match="1 of 2 data files"):
        files.check(path)


def test_what_is_no_saved_model_says_so_and_guesses(tmp_path):
    model(tmp_path / "versions" / "1")
    for path, says in ((tmp_path / "nothing", "no such file"), (pathlib.Path(__file__), "is a file"), (tmp_path, "holds no saved_model.pb")):
        with pytest.raises(errors.UsageError, match=says):
            files.check(path)
    with pytest.raises(errors.UsageError) as caught:
        files.check(tmp_path / "versions")
    assert caught.value.mend.endswith("versions/1?")


def test_a_file_is_replaced_whole_or_stays_as_it_was(tmp_path):
    place = tmp_path / "rows.npz"
    whole_file.write_text(place, "old")
    with pytest.raises(ZeroDivisionError), whole_file.replacing(place) as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert names(tmp_path) == ["rows.npz"] and place.read_text() == "old"
    with whole_file.replacing(place) as file:
        file.write(b"new")
        assert place.read_text() == "old"
    assert names(tmp_path) == ["rows.npz"] and place.read_text() == "new" and place.stat().st_mode & 0o777 == 0o644


def test_an_error_names_the_place_that_was_asked_for(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError) as refused:
        whole_file.write_text(tmp_path / "file/rows.npz", "rows")
    assert refused.value.filename == str(tmp_path / "file/rows.npz")


def test_an_interrupt_behind_the_making_of_the_file_leaves_nothing(tmp_path, monkeypatch):
    made, opened = [], os.open

    def interrupted(*arguments, **options):
        made.append(opened(*arguments, **options))
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "open", interrupted)
    with pytest.raises(KeyboardInterrupt), whole_file.replacing(tmp_path / "rows.npz"):
        pytest.fail("never begun")
    monkeypatch.undo()
    os.close(*made)
    assert not names(tmp_path)
