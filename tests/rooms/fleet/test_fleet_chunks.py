"""What travels through Ray's store in several chunks, and what goes wrong on the way: on a cluster of Ray's own test tools."""

import contextlib
import importlib.util
import os
import signal
import time

import pytest

from tests import fleets
from tests.fleets import run, task
from tftrt_tools.base import errors
from tftrt_tools.fleet import content, running, session, stack, store
from tftrt_tools.fleet.place import parse

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: the extra `fleet`"),
    pytest.mark.slow,
]
T4 = "accelerator_type:T4"
CHUNK, SIZE = 100_000, 1_000_000
REAL_PUT, REAL_TAKEN = store.put, store.taken


@pytest.fixture(scope="module")
def fleet():
    with fleets.cluster(T4, T4) as (_, address, _), session.opened(parse(address)) as opened:
        yield opened


@pytest.fixture
def packed(tmp_path):
    (tmp_path / "model").mkdir()
    for number in range(3):
        (tmp_path / "model" / str(number)).write_bytes(os.urandom(SIZE))
    return content.pack(tmp_path / "model")


def small(fleet, *tasks, **options):
    return run(fleet, *tasks, chunk_bytes=CHUNK, **options)


def made(one, target):
    return (content.unpack(one.output, target) / "made.bin").stat().st_size


@contextlib.contextmanager
def used(fleet):
    """Check that no chunk is left in Ray's store of what the block put there. Ray keeps some kB of its own."""
    before = fleet.ray.available_resources()["object_store_memory"]
    yield
    until = time.monotonic() + 60
    while (now := fleet.ray.available_resources()["object_store_memory"]) < before - CHUNK / 2:
        assert time.monotonic() < until, f"{before - now} bytes are still in the store"
        time.sleep(0.2)


def test_a_model_travels_in_chunks_and_back_and_they_are_freed(fleet, packed, monkeypatch, tmp_path):
    put = []

    def counted(*args):
        found = REAL_PUT(*args)
        put.append(len(found[2]))
        return found

    asked = [task(name, content=packed, make=SIZE) for name in "abc"]
    monkeypatch.setattr(running.store, "put", counted)
    with used(fleet):
        found = small(fleet, *asked)
        for name, one in found.items():
            assert (one.status, one.tries, one.answer["read"]) == ("done", 1, ["0", "1", "2"]), one
            assert made(one, tmp_path / name) == SIZE
    # Once for all three.
    assert put == [31]


def test_a_model_is_freed_when_no_task_needs_it_any_more(fleet, packed):
    tasks = [task("a", content=packed), task("b", wait=60)]
    with contextlib.closing(running.run(fleet, tasks, stack.here(), chunk_bytes=CHUNK)) as outcomes, used(fleet):
        assert next(outcomes).task.name == "a"


def test_a_chunk_that_another_one_replaced_is_no_model(fleet, packed, monkeypatch, tmp_path):
    def damaged(ray, *args):
        digest, name, chunks = REAL_PUT(ray, *args)
        return digest, name, [*chunks[:4], chunks[5], *chunks[5:]]

    monkeypatch.setattr(running.store, "put", damaged)
    one = small(fleet, task("a", content=packed, counted=str(tmp_path / "counted")))["a"]
    assert (one.status, one.tries, one.output) == ("died", 2, None) and not (tmp_path / "counted").exists()
    assert "what travels got lost: model did not arrive whole" in one.error.cause


def after_a_chunk(monkeypatch, does):
    """Do something the first time that the driver has taken a chunk of an output."""
    done = []

    def taken(ray, sent):
        packed = REAL_TAKEN(ray, sent)

        def pieces():
            for number, piece in enumerate(packed.pieces()):
                yield piece
                if number == 0 and not done:
                    done.append(does())

        return content.Packed(packed.digest, packed.name, pieces)

    monkeypatch.setattr(running.store, "taken", taken)


def test_an_output_that_is_damaged_on_the_way_is_made_again(fleet, monkeypatch, tmp_path):
    times = []

    def taken(ray, sent):
        times.append(sent)
        digest, name, chunks = sent
        return REAL_TAKEN(ray, (digest, name, chunks[1:] if len(times) == 1 else chunks))

    monkeypatch.setattr(running.store, "taken", taken)
    one = small(fleet, task("a", make=SIZE))["a"]
    assert (one.status, one.tries, made(one, tmp_path / "out")) == ("done", 2, SIZE)


def test_a_worker_that_is_killed_when_a_chunk_of_many_is_here_does_the_task_again(fleet, monkeypatch, tmp_path):
    began = tmp_path / "worker"
    after_a_chunk(monkeypatch, lambda: os.kill(int(began.read_text()), signal.SIGKILL))
    one = small(fleet, task("a", make=SIZE, worker=str(began)))["a"]
    assert (one.status, one.tries, made(one, tmp_path / "out")) == ("done", 2, SIZE)


def test_a_worker_killed_while_it_puts_many_chunks_does_the_task_again(fleet, tmp_path):
    one = small(fleet, task("a", make=20 * SIZE, kill_after=str(tmp_path / "once")))["a"]
    assert (one.status, one.tries, made(one, tmp_path / "out")) == ("done", 2, 20 * SIZE)


def test_a_disk_without_room_for_an_output_is_told_and_the_task_is_not_done_again(fleet, monkeypatch, tmp_path):
    def full(*_):
        raise OSError(28, os.strerror(28), str(tmp_path))

    monkeypatch.setattr(running.content, "kept", full)
    one = small(fleet, task("a", make=SIZE))["a"]
    assert (one.status, one.tries) == ("failed", 1) and one.error.cause == f"{tmp_path}: No space left on device"


def test_a_model_that_changes_while_it_is_sent_ends_the_run(fleet, packed, tmp_path):
    (tmp_path / "model" / "0").write_bytes(b"other")
    with pytest.raises(errors.TftrtError, match="model changed while it was sent"):
        list(running.run(fleet, [task("a", content=packed)], stack.here()))
