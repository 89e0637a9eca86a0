"""`tftrt build --on`: the model travels to each kind of GPU, and comes back whole. On machines whose GPUs are counted and are none, what is
built is a model without engines."""

import dataclasses
import importlib.util
import json
import shutil
import subprocess
import sys
import types
from xml.etree import ElementTree

import jsonschema
import pytest

from tests import fleet_results, fleets
from tests.command_line import assert_clear
from tests.conftest import ROOT
from tests.fleet_results import kind, result
from tftrt_tools.base import errors
from tftrt_tools.command_line import cli
from tftrt_tools.command_line.commands import _output, build
from tftrt_tools.fleet.place import parse
from tftrt_tools.fleet.task import Given, Outcome
from tftrt_tools.models.savedmodel import files, passport
from tftrt_tools.servers.serving.publishing import several
from tftrt_tools.studies.fleet_builds import build_job, building, journal, junit
from tftrt_tools.studies.fleet_builds.building import Asked, Built, FleetBuild

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: the extra `fleet`"
)
FLEET_BUILD = ROOT / "docs/schemas/fleet_build.json"
T4, L4 = "accelerator_type:T4", "accelerator_type:L4"
STRIPPED = Asked(backend="tftrt")


@needs_ray
@pytest.mark.slow
def test_each_kind_gets_a_whole_model_and_a_wrong_one_takes_nothing_from_them(converted, tmp_path):
    model, out = converted("digits_cnn", "--precision=FP16"), tmp_path / "out"
    with fleets.cluster(T4, "RTX4090") as (_, address, _):
        done = building.everywhere(
            str(model), str(out), STRIPPED, parse(address), ["T4", "H100", "RTX4090"], place_seconds=1
        )
        assert [(one.gpu_type, one.status, one.complete) for one in done.kinds] == [
            ("T4", "done", True),
            ("H100", "not placeable", False),
            ("RTX4090", "done", True),
        ]
        assert not done.complete and done.kinds[1].mend == "there are: RTX4090, T4"
        assert sorted(path.name for path in out.iterdir()) == [journal.NAME, "RTX4090", "T4"]
        for one in (out / "RTX4090", out / "T4"):
            files.check(one)
            assert passport.read(one, passport.MANIFEST)["build"]["model_digest"] == files.digest(model)
        assert FleetBuild.from_dict(json.loads(done.to_json())).to_dict() == done.to_dict()
        jsonschema.validate(json.loads(done.to_json()), json.loads(FLEET_BUILD.read_text()))
        # Without names: all kinds that the fleet has. What is there of the same is taken over, and nothing else is replaced.
        taken = building.everywhere(str(model), str(out), STRIPPED, parse(address))
        assert [(one.gpu_type, one.taken_over, one.where) for one in taken.kinds] == [
            (one.gpu_type, True, one.where) for one in (done.kinds[2], done.kinds[0])
        ]
        (out / "T4" / "saved_model.pb").write_bytes(b"other")
        with pytest.raises(errors.UsageError, match="exists"):
            building.everywhere(str(model), str(out), STRIPPED, parse(address))
        again = building.everywhere(str(model), str(out), STRIPPED, parse(address), overwrite=True)
        assert [one.gpu_type for one in again.kinds] == ["RTX4090", "T4"] and again.complete


@needs_ray
@pytest.mark.slow
def test_the_command_says_what_the_machine_said_and_writes_nothing(converted, tftrt, tmp_path):
    model = converted("digits_cnn", "--precision=FP16")
    done = tftrt(
        "build",
        model,
        "--shapes=image:1x8x8x1",
        "--on=local",
        f"--output={tmp_path / 'out'}",
        "--json=-",
        f"--junit={tmp_path / 'build.xml'}",
        env=fleets.COUNTED,
    )
    (kind,) = json.loads(done.stdout)["kinds"]
    assert done.returncode == 3 and kind["gpu_type"] == "L4" and kind["status"] == "failed", done.stderr
    assert kind["cause"] in done.stderr and not (tmp_path / "out").exists()
    (case,) = ElementTree.parse(tmp_path / "build.xml").getroot().iter("testcase")
    assert case.get("name") == "L4" and case.find("failure").get("message") == kind["cause"]


@needs_ray
@pytest.mark.parametrize(("place", "says"), [("local", "has no GPU"), ("ray://127.0.0.1:1", "no fleet answers at")])
def test_a_fleet_without_gpus_and_one_that_does_not_answer_are_told(place, says, converted, tftrt, tmp_path):
    model, out = converted("digits_cnn", "--precision=FP16"), tmp_path / "out"
    done = tftrt("build", model, "--shapes=image:1x8x8x1", f"--on={place}", f"--output={out}")
    assert_clear(done, 1, says)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--on=ray://head"], "is no place"),
        (["--gpu_types=T4"], "names machines of a fleet"),
        (["--junit=build.xml"], "--junit has a test case for each kind of GPU, and --on is missing"),
        (["--on=local", "--output=out", "--junit=no/such/build.xml"], "no directory"),
        (["--on=local"], "--output is missing"),
        (["--on=local", "--output=out", "--repeat=3"], "--repeat has no effect with --on"),
        (["--on=local", "--output=out", "--log_file=log"], "--log_file has no effect with --on"),
        (["--on=local", "--output=out", "--gpu_types=../T4"], "is no kind of GPU"),
        (["--on=local", "--output=out", "--gpu_types=.before"], "is no kind of GPU"),
    ],
)
def test_what_makes_no_sense_is_refused_before_a_fleet_is_opened(flags, says, converted, tftrt):
    model = converted("digits_cnn", "--precision=FP16")
    assert_clear(tftrt("build", model, "--shapes=image:1x8x8x1", *flags), 2, says)


@pytest.mark.parametrize(
    ("flags", "kept"), [([], 10 << 30), (["--engine_cache_max_bytes=5MB"], 5_000_000), (["--noengine_cache"], None)]
)
def test_each_machine_builds_with_the_engine_cache_that_it_has(flags, kept, converted, monkeypatch, tmp_path):
    """The folder of this machine does not travel."""
    seen = []
    monkeypatch.setattr(building, "everywhere", lambda *given, **more: seen.append(given[2]) or result(kind("T4")))
    model = str(converted("digits_cnn", "--precision=FP16"))
    assert (
        cli.main(["build", model, "--shapes=image:1x8x8x1", "--on=local", f"--output={tmp_path / 'out'}", *flags]) == 0
    )
    made = types.SimpleNamespace(output="made", complete=True, to_dict=dict, text=lambda: ("built", "written"))
    backend = types.SimpleNamespace(settings=dict, rebuild=lambda model, changes, work: seen.append(work) or made)
    monkeypatch.setattr(build_job.backends, "named", lambda name: backend)
    build_job.job(Given(request=seen[0].to_dict(), content=model, output=str(tmp_path / "made")))
    assert seen[1].cache == (None if kept is None else {"folder": None, "max_bytes": kept})


def test_a_model_without_engine_ops_is_refused_before_a_fleet_is_opened(zoo_model, tftrt, tmp_path):
    """Ray was started, and the model sent, to hear it."""
    flags = ["--shapes=image:1x8x8x1", "--on=ray://127.0.0.1:1", f"--output={tmp_path / 'out'}"]
    assert_clear(tftrt("build", zoo_model("digits_cnn"), *flags), 2, "holds no engine ops")
    assert_clear(tftrt("build", tmp_path / "none", *flags), 2, "no such file or directory")


@pytest.fixture
def fleet(monkeypatch):
    return fleet_results.counted(monkeypatch).models


def built(model, out, *kinds, overwrite=True):
    return building.everywhere(str(model), str(out), STRIPPED, parse("ray://h:1"), kinds, overwrite=overwrite)


def test_a_kind_that_fails_leaves_no_model_of_an_earlier_run_in_its_place(converted, fleet, tmp_path):
    model, out = converted("digits_cnn", "--precision=FP16"), tmp_path / "out"
    fleet |= {"T4": model, "L4": model}
    assert built(model, out, "T4", "L4").of_before() == ()
    for _ in range(2):
        # The second time there is another one to be moved away.
        fleet["L4"] = ""
        done = built(model, out, "T4", "L4")
        moved = str(out / ".before/L4")
        assert [(one.complete, one.before) for one in done.kinds] == [(True, ""), (False, moved)]
        assert done.text()[-2] == f"L4: the model of an earlier run is now {moved}"
        assert several.kinds(str(out)) == {"T4": str(out / "T4")} and files.is_saved_model(moved)
        jsonschema.validate(json.loads(done.to_json()), json.loads(FLEET_BUILD.read_text()))
        # Nothing is left to be moved.
        done = built(model, out, "T4", "L4")
        assert done.kinds[1].before == "" and files.is_saved_model(moved)
        fleet["L4"] = model
        assert built(model, out, "T4", "L4").complete


def test_a_model_that_cannot_be_moved_away_is_named(converted, fleet, tmp_path):
    model, out = converted("digits_cnn", "--precision=FP16"), tmp_path / "out"
    fleet |= {"T4": model}
    built(model, out, "T4")
    (out / ".before").write_text("mine")
    fleet["T4"] = ""
    (kind,) = built(model, out, "T4").kinds
    assert kind.before == "" and kind.cause == f"no memory; the model of an earlier run is still there: {out / 'T4'}"


def test_what_appears_meanwhile_is_not_moved_without_overwrite(converted, fleet, monkeypatch, tmp_path):
    model, out = converted("digits_cnn", "--precision=FP16"), tmp_path / "out"

    def run(fleet, tasks, *_, **__):
        shutil.copytree(model, out / "T4")
        yield Outcome(task=tasks[0], status="failed", tries=1, error=errors.TftrtError("no memory", "free some"))

    monkeypatch.setattr(building.running, "run", run)
    (kind,) = built(model, out, "T4", overwrite=False).kinds
    assert (kind.before, kind.cause) == ("", "no memory") and files.is_saved_model(out / "T4")


def test_kinds_that_were_not_asked_for_stay_and_are_named(converted, fleet, tmp_path):
    model, out = converted("digits_cnn", "--precision=FP16"), tmp_path / "out"
    fleet |= {"T4": model, "L4": model}
    built(model, out, "T4", "L4")
    done = built(model, out, "T4")
    assert done.complete and done.others == ("L4",) and several.kinds(str(out)).keys() == {"T4", "L4"}
    assert done.of_before() == (f"not of this run, and `tftrt publish {out}` takes them too: L4",)


def test_the_command_tells_of_earlier_runs(capsys):
    build._print_kinds(_output.console(None), dataclasses.replace(result(kind("T4", before="/x")), others=("L4",)))
    said = capsys.readouterr().out
    assert "T4: the model of an earlier run is now /x" in said and "takes them too: L4" in said


def test_junit_has_a_case_for_each_kind():
    done = result(
        kind("T4"),
        kind("L4", status="failed", output="", built=None, cause="no <space> \x00", mend="make some"),
        kind("A100", built=Built(complete=False, text=("1 of 2 engines",), made={})),
        kind("H100", status="not placeable", output="", built=None, where=None, cause="no H100", mend="add one"),
        kind("A10G", status="died", output="", built=None, cause="it went"),
        kind("V100", status="refused", output="", built=None, cause="h has another driver"),
    )
    root = ElementTree.fromstring(junit.text(done))
    (suite,) = root.findall("testsuite")
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped", "time")} == {
        "tests": "6", "failures": "2", "errors": "3", "skipped": "0", "time": "3.000",
    }  # fmt: skip
    assert suite.get("timestamp") == done.created and root.get("tests") == "6"
    cases = {one.get("name"): one for one in suite.findall("testcase")}
    assert list(cases) == ["T4", "L4", "A100", "H100", "A10G", "V100"]
    assert all(one.get("classname") == "tftrt.build" for one in cases.values())
    assert cases["T4"].find("system-out").text == "built on h, GPU 0: /built/T4" and cases["T4"].get("time") == "2.500"
    found = cases["L4"].find("failure")
    assert found.get("message") == "no <space> \ufffd" and "make some" in found.text and "on h, GPU 0" in found.text
    assert cases["A100"].find("failure").get("message") == "not all engines are there"
    assert "1 of 2 engines" in cases["A100"].find("failure").text
    assert [cases[name].find("error").get("type") for name in ("H100", "A10G", "V100")] == [
        "not placeable",
        "died",
        "refused",
    ]
    assert not done.complete and result(kind("T4")).complete


@needs_ray
def test_after_a_cluster_the_same_process_opens_a_fleet_of_this_machine():
    """Ray keeps what it was imported with."""
    code = (
        "from tftrt_tools.base import errors\nfrom tftrt_tools.fleet import place, session\n"
        "try:\n    session.opened(place.parse('ray://127.0.0.1:1')).__enter__()\n"
        "except errors.TftrtError as error:\n    assert 'no fleet answers' in error.cause\n"
        "with session.opened(place.parse('local')) as fleet:\n    print(len(fleet.nodes()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr
