"""`tftrt build --on` once more: what an earlier run built of the same is taken over, and nothing else."""

import dataclasses
import errno
import json
import os
import shutil
import subprocess
import sys
from xml.etree import ElementTree

import jsonschema
import pytest

from tests import fleet_results
from tests.conftest import ROOT
from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import _output, build
from tftrt_tools.fleet.place import parse
from tftrt_tools.models.savedmodel import files, passport
from tftrt_tools.servers.serving.publishing import several
from tftrt_tools.studies.fleet_builds import building, journal, junit
from tftrt_tools.studies.fleet_builds.building import Asked

SCHEMA = json.loads((ROOT / "docs/schemas/fleet_build.json").read_text())
ASKED = Asked(backend="tftrt", shapes="x:1", options={"tags": ["serve"]})


@pytest.fixture
def fleet(monkeypatch):
    return fleet_results.counted(monkeypatch)


@pytest.fixture
def model(converted):
    return converted("digits_cnn", "--precision=FP16")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "deep" / "out"


def built(model, out, *kinds, asked=ASKED, **options):
    return building.everywhere(str(model), str(out), asked, parse("ray://h:1"), kinds, **options)


def states(done):
    assert FleetBuild_round_trip(done)
    return {one.gpu_type: one.state for one in done.kinds}


def FleetBuild_round_trip(done):
    document = json.loads(done.to_json())
    jsonschema.validate(document, SCHEMA)
    return building.FleetBuild.from_dict(document).to_dict() == done.to_dict()


def first(fleet, model, out, *kinds):
    """A run that builds these kinds."""
    fleet.models |= dict.fromkeys(kinds, model)
    assert built(model, out, *kinds).complete
    fleet.asked.clear()


@pytest.mark.parametrize(
    ("ends", "raised"),
    [(KeyboardInterrupt(), errors.Interrupted), (errors.TftrtError("the fleet does not answer"), errors.TftrtError)],
)
def test_the_same_command_goes_on_after_an_interruption(ends, raised, fleet, model, out):
    fleet.models |= {"L4": model, "T4": ends}
    with pytest.raises(raised) as told:
        built(model, out)
    assert told.value.mend == (
        f"written: {out / 'L4'}; the same command takes over those that are complete, and builds the others"
    )
    fleet.models["T4"] = model
    fleet.asked.clear()
    done = built(model, out)
    assert states(done) == {"L4": "taken over", "T4": "done"} and done.complete and fleet.asked == ["T4"]
    assert [(one.taken_over, one.output) for one in done.kinds] == [(True, str(out / "L4")), (False, str(out / "T4"))]
    assert done.text()[:2] == ("L4: taken over", "T4: done") and not done.others
    # What was taken over can be taken over again.
    assert states(built(model, out)) == {"L4": "taken over", "T4": "taken over"}


def test_a_kind_that_failed_is_built_and_the_others_are_taken_over(fleet, model, out):
    fleet.models |= {"L4": model, "T4": "", "H100": model}
    assert states(built(model, out)) == {"H100": "done", "L4": "done", "T4": "failed"}
    fleet.models["T4"] = model
    assert states(built(model, out)) == {"H100": "taken over", "L4": "taken over", "T4": "done"}
    assert fleet.asked == ["H100", "L4", "T4", "T4"]


def test_where_all_that_are_named_are_there_no_fleet_is_asked(fleet, model, out):
    first(fleet, model, out, "T4", "L4")
    opened = fleet.opened
    assert states(built(model, out, "L4", "T4")) == {"L4": "taken over", "T4": "taken over"} and fleet.opened == opened


def test_a_kind_that_the_fleet_has_no_more_is_taken_over_too(fleet, model, out):
    first(fleet, model, out, "T4", "L4")
    del fleet.models["L4"]
    done = built(model, out)
    assert states(done) == {"T4": "taken over", "L4": "taken over"} and not done.others
    # Of another model it is no kind of this build.
    (out / "L4" / "saved_model.pb").write_bytes(b"other")
    done = built(model, out)
    assert states(done) == {"T4": "taken over"} and done.others == ("L4",)


def test_a_verification_in_between_does_not_change_a_kind(fleet, model, out):
    first(fleet, model, out, "T4")
    (out / "T4" / files.PASSPORT / "verify.json").write_text("{}")
    assert states(built(model, out)) == {"T4": "taken over"}


def test_a_verification_of_the_model_in_between_does_not_make_it_another(fleet, model, out, tmp_path):
    copy = tmp_path / "model"
    shutil.copytree(model, copy)
    first(fleet, copy, out, "T4")
    passport.write(copy, passport.VERIFY, {"kind": "verification"})
    assert states(built(copy, out, "T4")) == {"T4": "taken over"}


def without_manifest(out):
    (passport.folder(out / "T4") / passport.MANIFEST).unlink()


def other_manifest(out):
    (passport.folder(out / "T4") / passport.MANIFEST).write_text('{"broken')


@pytest.mark.parametrize("does", [without_manifest, other_manifest])
def test_a_model_that_no_longer_says_how_it_was_made_is_not_taken_over(does, fleet, model, out):
    first(fleet, model, out, "T4")
    does(out)
    with pytest.raises(errors.UsageError, match="its files have changed since it was built"):
        built(model, out, "T4")


def test_an_output_that_is_a_model_is_refused(fleet, model, tmp_path):
    shutil.copytree(model, tmp_path / "mine")
    with pytest.raises(errors.UsageError, match="is a model"):
        built(model, tmp_path / "mine", "T4")
    assert not (tmp_path / "mine" / journal.NAME).exists()


def test_a_bound_of_time_may_be_another_one(fleet, model, out):
    first(fleet, model, out, "T4")
    assert states(built(model, out, asked=dataclasses.replace(ASKED, build_minutes=5))) == {"T4": "taken over"}


def changed(out):
    (out / "T4" / "variables" / "more").write_bytes(b"")


def removed(out):
    (out / journal.NAME).unlink()


def another_kinds_model(out):
    shutil.rmtree(out / "T4")
    shutil.copytree(out / "L4", out / "T4")
    document = json.loads((out / journal.NAME).read_text())
    del document["entries"]["T4"]
    (out / journal.NAME).write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("does", "asked", "why"),
    [
        (changed, {}, "its files have changed since it was built"),
        (removed, {}, "nothing says what it was built from"),
        (another_kinds_model, {}, "nothing says what it was built from"),
        (None, {"shapes": "x:2"}, "it was built with other settings (shapes)"),
        (None, {"options": {"tags": ["gpu"]}}, "it was built with other settings (tags)"),
        (None, {"options": {}, "max_workspace_size_bytes": 1}, "other settings (max_workspace_size_bytes, tags)"),
        (None, {"backend": "tensorrt"}, "other settings (backend)"),
    ],
)
@pytest.mark.parametrize("named", [("T4",), ()])
def test_what_is_not_the_same_is_refused_as_before_and_says_why(does, asked, why, named, fleet, model, out):
    first(fleet, model, out, "T4", "L4")
    if does:
        does(out)
    with pytest.raises(errors.UsageError) as told:
        built(model, out, *named, asked=dataclasses.replace(ASKED, **asked))
    assert told.value.cause.startswith("the output directory exists: ") and told.value.cause.endswith(why)
    assert "--overwrite" in told.value.mend and not fleet.asked


def test_another_model_and_another_stack_are_not_taken_over(fleet, model, out, monkeypatch, tmp_path):
    first(fleet, model, out, "T4")
    other = shutil.copytree(model, tmp_path / "other")
    (other / "variables" / "more").write_bytes(b"")
    with pytest.raises(errors.UsageError, match="it was built from another model$"):
        built(other, out)
    there = building.stack.here()
    monkeypatch.setattr(building.stack, "here", lambda: dataclasses.replace(there, tensorrt="99", driver=""))
    with pytest.raises(errors.UsageError, match=r"it was built with TensorRT .*, not 99$"):
        built(model, out)
    assert not fleet.asked


def test_a_copy_of_the_model_under_another_name_is_the_same(fleet, model, out, tmp_path):
    first(fleet, model, out, "T4")
    assert states(built(shutil.copytree(model, tmp_path / "copy"), out)) == {"T4": "taken over"}


def test_overwrite_builds_all_and_they_can_be_taken_over(fleet, model, out):
    first(fleet, model, out, "T4", "L4")
    (out / "T4" / "saved_model.pb").write_bytes(b"other")
    assert states(built(model, out, overwrite=True)) == {"L4": "done", "T4": "done"} and fleet.asked == ["L4", "T4"]
    assert states(built(model, out)) == {"L4": "taken over", "T4": "taken over"}


def test_interrupted_with_overwrite_the_message_is_not_that_the_same_command_goes_on(fleet, model, out):
    first(fleet, model, out, "T4", "L4")
    fleet.models["T4"] = KeyboardInterrupt()
    with pytest.raises(errors.Interrupted) as told:
        built(model, out, overwrite=True)
    assert told.value.mend.endswith("--gpu_types names the others for the next run")


def test_a_kind_without_all_its_engines_is_built_again(fleet, model, out):
    fleet.models, fleet.complete = {"T4": model, "L4": model}, False
    assert not built(model, out).complete
    fleet.complete = True
    done = built(model, out)
    assert states(done) == {"L4": "done", "T4": "done"} and done.complete and not done.of_before()
    # One that fails then leaves nothing in its place.
    fleet.complete = False
    built(model, out, overwrite=True)
    fleet.complete, fleet.models["T4"] = True, ""
    done = built(model, out)
    assert states(done) == {"L4": "done", "T4": "failed"} and done.kinds[1].before == str(out / ".before/T4")


def test_a_kind_that_somebody_else_put_there_meanwhile_is_no_kind_of_this_build(fleet, model, out, monkeypatch):
    first(fleet, model, out, "T4")
    shutil.rmtree(out / "T4")
    run = building.running.run

    def late(*args, **options):
        for outcome in run(*args, **options):
            shutil.copytree(model, out / "T4")
            (out / "T4" / "saved_model.pb").write_bytes(b"mine")
            yield outcome

    monkeypatch.setattr(building.running, "run", late)
    assert states(built(model, out)) == {"T4": "failed"}
    with pytest.raises(errors.UsageError, match="its files have changed since it was built"):
        built(model, out)


def test_a_disk_that_is_full_for_the_journal_leaves_no_kind(fleet, model, out, monkeypatch):
    fleet.models = {"T4": model}

    def full(path, text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(journal.whole_file, "write_text", full)
    (kind,) = built(model, out).kinds
    assert (kind.status, kind.output) == ("failed", "") and kind.cause.endswith("No space left on device")
    assert not out.parent.exists()


def test_publish_takes_the_journal_and_the_lock_for_no_kind(fleet, model, out):
    first(fleet, model, out, "T4", "L4")
    with journal.held(str(out), False):
        assert {path.name for path in out.iterdir()} == {"T4", "L4", journal.NAME, ".tftrt-build.lock"}
        assert several.kinds(str(out)).keys() == {"T4", "L4"}


def test_where_nothing_is_built_nothing_is_left(fleet, model, out):
    fleet.models = {"T4": ""}
    assert not built(model, out).complete and not out.parent.exists()


def test_two_commands_at_once_are_told_in_one_line(fleet, model, out):
    first(fleet, model, out, "T4")
    with journal.held(str(out), False), pytest.raises(errors.TftrtError) as told:
        built(model, out, overwrite=True)
    assert told.value.cause == f"another `tftrt build --on` builds into {out}" and not fleet.asked
    assert told.value.mend == "wait for it, or choose another --output"
    assert states(built(model, out)) == {"T4": "taken over"}


def test_a_command_that_was_killed_leaves_no_lock_that_holds(fleet, model, out):
    code = (
        "import os, sys\nfrom tftrt_tools.studies.fleet_builds import journal\n"
        "with journal.held(sys.argv[1], False):\n    os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code, out], cwd=ROOT, check=False)
    assert (out / ".tftrt-build.lock").exists()
    first(fleet, model, out, "T4")
    assert not (out / ".tftrt-build.lock").exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"kind": "fleet journal"}',
        '{"kind": "other", "schema_version": 1, "entries": {}}',
        '{"kind": "fleet journal", "schema_version": 99, "entries": {}}',
        '{"kind": "fleet journal", "schema_version": 1, "entries": {"T4": {}}}',
        '{"kind": "fleet journal", "schema_version": 1, "entries": null}',
    ],
)
def test_a_journal_that_cannot_be_read_is_told_and_overwrite_goes_on(text, fleet, model, out):
    first(fleet, model, out, "T4")
    (out / journal.NAME).write_text(text)
    with pytest.raises(errors.TftrtError) as told:
        built(model, out)
    assert journal.NAME in told.value.cause and told.value.mend and "\n" not in told.value.cause
    assert states(built(model, out, overwrite=True)) == {"T4": "done"}
    assert states(built(model, out)) == {"T4": "taken over"}


@pytest.mark.parametrize(
    "change",
    [
        lambda entry: entry["built"].pop("status"),
        lambda entry: entry.update(built=None),
        lambda entry: entry.update(built=[]),
        lambda entry: entry.pop("digest"),
        lambda entry: entry["origin"].update(request=[]),
        lambda entry: entry["origin"]["request"].update(options=[]),
        lambda entry: entry["origin"].update(stack={"tools": 3}),
    ],
)
def test_an_entry_that_is_damaged_is_told(change, fleet, model, out):
    first(fleet, model, out, "T4")
    document = json.loads((out / journal.NAME).read_text())
    change(document["entries"]["T4"])
    (out / journal.NAME).write_text(json.dumps(document))
    with pytest.raises(errors.TftrtError, match="is damaged"):
        built(model, out)


def test_the_output_and_junit_say_what_was_taken_over(fleet, model, out, capsys):
    first(fleet, model, out, "T4")
    done = built(model, out)
    build._print_kinds(_output.console(None), done)
    said = capsys.readouterr().out
    assert "taken over" in said and "built for 1 of 1 kinds" in said
    (case,) = ElementTree.fromstring(junit.text(done)).iter("testcase")
    assert case.find("system-out").text.startswith("taken over, built")
