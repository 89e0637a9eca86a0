"""Directories and files are written whole or not at all."""

import errno
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

from tests.conftest import ROOT
from tftrt_tools.base import errors
from tftrt_tools.base.files import locks, plain_file, renaming, whole_file
from tftrt_tools.models.savedmodel import files, passport, staging


def model(path, text="old"):
    path.mkdir(parents=True)
    (path / "saved_model.pb").write_text(text)
    return path


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def names(path):
    return sorted(child.name for child in path.iterdir())


def test_a_new_target_appears_with_its_content(tmp_path):
    with staging.staged(tmp_path / "deep" / "out", False) as stage:
        (stage / "file").write_text("x")
        assert not (tmp_path / "deep" / "out").exists()
    assert (tmp_path / "deep" / "out" / "file").read_text() == "x"
    assert names(tmp_path / "deep") == ["out"]


def test_a_failure_leaves_nothing_not_even_the_parents(tmp_path):
    with pytest.raises(RuntimeError), staging.staged(tmp_path / "deep" / "out", False) as stage:
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
    with pytest.raises(KeyboardInterrupt), staging.staged(tmp_path / "out", True):
        pytest.fail("never begun")
    assert len(made) == 1 and not list(tmp_path.iterdir())


@pytest.mark.parametrize("there", [True, False])
def test_a_symbolic_link_is_written_through_and_stays_one(there, tmp_path):
    if there:
        model(tmp_path / "v3")
    (tmp_path / "latest").symlink_to("v3")
    target = staging.check_target(tmp_path / "latest", overwrite=True)
    with staging.staged(target, True) as stage:
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
    with pytest.raises(RuntimeError), staging.staged(tmp_path / "out", True) as stage:
        (stage / "saved_model.pb").write_text("new")
        raise RuntimeError
    assert names(tmp_path) == ["out"] and (tmp_path / "out" / "saved_model.pb").read_text() == "old"


@pytest.mark.parametrize("exchange", [True, False])
def test_an_old_target_is_replaced_whole(tmp_path, monkeypatch, exchange):
    if not exchange:  # a file system without renameat2's exchange
        monkeypatch.setattr(renaming, "_renamed", lambda source, target, flag: False)
    (model(tmp_path / "out") / "old_file").write_text("x")
    with staging.staged(tmp_path / "out", True) as stage:
        (stage / "saved_model.pb").write_text("new")
    assert names(tmp_path) == ["out"] and names(tmp_path / "out") == ["saved_model.pb"]


_LEAVES_A_STAGE = (
    "import os, sys\nfrom tftrt_tools.models.savedmodel import staging\n"
    "with staging.staged(sys.argv[1], True) as stage:\n  (stage / 'saved_model.pb').write_text('new')\n  os._exit(9)\n"
)


def test_what_a_killed_run_left_is_swept_and_a_running_one_is_not(tmp_path):
    subprocess.run([sys.executable, "-c", _LEAVES_A_STAGE, str(tmp_path / "out")], check=False)
    assert len(names(tmp_path)) == 1
    # A process in another container has a number that says nothing here; so two may have the same.
    with staging.staged(tmp_path / "out", False) as stage, staging.staged(tmp_path / "other", False):
        (stage / "file").write_text("x")
        with (
            pytest.raises(errors.UsageError, match="appeared there meanwhile"),
            staging.staged(tmp_path / "out", False),
        ):
            assert stage.is_dir()
            (tmp_path / "out").mkdir()
        (tmp_path / "out").rmdir()
    assert names(tmp_path) == ["other", "out", "out.finished"]


def test_what_a_version_before_left_is_swept_a_day_later(tmp_path):
    never = 2**22 + 1  # Linux gives no process a larger number than 2**22
    for name in (
        f".out.tftrt-{never}",
        f".out.tftrt-{never + 1}-old",
        f".out.tftrt-{os.getppid()}",
        ".out.tftrt-s0123abcd",
    ):
        (tmp_path / name).mkdir()
    with staging.staged(tmp_path / "out", True):
        pass
    assert len(names(tmp_path)) == 5  # another container may have that process
    for path in tmp_path.iterdir():
        os.utime(path, (time.time() - 25 * 3600,) * 2)
    with staging.staged(tmp_path / "out", True):
        pass
    assert names(tmp_path) == [f".out.tftrt-{os.getppid()}", "out"]


def test_a_model_that_a_killed_run_was_replacing_gets_its_name_back(tmp_path):
    holder = tmp_path / ".out.tftrt-s0123abcd"
    model(holder / "old" / "out")
    (holder / "lock").touch()
    with pytest.raises(RuntimeError), staging.staged(tmp_path / "out", True):
        raise RuntimeError
    assert names(tmp_path) == ["out"] and (tmp_path / "out" / "saved_model.pb").read_text() == "old"


def test_a_stage_that_another_writer_sweeps_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    acquire, taken = locks.acquire, []

    def swept(path, wait):
        if not taken:
            taken.append(path)
            path.parent.rmdir()
        return acquire(path, wait=wait)

    monkeypatch.setattr(locks, "acquire", swept)
    with staging.staged(tmp_path / "out", False) as stage:
        (stage / "file").write_text("x")
    assert taken and names(tmp_path) == ["out"] and names(tmp_path / "out") == ["file"]


_APPEARS = {
    "a folder": lambda path: (
        model(path.with_name("elsewhere")).rename(path).joinpath("saved_model.pb").rename(path / "notes")
    ),
    "an empty folder": lambda path: path.mkdir(),
    "a file": lambda path: path.write_text("old"),
    "a link": lambda path: path.symlink_to("nowhere"),
    "a link to a model": lambda path: path.symlink_to(model(path.with_name("v3"))),
}


def seen(path):
    """What is at a path, to compare."""
    return path.lstat().st_ino, os.readlink(path) if path.is_symlink() else path.read_text() if path.is_file() else {
        one.name: one.read_text() for one in path.iterdir()
    }


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("what", [*_APPEARS, "a model"])
def test_what_appears_meanwhile_is_not_lost_and_neither_is_the_result(what, overwrite, whole, tmp_path, monkeypatch):
    if not whole:  # a file system without renameat2
        monkeypatch.setattr(renaming, "_renamed", lambda source, target, flag: False)
    out, stood = tmp_path / "out", None

    def made():
        nonlocal stood
        with staging.staged(out, overwrite) as stage:
            (stage / "saved_model.pb").write_text("new")
            _APPEARS.get(what, model)(out)
            stood = seen(out)

    if overwrite and what in ("a model", "an empty folder"):
        made()
        assert (out / "saved_model.pb").read_text() == "new" and names(tmp_path) == ["out"]
        return
    with pytest.raises(errors.UsageError, match="appeared there meanwhile") as refused:
        made()
    kept = tmp_path / "out.finished"
    assert seen(out) == stood and (kept / "saved_model.pb").read_text() == "new" and str(kept) in refused.value.cause
    assert not [name for name in names(tmp_path) if name.startswith(".")]


def test_each_result_that_cannot_have_its_place_is_kept(tmp_path):
    model(tmp_path / "out")
    for name in ("out.finished", "out.finished-2"):
        with pytest.raises(errors.UsageError) as refused, staging.staged(tmp_path / "out", False):
            pass
        assert refused.value.cause.endswith(f"; the finished result is in {tmp_path / name}")


def test_an_empty_folder_that_was_filled_meanwhile_stays(tmp_path):
    (tmp_path / "out").mkdir()
    with (
        pytest.raises(errors.UsageError, match="appeared there meanwhile"),
        staging.staged(tmp_path / "out", False) as stage,
    ):
        (stage / "saved_model.pb").write_text("new")
        (tmp_path / "out" / "notes").write_text("x")
    assert names(tmp_path) == ["out", "out.finished"] and names(tmp_path / "out") == ["notes"]


def test_of_two_writers_one_wins_and_the_other_says_so(tmp_path):
    with (
        pytest.raises(errors.UsageError, match="appeared there meanwhile"),
        staging.staged(tmp_path / "out", False) as late,
    ):
        (late / "saved_model.pb").write_text("late")
        with staging.staged(tmp_path / "out", False) as first:
            (first / "saved_model.pb").write_text("first")
    assert (tmp_path / "out" / "saved_model.pb").read_text() == "first"
    assert (tmp_path / "out.finished" / "saved_model.pb").read_text() == "late"


@pytest.mark.parametrize("step", ["rename", "mkdir"])
def test_an_interrupt_while_a_model_is_replaced_in_two_steps_gives_it_back(step, tmp_path, monkeypatch):
    monkeypatch.setattr(renaming, "_renamed", lambda source, target, flag: False)
    model(tmp_path / "out")
    real = getattr(os, step)

    def interrupted(*arguments, **options):
        real(*arguments, **options)
        monkeypatch.setattr(os, step, real)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), staging.staged(tmp_path / "out", True) as stage:
        (stage / "saved_model.pb").write_text("new")
        monkeypatch.setattr(staging, "_is_placed", lambda *arguments: False)
        monkeypatch.setattr(os, step, interrupted)
    assert names(tmp_path) == ["out"] and (tmp_path / "out" / "saved_model.pb").read_text() == "old"


def test_a_finished_result_is_kept_where_the_system_refuses_the_last_rename(tmp_path, monkeypatch):
    def busy(source, target):
        if target.name == "out":
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(source), None, str(target))
        os.rename(source, target)

    monkeypatch.setattr(renaming, "new", busy)
    with pytest.raises(errors.TftrtError, match="busy") as refused, staging.staged(tmp_path / "out", False) as stage:
        (stage / "saved_model.pb").write_text("new")
    assert names(tmp_path) == ["out.finished"] and ".tftrt-" not in str(refused.value)


def test_errors_name_the_target_and_not_its_stage(tmp_path):
    with pytest.raises(FileNotFoundError) as missing, staging.staged("/proc/x", False):
        pass
    assert missing.value.filename == "/proc/x"
    with pytest.raises(FileNotFoundError) as missing, staging.staged(tmp_path / "out", False) as stage:
        (stage / "deep" / "file").write_text("x")
    assert missing.value.filename == str(tmp_path / "out" / "deep" / "file")
    with (
        pytest.raises(OSError) as full,
        staging.staged(tmp_path / "out", False) as stage,
        plain_file.naming(stage / "file"),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert full.value.filename == str(tmp_path / "out" / "file")
    with pytest.raises(errors.UsageError) as told, staging.staged(tmp_path / "out", False) as stage:
        raise errors.UsageError(f"{stage}/x is damaged", f"remove {stage}")
    assert (told.value.cause, told.value.mend) == (
        f"{tmp_path}/out/x is damaged",
        f"remove {tmp_path}/out",
    ) and not names(tmp_path)


def test_a_target_may_have_the_longest_name(tmp_path):
    out = tmp_path / ("\u00e9" * 127)
    for _ in range(2):
        with staging.staged(out, True) as stage:
            (stage / "saved_model.pb").write_text("x")
    assert names(tmp_path) == [out.name]


def test_a_mount_point_is_refused_before_the_work():
    with pytest.raises(errors.UsageError, match="file system of its own"):
        staging.check_target("/dev/shm", True)


@pytest.mark.parametrize("mask", [0o077, 0o027, 0o002])
def test_new_files_and_directories_have_the_permissions_that_the_umask_leaves(mask, tmp_path):
    before = os.umask(mask)
    try:
        with staging.staged(tmp_path / "deep" / "out", False) as stage:
            whole_file.write_text(stage / "file", "x")
            with whole_file.replacing(tmp_path / "deep" / "rows") as file:
                file.write(b"x")
    finally:
        os.umask(before)
    found = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "deep").rglob("*")}
    assert found == {"out": 0o777 & ~mask, "file": 0o666 & ~mask, "rows": 0o666 & ~mask}


def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path):
    place = tmp_path / "models.config"
    for mode in (0o600, 0o664):
        place.touch()
        place.chmod(mode)
        whole_file.write_text(place, "new")
        assert place.stat().st_mode & 0o777 == mode


@pytest.mark.parametrize("delay_ms", [0, 2, 5, 10, 20, 40])
def test_sigkill_at_any_moment_leaves_the_old_or_the_new(tmp_path, delay_ms):
    for part in ("a", "b", "c"):
        (model(tmp_path / "out") if part == "a" else tmp_path / "out").joinpath(part).write_text("old")
    code = (
        "import sys\nfrom tftrt_tools.models.savedmodel import staging\nprint('go', flush=True)\nwith staging.staged(sys.argv[1], True) as stage:\n"
        "  for part in ('a', 'b', 'c', 'saved_model.pb'): (stage / part).write_text('new')\n"
    )
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
    for target, overwrite, says in (
        (source, True, "inside one another"),
        (source / "out", True, "inside one another"),
        (tmp_path, True, "inside one another"),
        (tmp_path / "notes", False, "exists"),
        (tmp_path / "notes", True, "SavedModels and plan directories only"),
        (tmp_path / "file", True, "no directory"),
    ):
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
    with staging.staged(tmp_path / "out", True) as stage:
        (stage / "file").write_text("x")
    assert names(tmp_path / "out") == ["file"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_parent_is_a_clear_error(tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(errors.TftrtError, match="no permission"), staging.staged(tmp_path / "locked" / "out", False):
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
    for path, says in (
        (tmp_path / "nothing", "no such file"),
        (pathlib.Path(__file__), "is a file"),
        (tmp_path, "holds no saved_model.pb"),
    ):
        with pytest.raises(errors.UsageError, match=says):
            files.check(path)
    with pytest.raises(errors.UsageError) as caught:
        files.check(tmp_path / "versions")
    assert caught.value.mend.endswith("versions/1?")


def test_a_folder_of_transformers_is_told_from_others(tmp_path):
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert/config.json").write_text("{}")

    def mend():
        with pytest.raises(errors.UsageError, match="holds no saved_model.pb") as caught:
            files.check(tmp_path / "bert")
        return caught.value.mend

    assert mend() == "give the directory that holds saved_model.pb"
    (tmp_path / "bert/model.safetensors").write_text("")
    assert "weights of Transformers" in mend() and (ROOT / re.search(r"docs/\w+\.md", mend())[0]).is_file()
    model(tmp_path / "bert/saved_model/1")
    assert mend().endswith("bert/saved_model/1?")


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
    assert (
        names(tmp_path) == ["rows.npz"]
        and place.read_text() == "new"
        and place.stat().st_mode & 0o777 == 0o666 & ~umask()
    )


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


def test_a_file_system_without_locks_is_written_and_nothing_is_swept(tmp_path, monkeypatch):
    def refuse(*_arguments):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    with staging.staged(tmp_path / "out", True) as stage, staging.staged(tmp_path / "out", True):
        assert stage.is_dir()
    assert names(tmp_path) == ["out"]
