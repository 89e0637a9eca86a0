"""`tftrt bench --on`: the command with generators that are further processes of this machine, and what it refuses."""

import collections
import contextlib
import csv
import dataclasses
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
import types

import pytest

from tests import fleets
from tests.command_line import assert_clear, loaded_modules, processes_marked
from tests.conformance.launch import LocalServer
from tests.conftest import ROOT
from tests.mock_server import MODEL, MockServer
from tests.pages import quoted, unprinted
from tftrt_tools.base import errors
from tftrt_tools.fleet import keeper
from tftrt_tools.fleet.place import parse
from tftrt_tools.studies.bench import bench, elsewhere
from tftrt_tools.studies.bench.measurements import Checked, Row

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: the extra `fleet`"
)
QUICK = ("--duration_seconds=1", "--warmup_seconds=0.5")


@pytest.fixture(scope="module")
def null():
    with MockServer(null=True) as started:
        yield started


@pytest.fixture(scope="module")
def digits(zoo_model, tmp_path_factory):
    """A development server with the digits."""
    folder = tmp_path_factory.mktemp("generators")
    (folder / "digits").mkdir()
    (folder / "digits" / "1").symlink_to(zoo_model("digits_cnn"))
    flags = ("--model_name=digits", f"--model_base_path={folder / 'digits'}", "--grpc_max_threads=64")
    with LocalServer(flags, folder / "log") as running:
        yield running
        running.stop()


def started(address, mark, path, *flags, tmp=None):
    """The command, when two generators have begun to send."""
    command = [sys.executable, "-m", "tftrt_tools", "bench", address, f"--model_name={MODEL}", *flags, f"--json={path}"]
    command += ["--on=local", "--generators=2", "--concurrency=2", "--warmup_seconds=0"]
    env = {**os.environ, "TFTRT_TEST_MARK": mark, **({"TMPDIR": str(tmp)} if tmp else {})}
    one = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    while sum(map(sends, processes_marked(mark))) < 2:
        assert one.poll() is None, one.communicate()
        time.sleep(0.1)
    # They connect, and begin together half a second later.
    time.sleep(3)
    return one


def sends(process):
    """Whether it is a load process."""
    try:
        return "worker_job" in open(f"/proc/{process}/cmdline").read()
    except OSError:
        return False


def rows(path):
    return json.loads(path.read_text())["rows"]


@needs_ray
@pytest.mark.slow
def test_two_generators_load_a_server_and_all_files_tell_of_both(digits, tftrt, tmp_path):
    files = {kind: tmp_path / f"bench.{kind}" for kind in ("json", "csv", "html", "hdr")}
    done = tftrt(
        "bench",
        digits.grpc_address,
        "--model_name=digits",
        "--on=local",
        "--generators=2",
        "--scenario=open",
        "--rate=100,200",
        "--distribution=poisson",
        "--duration_seconds=4",
        "--warmup_seconds=0.5",
        *(f"--{kind}={path}" for kind, path in files.items()),
        f"--requests_csv={tmp_path / 'requests'}",
    )
    assert done.returncode == 0, done.stderr
    (note,) = json.loads(files["json"].read_text())["notes"]
    assert note.startswith("2 generators share the processors of ") and f"note: {note}" in done.stderr
    found = rows(files["json"])
    assert [row["point"]["rate"] for row in found] == [100, 200]
    for row in found:
        assert row["complete"] and row["answered"] == row["requests"] and not row["wrong"] and row["checked"]
        assert [one["number"] for one in row["generators"]] == [1, 2]
        assert sum(one["requests"] for one in row["generators"]) == row["requests"] == row["response"]["count"]
        assert all(abs(one["clock_offset_ms"]) <= one["clock_uncertainty_ms"] for one in row["generators"])
        assert Row.from_dict(row).to_dict() == row
    with open(files["csv"]) as file:
        assert [line["generators"] for line in csv.DictReader(file)] == ["2", "2"]
    with open(tmp_path / "requests") as file:
        sent = collections.Counter((line["row"], line["generator"]) for line in csv.DictReader(file))
    assert sent == {
        (str(place), str(one["number"])): one["requests"]
        for place, row in enumerate(found, 1)
        for one in row["generators"]
    }
    page = files["html"].read_text()
    assert "<h2>Generators</h2>" in page and page.count(found[0]["generators"][0]["host"]) >= 4
    assert files["hdr"].read_text().count("Tag=") == 2
    quote = quoted("tftrt bench server:8500 --model_name=digits --scenario=open --rate=200")
    assert not unprinted(quote, done.stdout), "the page shows what is printed"


@needs_ray
@pytest.mark.slow
def test_a_search_for_a_rate_goes_over_all_generators(null, tftrt, tmp_path):
    path = tmp_path / "bench.json"
    done = tftrt(
        "bench",
        null.address,
        f"--model_name={MODEL}",
        "--on=local",
        "--generators=2",
        "--scenario=open",
        "--slo=p50<30s",
        "--highest_rate=200",
        *QUICK,
        f"--json={path}",
    )
    assert done.returncode == 0, done.stderr
    first, *probes = rows(path)
    assert first["point"]["concurrency"] == 2, "one under way for each"
    assert probes[-1]["point"]["rate"] == 200 and probes[-1]["kept"]
    assert [one["requests"] for one in probes[-1]["generators"]] == [100, 100]


@needs_ray
@pytest.mark.slow
def test_one_generator_on_a_cluster_needs_no_number(null, tftrt, tmp_path):
    path = tmp_path / "bench.json"
    with fleets.cluster() as (_, address, _):
        done = tftrt(
            "bench", null.address, f"--model_name={MODEL}", f"--on={address}", *QUICK, f"--json={path}", env=fleets.ENV
        )
    assert done.returncode == 0, done.stderr
    (row,) = rows(path)
    (one,) = row["generators"]
    assert one["requests"] == row["requests"] > 0 and "share the processors" not in done.stderr


@needs_ray
@pytest.mark.slow
def test_a_server_that_goes_is_told_as_without_generators(tftrt, tmp_path):
    path = tmp_path / "bench.json"
    with MockServer(null=True) as server:
        one = started(server.address, f"gone-{os.getpid()}", path, "--duration_seconds=12")
        server.kill()
        _, error = one.communicate(timeout=120)
        assert one.returncode == 1, error
        (row,) = rows(path)
        assert row["failed"] and row["errors"][0]["code"] == "UNAVAILABLE"
        assert json.loads(path.read_text())["ended"].startswith("the server answered no more")
        server.start()


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_shows_what_was_measured_and_leaves_no_process(null, number, tmp_path):
    mark, path = f"generators-{number}-{os.getpid()}", tmp_path / "bench.json"
    (tmp_path / "tmp").mkdir()
    one = started(null.address, mark, path, "--duration_seconds=600", tmp=tmp_path / "tmp")
    one.send_signal(number)
    out, error = one.communicate(timeout=120)
    assert one.returncode == 1 and "NOT COMPLETE: interrupted" in out and "Traceback" not in error, error
    (row,) = rows(path)
    assert not row["complete"] and row["answered"] and len(row["generators"]) == 2
    for _ in range(100):
        if not (left := processes_marked(mark)):
            break
        time.sleep(0.1)
    assert not left and not list((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--generators=2"], "--generators are processes of a fleet"),
        (["--on=local", "--generators=0"], "--generators=0"),
        (["--on=nowhere"], "--on=nowhere is no place"),
        (["--on=ray://head"], "--on=ray://head is no place"),
    ],
)
def test_generators_without_a_place_and_places_that_are_none_are_refused(flags, says, tftrt):
    assert_clear(tftrt("bench", "127.0.0.1:1", "--model_name=m", *flags), 2, says)


@needs_ray
@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--on=local", "--generators=100000", "--concurrency=100000"], "--generators=100000: this machine is given"),
        (["--on=local", "--generators=2"], "--generators=2: 1 request under way, fewer than one for each"),
        (["--on=local", "--generators=3", "--concurrency=4,2"], "--generators=3: 2 requests under way"),
        (["--on=local", "--generators=5", "--scenario=offline"], "--generators=5: 4 requests under way"),
        (
            ["--on=local", "--generators=3", "--scenario=offline", "--min_queries=2"],
            "--generators=3: 2 requests are sent",
        ),
        (
            ["--on=local", "--generators=3", "--scenario=open", "--rate=2", "--duration_seconds=1"],
            "--generators=3: the schedule has 2 requests",
        ),
        (["--on=local", "--in_process=MODEL"], "--on puts load on a server"),
        (["--on=local", "--rest=h:1", "--model_dir=MODEL", "--breakdown"], "--breakdown takes apart what this machine"),
        (["--on=ray://head:10001", "--tls_key=KEY", "--tls_certificate=KEY"], "would travel to ray://head:10001"),
    ],
)
def test_what_generators_cannot_do_is_refused_before_a_fleet_is_opened(flags, says, zoo_model, tftrt, tmp_path):
    (tmp_path / "key").write_text("key")
    given = [one.replace("MODEL", str(zoo_model("digits_cnn"))).replace("KEY", str(tmp_path / "key")) for one in flags]
    assert_clear(tftrt("bench", "127.0.0.1:1", "--model_name=m", *given), 2, says)


@needs_ray
def test_a_schedule_file_with_fewer_requests_than_generators_is_refused(tftrt, tmp_path):
    (tmp_path / "schedule").write_text("0\n0.5\n")
    flags = ("--scenario=open", f"--schedule_file={tmp_path / 'schedule'}", "--on=local", "--generators=3")
    assert_clear(tftrt("bench", "127.0.0.1:1", "--model_name=m", *flags), 2, "the schedule has 2 requests")


@pytest.mark.parametrize("flags", [["--on=local"], ["--generators=2"]])
def test_models_in_this_process_and_the_search_for_batching_parameters_have_no_generators(flags, zoo_model, tftrt):
    name = flags[0].partition("=")[0]
    model = zoo_model("digits_cnn")
    assert_clear(tftrt("bench", model, *flags), 2, f"{name} has no effect with MODEL")
    done = tftrt("bench", f"--tune_batching={model}", "--slo=p99<1s", *flags)
    assert_clear(done, 2, f"{name} does not go with --tune_batching")


@needs_ray
def test_a_cluster_that_does_not_answer_is_one_line(null, tftrt):
    done = tftrt("bench", null.address, f"--model_name={MODEL}", "--on=ray://127.0.0.1:1")
    assert_clear(done, 1, "no fleet answers at ray://127.0.0.1:1")


@pytest.mark.parametrize(
    ("address", "refused"),
    [
        ("localhost:8500", True),
        ("127.0.0.2:8500", True),
        ("[::1]:8500", True),
        ("unix:/tmp/socket", True),
        ("server:8500", False),
        ("10.0.0.1:8500", False),
    ],
)
def test_an_address_that_means_another_server_on_each_machine_is_refused(address, refused, monkeypatch):
    def held(boots):
        machines = {boot: (f"host-{boot}", 1) for boot in boots}
        return lambda *_: contextlib.nullcontext(types.SimpleNamespace(machines=machines))

    monkeypatch.setattr(elsewhere.session, "opened", lambda on: contextlib.nullcontext())
    monkeypatch.setattr(elsewhere.conducting, "opened", held([keeper.boot(), "far"]))
    raised = (
        pytest.raises(errors.UsageError, match="host-far would ask itself") if refused else contextlib.nullcontext()
    )
    with raised, elsewhere.opened(parse("ray://head:10001"), 2, 0, address):
        pass
    monkeypatch.setattr(elsewhere.conducting, "opened", held([keeper.boot()]))
    with elsewhere.opened(parse("local"), 2, 0, address) as generators:
        assert not list(elsewhere.beside(generators))


def test_a_row_of_the_version_before_has_no_generators():
    text = (ROOT / "tests" / "data" / "bench_row.json").read_text()
    assert "generators" not in text
    row = Row.from_dict(json.loads(text))
    assert row.generators == () and row.requests == 5


@pytest.mark.parametrize(("complete", "kept"), [(True, True), (False, None)])
def test_a_row_that_lacks_requests_was_not_shown_to_keep_its_goal_and_a_search_does_not_take_it(complete, kept):
    document = json.loads((ROOT / "tests" / "data" / "bench_row.json").read_text())
    goal = (Checked("p50<30s", 0.001, True),)
    row = dataclasses.replace(Row.from_dict(document), complete=complete, goal=goal, limited="", waits="")
    assert row.kept is kept
    missed = dataclasses.replace(row, goal=(Checked("p50<1us", 0.001, False),))
    assert missed.kept is False, "what is left shows that"
    run = object.__new__(bench._Run)
    run._options = types.SimpleNamespace(lowest_rate=100, highest_rate=200, resolution=0.1, distribution="constant")
    run._add, run.searched = (lambda *_, **__: row), []
    run._search(types.SimpleNamespace(name="server"), types.SimpleNamespace(batch_size=None), None)
    (found,) = run.searched
    assert found.rate == (200 if kept else None) and ("measure longer" in found.ended) is not bool(kept)


def test_without_on_nothing_of_ray_is_loaded(null):
    flags = ("--duration_seconds=0.1", "--warmup_seconds=0")
    loaded = loaded_modules("bench", null.address, f"--model_name={MODEL}", *flags)
    assert "tftrt_tools.studies.bench.elsewhere" in loaded and not re.search(r"(^| )ray(\.| |$)", " ".join(loaded))
