"""B5: HandleReloadConfigRequest, on copies of the models; every test leaves the first configuration behind."""

import shutil
import time

import pytest

from tests.conformance import models
from tests.conformance.address import assert_refused, predict_request, refusal, spec

AVAILABLE, END = 30, 50


@pytest.fixture
def reloading(server, shared_folder, tmp_path_factory):
    """A function (change) -> (code name, message) of a reload with the first configuration after change(config)."""
    from tensorflow_serving.apis import model_management_pb2

    def reload(change=lambda config: None, timeout=60):
        request = model_management_pb2.ReloadConfigRequest(config=models.config(shared_folder, models.LABELS))
        change(request.config)
        import grpc

        try:
            answer = server.model.HandleReloadConfigRequest(request, timeout=timeout)
        except grpc.RpcError as error:
            return error.code().name, error.details()
        return "OK" if answer.status.error_code == 0 else answer.status.error_code, answer.status.error_message

    yield reload
    assert reload() == ("OK", "")


@pytest.fixture
def new_model(shared_folder):
    """A function (name, *versions) -> base path of a new model: copies of `versions`, in the folder that the server sees."""
    made = []

    def make(name, *numbers):
        path = shared_folder / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        made.append(path)
        for number in numbers:
            shutil.copytree(shared_folder / "versions" / str(number), path / str(number))
        return path

    yield make
    for path in made:
        shutil.rmtree(path, ignore_errors=True)


def _add(config, name, path, platform="tensorflow"):
    return config.model_config_list.config.add(name=name, base_path=str(path), model_platform=platform)


def _entry(config, name):
    return next(entry for entry in config.model_config_list.config if entry.name == name)


def _keep(config, *names):
    kept = [entry for entry in config.model_config_list.config if entry.name in names]
    del config.model_config_list.config[:]
    config.model_config_list.config.extend(kept)


def _states(server, name):
    from tensorflow_serving.apis import get_model_status_pb2

    answer = server.model.GetModelStatus(get_model_status_pb2.GetModelStatusRequest(model_spec=spec(name)), timeout=30)
    return {each.version: each.state for each in answer.model_version_status}


def _available(server, name):
    return sorted(version for version, state in _states(server, name).items() if state == AVAILABLE)


def _until(condition, timeout=30):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def test_a_new_model_answers_as_soon_as_the_reload_returns(server, reloading, new_model):
    """B5: the call blocks until new model names are available."""
    path = new_model("added", 1, 2)
    assert reloading(lambda config: _add(config, "added", path)) == ("OK", "")
    assert list(server.predict("added", {"x": [1.0]}).outputs["y"].float_val) == [3.0]
    assert _states(server, "added")[2] == AVAILABLE


def test_a_model_left_out_is_unloaded_and_its_versions_end(server, reloading, new_model):
    """B5: END versions stay in the list for the life of the process."""
    path = new_model("leaving", 1)
    assert reloading(lambda config: _add(config, "leaving", path)) == ("OK", "")
    assert reloading() == ("OK", "")
    _until(lambda: _states(server, "leaving") == {1: END})
    assert_refused(
        server.prediction.Predict,
        predict_request("leaving", {"x": [1.0]}),
        "NOT_FOUND",
        "Servable not found for request: Latest(leaving)",
    )


def test_the_other_models_answer_after_a_reload(server, reloading, new_model):
    """B5."""
    path = new_model("beside", 1)
    assert reloading(lambda config: _add(config, "beside", path)) == ("OK", "")
    assert list(server.predict("half_plus_two", {"x": [1.0]}).outputs["y"].float_val) == [2.5]


def test_a_new_version_on_disk_is_served_without_a_reload_and_the_old_one_ends(server, reloading, new_model):
    """B6: the folder is polled; an availability-preserving swap with the policy latest 1."""
    path = new_model("growing", 1)
    assert reloading(lambda config: _add(config, "growing", path)) == ("OK", "")
    shutil.copytree(path.parent / "versions" / "2", path / ".partial")
    (path / ".partial").rename(path / "2")
    versions = set()
    _until(lambda: versions.add(server.predict("growing", {"x": [1.0]}).model_spec.version.value) or 2 in versions)
    _until(lambda: _states(server, "growing") == {1: END, 2: AVAILABLE})
    assert refusal(server.prediction.Predict, predict_request("growing", {"x": [1.0]}, version=1))[0] == "NOT_FOUND"


def test_a_config_that_is_no_list_of_models_is_refused(server, reloading):
    """B5."""
    from tensorflow_serving.apis import model_management_pb2

    expected = (
        "ServerModelConfig type not supported by HandleReloadConfigRequest. Only ModelConfigList is currently supported"
    )
    requests = [model_management_pb2.ReloadConfigRequest() for _ in range(2)]
    requests[1].config.custom_model_config.SetInParent()
    for request in requests:
        assert_refused(server.model.HandleReloadConfigRequest, request, "INVALID_ARGUMENT", expected)


def test_a_model_listed_twice_is_refused(reloading):
    """B5."""

    def twice(config):
        config.model_config_list.config.add().CopyFrom(_entry(config, "several"))

    assert reloading(twice) == ("INVALID_ARGUMENT", "Illegal to list model several multiple times in config list")


def test_a_relative_base_path_is_refused(reloading):
    """B5."""
    code, message = reloading(lambda config: _add(config, "relative", "some/where"))
    assert code == "INVALID_ARGUMENT"
    assert message == "Expected model relative to have an absolute path or URI; got base_path()=some/where"


def test_relative_and_absolute_base_paths_are_not_mixed_silently(server, reloading):
    """B5: nothing was loaded or unloaded by the refused request."""
    reloading(lambda config: _add(config, "relative", "some/where"))
    assert refusal(server.prediction.Predict, predict_request("relative", {"x": [1.0]}))[0] == "NOT_FOUND"
    assert list(server.predict("versions", {"x": [1.0]}, label="stable").outputs["y"].float_val) == [2.0]


def test_a_changed_platform_is_refused(reloading):
    """B5."""

    def change(config):
        _entry(config, "several").model_platform = "other"

    code, message = reloading(change)
    assert code == "INVALID_ARGUMENT"
    assert (
        message
        == "Illegal to change a model's platform. For model several platform was tensorflow and new platform requested is other"
    )


def test_an_unsupported_platform_is_refused(reloading, new_model):
    """B5."""
    path = new_model("foreign", 1)
    assert reloading(lambda config: _add(config, "foreign", path, "other")) == (
        "INVALID_ARGUMENT",
        "Model foreign requests unsupported platform other",
    )


def test_a_model_that_cannot_load_is_named_with_its_error(server, reloading, new_model):
    """B5; the state of its version is END with an error code."""
    from tensorflow_serving.apis import get_model_status_pb2

    path = new_model("broken", 1)
    (path / "1" / "saved_model.pb").write_bytes(b"\xff\xff\xff not a model")
    code, message = reloading(lambda config: _add(config, "broken", path))
    assert code == "UNKNOWN"
    assert message.startswith(
        "1 model(s) did not become available: {{{name: broken version: 1} due to error: "
    ) and message.endswith("}, }")
    status = server.model.GetModelStatus(
        get_model_status_pb2.GetModelStatusRequest(model_spec=spec("broken")), timeout=30
    )
    assert [(each.version, each.state) for each in status.model_version_status] == [(1, END)]
    assert status.model_version_status[0].status.error_code != 0 and status.model_version_status[0].status.error_message


def test_a_label_can_be_moved_to_a_loaded_version(server, reloading):
    """B5."""

    def swap(config):
        _entry(config, "versions").version_labels.update({"stable": 2, "canary": 1})

    assert reloading(swap) == ("OK", "")
    assert server.predict("versions", {"x": [1.0]}, label="stable").model_spec.version.value == 2


def test_a_label_left_out_is_unknown_afterwards(server, reloading):
    """B5."""

    def drop(config):
        del _entry(config, "versions").version_labels["canary"]

    assert reloading(drop) == ("OK", "")
    assert_refused(
        server.prediction.Predict,
        predict_request("versions", {"x": [1.0]}, label="canary"),
        "INVALID_ARGUMENT",
        "Unrecognized servable version label: canary",
    )


def test_an_existing_label_is_not_moved_to_a_version_that_is_not_loaded(server, reloading):
    """B5: always, whatever --allow_version_labels_for_unavailable_models says; and the label stays where it was."""

    def move(config):
        _entry(config, "versions").version_labels["stable"] = 3

    assert reloading(move) == (
        "FAILED_PRECONDITION",
        "Request to assign label to version 3 of model versions, which is not currently available for inference",
    )
    assert server.predict("versions", {"x": [1.0]}, label="stable").model_spec.version.value == 1


def test_labels_are_checked_before_the_sources_are_touched(server, reloading, new_model):
    """B5: a new model in the same request is not loaded."""
    path = new_model("hopeful", 1)

    def move(config):
        _entry(config, "versions").version_labels["stable"] = 3
        _add(config, "hopeful", path)

    assert reloading(move)[0] == "FAILED_PRECONDITION"
    assert refusal(server.prediction.Predict, predict_request("hopeful", {"x": [1.0]}))[0] == "NOT_FOUND"


def test_a_new_label_may_be_given_to_a_version_that_is_not_loaded_where_the_flag_allows_it(server, reloading):
    """B5: the server was started with --allow_version_labels_for_unavailable_models."""

    def assign(config):
        _entry(config, "versions").version_labels["next"] = 3

    assert reloading(assign) == ("OK", "")
    assert_refused(
        server.prediction.Predict,
        predict_request("versions", {"x": [1.0]}, label="next"),
        "NOT_FOUND",
        "Servable not found for request: Specific(versions, 3)",
    )


def test_without_the_flag_a_new_label_needs_a_loaded_version(batching):
    """B5: the server with batching was started without --allow_version_labels_for_unavailable_models."""
    from tensorflow_serving.apis import model_management_pb2

    if batching.folder is None:
        pytest.skip("needs the server's own configuration: --models")
    for labels, code in (({"next": 3}, "FAILED_PRECONDITION"), (models.LABELS, "OK"), ({}, "OK")):
        request = model_management_pb2.ReloadConfigRequest(config=models.config(batching.folder, labels))
        if code == "OK":
            assert batching.model.HandleReloadConfigRequest(request, timeout=60).status.error_code == 0
        else:
            assert_refused(
                batching.model.HandleReloadConfigRequest,
                request,
                code,
                "Request to assign label to version 3 of model versions, which is not currently available for inference",
            )


def test_the_version_policy_can_be_changed_by_a_reload(server, reloading, new_model):
    """B5, B6."""
    path = new_model("widening", 1, 2, 3)

    def add(config, *numbers):
        _add(config, "widening", path).model_version_policy.specific.versions.extend(numbers)

    assert reloading(lambda config: add(config, 1)) == ("OK", "")
    assert list(server.predict("widening", {"x": [1.0]}).outputs["y"].float_val) == [2.0]
    assert reloading(lambda config: add(config, 1, 3)) == ("OK", "")
    _until(lambda: _available(server, "widening") == [1, 3])
    assert list(server.predict("widening", {"x": [1.0]}).outputs["y"].float_val) == [4.0]
    assert reloading(lambda config: add(config, 2)) == ("OK", "")
    _until(lambda: _available(server, "widening") == [2])
    assert _states(server, "widening") == {1: END, 2: AVAILABLE, 3: END}


def test_the_answer_holds_the_same_error_as_the_status_of_the_call():
    """B5."""
    pytest.skip("cannot be seen from outside: a gRPC client gets no message beside an error status")
