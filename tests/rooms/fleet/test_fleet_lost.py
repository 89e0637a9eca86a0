"""A fleet that loses a machine, a disk or its head: each test has a cluster of its own, and a process has one client of Ray at a time."""

import importlib.util
import itertools
import os
import subprocess
import threading
import time

import pytest

from tests import fleet_jobs, fleets
from tests.fleets import run, task
from tftrt_tools.base import errors
from tftrt_tools.fleet import content, holding, running, session, stack, store, worker
from tftrt_tools.fleet.place import parse

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: the extra `fleet`"),
    pytest.mark.slow,
]
T4 = "accelerator_type:T4"


def test_a_machine_that_goes_in_a_task_is_another_machines_turn(tmp_path):
    began = tmp_path / "began"
    with fleets.cluster(T4, T4) as (cluster, address, nodes), session.opened(parse(address)) as fleet:
        victim = nodes[0]

        def remove():
            while not began.exists():
                time.sleep(0.1)
            cluster.remove_node(victim, allow_graceful=False)

        # Both machines are held, and the first of them goes.
        taken = task("first", "T4", sleep=5, began=str(began)), task("second", "T4", sleep=5, began=str(tmp_path / "2"))
        thread = threading.Thread(target=remove)
        thread.start()
        found = run(fleet, *taken)
        thread.join()
        assert all(one.status == "done" for one in found.values())
        assert sorted(one.tries for one in found.values()) == [1, 2]
        assert victim.node_id not in {one.where.node for one in found.values()}


def test_a_machine_that_goes_while_it_sends_is_another_machines_turn(monkeypatch, tmp_path):
    taken = store.taken
    with fleets.cluster(T4, T4) as (cluster, address, nodes), session.opened(parse(address)) as fleet:
        rows, gone = [], []

        def going(ray, sent):
            packed = taken(ray, sent)

            def pieces():
                for piece in packed.pieces():
                    yield piece
                    if not gone:
                        (where,) = {row.where.node for table in rows for row in table if row.where}
                        gone.append(next(one for one in nodes if one.node_id == where))
                        cluster.remove_node(gone[0], allow_graceful=False)

            return content.Packed(packed.digest, packed.name, pieces)

        monkeypatch.setattr(running.store, "taken", going)
        one = run(fleet, task("a", "T4", make=20_000_000, wait=2), changed=rows.append, chunk_bytes=100_000)["a"]
        assert (one.status, one.tries) == ("done", 2) and one.where.node != gone[0].node_id
        assert (content.unpack(one.output, tmp_path / "out") / "made.bin").stat().st_size == 20_000_000


def test_a_machine_that_goes_loses_the_process_that_is_held_there_and_no_other():
    with fleets.cluster(T4, T4) as (cluster, address, nodes), session.opened(parse(address)) as fleet:
        with holding.held(fleet, fleet_jobs.kept, 3, stack.Stack()) as posts:
            lost = next(number for number, post in enumerate(posts.posts) if post.where.node == nodes[0].node_id)
            cluster.remove_node(nodes[0], allow_graceful=False)
            # The process may outlive its machine's Ray for a moment.
            answers = (time.sleep(0.1) or posts.ask([{}] * 3) for _ in range(300))
            told = list(itertools.takewhile(lambda said: not isinstance(said[lost], holding.Lost), answers))
            said = posts.ask([{}] * 3)
            assert isinstance(said[lost], holding.Lost) and "is gone" in said[lost].cause
            others = [one.facts["calls"] for number, one in enumerate(said) if number != lost]
            assert others == [len(told) + 2] * 2


def test_a_machine_whose_gpu_only_ray_counts_refuses_what_needs_one():
    with fleets.cluster(T4, env={0: {worker.COUNTED: ""}}) as (_, address, _), session.opened(parse(address)) as fleet:
        found = run(fleet, task("a", "T4"), task("b", gpus=0))
    assert found["a"].status == "refused" and "no GPU that NVIDIA's driver finds" in found["a"].error.cause
    assert found["b"].status == "done"


def test_a_head_that_goes_ends_what_is_held_with_one_line():
    with fleets.cluster(T4) as (cluster, address, _), session.opened(parse(address)) as fleet:
        with pytest.raises(errors.TftrtError, match="does not answer any more"):
            with holding.held(fleet, fleet_jobs.kept, 2, stack.Stack()) as posts:
                assert len(posts.ask([{}, {}])) == 2
                head = cluster.head_node
                for kind in ("ray_client_server", "gcs_server", "raylet"):
                    for one in head.all_processes[kind]:
                        one.process.kill()
                posts.ask([{}, {}])


def test_a_head_that_goes_ends_the_run_with_one_line(tmp_path):
    began = tmp_path / "began"
    with fleets.cluster(T4) as (cluster, address, _), session.opened(parse(address)) as fleet:

        def kill():
            while not began.exists():
                time.sleep(0.1)
            head = cluster.head_node
            for kind in ("ray_client_server", "gcs_server", "raylet"):
                for one in head.all_processes[kind]:
                    one.process.kill()

        thread = threading.Thread(target=kill)
        thread.start()
        with pytest.raises(errors.TftrtError, match="does not answer any more"):
            run(fleet, task("a", "T4", sleep=120, began=str(began)))
        thread.join()


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MB."""
    (tmp_path / "disk").mkdir()
    made = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path / "disk")]
    if os.getuid() or subprocess.run(made, capture_output=True).returncode:
        pytest.skip("only root mounts a small file system")
    yield tmp_path / "disk"
    subprocess.run(["umount", "-l", str(tmp_path / "disk")], check=True)


def test_a_full_disk_on_one_machine_is_another_machines_turn(small_disk, tmp_path):
    (tmp_path / "model").write_bytes(os.urandom(2_000_000))
    packed = content.pack(tmp_path / "model")
    with (
        fleets.cluster(T4, T4, env={0: {"TMPDIR": str(small_disk)}}) as (_, address, nodes),
        session.opened(parse(address)) as fleet,
    ):
        found = run(fleet, *(task(f"{number}", "T4", content=packed) for number in range(4)))
        assert all(one.status == "done" for one in found.values())
        assert {one.where.node for one in found.values()} == {nodes[1].node_id}
        assert max(one.tries for one in found.values()) == 2
    with (
        fleets.cluster(T4, env={0: {"TMPDIR": str(small_disk)}}) as (_, address, _),
        session.opened(parse(address)) as fleet,
    ):
        one = run(fleet, task("a", "T4", content=packed))["a"]
        assert one.status == "died" and "No space left on device" in one.error.cause
