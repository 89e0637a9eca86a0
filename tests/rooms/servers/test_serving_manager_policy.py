"""Which versions are wanted, and that a model never goes away while it is replaced."""

import tempfile
import threading
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow_serving.config import file_system_storage_path_source_pb2

from tests.serving_models import Loader, Model, Shelf, available, eventually, serving, spec
from tftrt_tools.servers.serving import version_directories
from tftrt_tools.servers.serving.local.failure import Failure
from tftrt_tools.servers.serving.local.policies import Phase, Policy, next_action

POLICIES = [{"latest": {}}, {"latest": {"num_versions": 2}}, {"all": {}}, {"specific": {"versions": [2, 3]}}]


def policy(fields):
    return Policy.of(
        file_system_storage_path_source_pb2.FileSystemStoragePathSourceConfig.ServableVersionPolicy(**fields)
    )


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, [9]),
        ({"latest": {}}, [9]),
        ({"latest": {"num_versions": 2}}, [3, 9]),
        ({"latest": {"num_versions": 50}}, [1, 3, 9]),
        ({"all": {}}, [1, 3, 9]),
        ({"specific": {"versions": [3, 4]}}, [3]),
        ({"specific": {"versions": [4]}}, []),
        ({"specific": {}}, []),
    ],
)
def test_wanted_versions(fields, wanted, caplog):
    assert sorted(policy(fields).choose("m", ["1", "9", "3", "latest", ".stage-4", "assets.extra", "1.5"])) == wanted
    assert ("version 4 of m, a specific version of its policy, is not in the file system" in caplog.text) == (
        4 in fields.get("specific", {}).get("versions", [])
    )


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("1", 1),
        ("007", 7),
        ("0", 0),
        ("-3", -3),
        (" 5 ", 5),
        ("1700000000", 1_700_000_000),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", None),
        ("+1", None),
        ("1_0", None),
        ("1a", None),
        ("", None),
        ("- 1", None),
        ("\u0661", None),
        ("1.0", None),
    ],
)
def test_which_names_are_versions(name, number):
    assert version_directories.parse(name) == number


def test_two_spellings_of_one_version(caplog):
    assert policy({"latest": {}}).choose("m", ["1", "001"]) == {1: "1"}
    assert "version 1 of m is there twice: 1 is taken, 001 is not" in caplog.text
    assert policy({"all": {}}).choose("m", ["1", "001"]) == {1: "001"}


R, N, L, E = Phase.READY, Phase.NEW, Phase.LOADING, Phase.ENDED


@pytest.mark.parametrize(
    ("versions", "action"),
    [
        ([], None),
        ([(1, R, True)], None),
        ([(1, N, True), (3, N, True), (2, N, True)], ("load", 3)),
        ([(1, R, False), (2, N, True)], ("load", 2)),
        ([(1, R, False), (2, L, True)], None),
        ([(1, R, False), (2, R, True)], ("unload", 1)),
        ([(1, R, False), (2, E, True)], None),
        ([(1, R, False)], ("unload", 1)),
        ([(2, R, False), (1, R, False)], ("unload", 1)),
        ([(1, R, False), (2, R, False), (3, N, True)], ("unload", 1)),
        ([(5, R, False), (3, N, True)], ("load", 3)),
        ([(1, R, True), (2, R, False), (3, N, True)], ("unload", 2)),
        ([(1, N, False)], None),
    ],
)
def test_next_action(versions, action):
    """versions: (number, phase, wanted)."""
    found = next_action(
        [types.SimpleNamespace(number=number, phase=phase, wanted=wanted) for number, phase, wanted in versions]
    )
    assert (found and (found[0], found[1].number)) == action


class Watched(Loader):
    """Loads never fail, whatever became of the directory. wrong: what was not as it should be when requests looked."""

    def __init__(self):
        super().__init__()
        self.wrong = []
        self.manager = None

    def look(self, moment):
        if self.manager is None:
            return
        try:
            with self.manager.handle(spec()) as model:
                if not model.open:
                    self.wrong.append(f"{moment}: {model.version} is closed")
        except Failure as error:
            self.wrong.append(f"{moment}: {error}")

    def __call__(self, name, version, path):
        self.look(f"before the load of {version}")
        self.loads.append((name, version))
        self.models.append(Closing(self, name, version))
        return self.models[-1]


class Closing(Model):
    def close(self):
        self.loader.look(f"before {self.version} is closed")
        super().close()
        self.loader.look(f"after {self.version} was closed")


@settings(max_examples=200, deadline=None)
@given(
    fields=st.sampled_from(POLICIES),
    threads=st.sampled_from([0, 2]),
    steps=st.lists(st.tuples(st.sets(st.integers(1, 4), min_size=1), st.booleans()), min_size=1, max_size=6),
)
def test_a_version_is_available_at_every_moment_and_the_policys_choice_in_the_end(fields, threads, steps):
    """Steps: directory states one after another, and whether the manager may come to rest before the next."""
    steps = [(wanted, rest) for wanted, rest in steps if policy(fields).choose("m", map(str, wanted))] or [({2}, True)]
    loader, done = Watched(), threading.Event()
    with tempfile.TemporaryDirectory() as folder:
        shelf, there = Shelf(f"{folder}/m"), set()

        def become(wanted):
            for version in there - wanted:
                shelf.drop(version)
            for version in wanted - there:
                shelf.put(version)
            there.clear()
            there.update(wanted)

        def ask():
            while not done.wait(0.0005):
                loader.look("meanwhile")

        become(steps[0][0])
        with serving(
            shelf.model(model_version_policy=fields),
            loader=loader,
            file_system_poll_wait_seconds=0,
            num_load_threads=threads,
            num_unload_threads=threads,
        ) as manager:
            loader.manager = manager
            asker = threading.Thread(target=ask)
            asker.start()
            for wanted, rest in steps:
                become(wanted)
                manager.poll()
                choice = sorted(policy(fields).choose("m", map(str, wanted)))
                if rest:
                    eventually(lambda choice=choice: available(manager) == choice)
            try:
                eventually(lambda: available(manager) == choice)
            finally:
                loader.manager = None
                done.set()
                asker.join()
            assert not loader.wrong
        assert sorted(loader.closed) == sorted(loader.loads)
