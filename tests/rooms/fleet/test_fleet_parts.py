"""A fleet's parts that need no Ray: places, stacks, who can take a task."""

import dataclasses
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.fleets import task
from tftrt_tools.base import errors
from tftrt_tools.fleet import place, placing, session
from tftrt_tools.fleet.stack import Stack


def test_on_is_this_machine_or_a_head():
    assert place.parse("") is None
    assert place.parse("local") == place.Place("local")
    assert place.parse("ray://head:10001") == place.Place("cluster", "ray://head:10001")
    assert place.parse("ray://[::1]:10001").host_and_port() == ("::1", 10001)


@pytest.mark.parametrize("text", ["Local", "ray://head", "ray://head:0", "ray://head:99999", "http://head:1", "auto"])
def test_what_is_no_place_is_told(text):
    with pytest.raises(errors.UsageError, match="is no place") as raised:
        place.parse(text)
    assert "ray://HEAD:10001" in raised.value.mend


def test_a_worker_refuses_what_asks_for_another_stack_in_one_line():
    asked = Stack(tools="1", tensorflow="2.14.1", tensorrt="8.5.3.1", driver="535.1")
    assert not asked.refusal(asked)
    other = dataclasses.replace(asked, tensorflow="2.17.1", tensorrt="", driver="550.2")
    assert asked.refusal(other) == (
        "TensorFlow 2.17.1, not 2.14.1; TensorRT is missing, not 8.5.3.1; NVIDIA's driver 550.2, not 535.1"
    )


def test_what_the_asking_machine_lacks_is_not_asked_for():
    assert not Stack(tools="1").refusal(Stack(tools="1", driver="550.2", tensorrt="8.5.3.1"))


NODES = {
    "t4": {"GPU": 1.0, "CPU": 4.0, "accelerator_type:T4": 1.0, "node:10.0.0.1": 1.0},
    "own": {"GPU": 2.0, "CPU": 4.0, "RTX4090": 2.0, "memory": 1e9},
    "head": {"CPU": 4.0, "node:__internal_head__": 1.0, "object_store_memory": 1e9},
}


def test_kinds_of_gpu_are_rays_names_and_custom_resources():
    assert placing.gpu_types(NODES.values()) == ("RTX4090", "T4")


def test_a_kind_is_asked_for_as_the_fleet_counts_it():
    assert placing.options(task("a", "T4"), NODES, ())["resources"] == {"accelerator_type:T4": 0.001}
    assert placing.options(task("a", "RTX4090"), NODES, ())["resources"] == {"RTX4090": 0.001}


def test_a_machine_is_avoided_by_its_name():
    assert placing.options(task("a"), NODES, ("t4", "gone"))["label_selector"] == {"ray.io/node-id": "!in(t4)"}
    assert "label_selector" not in placing.options(task("a"), NODES, ())


def test_who_could_take_a_task():
    assert placing.fitting(task("a", "T4"), NODES) == ["t4"]
    assert placing.fitting(task("a"), NODES, avoided=["t4"]) == ["own"]
    assert placing.fitting(task("a", gpus=0), NODES) == ["t4", "own", "head"]
    assert placing.fitting(task("a", "H100"), NODES) == []


def test_processes_that_are_held_are_spread_over_the_machines_and_the_heads_comes_last():
    assert placing.spread(NODES, 2, {}) == ["own", "t4"]
    assert placing.spread(NODES, 3, {}) == ["own", "t4", "head"]
    assert placing.spread(NODES, 4, {}) == ["own", "t4", "head", "own"]
    assert placing.spread(NODES, 1, {"own": 1}) == ["t4"]
    assert placing.spread(NODES, 2, {}, avoided=["own"]) == ["t4", "head"]


def test_a_cluster_holds_no_more_processes_than_it_has_processors():
    assert len(placing.spread(NODES, 12, {})) == 12 and placing.spread(NODES, 13, {}) == []
    assert placing.spread(NODES, 11, {"t4": 4, "own": 1}) == [] and placing.spread({}, 1, {}) == []
    assert placing.spread({"here": {"CPU": 2.0}}, 5, {}, counted=False) == ["here"] * 5


def test_a_wrong_kind_is_told_with_the_names_that_there_are():
    error = placing.not_placeable(task("a", "H100"), NODES, "ray://head:10001")
    assert error.cause == "ray://head:10001 has no GPU of the kind H100"
    assert error.mend == "there are: RTX4090, T4"
    assert placing.not_placeable(task("a"), {"head": NODES["head"]}, "this machine").cause == "this machine has no GPU"


def test_without_ray_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(errors.NeedsExtra) as raised, session.opened(place.parse("local")):
        pass
    assert raised.value.mend == "in a checkout of tftrt-tools: pip install '.[fleet]'"


def test_help_and_the_modules_cost_no_import_of_ray():
    code = (
        "import sys; from tftrt_tools.command_line import cli; import tftrt_tools.studies.fleet_builds.building;"
        "cli.main(['build', '--help']); sys.exit('ray' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True).returncode == 0
