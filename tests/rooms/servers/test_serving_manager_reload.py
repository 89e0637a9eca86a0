"""HandleReloadConfigRequest in the local server: what it refuses, what it waits for, and labels."""

import threading

import pytest
from tensorflow_serving.apis import model_management_pb2
from tensorflow_serving.config import model_server_config_pb2

from tests.serving_models import Loader, Shelf, answering, available, config, eventually, serving, states
from tftrt_tools.servers.serving.local import config_checks
from tftrt_tools.servers.serving.local.failure import Failure

UNAVAILABLE = "FAILED_PRECONDITION: Request to assign label to version {} of model m, which is not currently available for inference"


@pytest.fixture
def shelf(tmp_path):
    shelf = Shelf(tmp_path / "m")
    for version in (1, 2):
        shelf.put(version)
    return shelf


def failing(function, *args):
    with pytest.raises(Failure) as raised:
        function(*args)
    return raised.value.to_text()


def test_only_a_list_of_models_is_taken():
    request = model_management_pb2.ReloadConfigRequest()
    text = (
        "INVALID_ARGUMENT: ServerModelConfig type not supported by HandleReloadConfigRequest. "
        "Only ModelConfigList is currently supported"
    )
    assert failing(config_checks.check, request) == text
    request.config.custom_model_config.SetInParent()
    assert failing(config_checks.check, request) == text
    request.config.CopyFrom(config())
    config_checks.check(request)


REFUSED = [
    (
        [dict(name="m", base_path="/m"), dict(name="m", base_path="/n")],
        "INVALID_ARGUMENT: Illegal to list model m multiple times in config list",
    ),
    (
        [dict(name="m", base_path="models/m")],
        "INVALID_ARGUMENT: Expected model m to have an absolute path or URI; got base_path()=models/m",
    ),
    ([dict(name="m")], "INVALID_ARGUMENT: Expected model m to have an absolute path or URI; got base_path()="),
    (
        [dict(name="x", base_path="/x", model_platform="pytorch")],
        "INVALID_ARGUMENT: Model x requests unsupported platform pytorch",
    ),
    (
        [dict(name="m", base_path="/m", model_platform="pytorch")],
        "INVALID_ARGUMENT: Illegal to change a model's platform. For model m platform was tensorflow and new platform requested is pytorch",
    ),
    (
        [dict(name="x", base_path="/x", model_platform="")],
        "INVALID_ARGUMENT: Illegal setting neither ModelServerConfig::model_type (deprecated) nor ModelServerConfig::model_platform.",
    ),
    (
        [dict(name="x", base_path="/x", model_type=1)],
        "INVALID_ARGUMENT: Illegal setting both ModelServerConfig::model_type (deprecated) and ModelServerConfig::model_platform.",
    ),
    (
        [dict(name="x", base_path="/x", model_type=2, model_platform="")],
        "INVALID_ARGUMENT: ModelServerConfig::model_type choice 2 not supported.",
    ),
    ([dict(name="m", base_path="/m", version_labels={"next": 3})], UNAVAILABLE.format(3)),
]


@pytest.mark.parametrize(("models", "text"), REFUSED)
def test_a_refused_configuration_changes_no_model(shelf, models, text):
    with serving(shelf.model()) as manager:
        assert failing(manager.reload, config(*models)) == text
        manager.poll()
        assert answering(manager) == 2
        assert available(manager) == [2]


@pytest.mark.parametrize(("models", "text"), [case for case in REFUSED if "Illegal to change" not in case[1]])
def test_start_refuses_the_same(models, text):
    with serving(start=False) as manager:
        assert failing(manager.start, config(*models)) == text


def test_the_deprecated_model_type_is_the_tensorflow_platform(shelf):
    with serving(shelf.model(model_type=1, model_platform="")) as manager:
        manager.reload(config(shelf.model()))
        assert answering(manager) == 2


def test_a_configuration_that_failed_is_the_one_to_compare_with(shelf):
    with serving(shelf.model()) as manager:
        failing(manager.reload, config(shelf.model(), dict(name="x", base_path="/x", model_platform="pytorch")))
        assert failing(manager.reload, config(shelf.model(), dict(name="x", base_path="/x"))) == (
            "INVALID_ARGUMENT: Illegal to change a model's platform. "
            "For model x platform was pytorch and new platform requested is tensorflow"
        )
        manager.reload(config(shelf.model()))


def test_transitions_between_kinds_of_configuration(shelf):
    custom = model_server_config_pb2.ModelServerConfig()
    custom.custom_model_config.SetInParent()
    refused = (
        "FAILED_PRECONDITION: Cannot transition to requested config. "
        "It is only legal to transition from one ModelConfigList to another."
    )
    with serving(start=False) as manager:
        assert (
            failing(manager.start, custom) == "INVALID_ARGUMENT: ModelServer does not yet support custom model config."
        )
        assert failing(manager.reload, config(shelf.model())) == refused
    with serving(start=False) as manager:
        manager.start(model_server_config_pb2.ModelServerConfig())
        manager.reload(config(shelf.model()))  # after an empty one anything may come
        assert answering(manager) == 2
        assert failing(manager.reload, custom) == refused
        assert failing(manager.reload, model_server_config_pb2.ModelServerConfig()) == refused


def test_reload_waits_for_new_names_and_unloads_those_left_out(shelf, tmp_path):
    other = Shelf(tmp_path / "other")
    other.put(7)
    loader = Loader()
    loader.gates[7] = threading.Event()
    with serving(shelf.model(), loader=loader) as manager:
        thread = threading.Thread(target=manager.reload, args=(config(other.model("other")),), daemon=True)
        thread.start()
        eventually(lambda: loader.loading and states(manager) == {2: "END"})
        assert thread.is_alive()
        loader.gates[7].set()
        thread.join()
        assert answering(manager, name="other") == 7
        manager.reload(config())
        eventually(lambda: states(manager, "other") == {7: "END"})
        manager.reload(config(other.model("other"), shelf.model()))
        assert answering(manager, name="other") == 7 and answering(manager) == 2


def test_reload_of_a_model_that_cannot_load(shelf, tmp_path):
    bad = Shelf(tmp_path / "bad")
    bad.put(4, "bad")
    with serving(shelf.model()) as manager:
        new = config(shelf.model(), bad.model("x"))
        assert failing(manager.reload, new) == (
            "UNKNOWN: 1 model(s) did not become available: "
            "{{{name: x version: 4} due to error: INVALID_ARGUMENT: version 4 is bad}, }"
        )
        assert answering(manager) == 2
        manager.reload(new)  # the name is no longer new


def test_stop_ends_a_reload_that_waits(shelf, tmp_path):
    empty = Shelf(tmp_path / "empty")
    with serving(shelf.model()) as manager:
        raised = []
        thread = threading.Thread(
            target=lambda: raised.append(failing(manager.reload, config(empty.model("empty")))), daemon=True
        )
        thread.start()
        eventually(lambda: states(manager) == {2: "END"})
        manager.stop()
        thread.join()
        assert raised[0].startswith("CANCELLED: ")


def test_a_new_policy_and_a_new_base_path_hold_from_now_on(shelf, tmp_path):
    with serving(shelf.model()) as manager:
        manager.reload(config(shelf.model(model_version_policy={"specific": {"versions": [1]}})))
        eventually(lambda: available(manager) == [1])
        elsewhere = Shelf(tmp_path / "elsewhere")
        elsewhere.put(5)
        manager.reload(config(elsewhere.model()))
        eventually(lambda: available(manager) == [5])


def test_rollback_by_label(shelf):
    both = {"all": {}}
    with serving(shelf.model(model_version_policy=both)) as manager:
        eventually(lambda: available(manager) == [1, 2])
        for stable in (1, 2, 1):
            manager.reload(config(shelf.model(model_version_policy=both, version_labels={"stable": stable})))
            assert answering(manager, label="stable") == stable
        manager.reload(config(shelf.model(model_version_policy=both)))
        with pytest.raises(Failure, match="^Unrecognized servable version label: stable$"):
            answering(manager, label="stable")


@pytest.mark.parametrize("allow", [False, True])
def test_labels_of_versions_that_are_not_loaded(shelf, allow):
    labelled = dict(model_version_policy={"specific": {"versions": [1]}})
    with serving(shelf.model(**labelled), allow_version_labels_for_unavailable_models=allow) as manager:
        manager.reload(config(shelf.model(**labelled, version_labels={"stable": 1})))
        new = config(shelf.model(**labelled, version_labels={"stable": 1, "canary": 2}))
        if allow:
            manager.reload(new)
            with pytest.raises(Failure, match=r"^Servable not found for request: Specific\(m, 2\)$"):
                answering(manager, label="canary")
            manager.reload(new)  # a label that stays may stay
        else:
            assert failing(manager.reload, new) == UNAVAILABLE.format(2)
        # Moving one needs a loaded version either way, and what is refused leaves all labels as they were.
        assert failing(
            manager.reload, config(shelf.model(**labelled, version_labels={"stable": 2}))
        ) == UNAVAILABLE.format(2)
        assert answering(manager, label="stable") == 1


def test_labels_are_checked_before_base_paths_are_touched(shelf, tmp_path):
    other = Shelf(tmp_path / "other")
    other.put(9)
    with serving(shelf.model()) as manager:
        assert failing(manager.reload, config(other.model("other", version_labels={"stable": 9}))) == (
            "FAILED_PRECONDITION: Request to assign label to version 9 of model other, which is not currently available for inference"
        )
        manager.poll()
        assert answering(manager) == 2 and not any(name == "other" for name, _ in manager.loader.loads)


def test_with_one_look_only_new_names_are_never_found(shelf, tmp_path, caplog):
    other = Shelf(tmp_path / "other")
    other.put(9)
    with serving(shelf.model(), file_system_poll_wait_seconds=0) as manager:
        thread = threading.Thread(
            target=manager.reload, args=(config(shelf.model(), other.model("other")),), daemon=True
        )
        thread.start()
        eventually(lambda: "the base paths of other are not looked at" in caplog.text)
        assert thread.is_alive()
        manager.poll()
        thread.join()
        assert answering(manager, name="other") == 9
