"""The local server's manager: versions come and go under requests, loads fail, base paths vanish."""

import threading

import grpc
import pytest

from tests.serving_models import Loader, Shelf, answering, available, config, eventually, serving, spec, states
from tftrt_tools.servers.serving.local.failure import Failure
from tftrt_tools.servers.serving.local.manager import Manager, ManagerSettings
from tftrt_tools.servers.serving.local.states import response


@pytest.fixture
def shelf(tmp_path):
    return Shelf(tmp_path / "m")


def background(function, *args):
    """Run it in a thread. Returns: (the thread, [what it raised])."""
    raised = []

    def run():
        try:
            function(*args)
        except Failure as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, raised


def test_settings_have_the_real_servers_defaults():
    assert ManagerSettings() == ManagerSettings(
        file_system_poll_wait_seconds=1,
        num_load_threads=0,
        num_unload_threads=0,
        max_num_load_retries=5,
        load_retry_interval_micros=60_000_000,
        allow_version_labels_for_unavailable_models=False,
    )


# Which version answers


def test_the_largest_loaded_version_answers_and_the_failures_are_those_of_the_real_server(shelf):
    for version in (1, 2, 10):
        shelf.put(version)
    with serving(
        shelf.model(model_version_policy={"all": {}}, version_labels={"stable": 2}),
        allow_version_labels_for_unavailable_models=True,
    ) as manager:
        eventually(lambda: available(manager) == [1, 2, 10])
        assert answering(manager) == 10
        assert answering(manager, version=1) == 1
        assert answering(manager, label="stable") == 2
        cases = [
            (None, "INVALID_ARGUMENT: Missing ModelSpec"),
            (spec(name="", version=1), "INVALID_ARGUMENT: ModelSpec has no name specified."),
            (spec(name="other"), "NOT_FOUND: Servable not found for request: Latest(other)"),
            (spec(version=3), "NOT_FOUND: Servable not found for request: Specific(m, 3)"),
            (spec(version=0), "NOT_FOUND: Servable not found for request: Specific(m, 0)"),
            (spec(name="other", label="x"), "INVALID_ARGUMENT: Unrecognized servable version label: x"),
            (spec(label=""), "INVALID_ARGUMENT: Unrecognized servable version label: "),
        ]
        for asked, text in cases:
            with pytest.raises(Failure) as raised, manager.handle(asked):
                pass
            assert raised.value.to_text() == text


def test_status_lists_every_version_ever_seen(shelf):
    from tensorflow_serving.apis import get_model_status_pb2

    def status(**which):
        request = get_model_status_pb2.GetModelStatusRequest()
        request.model_spec.CopyFrom(spec(**which))
        return response(manager, request).model_version_status

    shelf.put(1)
    with serving(shelf.model()) as manager:
        shelf.put(2, "bad")
        eventually(lambda: states(manager).get(2) == "END")
        assert [
            (one.version, one.state, one.status.error_code, one.status.error_message)
            for one in status(label="no such label")
        ] == [(2, 50, 3, "version 2 is bad"), (1, 30, 0, "")]
        assert [one.version for one in status(version=1)] == [1]
        assert status(version=1)[0].HasField("status")
        for which, text in (
            (dict(name=""), "NOT_FOUND: Could not find any versions of model "),
            (dict(name="x"), "NOT_FOUND: Could not find any versions of model x"),
            (dict(version=7), "NOT_FOUND: Could not find version 7 of model m"),
        ):
            with pytest.raises(Failure) as raised:
                status(**which)
            assert raised.value.to_text() == text
        with pytest.raises(Failure, match="^Missing ModelSpec$"):
            response(manager, get_model_status_pb2.GetModelStatusRequest())
    assert states(manager) == {2: "END", 1: "END"}
    assert manager.status("m", 2)[0].to_dict() == {
        "version": 2,
        "state": "END",
        "error_code": "INVALID_ARGUMENT",
        "error_message": "version 2 is bad",
    }


# Swaps


@pytest.mark.parametrize("threads", [0, 2])
def test_a_hot_swap_fails_no_request_and_closes_nothing_in_use(shelf, threads):
    shelf.put(1)
    done, wrong, seen = threading.Event(), [], set()

    def ask():
        while not done.is_set():
            try:
                with manager.handle(spec()) as model:
                    seen.add(model.version)
                    if not model.open:
                        wrong.append(f"{model.version} was closed before")
                    done.wait(0.001)
                    if not model.open:
                        wrong.append(f"{model.version} was closed under a request")
            except Failure as error:
                wrong.append(error.to_text())

    with serving(shelf.model(), num_load_threads=threads, num_unload_threads=threads) as manager:
        askers = [threading.Thread(target=ask, daemon=True) for _ in range(8)]
        for thread in askers:
            thread.start()
        for version in range(2, 8):
            shelf.put(version)
            eventually(lambda version=version: version in seen and available(manager) == [version])
        # Back to a version that was there before: it is loaded anew.
        for version in range(6, 1, -1):
            shelf.drop(version)
        shelf.drop(7)
        eventually(lambda: available(manager) == [1])
        done.set()
        for thread in askers:
            thread.join()
        assert not wrong
        assert seen == set(range(1, 8))
        assert manager.loader.loads.count(("m", 1)) == 2
    assert sorted(manager.loader.closed) == sorted(manager.loader.loads)


def test_a_handle_outlives_the_unload(shelf):
    shelf.put(1)
    with serving(shelf.model()) as manager:
        with manager.handle(spec()) as old:
            shelf.put(2)
            eventually(lambda: states(manager) == {1: "UNLOADING", 2: "AVAILABLE"})
            assert answering(manager) == 2
            with (
                pytest.raises(Failure, match=r"^Servable not found for request: Specific\(m, 1\)$"),
                manager.handle(spec(version=1)),
            ):
                pass
            # Without threads for unloads the manager waits for that request with everything else.
            shelf.put(3)
            manager.poll()
            assert old.open and 3 not in states(manager)
        eventually(lambda: available(manager) == [3])
        assert not old.open and states(manager)[1] == "END"


def test_stop_leaves_what_a_request_uses_to_that_request(shelf):
    shelf.put(1)
    with serving(shelf.model()) as manager:
        handle = manager.handle(spec())
        model = handle.__enter__()
        other = manager.handle(spec())
        other.__enter__()
        manager.stop()
        assert model.open and states(manager) == {1: "UNLOADING"}
        other.__exit__(None, None, None)
        assert model.open
        handle.__exit__(None, None, None)
        assert not model.open and states(manager) == {1: "END"}
        with pytest.raises(Failure, match="Servable not found"), manager.handle(spec()):
            pass


def test_versions_that_vanish_are_unloaded_also_the_last(shelf, caplog):
    shelf.put(1)
    shelf.put(2)
    with serving(shelf.model(model_version_policy={"all": {}})) as manager:
        eventually(lambda: available(manager) == [1, 2])
        shelf.drop(2)
        eventually(lambda: states(manager) == {1: "AVAILABLE", 2: "END"})
        # An empty base path is no reason to keep the model, other than one that is away.
        shelf.drop(1)
        eventually(lambda: states(manager) == {1: "END", 2: "END"})
        assert "no versions of m under base path" in caplog.text
        shelf.put(1)
        eventually(lambda: available(manager) == [1])


def test_a_base_path_that_is_away_unloads_nothing_and_stops_discovery_for_every_model(tmp_path, caplog):
    first, second = Shelf(tmp_path / "first"), Shelf(tmp_path / "second")
    first.put(1)
    second.put(1)
    with serving(first.model("first"), second.model("second"), file_system_poll_wait_seconds=0) as manager:
        first.path.rename(tmp_path / "away")
        second.put(2)
        manager.poll()
        assert (
            f"Could not find base path {first.path} for servable first with error NOT_FOUND: {first.path} not found"
            in caplog.text
        )
        (tmp_path / "away").rename(first.path)
        assert available(manager, "first") == [1] and states(manager, "second") == {1: "AVAILABLE"}
        manager.poll()
        eventually(lambda: available(manager, "second") == [2])
        assert available(manager, "first") == [1]


def test_what_comes_and_goes_during_a_load_is_not_seen(shelf):
    shelf.put(1)
    loader = Loader()
    with serving(shelf.model(), loader=loader, file_system_poll_wait_seconds=0) as manager:
        loader.gates[2] = threading.Event()
        shelf.put(2)
        manager.poll()
        eventually(lambda: states(manager).get(2) == "LOADING")
        shelf.put(3)
        manager.poll()
        shelf.put(4)
        manager.poll()
        loader.gates[2].set()
        eventually(lambda: available(manager) == [4])
        # With loads in the manager's own thread nobody looks at 3 before 4 is there, and 2 is loaded in vain.
        eventually(lambda: states(manager) == {1: "END", 2: "END", 4: "AVAILABLE"})


def test_a_queued_load_that_is_no_longer_wanted_is_not_tried(shelf):
    shelf.put(1)
    loader = Loader()
    with serving(
        shelf.model(), loader=loader, file_system_poll_wait_seconds=0, num_load_threads=1, num_unload_threads=1
    ) as manager:
        loader.gates[2] = threading.Event()
        shelf.put(2)
        manager.poll()
        eventually(lambda: states(manager).get(2) == "LOADING")
        shelf.put(3)
        manager.poll()
        eventually(lambda: states(manager).get(3) == "START")
        shelf.put(4)
        manager.poll()
        eventually(lambda: 4 in states(manager))
        loader.gates[2].set()
        eventually(lambda: available(manager) == [4])
        # It was given to the thread, and dropped there.
        assert manager.status("m", 3)[0].failure.to_text() == "CANCELLED: Loading of servable cancelled"
        assert ("m", 3) not in loader.loads


# Loads that fail


def test_a_failed_load_leaves_the_old_version_serving(shelf):
    shelf.put(1)
    with serving(shelf.model(), max_num_load_retries=2, load_retry_interval_micros=1) as manager:
        shelf.put(2, "bad")
        eventually(lambda: states(manager).get(2) == "END")
        assert manager.loader.loads == [("m", 1)] + [("m", 2)] * 3
        assert manager.status("m", 2)[0].failure.to_text() == "INVALID_ARGUMENT: version 2 is bad"
        assert answering(manager) == 1
        # The same number again is not tried while the old version serves; the next number is.
        shelf.drop(2)
        manager.poll()
        shelf.put(2)
        manager.poll()
        manager.poll()
        shelf.put(3)
        eventually(lambda: states(manager) == {1: "END", 2: "END", 3: "AVAILABLE"})
        assert manager.loader.loads.count(("m", 2)) == 3


def test_a_retry_finds_the_mended_version(shelf):
    shelf.put(1, "bad")
    with serving(start=False, max_num_load_retries=100_000, load_retry_interval_micros=1000) as manager:
        thread, raised = background(manager.start, config(shelf.model()))
        eventually(lambda: len(manager.loader.loads) > 2)
        (shelf.path / "1" / "model").write_text("good")
        thread.join()
        assert not raised and answering(manager) == 1


@pytest.mark.parametrize("threads", [0, 1])
def test_a_newer_version_ends_the_wait_between_two_tries(shelf, threads):
    shelf.put(1)
    with serving(shelf.model(), max_num_load_retries=5, num_load_threads=threads) as manager:  # 60 s between tries
        shelf.put(2, "bad")
        eventually(lambda: ("m", 2) in manager.loader.loads)
        shelf.put(3)
        eventually(lambda: available(manager) == [3])
        assert manager.loader.loads.count(("m", 2)) == 1
        assert manager.status("m", 2)[0].failure.message == "version 2 is bad"


def test_a_load_that_is_no_longer_wanted_is_thrown_away(shelf):
    shelf.put(1)
    loader = Loader()
    with serving(shelf.model(), loader=loader, num_load_threads=1) as manager:
        loader.gates[2] = threading.Event()
        shelf.put(2)
        eventually(lambda: states(manager).get(2) == "LOADING")
        shelf.put(3)
        eventually(lambda: 3 in states(manager))
        loader.gates[2].set()
        eventually(lambda: available(manager) == [3])
        assert manager.status("m", 2)[0].failure.to_text() == "CANCELLED: Loading of servable cancelled"
        assert loader.closed.count(("m", 2)) == 1


def test_a_loader_with_a_bug_does_not_end_the_manager(shelf):
    shelf.put(1)

    class Buggy(Loader):
        def __call__(self, name, version, path):
            if version == 2:
                raise ZeroDivisionError("division by zero")
            return super().__call__(name, version, path)

    with serving(shelf.model(), loader=Buggy()) as manager:
        shelf.put(2)
        eventually(lambda: states(manager).get(2) == "END")
        assert manager.status("m", 2)[0].failure.to_text() == "UNKNOWN: ZeroDivisionError: division by zero"
        shelf.put(3)
        eventually(lambda: available(manager) == [3])


# Start and stop


def test_start_fails_with_the_real_servers_words(tmp_path):
    good, bad, empty = Shelf(tmp_path / "good"), Shelf(tmp_path / "bad"), Shelf(tmp_path / "empty")
    good.put(1)
    bad.put(1, "bad")
    with serving(start=False) as manager, pytest.raises(Failure) as raised:
        manager.start(config(good.model("good"), bad.model("bad")))
    assert raised.value.to_text() == (
        "UNKNOWN: 1 servable(s) did not become available: "
        "{{{name: bad version: 1} due to error: INVALID_ARGUMENT: version 1 is bad}, }"
    )
    with serving(start=False) as manager:
        thread, raised = background(manager.start, config(good.model("good"), empty.model("empty")))
        eventually(lambda: manager.loader.models)
        assert thread.is_alive()
        empty.put(5)
        thread.join()
        assert not raised and answering(manager, name="empty") == 5


def test_the_first_models_load_side_by_side_and_later_ones_one_after_another(tmp_path):
    shelves = {name: Shelf(tmp_path / name) for name in "abcd"}
    for shelf in shelves.values():
        shelf.put(1)
    loader = Loader()
    loader.gates[1] = threading.Event()
    with serving(start=False, loader=loader) as manager:
        thread, _ = background(manager.start, config(*(shelf.model(name) for name, shelf in shelves.items())))
        eventually(lambda: loader.loading == 4)
        loader.gates[1].set()
        thread.join()
        loader.most_loading = 0
        for shelf in shelves.values():
            shelf.put(2)
        eventually(lambda: all(available(manager, name) == [2] for name in shelves))
        assert loader.most_loading == 1


@pytest.mark.parametrize("text", ["good", "bad"])
def test_stop_ends_a_start_that_waits_and_the_threads(shelf, text):
    before = set(threading.enumerate())
    if text == "bad":
        shelf.put(1, text)
    with serving(start=False, max_num_load_retries=5) as manager:  # nothing to load, or 60 s until the next try
        thread, raised = background(manager.start, config(shelf.model()))
        if text == "bad":
            eventually(lambda: manager.loader.loads)
        manager.stop()
        thread.join()
        assert raised[0].code is grpc.StatusCode.CANCELLED
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("threads", [0, 1])
def test_stop_waits_for_a_running_load_and_throws_it_away(shelf, threads):
    shelf.put(1)
    loader = Loader()
    with serving(shelf.model(), loader=loader, num_load_threads=threads) as manager:
        loader.gates[2] = threading.Event()
        shelf.put(2)
        eventually(lambda: ("m", 2) in loader.loads)
        stopping = threading.Thread(target=manager.stop)
        stopping.start()
        eventually(lambda: manager._versions._stopping)
        assert stopping.is_alive()
        loader.gates[2].set()
        stopping.join()
        assert sorted(loader.closed) == [("m", 1), ("m", 2)]
        assert manager.status("m", 2)[0].failure.code is grpc.StatusCode.CANCELLED


def test_stop_before_start():
    manager = Manager(Loader())
    manager.stop()
    with pytest.raises(Failure) as raised:
        manager.start(config({"name": "m", "base_path": "/nowhere"}))
    assert raised.value.code is grpc.StatusCode.CANCELLED


def test_two_hundred_requests_at_once_during_polls_and_reloads(shelf):
    for version in (1, 2):
        shelf.put(version)
    wrong, asked = [], threading.Barrier(201)

    def ask(number):
        asked.wait()
        for _ in range(20):
            try:
                with manager.handle([spec(), spec(version=2), spec(label="stable")][number % 3]) as model:
                    wrong.extend([] if model.open else ["closed"])
            except Failure as error:
                wrong.append(error.to_text())

    configs = [shelf.model(model_version_policy={"all": {}}, version_labels={"stable": label}) for label in (1, 2)]
    with serving(configs[0], allow_version_labels_for_unavailable_models=True) as manager:
        eventually(lambda: available(manager) == [1, 2])
        askers = [threading.Thread(target=ask, args=(number,), daemon=True) for number in range(200)]
        for thread in askers:
            thread.start()
        asked.wait()
        for turn in range(20):
            manager.reload(config(configs[turn % 2]))
            manager.poll()
        for thread in askers:
            thread.join()
        assert not wrong
