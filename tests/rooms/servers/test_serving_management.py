"""`tftrt versions`, `promote` and `rollback` against a gRPC server that manages versions as TensorFlow Serving does."""

import concurrent.futures
import contextlib
import dataclasses
import json
import pathlib
import signal
import socket
import subprocess
import sys
import threading

import grpc
import pytest
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    prediction_service_pb2_grpc,
)

from tests.command_line import assert_clear
from tests.conftest import ROOT
from tftrt_tools.base import errors
from tftrt_tools.base.wire import config_messages
from tftrt_tools.command_line import cli
from tftrt_tools.servers.client import Client, ServingError
from tftrt_tools.servers.client.address import target
from tftrt_tools.servers.client.model_service import VersionStatus
from tftrt_tools.servers.client.protocols import TENSORFLOW_SERVING
from tftrt_tools.servers.serving.local import failure
from tftrt_tools.servers.serving.local.manager import Manager, ManagerSettings
from tftrt_tools.servers.serving.management import (
    managed_server,
    models_config_file,
    promotion,
    served_versions,
    transition,
)

QUICK = promotion.Options(wait_seconds=20, deadline_seconds=10, stale_seconds=0.6)
CONFIG = """\
# kept: a comment
model_config_list {
  config {
    name: "digits"  # kept: another
    base_path: "BASE/digits"
    model_platform: "tensorflow"
    model_version_policy { specific { versions: 1 } }
    version_labels { key: "stable" value: 1 }
  }
  config {
    name: "ranker"
    base_path: "BASE/ranker"
    model_platform: "tensorflow"
  }
}
"""


class Loaded:
    def __init__(self, version):
        self.version = version

    def close(self):
        """Nothing to free."""


class Services(model_service_pb2_grpc.ModelServiceServicer, prediction_service_pb2_grpc.PredictionServiceServicer):
    """ModelService and PredictionService.GetModelMetadata over a Manager. reloads: the configurations that came."""

    def __init__(self, manager):
        self.manager, self.reloads, self.before_reload = manager, [], lambda config: None

    def GetModelStatus(self, request, context):
        answer = get_model_status_pb2.GetModelStatusResponse()
        with refusing(context):
            for one in self.manager.status(request.model_spec.name):
                status = answer.model_version_status.add(version=one.version, state=int(one.state.value))
                if one.failure:
                    status.status.error_code, status.status.error_message = one.failure.number, one.failure.message
        return answer

    def HandleReloadConfigRequest(self, request, context):
        with refusing(context):
            self.before_reload(request.config)
            self.reloads.append(request.config)
            self.manager.reload(request.config)
        return model_management_pb2.ReloadConfigResponse()

    def GetModelMetadata(self, request, context):
        answer = get_model_metadata_pb2.GetModelMetadataResponse()
        with refusing(context), self.manager.handle(request.model_spec) as loaded:
            answer.model_spec.name = request.model_spec.name
            answer.model_spec.version.value = loaded.version
        return answer


@contextlib.contextmanager
def refusing(context):
    try:
        yield
    except failure.Failure as failed:
        context.abort(failed.code, failed.grpc_message)


@dataclasses.dataclass
class House:
    """A server with models digits (versions 1, 2) and ranker (version 1). holds: version directories whose load waits for the event."""

    base: pathlib.Path
    file: pathlib.Path
    address: str = ""
    services: Services = None
    release: threading.Event = dataclasses.field(default_factory=threading.Event)

    def publish(self, version, kind="good", model="digits"):
        folder = self.base / model / str(version)
        folder.mkdir(parents=True)
        (folder / "kind").write_text(kind)

    def load(self, _name, version, path):
        kind = (pathlib.Path(path) / "kind").read_text()
        if kind == "slow":
            self.release.wait(60)
        if kind == "bad":
            raise failure.invalid("this model is broken on purpose")
        return Loaded(version)

    def promote(self, version, label="stable", options=QUICK):
        return promotion.promote(self.address, self.file, "digits", label, version, options)

    def answers(self, label="", model="digits"):
        with Client(self.address) as client:
            return managed_server.version_of(client, model, label)

    def available(self, model="digits"):
        with Client(self.address) as client:
            return sorted(one.version for one in client.status(model) if one.state == "AVAILABLE")

    def last_sent(self):
        return self.services.reloads[-1]

    def assert_file_is_what_the_server_has(self):
        there = config_messages.parse(config_messages.MODELS, self.file.read_text())
        assert there.SerializeToString(deterministic=True) == self.last_sent().SerializeToString(deterministic=True)
        assert not pathlib.Path(f"{self.file}.pending").exists()


@contextlib.contextmanager
def serving(services):
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(services, server)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(services, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield server, f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


@pytest.fixture
def house(tmp_path):
    (tmp_path / "config").mkdir()
    house = House(tmp_path / "models", tmp_path / "config" / "models.config")
    house.publish(1)
    house.publish(2)
    house.publish(1, model="ranker")
    house.file.write_text(CONFIG.replace("BASE", str(house.base)))
    # As a server without a label to an unloaded version starts.
    manager = Manager(
        house.load,
        ManagerSettings(
            file_system_poll_wait_seconds=0.1, max_num_load_retries=0, allow_version_labels_for_unavailable_models=True
        ),
    )
    manager.start(config_messages.parse(config_messages.MODELS, house.file.read_text()))
    house.services = Services(manager)
    with serving(house.services) as (_, house.address):
        yield house
    house.release.set()
    manager.stop()


def test_promote_loads_the_version_then_moves_the_label_and_loses_no_model(house):
    before = house.file.read_text()
    done = house.promote(2)
    assert done.sent and done.answers == {"stable": 2}
    assert house.answers("stable") == 2 and house.available() == [1, 2]
    first, second = house.services.reloads
    assert [dict(one.model_config_list.config[0].version_labels) for one in (first, second)] == [
        {"stable": 1},
        {"stable": 2},
    ]
    assert all(
        [model.name for model in one.model_config_list.config] == ["digits", "ranker"] for one in (first, second)
    )
    assert house.available("ranker") == [1]
    house.assert_file_is_what_the_server_has()
    text = house.file.read_text()
    assert text.count("# kept") == 2 and text.split('name: "ranker"')[1] == before.split('name: "ranker"')[1]
    assert pathlib.Path(f"{house.file}.previous").read_text() == before


def test_unload_previous_unloads_what_no_label_is_on(house):
    house.promote(2, options=dataclasses.replace(QUICK, unload_previous=True))
    assert house.answers("stable") == 2
    assert list(house.last_sent().model_config_list.config[0].model_version_policy.specific.versions) == [2]
    house.assert_file_is_what_the_server_has()


def test_a_canary_beside_the_stable_version(house):
    done = house.promote(2, "canary")
    assert (house.answers("stable"), house.answers("canary")) == (1, 2)
    said = "requests that name neither a label nor a version now get version 2, not 1"
    assert said in done.notes and said not in house.promote(2).notes
    assert house.answers("") == 2


def test_the_default_policy_becomes_versions_by_number(house):
    done = promotion.promote(house.address, house.file, "ranker", "stable", 1, QUICK)
    assert done.after.versions == (1,) and any("the version policy was latest 1" in note for note in done.notes)
    assert house.answers("stable", "ranker") == 1


def test_what_is_so_already_changes_nothing(house):
    before = house.file.read_text()
    assert not house.promote(1).sent
    assert house.services.reloads == [] and house.file.read_text() == before


@pytest.mark.parametrize("again", [False, True])
def test_a_version_that_does_not_load_changes_nothing(house, again):
    house.publish(3, "bad")
    before = house.file.read_text()
    for _ in range(2 if again else 1):  # the second time the first error still stands in the list
        with pytest.raises(
            errors.TftrtError,
            match="version 3 of 'digits' did not load: INVALID_ARGUMENT: this model is broken on purpose",
        ) as caught:
            house.promote(3)
        assert "the old version goes on serving" in caught.value.mend
    assert house.file.read_text() == before and house.answers("stable") == 1
    house.assert_file_is_what_the_server_has()
    assert not pathlib.Path(f"{house.file}.previous").exists()


def test_a_version_that_was_mended_under_its_number_loads_though_its_old_error_is_listed(house):
    house.publish(3, "bad")
    with pytest.raises(errors.TftrtError):
        house.promote(3)
    (house.base / "digits" / "3" / "kind").write_text("good")
    assert house.promote(3, options=dataclasses.replace(QUICK, stale_seconds=20)).answers == {"stable": 3}


def test_a_version_that_takes_too_long_changes_nothing(house):
    house.publish(3, "slow")
    before = house.file.read_text()
    with pytest.raises(
        errors.TftrtError, match="version 3 of 'digits' is not available after 0.8 s: its state is LOADING"
    ) as told:
        house.promote(3, options=dataclasses.replace(QUICK, wait_seconds=0.8))
    assert (
        "A version that cannot load is in that state too" in told.value.cause
        and "--max_num_load_retries=0" in told.value.mend
    )
    assert "`tftrt log FILE`" in told.value.mend
    assert house.file.read_text() == before and house.answers("stable") == 1
    house.assert_file_is_what_the_server_has()


@pytest.mark.parametrize("state, seconds, said", [("LOADING", 5, False), ("LOADING", 75, True), ("START", 75, False)])
def test_a_long_wait_says_that_the_server_may_be_trying_again(state, seconds, said):
    text = transition._waiting_for("digits", 3, VersionStatus(3, state), seconds)
    assert (
        text.startswith("waiting for version 3 of digits")
        and ("LOADING for 75 s" in text and "its log says so" in text) == said
    )


def test_a_version_that_is_not_there_is_refused_before_anything_is_sent(house):
    with pytest.raises(errors.UsageError, match="holds no version 7"):
        house.promote(7)
    assert house.services.reloads == []


def test_a_label_that_the_server_refuses_to_move_stays(house):
    def refuse(config):
        if dict(config.model_config_list.config[0].version_labels) == {"stable": 2}:
            raise failure.precondition(
                "Request to assign label to version 2 of model digits, which is not currently available for inference"
            )

    house.services.before_reload = refuse
    before = house.file.read_text()
    with pytest.raises(errors.TftrtError, match="FAILED_PRECONDITION: Request to assign label to version 2"):
        house.promote(2)
    assert house.file.read_text() == before and house.answers("stable") == 1
    house.assert_file_is_what_the_server_has()


def test_what_fails_after_the_label_moved_does_not_move_it_back(house):
    def refuse(config):
        if list(config.model_config_list.config[0].model_version_policy.specific.versions) == [2]:
            raise failure.Failure(grpc.StatusCode.INTERNAL, "no")

    house.services.before_reload = refuse
    with pytest.raises(errors.TftrtError, match="INTERNAL: no") as caught:
        house.promote(2, options=dataclasses.replace(QUICK, unload_previous=True))
    assert "the labels were moved" in caught.value.mend and house.answers("stable") == 2 and house.available() == [1, 2]
    house.assert_file_is_what_the_server_has()


def test_rollback_goes_back_and_a_second_one_forward(house):
    house.promote(2)
    done = promotion.rollback(house.address, house.file, "digits", QUICK)
    assert done.answers == {"stable": 1} and house.answers("stable") == 1
    house.assert_file_is_what_the_server_has()
    assert promotion.rollback(house.address, house.file, "digits", QUICK).answers == {"stable": 2}


def test_rollback_loads_what_was_unloaded(house):
    house.promote(2, options=dataclasses.replace(QUICK, unload_previous=True))
    assert promotion.rollback(house.address, house.file, "digits", QUICK).answers == {"stable": 1}
    assert house.answers("stable") == 1


def test_rollback_to_a_version_that_does_not_load_any_more_changes_nothing(house):
    house.promote(2, options=dataclasses.replace(QUICK, unload_previous=True))
    (house.base / "digits" / "1" / "kind").write_text("bad")
    before = house.file.read_text()
    with pytest.raises(errors.TftrtError, match="version 1 of 'digits' did not load"):
        promotion.rollback(house.address, house.file, "digits", QUICK)
    assert house.file.read_text() == before and house.answers("stable") == 2
    house.assert_file_is_what_the_server_has()


def test_rollback_of_one_model_leaves_the_promotion_of_another(house):
    house.publish(2, model="ranker")
    house.promote(2)
    promotion.promote(house.address, house.file, "ranker", "stable", 2, QUICK)
    promotion.rollback(house.address, house.file, "digits", QUICK)
    assert house.answers("stable") == 1 and house.answers("stable", "ranker") == 2


def test_rollback_to_a_policy_without_labels(house):
    promotion.promote(house.address, house.file, "ranker", "stable", 1, QUICK)
    promotion.rollback(house.address, house.file, "ranker", QUICK)
    assert house.answers("stable", "ranker") is None and house.answers(model="ranker") == 1
    assert house.last_sent().model_config_list.config[1].model_version_policy.latest.num_versions == 1


def test_nothing_to_roll_back(house):
    with pytest.raises(errors.TftrtError, match="nothing to roll back: there is no"):
        promotion.rollback(house.address, house.file, "digits", QUICK)
    house.promote(2)
    with pytest.raises(errors.TftrtError, match="says the same of model 'ranker'"):
        promotion.rollback(house.address, house.file, "ranker", QUICK)


def test_a_promotion_that_was_killed_is_undone_by_the_next_one(house):
    old = house.file.read_text()
    pathlib.Path(f"{house.file}.pending").write_text(old)
    house.file.write_text(old.replace("versions: 1", "versions: [1, 2]"))
    done = house.promote(2)
    assert any("an earlier promotion was cut off" in note for note in done.notes)
    assert house.answers("stable") == 2 and pathlib.Path(f"{house.file}.previous").read_text() == old
    house.assert_file_is_what_the_server_has()


def test_a_label_that_the_server_has_elsewhere_is_told_and_mended(house):
    house.promote(2)
    done = house.file.read_text()
    house.file.write_text(done.replace("value: 2", "value: 1"))
    notes = house.promote(1).notes
    assert any("was on version 2 of the server" in note and "said 1" in note for note in notes)
    assert house.answers("stable") == 1
    house.assert_file_is_what_the_server_has()


def test_the_file_of_another_server_is_refused(house):
    other = house.file.with_name("other.config")
    other.write_text(house.file.read_text().replace('"digits"', '"somebody"'))
    with pytest.raises(
        errors.TftrtError, match="has no model 'somebody': Could not find any versions of model somebody"
    ):
        promotion.promote(house.address, other, "somebody", "stable", 1, QUICK)
    assert house.services.reloads == []


def test_a_model_that_the_server_does_not_know_is_refused_unless_it_is_to_be_loaded(house):
    """The file lists digits, as this server's does, and another one: of another server, or edited by hand."""
    house.publish(1, model="another")
    text = house.file.read_text()
    house.file.write_text(text.replace("ranker", "another"))
    with pytest.raises(
        errors.TftrtError,
        match="does not know: is it the file of that server.*unloads every model that it does not list",
    ):
        house.promote(2)
    assert (
        house.services.reloads == []
        and house.available("ranker") == [1]
        and house.file.read_text() == text.replace("ranker", "another")
    )
    done = house.promote(2, options=dataclasses.replace(QUICK, load_new_models=True))
    assert any("did not know model 'another'" in note for note in done.notes)
    assert "the server was told to serve digits, another, and nothing else" in done.notes
    assert house.available("another") == [1]


def test_a_base_path_that_is_not_the_server_s_is_noticed_when_the_old_version_goes(house):
    text = house.file.read_text()
    moved = text.replace(f"{house.base}/digits", f"{house.base}/elsewhere")
    assert moved != text
    (house.base / "elsewhere").mkdir()
    house.file.write_text(moved)
    with pytest.raises(
        errors.TftrtError, match="gave up version 1 of 'digits', which it was told to keep: it is not in .*elsewhere"
    ):
        house.promote(2, options=dataclasses.replace(QUICK, wait_seconds=60))
    assert house.file.read_text() == moved


def test_two_promotions_at_a_time_are_one_too_many(house):
    with (
        models_config_file.locked(house.file),
        pytest.raises(errors.TftrtError, match="another promotion or rollback is at work"),
    ):
        house.promote(2)


def test_a_file_with_a_mistake_is_refused_with_its_line(house):
    house.file.write_text(house.file.read_text().replace("value: 1", "value: 9"))
    with pytest.raises(errors.UsageError, match="models.config:8: the label 'stable' is on version 9"):
        house.promote(2)


def test_a_server_that_goes_away_while_it_loads(tmp_path, house):
    """The file is as it was; that the server could not be told is said, and remembered."""
    house.publish(3, "slow")
    before = house.file.read_text()
    with serving(house.services) as (server, address):
        house.services.before_reload = lambda config: threading.Timer(0.3, lambda: server.stop(0)).start()
        with pytest.raises(
            errors.TftrtError, match="the server went away while version 3 of 'digits' was loading"
        ) as caught:
            promotion.promote(address, house.file, "digits", "stable", 3, QUICK)
    assert "the server did not take it" in caught.value.mend and house.file.read_text() == before
    assert pathlib.Path(f"{house.file}.pending").read_text() == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_in_the_middle_puts_file_and_server_back(house, number):
    house.publish(3, "slow")
    before = house.file.read_text()
    reloaded = threading.Event()
    house.services.before_reload = lambda config: reloaded.set()
    command = [
        sys.executable,
        "-m",
        "tftrt_tools",
        "promote",
        house.address,
        "--model_name=digits",
        "--version_label=stable",
        "--model_version=3",
        f"--model_config_file={house.file}",
    ]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert reloaded.wait(60) and house.file.read_text() != before
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert (
        process.returncode == 1
        and "interrupted" in said
        and "have their configuration back" in said
        and "Traceback" not in said
    )
    assert house.file.read_text() == before and house.answers("stable") == 1
    house.assert_file_is_what_the_server_has()


def test_versions_lists_states_labels_and_errors(house):
    house.publish(3, "bad")
    house.promote(2, "canary")
    with pytest.raises(errors.TftrtError):
        house.promote(3)
    found = served_versions.versions(house.address, path=house.file)
    digits, ranker = found.models
    assert [(one.version, one.state) for one in digits.versions] == [(3, "END"), (2, "AVAILABLE"), (1, "AVAILABLE")]
    assert (
        digits.labels == {"stable": 1, "canary": 2}
        and digits.default == 2
        and ranker.labels == {}
        and found.notes == ()
    )
    assert digits.versions[0].error_text() == "INVALID_ARGUMENT: this model is broken on purpose"
    house.file.write_text(house.file.read_text().replace('"ranker"', '"other"'))
    notes = served_versions.versions(house.address, ["ranker"], house.file).notes
    assert any("does not list model 'ranker'" in note for note in notes)


def test_the_commands_print_and_write_json(tftrt, house):
    file = f"--model_config_file={house.file}"
    done = tftrt(
        "promote", house.address, "--model_name=digits", "--version_label=canary", "--model_version=2", file, "--json=-"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["labels"] == {"stable": 1, "canary": 2} and "canary" in done.stderr
    done = tftrt("versions", house.address, file)
    assert done.returncode == 0 and "AVAILABLE" in done.stdout and "canary, (no version named)" in done.stdout
    done = tftrt("rollback", house.address, "--model_name=digits", file)
    assert done.returncode == 0 and house.answers("canary") is None


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def test_no_server_another_server_and_a_silent_port_each_get_one_line(tftrt, house):
    with pytest.raises(ServingError, match=r"no server at 127.0.0.1:\d+: .*[Rr]efused"):
        served_versions.versions(f"127.0.0.1:{free_port()}", ["digits"])
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with pytest.raises(ServingError, match="is no TensorFlow Serving: it has no GetModelStatus"):
        served_versions.versions(f"127.0.0.1:{port}", ["digits"])
    server.stop(0).wait()
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(ServingError, match="no answer from 127.0.0.1:.* within 0.5 s"):
            served_versions.versions(f"127.0.0.1:{silent.getsockname()[1]}", ["digits"], deadline_seconds=0.5)
    with pytest.raises(errors.UsageError, match="knows no such model: Could not find any versions of model nobody"):
        served_versions.versions(house.address, ["nobody"])
    assert_clear(tftrt("versions", f"127.0.0.1:{free_port()}", "--model_name=digits"), 1, "no server at 127.0.0.1")


def test_a_rest_port_is_told_from_a_grpc_port():
    import http.server

    class Quiet(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            """Nothing."""

    with http.server.HTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(ServingError) as caught:
            served_versions.versions(f"127.0.0.1:{server.server_address[1]}", ["digits"], deadline_seconds=5)
        server.shutdown()
    assert (
        caught.value.code in ("UNAVAILABLE", "DEADLINE_EXCEEDED") and "gRPC" in caught.value.mend + caught.value.cause
    )


@pytest.mark.parametrize(
    "address", ["http://localhost:8500", "localhost:99999", "a:b", "localhost:8500/v1", "triton:/x"]
)
def test_an_address_that_is_none(address):
    with pytest.raises(errors.UsageError, match="is no address") as caught:
        target(address, TENSORFLOW_SERVING)
    assert caught.value.mend == "write HOST:PORT, such as localhost:8500; a Triton is asked as triton://HOST:8001"


def test_a_triton_has_no_labels_to_move(tmp_path):
    for move in (
        lambda: promotion.promote("triton://h:1", tmp_path / "none", "m", "stable", 1),
        lambda: promotion.rollback("triton://h:1", tmp_path / "none", "m"),
    ):
        with pytest.raises(errors.UsageError, match="no labels to move") as caught:
            move()
        assert "tftrt publish --server=triton" in caught.value.mend


@pytest.mark.parametrize("command", ["promote", "rollback"])
def test_a_triton_is_asked_for_no_flags_first(command, capsys):
    assert cli.main([command, "triton://h:1", "--model_name=m"]) == 2
    assert "is a Triton, which has no labels to move" in capsys.readouterr().err


def test_the_port_may_be_left_out():
    assert (
        target("localhost", TENSORFLOW_SERVING) == "localhost:8500"
        and target("unix:/tmp/x", TENSORFLOW_SERVING) == "unix:/tmp/x"
    )


@pytest.mark.parametrize(
    "command, missing",
    [
        ("promote", "--model_name, --version_label, --model_version and --model_config_file are missing"),
        ("rollback", "--model_name and --model_config_file are missing"),
    ],
)
def test_flags_that_are_missing(tftrt, command, missing):
    assert_clear(tftrt(command, "localhost:8500"), 2, missing)


ONE_LINE = 'model_config_list { config { name: "d" base_path: "/d" model_platform: "tensorflow" version_labels { key: "a" value: 1 } } }\n'
LIST = 'model_config_list: {\n  config: [ { name: "d", base_path: "/d", model_platform: "tensorflow" } ]\n}\n'


@pytest.mark.parametrize("text", [ONE_LINE, LIST, CONFIG.replace("BASE", "").replace('"digits"', '"d"')])
def test_a_file_is_edited_in_place_whatever_its_form(tmp_path, text):
    file = models_config_file.ConfigFile(tmp_path / "models.config", text)
    new = dataclasses.replace(file.model("d"), policy="specific", versions=(3, 4), labels={"stable": 3, "canary": 4})
    edited = file.with_model(new)
    assert edited.model("d") == new and edited.with_model(new) is edited
    others = {name: model for name, model in file.models().items() if name != "d"}
    assert others == {name: model for name, model in edited.models().items() if name != "d"}
    assert edited.with_model(file.model("d")).model("d") == file.model("d")


def test_a_disk_that_cannot_be_written_is_no_half_promotion(house):
    before = house.file.read_text()
    pathlib.Path(f"{house.file}.pending").mkdir()  # a name that cannot be written, for root neither
    with pytest.raises(OSError):
        house.promote(2)
    assert house.services.reloads == [] and house.file.read_text() == before
