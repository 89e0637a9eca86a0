"""A fleet's faults, on a cluster of Ray's own test tools: two kinds of counted GPUs, four machines."""

import collections
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests import fleets
from tests.command_line import processes_marked
from tests.conftest import ROOT
from tests.fleets import run, task, unlike_here
from tftrt_tools.base import errors
from tftrt_tools.fleet import content, placing, session
from tftrt_tools.fleet.place import parse

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: the extra `fleet`"),
    pytest.mark.slow,
]
T4, L4 = "accelerator_type:T4", "accelerator_type:L4"


@pytest.fixture(scope="module")
def fleet():
    with fleets.cluster(T4, T4, L4, L4) as (_, address, _), session.opened(parse(address)) as opened:
        yield opened


def test_each_task_runs_on_its_kind_and_sees_one_gpu(fleet):
    assert placing.gpu_types(fleet.resources()) == ("L4", "T4")
    nodes = fleet.nodes()
    found = run(fleet, *(task(f"{kind} {number}", kind) for kind in ("T4", "L4") for number in range(3)))
    for name, one in found.items():
        assert one.status == "done" and one.tries == 1 and one.answer["visible"] == "0", one
        assert f"accelerator_type:{name[:2]}" in nodes[one.where.node]


def test_a_task_without_gpus_sees_none(fleet):
    assert run(fleet, task("a", gpus=0))["a"].answer["visible"] == ""


def test_what_travels_arrives_and_what_was_made_comes_back(fleet, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "saved_model.pb").write_bytes(b"x")
    packed = content.pack(tmp_path / "model")
    one = run(fleet, task("a", content=packed, make=3_000_000))["a"]
    assert one.answer["read"] == ["saved_model.pb"]
    there = content.unpack(one.output, tmp_path / "out")
    assert [path.stat().st_size for path in there.iterdir()] == [3_000_000]


def test_a_task_whose_worker_is_killed_is_done_on_another_machine(fleet, tmp_path):
    tables = []
    asked = task("a", "L4", kill_worker=str(tmp_path / "once"), wait=2)
    one = run(fleet, asked, changed=tables.append)["a"]
    assert one.status == "done" and one.tries == 2
    (first,) = {row.where.node for rows in tables for row in rows if row.where and row.tries == 1}
    (second,) = {row.where.node for rows in tables for row in rows if row.where and row.tries == 2}
    assert first != second == one.where.node and L4 in fleet.nodes()[first]


def test_a_killed_child_counts_as_its_worker(fleet, tmp_path):
    one = run(fleet, task("a", kill_child=str(tmp_path / "once")))["a"]
    assert (one.status, one.tries) == ("done", 2)


def test_a_task_that_kills_each_worker_is_given_up_and_told(fleet):
    found = run(fleet, task("a", "T4", always_die=True), task("b", "T4"))
    assert found["a"].status == "died" and found["a"].tries == 2 and found["b"].status == "done"
    assert "no worker brought it to an end in 2 tries" in found["a"].error.cause


def test_a_worker_killed_while_it_sends_its_results_does_the_task_again(fleet, tmp_path):
    one = run(fleet, task("a", "T4", make=60_000_000, kill_after=str(tmp_path / "once")))["a"]
    assert one.status == "done" and one.tries == 2
    assert (content.unpack(one.output, tmp_path / "out") / "made.bin").stat().st_size == 60_000_000


def test_what_the_job_says_is_no_fault_of_the_worker(fleet):
    found = run(fleet, task("refused", refuse=True), task("aborted", abort=True))
    assert found["refused"].status == found["aborted"].status == "failed"
    assert found["refused"].tries == found["aborted"].tries == 1
    assert isinstance(found["refused"].error, errors.UsageError) and "SIGABRT" in found["aborted"].error.cause


def test_a_wrong_kind_ends_within_the_bound_with_the_names_of_the_cluster(fleet):
    found = run(fleet, task("a", "H100"), task("b", "L4"), place_seconds=1)
    assert found["a"].status == "not placeable" and found["b"].status == "done"
    assert found["a"].error.cause.endswith("has no GPU of the kind H100")
    assert found["a"].error.mend == "there are: L4, T4"


def test_a_worker_with_another_stack_refuses_before_anything_begins(fleet, tmp_path):
    marker = tmp_path / "counted"
    found = run(fleet, task("a", "T4", counted=str(marker)), task("b", gpus=0), wanted=unlike_here(tensorflow="2.99.0"))
    assert found["a"].status == found["b"].status == "refused" and not marker.exists()
    assert "not 2.99.0" in found["a"].error.cause and "\n" not in found["a"].error.cause


def test_of_200_trials_with_workers_killed_each_is_counted_once(fleet, tmp_path):
    killed = set(range(0, 200, 20))
    counted = tmp_path / "counted"
    tasks = [
        task(
            f"trial {number}",
            counted=str(counted),
            **({"kill_worker": str(tmp_path / str(number))} if number in killed else {}),
        )
        for number in range(200)
    ]
    found = run(fleet, *tasks)
    assert all(one.status == "done" for one in found.values())
    assert {name for name, one in found.items() if one.tries == 2} == {f"trial {number}" for number in killed}
    times = collections.Counter(counted.read_text().splitlines())
    assert all(times[name] == one.tries for name, one in found.items())


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


SCRIPT = """
import pathlib, sys
from tests import fleets
from tftrt_tools.base.process import signals
from tftrt_tools.fleet import place, session
signals.install()
with session.opened(place.parse("local")) as fleet:
    for one in fleets.run(fleet, *(fleets.task(str(n), "L4", **eval(sys.argv[1])) for n in range(2))).values():
        print(one.status, one.answer["visible"], flush=True)
"""


def started(request, mark, tmp_path, before=()):
    env = {**os.environ, **fleets.COUNTED, "TFTRT_TEST_MARK": mark, "TMPDIR": str(tmp_path)}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), env.get("PYTHONPATH")]))
    return subprocess.Popen(
        [*before, sys.executable, "-c", SCRIPT, repr(request)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )


def left(mark):
    for _ in range(100):
        if not (found := processes_marked(mark)):
            return []
        time.sleep(0.1)
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_no_process_and_no_file(number, tmp_path):
    began, folder = tmp_path / "began", tmp_path / "tmp"
    folder.mkdir()
    one = started({"sleep": 600, "began": str(began)}, f"fleet-{number}-{os.getpid()}", folder)
    while not began.exists():
        assert one.poll() is None, one.communicate()
        time.sleep(0.1)
    one.send_signal(number)
    one.communicate(timeout=120)
    assert one.returncode and not left(f"fleet-{number}-{os.getpid()}")
    assert not list(folder.iterdir())


def test_an_interrupt_while_ray_starts_leaves_nothing_either(tmp_path):
    mark = f"starting-{os.getpid()}"
    one = started({}, mark, tmp_path)
    # Its first process is there, and more are to come.
    while len(processes_marked(mark)) < 2:
        assert one.poll() is None, one.communicate()
        time.sleep(0.05)
    one.send_signal(signal.SIGINT)
    out, _ = one.communicate(timeout=120)
    assert one.returncode and not out and not left(mark) and not list(tmp_path.iterdir())


def test_two_fleets_on_one_machine_do_not_meet(tmp_path):
    both = [started({}, f"two-{name}-{os.getpid()}", tmp_path) for name in "ab"]
    for one in both:
        out, err = one.communicate(timeout=240)
        # Nothing of Ray's own on stdout, where a result goes.
        assert sorted(out.splitlines()) == ["done 0", "done 1"], (out, err)


def test_a_local_fleet_listens_on_the_loopback_alone_and_leaves_nothing_at_home(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    began, mark = tmp_path / "began", f"loop-{os.getpid()}"
    one = started({"sleep": 2, "began": str(began)}, mark, tmp_path)
    while not began.exists():
        assert one.poll() is None, one.communicate()
        time.sleep(0.1)
    heard = listening(mark)
    out, err = one.communicate(timeout=120)
    assert one.returncode == 0, err
    assert heard and all(address.endswith("0100007F") for address in heard), heard
    assert not list(home.rglob("*token*"))


def listening(mark):
    """The addresses, in the kernel's hexadecimal, at which the processes of a mark listen."""
    inodes = set()
    for number in processes_marked(mark):
        for link in pathlib.Path(f"/proc/{number}/fd").glob("*"):
            try:
                inodes.add(os.readlink(link))
            except OSError:
                continue
    lines = [line.split() for name in ("tcp", "tcp6") for line in open(f"/proc/net/{name}").readlines()[1:]]
    return {line[1].partition(":")[0] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in inodes}


def test_a_small_dev_shm_is_enough(tmp_path):
    inside = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"', "-"]
    if os.getuid() or subprocess.run([*inside, "true"], capture_output=True).returncode:
        pytest.skip("only root makes /dev/shm small")
    one = started({"make": 150_000_000}, f"shm-{os.getpid()}", tmp_path, before=inside)
    out, err = one.communicate(timeout=240)
    assert sorted(out.splitlines()) == ["done 0", "done 1"], err
