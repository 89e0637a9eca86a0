"""The engine cache: keys, the store with its disk against it and other processes beside it, and `tftrt cache`."""

import contextlib
import dataclasses
import errno
import json
import multiprocessing
import os
import pathlib
import signal
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.command_here import run_tftrt
from tests.command_line import assert_clear, loaded_modules
from tftrt_tools.base import errors
from tftrt_tools.base.files import locks
from tftrt_tools.command_line.commands import _engine_cache
from tftrt_tools.models.engine_cache import folders, key, listing, store
from tftrt_tools.models.engine_cache.entry import EngineRecord, Entry
from tftrt_tools.models.engine_cache.key import DeclaredInput, EngineKey, Fed
from tftrt_tools.models.engine_cache.store import Store

KEY = EngineKey(
    segment_digest="sha256:00",
    inputs=(DeclaredInput("float32", (None, 8)), DeclaredInput("int32", (2,))),
    calls=((Fed((1, 8)), Fed((2,), (3, 4))),),
    precision="FP16",
    implicit_batch=False,
    profile_strategy="Optimal",
    max_workspace_size_bytes=1 << 30,
    maximum_cached_engines=1,
    tf32_allowed=True,
    tensorflow="2.14.1",
    tensorrt="8.5.3",
    tensorrt_linked="8.4.3",
    compute_capability="9.0",
    gpu="NVIDIA H100",
)
# Processes that do not share this one's threads and locks.
FRESH = multiprocessing.get_context("spawn")


def numbered(number):
    return dataclasses.replace(KEY, segment_digest=f"sha256:{number:02x}")


@pytest.fixture
def cache(tmp_path):
    return Store(tmp_path / "cache", 100_000)


@pytest.fixture
def engine(tmp_path):
    """A function (bytes) -> path of an engine file."""

    def make(content=b"engine"):
        path = tmp_path / "built"
        path.write_bytes(content)
        return path

    return make


@pytest.fixture
def target(tmp_path):
    return tmp_path / "copy"


def used_at(cache, one, seconds):
    os.utime(cache.folder / one.name / "record.json", (seconds, seconds))


def names(cache):
    return [entry.name for entry in cache.entries()]


# Keys

CHANGES = {
    "segment_digest": "sha256:01",
    "inputs": (DeclaredInput("float32", (None, None)), DeclaredInput("int32", (2,))),
    "calls": ((Fed((1, 8)), Fed((2,), (3, 5))),),
    "precision": "FP32",
    "implicit_batch": True,
    "profile_strategy": "Range",
    "max_workspace_size_bytes": 1 << 29,
    "maximum_cached_engines": 2,
    "tf32_allowed": False,
    "tensorflow": "2.14.0",
    "tensorrt": "8.5.2",
    "tensorrt_linked": "8.5.3",
    "compute_capability": "8.0",
    "gpu": "NVIDIA H100 PCIe",
    "cuda": "11.8",
    "cudnn": "8.7",
    "multiprocessors": 132,
    "use_calibration": True,
    "explicit_precision": True,
    "names_digest": "sha256:02",
    "environment": {"TF_TRT_SPARSE_MODE": "0"},
}


@pytest.mark.parametrize(
    "field",
    [field.name for field in dataclasses.fields(EngineKey) if field.name not in ("calibration_digest", "format")],
)
def test_every_field_changes_the_key(field):
    assert dataclasses.replace(KEY, **{field: CHANGES[field]}).name != KEY.name


def test_the_calibration_table_changes_the_key():
    tables = [
        dataclasses.replace(
            KEY,
            precision="INT8",
            use_calibration=True,
            names_digest="sha256:02",
            calibration_digest=key.digest_of_text(text),
        )
        for text in ("TRT-8503\na: 3c0", "TRT-8503\na: 3c1")
    ]
    assert tables[0].name != tables[1].name and key.digest_of_text("") == ""
    assert key.digest_of_text("a") == key.digest_of_text(b"a")


@pytest.mark.parametrize(
    "calls",
    [
        ((Fed((2, 8)), Fed((2,), (3, 4))),),
        ((Fed((1, 8)), Fed((2,), (4, 3))),),
        ((Fed((1, 8)), Fed((2,), (3, 4))), (Fed((2, 8)), Fed((2,), (3, 4)))),
    ],
)
def test_shapes_values_and_their_order_change_the_key(calls):
    assert dataclasses.replace(KEY, calls=calls).name != KEY.name
    assert (
        len(calls) == 1
        or dataclasses.replace(KEY, calls=calls[::-1]).name != dataclasses.replace(KEY, calls=calls).name
    )


def test_a_key_crosses_json_whole():
    full = dataclasses.replace(
        KEY,
        environment=key.environment({"TF_TRT_SPARSE_MODE": "0", "NVIDIA_TF32_OVERRIDE": "0"}),
        inputs=(DeclaredInput("float32", None), DeclaredInput("int32", (2,))),
    )
    back = EngineKey.from_dict(json.loads(json.dumps(full.to_dict())))
    assert back == full and back.name == full.name and len(full.name) == 64


def test_only_variables_that_change_engines_count():
    assert key.environment({"PATH": "/bin", "TF_TRT_SPARSE_MODE": "0", "TF_TRT_FIXED_ALGORITHM_ID": "2"}) == {
        "TF_TRT_FIXED_ALGORITHM_ID": "2",
        "TF_TRT_SPARSE_MODE": "0",
    }


@pytest.mark.parametrize(
    ("array", "values"),
    [
        (np.int32([3, 4]), (3, 4)),
        (np.int32(5), (5,)),
        (np.zeros(9, np.int32), None),
        (np.zeros((1, 2), np.int32), None),
        (np.float32([1]), None),
        (np.int64([1]), None),
    ],
)
def test_values_of_what_may_be_a_shape_tensor_are_kept(array, values):
    assert Fed.of(array) == Fed(np.shape(array), values)


@pytest.mark.parametrize(
    "wrong",
    [
        {"precision": "INT8", "use_calibration": True},
        {"precision": "INT8", "calibration_digest": "sha256:01"},
        {"calls": ()},
        {"calls": ((Fed((1, 8)),),)},
        {"calls": ((Fed((1, 8)), Fed((2,))),)},
    ],
    ids=["calibrated while built", "table without names", "no call", "input missing", "shape tensor without values"],
)
def test_a_key_that_could_find_a_wrong_engine_cannot_be_made(wrong):
    with pytest.raises(ValueError):
        dataclasses.replace(KEY, **wrong)


# The store


def test_what_was_put_is_got(cache, engine, target):
    assert cache.get(KEY, target) == store.Miss(store.NOT_THERE) and not target.exists()
    assert cache.put(KEY, engine(b"12345"), build_seconds=2.5, origin="digits_cnn: TRTEngineOp_0", driver="580.1").done
    found = cache.get(KEY, target)
    assert found.hit and found.path == target and target.read_bytes() == b"12345"
    assert (found.record.key, found.record.bytes, found.record.build_seconds) == (KEY, 5, 2.5)
    assert cache.problem == "" and cache.get(numbered(1), target).reason == store.NOT_THERE


def test_a_copy_that_is_changed_leaves_the_entry_alone(cache, engine, target):
    cache.put(KEY, engine())
    cache.get(KEY, target)
    target.write_bytes(b"other")
    assert cache.get(KEY, target).hit and target.read_bytes() == b"engine"


def test_putting_again_replaces(cache, engine, target):
    cache.put(KEY, engine(b"old"))
    assert cache.put(KEY, engine(b"newer")).done
    assert cache.get(KEY, target).hit and target.read_bytes() == b"newer" and len(names(cache)) == 1


def test_the_folder_is_for_its_user_alone(cache, engine):
    cache.put(KEY, engine())
    assert cache.folder.stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o077 for path in cache.folder.rglob("*")] == [0] * len(list(cache.folder.rglob("*")))


def test_nothing_is_written_before_something_is_put(cache, target):
    cache.get(KEY, target)
    cache.entries(), cache.clear()
    assert not cache.folder.exists()


def test_nothing_but_entries_is_left_behind(cache, engine, target):
    for number in range(3):
        with cache.lock(numbered(number)):
            cache.put(numbered(number), engine(bytes(400)))
    cache.get(numbered(2), target)
    assert (
        sorted(os.listdir(cache.folder)) == sorted([".locks", *names(cache)])
        and os.listdir(cache.folder / ".locks") == []
    )


def test_records_and_entries_cross_json_whole(cache, engine):
    cache.put(KEY, engine(), build_seconds=1.5)
    (cache.folder / numbered(1).name).mkdir()
    for entry in cache.entries():
        assert Entry.from_dict(json.loads(json.dumps(entry.to_dict()))) == entry
    shown = listing.Listing.of(cache)
    assert listing.Listing.from_dict(json.loads(json.dumps(shown.to_dict()))) == shown


# Eviction


def test_the_least_recently_used_goes_first(cache, engine):
    for number in range(3):
        cache.put(numbered(number), engine(bytes(10)))
        used_at(cache, numbered(number), 1000 - number)
    limit = sum(entry.bytes for entry in cache.entries()) - 1
    assert cache.evict(limit) == (numbered(2).name,)
    assert names(cache) == [numbered(0).name, numbered(1).name]


def test_a_hit_counts_as_use(cache, engine, target):
    for number in range(2):
        cache.put(numbered(number), engine(bytes(10)))
        used_at(cache, numbered(number), 1000 + number)
    cache.get(numbered(0), target)
    assert names(cache) == [numbered(0).name, numbered(1).name]


def test_putting_keeps_the_cap(tmp_path, engine):
    cache = Store(tmp_path / "cache", 20_000)
    for number in range(8):
        stored = cache.put(numbered(number), engine(bytes(4000)))
        assert stored.done and sum(entry.bytes for entry in cache.entries()) <= 20_000
        used_at(cache, numbered(number), 1000 + number)
    assert stored.evicted and names(cache)[0] == numbered(7).name


@pytest.mark.parametrize("size", [100_001, 100_000, 0])
def test_what_does_not_fit_or_is_empty_is_not_kept(cache, engine, size):
    stored = cache.put(KEY, engine(bytes(size)))
    assert not stored.done and f"{size} bytes" in stored.reason and cache.entries() == [] and cache.problem == ""


def test_a_locked_entry_stays(cache, engine):
    for number in range(2):
        cache.put(numbered(number), engine())
    with cache.lock(numbered(0)):
        assert cache.clear() == (numbered(1).name,)
        assert "another process" in cache.remove(numbered(0).name)
    assert cache.clear() == (numbered(0).name,) and cache.entries() == []


def test_an_entry_used_since_the_eviction_began_stays(cache, engine, target, monkeypatch):
    cache.put(KEY, engine())
    used_at(cache, KEY, 1000)
    found = cache._scan()
    cache.get(KEY, target)
    monkeypatch.setattr(cache, "_scan", lambda: found)
    assert cache.clear() == () and names(cache) == [KEY.name]


def test_remove(cache, engine):
    cache.put(KEY, engine())
    assert (
        cache.remove(KEY.name) == ""
        and cache.remove(KEY.name) == store.NOT_THERE
        and cache.remove("../x") == store.NOT_THERE
    )


# Damage


def damage_truncated(entry):
    (entry / "engine").write_bytes(b"engi")


def damage_changed(entry):
    (entry / "engine").write_bytes(b"enginf")


def damage_no_engine(entry):
    (entry / "engine").unlink()


def damage_no_record(entry):
    (entry / "record.json").unlink()


def damage_half_a_record(entry):
    record = entry / "record.json"
    record.write_text(record.read_text()[:100])


def damage_other_json(entry):
    (entry / "record.json").write_text("[1, 2]")


def damage_not_text(entry):
    (entry / "record.json").write_bytes(b"\xff\xfe\0")


def damage_other_key(entry):
    record = entry / "record.json"
    record.write_text(record.read_text().replace("FP16", "FP32"))


def damage_folder_for_engine(entry):
    (entry / "engine").unlink()
    (entry / "engine").mkdir()


def damage_fifo_for_record(entry):
    (entry / "record.json").unlink()
    os.mkfifo(entry / "record.json")


DAMAGES = [value for name, value in list(globals().items()) if name.startswith("damage_")]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_a_miss_that_says_so_and_is_gone(cache, engine, target, damage):
    cache.put(KEY, engine())
    damage(cache.folder / KEY.name)
    cache.entries()
    found = cache.get(KEY, target)
    assert not found.hit and found.damaged and "damaged" in found.reason and not target.exists()
    assert (
        cache.get(KEY, target).reason == store.NOT_THERE
        and cache.put(KEY, engine()).done
        and cache.get(KEY, target).hit
    )


@pytest.mark.parametrize(
    "damage",
    [
        damage_no_record,
        damage_half_a_record,
        damage_other_json,
        damage_not_text,
        damage_other_key,
        damage_fifo_for_record,
    ],
)
def test_an_entry_without_a_good_record_is_listed_with_its_problem(cache, engine, damage):
    cache.put(KEY, engine())
    damage(cache.folder / KEY.name)
    (entry,) = cache.entries()
    assert entry.record is None and entry.problem and cache.remove(entry.name) == ""


@given(st.binary(max_size=200))
def test_any_record_is_read_or_called_damaged(tmp_path_factory, content):
    cache = Store(tmp_path_factory.mktemp("any"), 1000)
    (cache.folder / KEY.name).mkdir()
    (cache.folder / KEY.name / "record.json").write_bytes(content)
    found = cache.get(KEY, cache.folder / "copy")
    assert not found.hit and found.damaged


@pytest.mark.parametrize("name", ["engine", "record.json"])
def test_links_out_of_the_folder_are_not_followed(cache, engine, target, tmp_path, name):
    cache.put(KEY, engine())
    outside = tmp_path / "outside"
    os.rename(cache.folder / KEY.name / name, outside)
    (cache.folder / KEY.name / name).symlink_to(outside)
    found = cache.get(KEY, target)
    assert found.damaged and "symbolic link" in found.reason and outside.exists() and not target.exists()


def test_an_entry_that_is_a_link_is_not_followed(cache, engine, target, tmp_path):
    cache.put(KEY, engine())
    outside = tmp_path / "outside"
    os.rename(cache.folder / KEY.name, outside)
    (cache.folder / KEY.name).symlink_to(outside)
    assert cache.entries()[0].record is None
    assert cache.get(KEY, target).damaged and sorted(os.listdir(outside)) == ["engine", "record.json"]
    (cache.folder / KEY.name).symlink_to(outside)
    assert cache.put(KEY, engine(b"new")).done and (outside / "engine").read_bytes() == b"engine"


def test_locks_are_not_made_through_a_link(cache, engine, tmp_path):
    cache.put(KEY, engine())
    outside = tmp_path / "outside"
    outside.mkdir()
    with contextlib.suppress(OSError):
        (cache.folder / ".locks").rmdir()
    (cache.folder / ".locks").symlink_to(outside)
    with cache.lock(KEY) as locked:
        assert not locked and os.listdir(outside) == []


def test_what_a_killed_process_left_is_deleted_in_time(cache, engine):
    cache.put(KEY, engine())
    young, old, trash = (cache.folder / name for name in (".stage-1-aa", ".stage-1-bb", ".trash-1-cc"))
    for path in (young, old, trash):
        path.mkdir()
        (path / "engine").write_bytes(b"half")
    os.utime(old, (1000, 1000))
    cache.evict()
    assert young.exists() and not old.exists() and not trash.exists() and names(cache) == [KEY.name]


def test_a_stage_that_is_being_written_stays_however_old(cache, engine, monkeypatch):
    publish = cache._publish

    def meanwhile(stage, path):
        os.utime(stage, (1000, 1000))
        Store(cache.folder).evict()
        publish(stage, path)

    monkeypatch.setattr(cache, "_publish", meanwhile)
    assert cache.put(KEY, engine()).done


def test_other_things_in_the_folder_are_left_alone(cache, engine):
    cache.put(KEY, engine())
    mine = cache.folder / "notes.txt"
    mine.write_text("mine")
    cache.clear()
    assert mine.read_text() == "mine" and cache.entries() == []


# Disks that do not work


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("call", ["mkdir", "write", "rename", "fsync"])
def test_a_disk_that_refuses_is_no_cache_and_one_line(cache, engine, target, monkeypatch, code, call):
    def refuse(*_arguments, **_options):
        raise OSError(code, os.strerror(code), "somewhere")

    cache.put(numbered(1), engine())
    with monkeypatch.context() as patch:
        patch.setattr(pathlib.Path if call == "mkdir" else os, call, refuse)
        stored = cache.put(KEY, engine())
    assert (
        not stored.done
        and os.strerror(code) in stored.reason
        and cache.problem == stored.reason
        and "\n" not in cache.problem
    )
    assert names(cache) == [numbered(1).name] and cache.get(numbered(1), target).hit, "what is there can still be read"


def test_a_full_disk_of_the_reader_leaves_the_entry(cache, engine, tmp_path):
    cache.put(KEY, engine())
    found = cache.get(KEY, tmp_path / "no such folder" / "copy")
    assert not found.hit and not found.damaged and "cannot be copied" in found.reason
    assert cache.get(KEY, tmp_path / "copy").hit


def test_a_read_only_cache_still_gives(cache, engine, target, monkeypatch):
    cache.put(KEY, engine())

    def refuse(*_arguments, **_options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    for call in ("utime", "rename", "unlink"):
        monkeypatch.setattr(os, call, refuse)
    monkeypatch.setattr(pathlib.Path, "mkdir", refuse)
    monkeypatch.setattr(locks, "acquire", refuse)
    with cache.lock(KEY) as locked:
        assert not locked and cache.get(KEY, target).hit
    assert cache.clear() == () and "Read-only" in cache.problem


def unusable(tmp_path, what):
    if what == "a file":
        (tmp_path / "x").write_text("")
        return tmp_path / "x"
    if what == "below a file":
        (tmp_path / "x").write_text("")
        return tmp_path / "x" / "y" / "z"
    if what == "a broken link":
        (tmp_path / "x").symlink_to(tmp_path / "nowhere")
        return tmp_path / "x"
    (tmp_path / "x").mkdir()
    (tmp_path / "x").chmod(0o777)
    return tmp_path / "x"


@pytest.mark.parametrize("what", ["a file", "below a file", "a broken link", "open to everyone"])
def test_a_folder_that_can_never_be_used_is_no_cache_and_no_error(tmp_path, engine, target, what):
    folder = unusable(tmp_path, what)
    cache = Store(folder)
    assert cache.folder is None and str(folder) in cache.problem and "\n" not in cache.problem
    assert not cache.get(KEY, target).hit and not cache.put(KEY, engine()).done
    assert cache.entries() == [] and cache.clear() == () and cache.remove(KEY.name)
    with cache.lock(KEY) as locked:
        assert not locked
    with pytest.raises(errors.UsageError, match="cannot be used"):
        folders.check(folder)


def test_a_link_to_a_folder_may_be_the_cache(tmp_path, engine, target):
    (tmp_path / "real").mkdir(0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    cache = Store(tmp_path / "link")
    assert cache.put(KEY, engine()).done and cache.get(KEY, target).hit


def test_the_default_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert folders.default() == tmp_path / ".cache/tftrt/engines"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert folders.default() == tmp_path / "xdg/tftrt/engines" == Store().folder


def test_without_a_home_there_is_no_cache_and_no_error(monkeypatch, engine):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    cache = Store()
    assert "no home" in cache.problem and not cache.put(KEY, engine()).done


# Several processes


def build_once(folder, log, number):
    cache = Store(folder)
    copy = pathlib.Path(f"{log}.{number}")
    with cache.lock(KEY):
        if cache.get(KEY, copy).hit:
            return
        with open(log, "a") as file:
            file.write("built\n")
        time.sleep(0.3)
        copy.write_bytes(b"engine")
        assert cache.put(KEY, copy).done


def test_of_several_processes_one_builds_and_the_others_find(tmp_path):
    processes = [
        FRESH.Process(target=build_once, args=(tmp_path / "cache", tmp_path / "log", number)) for number in range(4)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * 4
    assert (tmp_path / "log").read_text() == "built\n"
    assert [(tmp_path / f"log.{number}").read_bytes() for number in range(4)] == [b"engine"] * 4


def hold(folder, ready):
    with Store(folder).lock(KEY):
        ready.set()
        time.sleep(300)


@pytest.fixture
def holder(cache):
    """A process that holds the lock of KEY."""
    ready = FRESH.Event()
    process = FRESH.Process(target=hold, args=(cache.folder, ready), daemon=True)
    process.start()
    assert ready.wait(120)
    yield process
    process.kill()
    process.join()


def test_a_killed_holder_frees_its_lock(cache, engine, holder):
    cache.put(KEY, engine())
    assert cache.clear() == ()
    os.kill(holder.pid, signal.SIGKILL)
    holder.join(60)
    with cache.lock(KEY) as locked:
        assert locked
    assert cache.clear() == (KEY.name,)


def test_a_waiting_process_says_so(cache, holder, monkeypatch):
    said = []

    def say(text):
        said.append(text)
        os.kill(holder.pid, signal.SIGKILL)

    monkeypatch.setattr(store.progress, "say", say)
    with cache.lock(KEY) as locked:
        assert locked and said == ["waiting for another process that builds this engine"]


def test_different_engines_do_not_wait_for_one_another(cache, holder):
    with cache.lock(numbered(1)) as locked:
        assert locked


def test_where_the_file_system_has_no_locks_the_cache_works_without(cache, engine, target, monkeypatch):
    def refuse(_fd, _how):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    with cache.lock(KEY) as locked:
        assert not locked and cache.put(KEY, engine()).done
    assert cache.get(KEY, target).hit and cache.clear() == (KEY.name,) and cache.problem == ""


def put_and_evict(folder, source, enough):
    cache, last = Store(folder), time.monotonic() + 60
    while not enough.is_set() and time.monotonic() < last:
        cache.put(KEY, source)
        cache.clear()


def test_a_reader_beside_eviction_gets_the_whole_engine_or_a_plain_miss(tmp_path, engine, target):
    content = os.urandom(3 << 20)
    enough = FRESH.Event()
    processes = [
        FRESH.Process(target=put_and_evict, args=(tmp_path / "cache", engine(content), enough)) for _ in range(2)
    ]
    for process in processes:
        process.start()
    cache, seen = Store(tmp_path / "cache"), {True: 0, False: 0}
    while any(process.is_alive() for process in processes):
        found = cache.get(KEY, target)
        seen[found.hit] += 1
        assert target.read_bytes() == content if found.hit else found.reason == store.NOT_THERE, found
        target.unlink(missing_ok=True)
        if min(seen.values()) >= 20:
            enough.set()
    assert [process.exitcode for process in processes] == [0, 0] and cache.problem == "" and seen[True] and seen[False]


# The command


@pytest.fixture
def filled(tmp_path, engine):
    cache = Store(tmp_path / "cache")
    cache.put(KEY, engine(bytes(100)), origin="digits_cnn: TRTEngineOp_0_0")
    cache.put(numbered(1), engine(bytes(50)))
    used_at(cache, KEY, 1_700_000_000)
    return cache


def tftrt_cache(cache, *arguments):
    return run_tftrt("cache", *arguments, f"--engine_cache_dir={cache.folder}")


def test_list_shows_what_is_there(filled):
    done = tftrt_cache(filled, "list", "--engine_cache_max_bytes=1GB")
    assert done.returncode == 0 and "digits_cnn: TRTEngineOp_0_0" in done.stdout and "2023-11-14 22:13" in done.stdout
    for text in (KEY.name[:12], "FP16", "1x8+2", "NVIDIA H100", "8.5.3", "2 entries", "of 1 GB", str(filled.folder)):
        assert text in done.stdout


def test_list_as_json(filled):
    shown = json.loads(tftrt_cache(filled, "list", "--json=-").stdout)
    assert shown["kind"] == "engine_cache" and [one["name"] for one in shown["entries"]] == [numbered(1).name, KEY.name]
    assert EngineRecord.from_dict(shown["entries"][1]["record"]).key == KEY and shown["max_bytes"] == 10 << 30


def test_list_shows_what_cannot_be_used(filled):
    damage_other_json(filled.folder / KEY.name)
    done = tftrt_cache(filled, "list")
    assert done.returncode == 0 and "cannot be used" in done.stdout


def test_list_of_an_empty_cache_makes_nothing(cache):
    done = tftrt_cache(cache, "list")
    assert done.returncode == 0 and "0 entries" in done.stdout and not cache.folder.exists()


def test_remove_takes_beginnings_of_names(filled):
    done = tftrt_cache(filled, "remove", KEY.name[:10], KEY.name)
    assert done.returncode == 0 and "removed: 1 entry" in done.stdout and names(filled) == [numbered(1).name]


@pytest.mark.parametrize("wanted", ["ffff0000ffff", "", "abc", "../.."])
def test_remove_of_what_is_not_there(filled, wanted):
    assert_clear(tftrt_cache(filled, "remove", wanted), 2, "no entry has the ID")
    assert len(names(filled)) == 2


def test_remove_of_what_is_held(filled):
    with filled.lock(KEY):
        done = tftrt_cache(filled, "remove", KEY.name, numbered(1).name)
    assert done.returncode == 1 and "another process" in done.stderr and "removed: 1 entry" in done.stdout
    assert names(filled) == [KEY.name]


def test_clear(filled):
    done = tftrt_cache(filled, "clear")
    assert done.returncode == 0 and "removed: 2 entries" in done.stdout and names(filled) == []


def test_clear_down_to_a_size(filled):
    size = filled.entries()[0].bytes
    assert tftrt_cache(filled, "clear", f"--engine_cache_max_bytes={size}").returncode == 0
    assert names(filled) == [numbered(1).name]


def test_dir(tmp_path):
    done = run_tftrt("cache", "dir", env={"XDG_CACHE_HOME": str(tmp_path)})
    assert done.returncode == 0 and done.stdout == f"{tmp_path}/tftrt/engines\n"


@pytest.mark.parametrize("arguments", [(), ("empty",), ("remove",), ("list", "x"), ("clear", "x")])
def test_wrong_usage(cache, arguments):
    assert_clear(tftrt_cache(cache, *arguments), 2, "usage: tftrt cache")


def test_a_given_folder_that_can_never_be_used_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    assert_clear(run_tftrt("cache", "list", f"--engine_cache_dir={tmp_path}/file"), 2, "is no folder")
    assert_clear(run_tftrt("cache", "list", "--engine_cache_dir="), 2, "empty")


def test_the_command_loads_no_tensorflow(filled):
    assert not {"tensorflow", "numpy"} & loaded_modules("cache", "list", f"--engine_cache_dir={filled.folder}")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1000", 1000),
        ("10GiB", 10 << 30),
        ("10 gib", 10 << 30),
        ("1.5kB", 1500),
        ("500MB", 500_000_000),
        ("2TiB", 2 << 40),
        ("7B", 7),
        (str(2**62 + 1), 2**62 + 1),
    ],
)
def test_sizes(text, size):
    assert _engine_cache.parse_bytes("x", text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1", "10 bananas", "1e9", "inf", "1..5", "10G"])
def test_what_is_no_size(text):
    with pytest.raises(errors.UsageError, match="--x="):
        _engine_cache.parse_bytes("x", text)
