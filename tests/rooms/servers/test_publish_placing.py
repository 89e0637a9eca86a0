"""A version is there whole or not at all: killed publishers, two at once, disks that fail."""

import errno
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.conftest import ROOT
from tftrt_tools.base import errors
from tftrt_tools.base.files import locks, renaming
from tftrt_tools.servers.serving import version_directories
from tftrt_tools.servers.serving.publishing import placing

FILES = {f"variables/part-{number}": b"x" * 50_000 for number in range(8)} | {"saved_model.pb": b"graph"}
# What `tftrt publish` does with the disk, without the model's own work.
PUBLISHER = """
import pathlib, sys
from tftrt_tools.servers.serving.publishing import placing
source, base, workplace, count = *map(pathlib.Path, sys.argv[1:4]), int(sys.argv[4])
print("go", flush=True)
for _ in range(count):
    with placing.staged(base, workplace) as stage:
        placing.copy(source, stage.folder)
        def complete(number):
            (stage.folder / "number").write_text(str(number))
        print(stage.place(None, False, complete)[0], flush=True)
"""


@pytest.fixture
def source(tmp_path):
    for name, content in FILES.items():
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "source"


def publisher(source, base, count=1, workplace=None):
    return subprocess.Popen(
        [sys.executable, "-c", PUBLISHER, str(source), str(base), str(workplace or base), str(count)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def place(source, base, wanted=None, complete=lambda number: None, workplace=None):
    with placing.staged(base, workplace) as stage:
        placing.copy(source, stage.folder)
        return stage.place(wanted, False, complete)


def assert_whole(base):
    """What a server that polls sees: every number is a whole version."""
    for one in version_directories.listing(base):
        there = {
            path.relative_to(one.path).as_posix(): path.read_bytes() for path in one.path.rglob("*") if path.is_file()
        }
        assert there == {**FILES, "number": str(one.number).encode()}


def others(base):
    return [path.name for path in base.iterdir() if version_directories.parse(path.name) is None]


def left_over(base, workplace):
    """What is there besides versions. A workplace elsewhere may be gone."""
    return others(base) + (others(workplace) if workplace != base and workplace.exists() else [])


def test_a_version_gets_the_next_number_and_leaves_nothing_beside_it(source, tmp_path):
    assert [place(source, tmp_path / "deep" / "m")[0] for _ in range(3)] == [1, 2, 3]
    assert sorted(path.name for path in (tmp_path / "deep" / "m").iterdir()) == ["1", "2", "3"]


def test_what_is_written_last_knows_the_number(source, tmp_path):
    told = []
    number, path = place(source, tmp_path / "m", 4, told.append)
    assert told == [number] == [4] and path == tmp_path / "m" / "4"


def test_a_failure_leaves_nothing_not_even_the_directories(source, tmp_path):
    with pytest.raises(RuntimeError), placing.staged(tmp_path / "models" / "m") as stage:
        placing.copy(source, stage.folder)
        raise RuntimeError
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


def test_a_failure_after_the_first_version_leaves_that(source, tmp_path):
    place(source, tmp_path / "m")
    with pytest.raises(RuntimeError), placing.staged(tmp_path / "m"):
        raise RuntimeError
    assert [path.name for path in (tmp_path / "m").iterdir()] == ["1"]


@pytest.fixture(params=["in the model's directory", "beside it"])
def places(request, tmp_path):
    """(the model's directory, where its versions grow)."""
    base = tmp_path / "m"
    if request.param != "beside it":
        return base, base
    base.mkdir()
    return base, tmp_path / "grows" / "m"


def test_sigkill_at_any_moment_publishes_whole_versions_only_and_the_next_publish_clears_up(source, places):
    (base, workplace), rng = places, random.Random(0)
    left, counts = 0, set()
    for turn in range(500):
        running = publisher(source, base, count=1000, workplace=workplace)
        running.stdout.readline()
        time.sleep(rng.uniform(0, 0.06))
        running.send_signal(signal.SIGKILL)
        running.wait()
        running.stdout.close()
        if base.exists():
            assert_whole(base)
            left += bool(left_over(base, workplace))
            counts.add(len(version_directories.listing(base)))
        if turn >= 24 and left and len(counts) > 1:
            break
    assert left and len(counts) > 1, "no kill came in the middle of a publication: the test shows nothing"
    before = len(version_directories.listing(base))
    place(source, base, workplace=workplace)
    assert left_over(base, workplace) == [] and len(version_directories.listing(base)) == before + 1


def test_what_a_killed_publisher_left_is_swept_and_a_running_one_is_not(source, tmp_path):
    base = tmp_path / "m"
    dead = base / ".tftrt-publish-0badc0de"
    (dead / "model").mkdir(parents=True)
    (dead / "model" / "half").write_text("x")
    with placing.staged(base) as running:
        assert not dead.exists()
        place(source, base)
        assert running.folder.is_dir(), "another publish took a running one's stage away"
        placing.copy(source, running.folder)
        assert running.place(None, False, lambda number: None)[0] == 2
    assert others(base) == []


def test_many_publishers_at_once_get_versions_of_their_own(source, places):
    base, workplace = places
    running = [publisher(source, base, count=6, workplace=workplace) for _ in range(4)]
    said = [one.communicate(timeout=60)[0].split()[1:] for one in running]
    assert all(one.returncode == 0 for one in running)
    assert sorted(int(number) for numbers in said for number in numbers) == list(range(1, 25))
    assert_whole(base)
    assert left_over(base, workplace) == []


def test_a_polling_reader_never_sees_half_a_version(source, tmp_path):
    base, wrong, stop = tmp_path / "m", [], threading.Event()

    def poll():
        while not stop.is_set():
            try:
                assert_whole(base)
            except AssertionError as error:
                wrong.append(error)

    reader = threading.Thread(target=poll)
    reader.start()
    try:
        running = publisher(source, base, count=20)
        running.communicate(timeout=60)
    finally:
        stop.set()
        reader.join()
    assert running.returncode == 0 and not wrong and len(version_directories.listing(base)) == 20


def test_someone_who_keeps_no_locks_takes_the_number_first(source, tmp_path):
    base, told = tmp_path / "m", []

    def complete(number):
        told.append(number)
        if len(told) == 1:
            (base / str(number) / "theirs").mkdir(parents=True)

    assert place(source, base, complete=complete)[0] == 2 and told == [1, 2]
    assert (base / "1" / "theirs").is_dir()
    with pytest.raises(errors.UsageError, match="version 5 exists"):
        place(source, base, 5, lambda number: (base / "5" / "theirs").mkdir(parents=True))


def test_a_file_system_without_locks_publishes_and_sweeps_nothing(source, tmp_path, monkeypatch):
    def refuse(*_arguments, **_options):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    (tmp_path / "m" / ".tftrt-publish-0badc0de").mkdir(parents=True)
    monkeypatch.setattr(locks, "acquire", refuse)
    assert place(source, tmp_path / "m")[0] == 1
    assert others(tmp_path / "m") == [".tftrt-publish-0badc0de"], "it may be alive"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize(
    ("module", "call"), [(shutil, "copyfile"), (os, "fsync"), (renaming, "new"), (pathlib.Path, "mkdir")]
)
def test_a_disk_that_fails_leaves_nothing(source, tmp_path, monkeypatch, module, call, code):
    place(source, tmp_path / "m")
    real, calls = getattr(module, call), []

    def fail(*arguments, **options):
        calls.append(arguments)
        if len(calls) > 1 or call in ("new", "fsync"):
            raise OSError(code, os.strerror(code), str(arguments[0]))
        return real(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(module, call, fail)
        with pytest.raises(OSError, match=os.strerror(code)):
            place(source, tmp_path / "m")
    assert [path.name for path in (tmp_path / "m").iterdir()] == ["1"]
    assert place(source, tmp_path / "m")[0] == 2


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("no tmpfs can be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_is_too_small_is_found_before_anything_is_copied(source, small_disk):
    place(source, small_disk / "m")
    place(source, small_disk / "m")
    with pytest.raises(errors.TftrtError, match="no space for the model"):
        place(source, small_disk / "m")
    assert sorted(path.name for path in (small_disk / "m").iterdir()) == ["1", "2"]


def test_a_disk_that_fills_up_meanwhile_leaves_nothing(source, small_disk, monkeypatch):
    monkeypatch.setattr(placing, "check_space", lambda source, target: None)
    place(source, small_disk / "m")
    place(source, small_disk / "m")
    with pytest.raises(OSError) as caught:
        place(source, small_disk / "m")
    assert caught.value.errno == errno.ENOSPC and "free space" in errors.from_os_error(caught.value).mend
    assert sorted(path.name for path in (small_disk / "m").iterdir()) == ["1", "2"]


def test_links_inside_are_followed_and_what_is_no_file_is_refused(source, tmp_path):
    (source / "linked").symlink_to(source / "saved_model.pb")
    _, path = place(source, tmp_path / "m")
    assert (path / "linked").read_bytes() == (source / "saved_model.pb").read_bytes() and not (
        path / "linked"
    ).is_symlink()
    (tmp_path / "elsewhere").write_text("x")
    for name, target, words in (
        ("folder", source / "variables", "link to a directory"),
        ("gone", source / "nothing", "link to nothing"),
        ("out", tmp_path / "elsewhere", "leads out of the model"),
    ):
        (source / name).symlink_to(target)
        with pytest.raises(errors.UsageError, match=words):
            place(source, tmp_path / "m")
        (source / name).unlink()
    os.mkfifo(source / "pipe")
    with pytest.raises(errors.UsageError, match="neither a file nor a directory"):
        place(source, tmp_path / "m")
    assert [path.name for path in (tmp_path / "m").iterdir()] == ["1"]


def test_a_server_of_another_user_may_read_the_version(source, tmp_path):
    for path in (source / "saved_model.pb", source / "variables"):
        path.chmod(0o700)
    _, path = place(source, tmp_path / "m")
    modes = {one.stat().st_mode & 0o777 for one in [path, *path.rglob("*")]}
    mask = os.umask(0)
    os.umask(mask)
    assert modes == {0o777 & ~mask, 0o666 & ~mask}
