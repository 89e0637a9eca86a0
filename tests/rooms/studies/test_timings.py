"""TensorRT's timing cache: in TF-TRT's memory, and on disk."""

import os
import subprocess
import sys

import pytest

from tftrt_tools.base import tf_private
from tftrt_tools.models.engine_cache import timings
from tftrt_tools.models.engine_cache.store import Store
from tftrt_tools.tftrt.conversion.job import timing_cache

CONDITIONS = {"gpu": "ab12", "tensorrt": "8.5.3"}


@pytest.fixture
def kept(tmp_path):
    return timings.Timings(tmp_path / "cache", CONDITIONS)


def test_what_is_written_is_read(kept):
    assert kept.read() == b""
    assert kept.write(b"times") and kept.read() == b"times"
    assert kept.write(b"more times") and kept.read() == b"more times"


def test_another_gpu_or_library_has_times_of_its_own(kept):
    kept.write(b"times")
    for other in ({"gpu": "cd34"}, {"tensorrt": "8.6.1"}):
        assert timings.Timings(kept.folder, {**CONDITIONS, **other}).read() == b""


@pytest.mark.parametrize(
    "damage", [lambda raw: raw[:-1], lambda raw: raw[:10], lambda raw: b"", lambda raw: raw[:40] + b"?" + raw[41:]]
)
def test_what_is_damaged_is_nothing(damage, kept):
    kept.write(b"times of many kernels")
    kept.path.write_bytes(damage(kept.path.read_bytes()))
    assert kept.read() == b""


def test_what_cannot_be_kept_is_no_error(kept, tmp_path):
    assert not kept.write(b"") and not kept.write(bytes(timings.MAX_BYTES + 1))
    (tmp_path / "file").write_text("")
    assert not timings.Timings(tmp_path / "file", CONDITIONS).write(b"times")
    assert not timings.Timings(None, CONDITIONS).write(b"times") and timings.Timings(None, CONDITIONS).read() == b""


_DYING = """
import os, pathlib, sys
from tftrt_tools.models.engine_cache import timings
from tftrt_tools.models.engine_cache.store import Store
kept = timings.Timings(pathlib.Path(sys.argv[1]), {conditions})
timings.TRIAL_SECONDS = float(sys.argv[2])
with kept.trial():
    if kept.read() != b"times":  # a living process tries it: nobody drops it
        sys.exit(7)
    import time
    time.sleep(float(sys.argv[3]))
    os.abort()
"""


def aborted(kept, trial, after):
    code = _DYING.format(conditions=CONDITIONS)
    done = subprocess.run(
        [sys.executable, "-c", code, str(kept.folder), str(trial), str(after)],
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == -6


def test_a_cache_that_ended_a_process_at_once_is_dropped(kept):
    kept.write(b"times")
    aborted(kept, 60, 0)
    assert kept.read() == b"" and list(kept.path.parent.iterdir()) == []


def test_a_process_that_ended_later_drops_nothing(kept):
    kept.write(b"times")
    aborted(kept, 0.01, 1)
    assert kept.read() == b"times"


def test_a_build_that_fails_or_ends_drops_nothing(kept):
    kept.write(b"times")
    with kept.trial():
        pass
    with pytest.raises(ZeroDivisionError), kept.trial():
        raise ZeroDivisionError
    assert kept.read() == b"times" and list(kept.path.parent.iterdir()) == [kept.path]


def test_clearing_takes_all_of_it(kept):
    kept.write(b"times")
    size = kept.path.stat().st_size
    assert timings.clear(kept.folder) == size and kept.read() == b"" and timings.clear(kept.folder) == 0


def test_tftrt_gives_back_what_was_put_into_its_registry():
    registry = tf_private.TimingCache()
    before = registry.read()
    for content in (b"times", bytes(range(256)) * 1000, b"short"):
        registry.write(content)
        assert tf_private.TimingCache().read() == content
    registry.write(before)


def test_around_a_build_the_disk_is_read_and_written(kept):
    registry = tf_private.TimingCache()
    before = registry.read()
    kept.write(b"of an earlier process")
    with timing_cache.TimingCache(registry, kept).shared():
        assert registry.read() == b"of an earlier process"
        registry.write(b"of both")
    assert kept.read() == b"of both"
    with pytest.raises(ZeroDivisionError), timing_cache.TimingCache(registry, kept).shared():
        registry.write(b"of a build that failed")
        raise ZeroDivisionError
    assert kept.read() == b"of both"
    registry.write(before)


@pytest.mark.parametrize(
    ("switch", "size", "gpu", "carried"),
    [
        (None, 1 << 20, "GPU-1", True),
        ("1", 1 << 20, "GPU-1", True),
        ("0", 1 << 20, "GPU-1", False),
        (None, 0, "GPU-1", False),
        (None, 1 << 20, "", False),
    ],
)
def test_times_are_carried_unless_something_speaks_against_it(switch, size, gpu, carried, tmp_path, monkeypatch):
    monkeypatch.delenv(timings.SWITCH, raising=False)
    if switch:
        monkeypatch.setenv(timings.SWITCH, switch)
    of = (Store(tmp_path / "cache", size), {"tensorrt": "8.5.3"}, {"name": "a GPU"}, gpu)
    registry = tf_private.TimingCache()
    before = registry.read()
    with timing_cache.TimingCache.of(*of).shared():
        registry.write(b"times of this build")
    registry.write(before)
    assert len(list((tmp_path / "cache").glob(".timings/*"))) == carried


def test_another_tensorflow_is_left_alone(monkeypatch):
    monkeypatch.setattr(tf_private.tf, "__version__", "2.99.0")
    with pytest.raises(RuntimeError):
        tf_private.TimingCache()


def test_machine_code_of_another_form_is_left_alone(monkeypatch):
    monkeypatch.setattr(tf_private, "_LOOK_UP_CALLS", (b"\xff\x90\x68\x01\x00\x00",))
    with pytest.raises(RuntimeError):
        tf_private.TimingCache()
