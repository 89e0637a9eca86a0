"""A fleet's faults, on a cluster of Ray's own test tools: two kinds of counted GPUs, four machines."""

import collections
import importlib.util
import subprocess
import sys

import pytest

from tests import fleets
from tests.conftest import ROOT
from tests.fleets import run, task, unlike_here
from tftrt_tools.base import errors
from tftrt_tools.base.process import environment, progress
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
    assert placing.gpu_types(fleet.nodes().values()) == ("L4", "T4")
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
    notes = []
    with progress.notes_to(notes.append):
        found = run(fleet, task("a", "H100"), task("b", "L4"), place_seconds=1)
    (note,) = notes
    assert note.startswith("a waits up to 1 s: ray://") and note.endswith("no GPU of the kind H100; there are: L4, T4")
    assert found["a"].status == "not placeable" and found["b"].status == "done"
    assert found["a"].error.cause.endswith("has no GPU of the kind H100")
    assert found["a"].error.mend == "there are: L4, T4"


def test_a_worker_with_another_stack_refuses_before_anything_begins(fleet, tmp_path):
    marker = tmp_path / "counted"
    found = run(fleet, task("a", "T4", counted=str(marker)), task("b", gpus=0), wanted=unlike_here(tensorflow="2.99.0"))
    assert found["a"].status == found["b"].status == "refused" and not marker.exists()
    assert "not 2.99.0" in found["a"].error.cause and "\n" not in found["a"].error.cause


def test_a_token_that_is_none_of_the_head_is_told(fleet):
    with environment.variables({"RAY_AUTH_TOKEN": "0" * 64}):
        code = f"""
from tftrt_tools.fleet import place, session
try:
    with session.opened(place.parse({fleet.place.address!r})):
        print("in")
except Exception as error:
    print(error.cause, "|", error.mend)
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert "does not let this machine in" in done.stdout and "auth_token" in done.stdout, done.stdout + done.stderr
    assert "UserWarning" not in done.stderr


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
