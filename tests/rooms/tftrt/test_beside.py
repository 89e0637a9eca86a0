"""Engines that other processes build beside the conversion (`tftrt convert --on=local`). TensorRT's part needs GPUs (tests/gpu/test_gpu_fleet.py);
here a stand-in builds."""

import os
import threading
import time

import pytest

from tests import beside_jobs
from tests.command_line import assert_clear
from tests.engine_models import Steps, saved
from tests.refusals import GPU, VERSIONS, Builds
from tests.rooms.tftrt.test_engines import build
from tftrt_tools.base import tf_private
from tftrt_tools.base.stack import local_gpus
from tftrt_tools.models.engine_cache.key import Fed
from tftrt_tools.models.engine_cache.store import Place, Store
from tftrt_tools.models.savedmodel import engine_assets
from tftrt_tools.tftrt.conversion.job import beside, beside_job, engines

CALLS = [{"x": (1, 8)}, {"x": (4, 8)}]


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    return saved(Steps(), tmp_path_factory.mktemp("steps") / "model")


@pytest.fixture
def builds(monkeypatch):
    stand_in = Builds([], set(), threading.Event())
    monkeypatch.setattr(engines, "compile_engines", stand_in.compile)
    monkeypatch.setattr(tf_private, "serialize_engines", stand_in.serialize)
    monkeypatch.setattr(beside, "build", beside_jobs.build)
    yield stand_in
    stand_in.go_on.set()


def helped(monkeypatch, *what):
    monkeypatch.setenv(beside.VARIABLE, ",".join(what))


def files(folder):
    """{engine: what wrote it}."""
    return {
        path.name.removeprefix(engine_assets.PREFIX): path.read_bytes()
        for path in folder.iterdir()
        if path.name.startswith(engine_assets.PREFIX)
    }


def wait_for(happens):
    for _ in range(600):
        if happens():
            return
        time.sleep(0.05)
    raise AssertionError("it did not happen")


def let_go_when(builds, happens):
    threading.Thread(target=lambda: (wait_for(happens), builds.go_on.set())).start()


def test_a_helper_builds_from_the_end_and_the_result_is_in_the_models_order(steps, builds, tmp_path, monkeypatch):
    helped(monkeypatch, "quick")
    folder, store = tmp_path / "files", Store(tmp_path / "cache")
    builds.held = {0}
    let_go_when(builds, lambda: folder.is_dir() and len(files(folder)) == 2)
    result, resources, _, _ = build(steps, CALLS, folder, store)
    names = [engine.name for engine in result.engines]
    assert [one.name for one in result.built] == names == list(resources) and not result.unbuilt
    assert [name for name, _ in builds.compiled] == names[:1]
    found = files(folder)
    assert [b"beside " + name.encode() in found[name] for name in names] == [False, True, True]
    assert [one.seconds for one in result.built[1:]] == [1.5, 1.5] and result.built[1].peak_memory_bytes == 7
    # All are in the cache; nobody is asked.
    helped(monkeypatch, "dies")
    again, _, _, _ = build(steps, CALLS, tmp_path / "again", store)
    assert [one.cached for one in again.built] == [True] * 3 and len(builds.compiled) == 1


@pytest.mark.parametrize("what", [("dies",), ("cannot",), ("dies", "cannot", "dies")])
def test_a_helper_in_trouble_costs_nothing(what, steps, builds, tmp_path, monkeypatch):
    helped(monkeypatch, *what)
    result, _, _, _ = build(steps, CALLS, tmp_path / "files", Store(tmp_path / "cache"))
    assert len(result.built) == 3 == len(builds.compiled) and not result.unbuilt


def test_what_is_refused_beside_is_tried_here(steps, builds, tmp_path, monkeypatch):
    """The other GPU may have been full, which TensorRT calls a refusal."""
    helped(monkeypatch, "refuses")
    builds.held = {0}
    helpers = []
    monkeypatch.setattr(beside.Helpers, "__init__", recorded(beside.Helpers.__init__, helpers))
    let_go_when(builds, lambda: helpers and len(ended(helpers[0])) == 2)
    result, _, _, _ = build(steps, CALLS, tmp_path / "files")
    assert len(result.built) == 3 == len(builds.compiled) and not result.unbuilt


def test_with_more_helpers_than_engines_this_process_builds_too(steps, builds, tmp_path, monkeypatch):
    helped(monkeypatch, *["quick"] * 7)
    builds.held = {0}
    folder = tmp_path / "files"
    let_go_when(builds, lambda: folder.is_dir() and len(files(folder)) == 2)
    result, _, _, _ = build(steps, CALLS, folder)
    assert len(result.built) == 3 and [name for name, _ in builds.compiled] == [result.engines[0].name]


def recorded(function, calls):
    def call(self, *args):
        calls.append(self)
        function(self, *args)

    return call


def ended(helpers):
    return [one for one in list(helpers._begun.values()) if one.done()]


def test_a_helper_ends_with_the_time_of_the_builds(steps, builds, tmp_path, monkeypatch):
    helped(monkeypatch, "hangs")
    folder = tmp_path / "files"
    builds.held = {0}
    let_go_when(builds, lambda: (folder / "begun").exists())
    result, _, _, _ = build(steps, CALLS, folder, minutes=0.15)
    assert len(result.built) == 2 and [one.reason for one in result.unbuilt] == [
        "not ready when --max_build_minutes=0.15 were over"
    ]
    process = int((folder / "begun").read_text())
    wait_for(lambda: not os.path.exists(f"/proc/{process}/fd"))
    # The thread that waited for it does not begin anew.
    time.sleep(0.3)
    assert len(builds.compiled) == 2


def test_a_real_helper_without_that_gpu_leaves_the_engine_to_the_conversion(steps, builds, tmp_path, monkeypatch):
    monkeypatch.undo()
    stand_in = Builds([], {0}, threading.Event())
    monkeypatch.setattr(engines, "compile_engines", stand_in.compile)
    monkeypatch.setattr(tf_private, "serialize_engines", stand_in.serialize)
    helpers = []
    monkeypatch.setattr(beside.Helpers, "__init__", recorded(beside.Helpers.__init__, helpers))
    helped(monkeypatch, "-1")
    let_go_when(stand_in, lambda: helpers and len(ended(helpers[0])) == 2)
    result, _, _, _ = build(steps, CALLS, tmp_path / "files")
    assert len(result.built) == 3 == len(stand_in.compiled)
    assert {one.exception().cause for one in ended(helpers[0])} == {"a helper has no GPU, not a GPU"}


def test_the_job_of_a_helper_builds_what_it_was_sent(steps, builds, tmp_path, monkeypatch):
    monkeypatch.setattr(beside_job.gpu_module, "seen", lambda: GPU)
    sent = []

    def call(self, started, lone, asked):
        path = tmp_path / "graph"
        path.write_bytes(lone.graph_def.SerializeToString())
        request = beside.Request(graph=str(path), node=lone.node, inputs=lone.inputs, asked=asked)
        sent.append(beside.Request.from_dict(request.to_dict()))
        return beside_job.job(sent[-1])

    monkeypatch.setattr(beside.Helpers, "_call", call)
    helped(monkeypatch, "1")
    builds.held = {0}
    folder = tmp_path / "files"
    let_go_when(builds, lambda: len(sent) + len(builds.compiled) > 3)
    result, _, _, _ = build(steps, CALLS, folder, Store(tmp_path / "cache"))
    assert len(result.built) == 3 and sent
    asked = sent[0].asked
    assert asked.feeds == ((Fed((1, 8)),), (Fed((4, 8)),)) and asked.versions == VERSIONS and asked.gpu == GPU
    assert asked.cache == Place(folder=str(tmp_path / "cache"), max_bytes=asked.cache.max_bytes)
    assert dict(builds.compiled)[sent[0].node] == [([1, 8],), ([4, 8],)]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["H100", "H100"], ("GPU-0", "GPU-1")),
        (["H100", "T4", "H100"], ("GPU-0", "GPU-2")),
        (["T4", "H100", "H100"], ("GPU-0",)),
        ([], ()),
    ],
)
def test_the_gpus_that_are_used_are_of_the_first_ones_kind(names, expected):
    states = [
        {"index": index, "name": name, "uuid": f"GPU-{index}", "compute_capability": "9.0", "memory_mib": 80000}
        for index, name in enumerate(names)
    ]
    assert local_gpus.chosen(states) == expected


def test_two_of_one_name_and_other_memory_are_two_kinds_and_one_without_a_uuid_is_none():
    first = {"name": "H100", "uuid": "GPU-0", "compute_capability": "9.0", "memory_mib": 81559}
    assert local_gpus.chosen([first, {**first, "uuid": "GPU-1", "memory_mib": 95830}]) == ("GPU-0",)
    assert local_gpus.chosen([{**first, "uuid": ""}]) == ()


def test_a_plan_is_refused(zoo_model, tftrt, tmp_path):
    model, made = zoo_model("digits_cnn"), f"--output={tmp_path / 'made'}"
    shapes = "--shapes=image:1x8x8x1"
    for flags, says in (
        (["--on=local", "--backend=tensorrt", shapes], "--on has no effect with --backend=tensorrt"),
        (["--on=local"], "--on builds engines side by side, and nothing is built without --shapes"),
    ):
        assert_clear(tftrt("convert", model, made, *flags), 2, says)
    assert not (tmp_path / "made").exists()


def test_what_helpers_made_in_time_counts_where_this_process_is_late(steps, builds, monkeypatch, tmp_path):
    """Without an engine cache nothing else would keep it."""
    helped(monkeypatch, "quick", "quick")
    builds.held = {0}
    result, resources, _, _ = build(steps, CALLS, tmp_path / "files", minutes=0.15)
    first, *others = (engine.name for engine in result.engines)
    assert [one.name for one in result.built] == list(resources) == others
    assert [one.name for one in result.unbuilt] == [first]


def test_no_helper_copies_what_the_cache_has_while_the_clock_runs(steps, builds, monkeypatch, tmp_path):
    store, get = Store(tmp_path / "cache"), Store.get
    build(steps, CALLS, tmp_path / "one", store)
    helped(monkeypatch, "quick", "quick")
    monkeypatch.setattr(Store, "get", lambda *given: time.sleep(0.2) or get(*given))
    again, _, _, _ = build(steps, CALLS, tmp_path / "two", store, minutes=0.1 / 60)
    assert [one.cached for one in again.built] == [True] * 3 and not again.unbuilt
