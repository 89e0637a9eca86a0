"""A whole command on a machine of a cluster: real commands run among what has travelled, and what they write is put in its place. No Ray
here: a child of this process stands for the machine."""

import contextlib
import dataclasses
import gzip
import json
import os
import pathlib
import shutil
import signal
import sys
import threading
import time
import types

import numpy as np
import onnx
import pytest

from tests import command_here, onnx_files
from tests.command_line import assert_clear, processes_marked
from tests.onnx_files import product
from tests.rooms.command_line.test_help import module
from tftrt_tools.base import errors
from tftrt_tools.base.process import child
from tftrt_tools.command_line import cli
from tftrt_tools.command_line.commands import _elsewhere, _flags
from tftrt_tools.fleet import content
from tftrt_tools.fleet.place import parse
from tftrt_tools.fleet.task import Given, Outcome, Where
from tftrt_tools.models.savedmodel import files as model_files
from tftrt_tools.studies.elsewhere import bundle, request, request_job, sending
from tftrt_tools.studies.elsewhere.request import Request

ADDRESS = "ray://127.0.0.1:10001"
# A command that takes a minute if nobody ends it.
LONG = (
    "regress",
    "m.onnx",
    "n.onnx",
    "--rounds=2000",
    "--max_rounds=2000",
    "--max_seconds=60",
    "--allow_worse",
    "--must_decide=",
)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, whose name has blanks and quotes, with three models; weights lie beside the second one, and the third one
    answers otherwise."""
    folder = tmp_path / "a 'b\" c"
    folder.mkdir()
    monkeypatch.chdir(folder)
    product(folder / "m.onnx")
    # Another package writes the weights to where the process is.
    product(pathlib.Path("n.onnx"), outside=True)
    product(folder / "unlike.onnx", seed=1)
    np.save(folder / "rows.npy", np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32))
    return folder


def machine(task, folder):
    """What a machine makes of a task, as the worker of a fleet does. Returns: Outcome."""
    sent = content.unpack(task.content, folder / "content")
    given = Given(request=task.request, content=str(sent), output=str(folder / "output"))
    where = Where(node="n", host="far", gpus="0")
    try:
        answer = task.job.run(given, {"CUDA_VISIBLE_DEVICES": ""}).result
    except errors.TftrtError as error:
        return Outcome(task=task, status="failed", tries=1, error=error, where=where)
    finally:
        shutil.rmtree(sent)
    return Outcome(task=task, status="done", tries=1, answer=answer, output=content.pack(given.output), where=where)


@pytest.fixture
def fleet(monkeypatch, tmp_path):
    """A fleet that is none. Returns: a namespace; `after(outcome)` is called after each task, and returns what the fleet says of it."""
    kept = types.SimpleNamespace(after=lambda outcome: outcome, tasks=[])

    @contextlib.contextmanager
    def opened(place):
        yield types.SimpleNamespace(nodes=dict)

    def run(fleet, tasks, *_):
        kept.tasks += tasks
        for task in tasks:
            folder = tmp_path / f"machine-{task.gpu_type}-{len(list(tmp_path.iterdir()))}"
            yield kept.after(machine(task, folder))

    monkeypatch.setattr(sending.session, "opened", opened)
    monkeypatch.setattr(_elsewhere.session, "check", lambda: None)
    monkeypatch.setattr(sending.running, "run", run)
    return kept


@pytest.fixture
def tftrt():
    """A function that runs the command in this process, where the fleet is none. Returns: CompletedProcess."""

    def run(*words, cwd):
        return command_here._ran(["tftrt", *words], lambda: cli.main(list(words)), None, cwd)

    return run


def on(*words, types=()):
    """The words with a cluster."""
    return [*words, f"--on={ADDRESS}", *([f"--gpu_types={','.join(types)}"] if types else [])]


def test_it_writes_what_it_writes_here_and_says_where_it_ran(here, fleet, tftrt):
    words = ("verify", "m.onnx", "n.onnx", f"--data={here}/rows.npy", "--html=o 'p.html")
    done = tftrt(*on(*words, "--json=far.json"), cwd=here)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1].startswith("ran on far, GPU 0 for ") and "exit code 0" in done.stderr
    near = tftrt(*words, "--json=near.json", cwd=here)
    assert done.stdout == near.stdout
    far, near = (json.loads((here / name).read_text()) for name in ("far.json", "near.json"))
    assert far.pop("created") and near.pop("created") and far == near
    assert far["original"] == f"{here}/m.onnx"
    # The folder of the machine in these tests.
    assert "machine-" not in (here / "o 'p.html").read_text() and (here / "o 'p.html").stat().st_size > 1000


def test_its_exit_code_is_passed_on_and_its_files_are_here(here, fleet, tftrt):
    done = tftrt(*on("verify", "m.onnx", "unlike.onnx", "--json=out.json"), cwd=here)
    assert done.returncode == 3 and "FAILED" in done.stdout
    assert json.loads((here / "out.json").read_text())["passed"] is False and len(fleet.tasks) == 1


def test_a_link_and_two_dots_are_what_the_system_takes_them_for(here, fleet, tftrt):
    """link/../c.onnx is beside the folder that the link leads to, not beside the link."""
    (here / "f" / "other" / "inner").mkdir(parents=True)
    (here / "f" / "link").symlink_to(here / "f" / "other" / "inner")
    shutil.copy(here / "unlike.onnx", here / "f" / "other" / "c.onnx")
    shutil.copy(here / "m.onnx", here / "f" / "c.onnx")
    words = ("verify", "m.onnx", "f/link/../c.onnx")
    assert tftrt(*words, cwd=here).returncode == 3
    assert tftrt(*on(*words), cwd=here).returncode == 3, "another file was sent"
    # What is written goes to the same place, with and without a fleet.
    assert tftrt("verify", "m.onnx", "n.onnx", "--json=f/link/../here.json", cwd=here).returncode == 0
    assert tftrt(*on("verify", "m.onnx", "n.onnx", "--json=f/link/../far.json"), cwd=here).returncode == 0
    assert {one.parent for one in here.rglob("here.json")} == {one.parent for one in here.rglob("far.json")} != set()


def test_of_a_family_any_file_is_what_the_flag_names():
    asked = request.Request(words=("regress",), current="/w", families=("/w/log",), files=("/w/o.json",))
    assert asked.came("/w/log", ["/w/log.batch-8"]) and asked.came("/w/log", ["/w/log"])
    assert not asked.came("/w/log", ["/w/o.json"]) and not asked.came("/w/o.json", ["/w/o.json.more"])


def test_what_it_says_is_wrong_is_said_here(here, fleet, tftrt):
    done = tftrt(*on("verify", "m.onnx", "n.onnx", "--shapes=nonsense", "--json=out.json"), cwd=here)
    assert done.returncode == 2 and "nonsense" in done.stderr and done.stdout == ""
    assert not (here / "out.json").exists()


def test_each_kind_has_files_of_its_own_and_the_worst_exit_code_counts(here, fleet, tftrt):
    def after(outcome):
        if outcome.task.gpu_type == "L4":
            return dataclasses.replace(
                outcome, status="died", answer=None, output=None, error=errors.TftrtError("gone", "x")
            )
        return outcome

    words = on("verify", "m.onnx", "n.onnx", "--json=out.json", types=("T4", "A10G"))
    done = tftrt(*words, cwd=here)
    assert done.returncode == 0 and sorted(one.name for one in here.glob("out*")) == ["out-A10G.json", "out-T4.json"]
    assert "T4: ran on far" in done.stderr and "T4:\n" in done.stdout and "A10G:\n" in done.stdout
    assert fleet.tasks[0].content is fleet.tasks[1].content, "it is sent once"
    fleet.after = after
    done = tftrt(*on("verify", "m.onnx", "n.onnx", "--json=n.json", types=("T4", "L4")), cwd=here)
    assert done.returncode == 1 and "tftrt: error: L4: gone\n  x" in done.stderr
    assert (here / "n-T4.json").exists() and not (here / "n-L4.json").exists()
    done = tftrt(*on("verify", "m.onnx", "unlike.onnx", types=("T4", "L4")), cwd=here)
    assert done.returncode == 3


def test_one_that_came_to_no_end_is_an_error(here, fleet, tftrt):
    fleet.after = lambda outcome: dataclasses.replace(
        outcome,
        status="died",
        answer=None,
        output=None,
        error=errors.TftrtError("no worker brought it to an end", "see"),
    )
    done = tftrt(*on("verify", "m.onnx", "n.onnx", "--json=out.json"), cwd=here)
    assert_clear(done, 1, "no worker brought it to an end")
    assert not (here / "out.json").exists()


def test_a_file_that_is_not_written_is_told(here, fleet, tftrt, zoo_model):
    shutil.copytree(zoo_model("digits_cnn"), here / "digits")
    done = tftrt(*on("convert", "digits", "made", "--dry_run", "--json=o.json"), cwd=here)
    assert done.returncode == 0 and f"not written: {here}/made\n" in done.stderr, done.stderr
    assert (here / "o.json").is_file() and not (here / "made").exists()


def test_a_file_that_is_there_is_replaced_only_after_the_run(here, fleet, tftrt):
    (here / "out.json").write_text("before")
    seen = []
    fleet.after = lambda outcome: (seen.append((here / "out.json").read_text()), outcome)[1]
    done = tftrt(*on("verify", "m.onnx", "n.onnx", "--json=out.json"), cwd=here)
    assert done.returncode == 0 and seen == ["before"] and json.loads((here / "out.json").read_text())


def test_a_file_that_cannot_be_written_is_told_and_ends_with_1(here, fleet, tftrt):
    def after(outcome):
        (here / "sub").rmdir()
        return outcome

    (here / "sub").mkdir()
    fleet.after = after
    done = tftrt(*on("verify", "m.onnx", "n.onnx", "--json=sub/out.json", "--html=out.html"), cwd=here)
    assert done.returncode == 1 and "tftrt: error: " in done.stderr and "sub/out.json" in done.stderr
    assert (here / "out.html").exists()


def test_a_result_is_kept_in_the_model_unless_it_has_changed_meanwhile(converted, here, fleet, tftrt, zoo_model):
    shutil.copytree(converted("digits_cnn", "--precision=FP16"), here / "made")
    shutil.copytree(zoo_model("digits_cnn"), here / "digits")
    kept = here / "made" / model_files.PASSPORT / "verify.json"
    digest = model_files.digest(here / "made")
    done = tftrt(*on("verify", "digits", "made"), cwd=here)
    assert done.returncode == 0, done.stderr
    found = json.loads(kept.read_text())
    assert (found["original"], found["converted"]) == (f"{here}/digits", f"{here}/made")
    assert model_files.digest(here / "made") == digest
    kept.unlink()

    def after(outcome):
        (here / "made/assets.extra/new").write_text("x")
        return outcome

    fleet.after = after
    done = tftrt(*on("verify", "digits", "made", "--json=out.json"), cwd=here)
    assert done.returncode == 1 and "has changed meanwhile" in done.stderr and not kept.exists()
    assert (here / "out.json").exists()


def test_a_folder_comes_back_whole_or_is_kept_beside(here, fleet, tftrt, zoo_model):
    shutil.copytree(zoo_model("digits_cnn"), here / "digits")
    words = on("convert", "digits", "made 'x", "--precision=FP16")
    done = tftrt(*words, cwd=here)
    assert done.returncode == 0, done.stderr
    model_files.check(here / "made 'x")
    texts = [one.read_text() for one in (here / "made 'x" / model_files.PASSPORT).iterdir()]
    assert texts and not any("machine-" in one for one in texts)
    assert f"written: {here}/made 'x" in done.stdout or "written: made 'x" in done.stdout
    assert_clear(tftrt(*words, cwd=here), 2, "exists")
    shutil.rmtree(here / "made 'x")

    def after(outcome):
        (here / "made 'x").mkdir()
        (here / "made 'x/mine").write_text("mine")
        return outcome

    fleet.after = after
    done = tftrt(*words, cwd=here)
    assert done.returncode == 1 and "appeared there meanwhile" in done.stderr
    assert [one.name for one in (here / "made 'x").iterdir()] == ["mine"]


def test_an_export_that_replaces_one_takes_its_weights_away(here, fleet, tftrt):
    # Small weights go into the file itself.
    large = {"w": np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)}
    sides = [onnx_files.values((name, "float32", ("batch", 64))) for name in "xy"]
    onnx_files.write(here / "large.onnx", [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], *sides, large)
    words = ("export", "large.onnx", "--output=o.onnx")
    done = tftrt(*on(*words, "--external_data"), cwd=here)
    assert done.returncode == 0 and (here / "o.onnx.data").is_file(), done.stderr
    done = tftrt(*on(*words), cwd=here)
    assert done.returncode == 0 and f"removed: {here}/o.onnx.data" in done.stderr
    assert not (here / "o.onnx.data").exists() and (here / "o.onnx").is_file()


def test_a_file_that_is_written_into_the_model_is_no_change_of_it(converted, here, fleet, tftrt, zoo_model):
    shutil.copytree(converted("digits_cnn", "--precision=FP16"), here / "made")
    shutil.copytree(zoo_model("digits_cnn"), here / "digits")
    done = tftrt(*on("verify", "digits", "made", "--json=made/a.json"), cwd=here)
    assert done.returncode == 0 and (here / "made/a.json").is_file(), done.stderr
    assert (here / "made" / model_files.PASSPORT / "verify.json").is_file()


def test_a_link_among_what_is_written_comes_as_what_it_leads_to(tmp_path):
    root, output = tmp_path / "root", tmp_path / "output"
    (root / "w").mkdir(parents=True)
    (root / "w/real").write_text("1")
    (root / "w/a").symlink_to(root / "w/real")
    output.mkdir()
    assert request_job._taken("/w/a", str(root), output) and request_job._taken("/w/real", str(root), output)
    assert content.unpack(content.pack(output), tmp_path / "came").joinpath("files/w/a").read_text() == "1"


def test_an_interrupt_says_what_is_written(here, fleet, tftrt):
    calls = []

    def after(outcome):
        calls.append(outcome)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return outcome

    fleet.after = after
    done = tftrt(*on("verify", "m.onnx", "n.onnx", "--json=out.json", types=("T4", "L4")), cwd=here)
    assert_clear(done, 1, f"written: {here}/out-T4.json")
    assert not (here / "out-L4.json").exists()


def given(here, tmp_path, *words, **changes):
    """What a machine is given for a command. Returns: Given."""
    values, positional = _flags.parse(words[0], module(words[0]), words[1:])
    asked = dataclasses.replace(_elsewhere._request(words[0], values, positional, ""), **changes)
    with bundle.bundled(_elsewhere._reads(words[0], values, positional), [asked.current]) as root:
        sent = content.unpack(content.pack(root), tmp_path / "sent")
    return Given(request=asked.to_dict(), content=str(sent), output=str(tmp_path / "output"))


def test_a_file_that_no_flag_names_stays_there_and_is_told(here, tmp_path):
    ran = sending.run_there.run(given(here, tmp_path, "verify", "m.onnx", "n.onnx", "--json=out.json", files=())).result
    assert ran.exit_code == 0 and ran.left == (f"{here}/out.json",) and ran.made == ()
    assert not (tmp_path / "output" / request.FILES).exists()


def test_what_no_flag_names_is_not_written_here_either(here, tmp_path):
    """A machine of the cluster may be another version, or worse."""
    came = tmp_path / "came"
    for name in ("out.json", "m.onnx"):
        request.below(came, f"{here}/{name}").parent.mkdir(parents=True, exist_ok=True)
        request.below(came, f"{here}/{name}").write_text("new")
    asked = Request(words=(), current=str(here), files=(f"{here}/out.json",))
    ran = request.Response(exit_code=0, made=(f"{here}/out.json", f"{here}/m.onnx", f"{here}/x/../m.onnx"))
    before = (here / "m.onnx").read_bytes()
    assert sending._placed(came, ran, asked, False, {}) == ([f"{here}/out.json"], [])
    assert (here / "m.onnx").read_bytes() == before


def test_a_command_that_is_killed_takes_its_request_with_it(here, tmp_path, monkeypatch):
    """A fleet tries again what was killed from outside, which the system does for want of memory."""
    monkeypatch.setenv("TFTRT_TEST_MARK", mark := f"request-{os.getpid()}")
    asked = given(here, tmp_path, *LONG)
    raised = []

    def run():
        try:
            child.run(sending.run_there.target, asked.to_dict())
        except child.ChildDied as error:
            raised.append(error)

    one = threading.Thread(target=run)
    one.start()
    _command_of(mark, signal.SIGKILL)
    one.join(60)
    assert raised and raised[0].signal_name == "SIGKILL"


def test_a_command_ends_with_its_request(here, tmp_path, monkeypatch):
    monkeypatch.setenv("TFTRT_TEST_MARK", mark := f"request-ends-{os.getpid()}")
    asked = given(here, tmp_path, *LONG)
    with child.worker(sending.run_there.target) as worker:
        one = threading.Thread(target=lambda: _call(worker, asked))
        one.start()
        command = _command_of(mark)
        worker.end()
        one.join(60)
    for _ in range(100):
        if not os.path.exists(f"/proc/{command}"):
            break
        time.sleep(0.1)
    assert not os.path.exists(f"/proc/{command}")


def _call(worker, asked):
    with contextlib.suppress(child.ChildDied):
        worker.call(asked.to_dict())


def _command_of(mark, number=0):
    """The process of the command among those that are marked; it gets a signal."""
    for _ in range(600):
        for process in processes_marked(mark):
            with contextlib.suppress(OSError):
                words = pathlib.Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
                if words[1:4] == [b"-m", b"tftrt_tools", b"regress"]:
                    os.kill(int(process), number)
                    return process
        time.sleep(0.05)
    raise AssertionError("no command")


def told_to_end(monkeypatch, tmp_path, code):
    """Run a program of Python in the place of a command. Returns: its exit code. Raises: as the request."""
    monkeypatch.setattr(request_job.interpreter, "command", lambda *_: [sys.executable, "-c", code])
    output = tmp_path / "output"
    output.mkdir(exist_ok=True)
    return request_job._run(Request(words=("x",), current="/"), str(tmp_path), output)


def test_a_full_disk_is_the_machines_trouble_and_another_failure_is_not(tmp_path, monkeypatch):
    says = "import sys; print('tftrt: error: {}', file=sys.stderr); sys.exit({})"
    with pytest.raises(errors.TftrtError) as raised:
        told_to_end(monkeypatch, tmp_path, says.format(f"{tmp_path}/w/out: No space left on device", 1))
    assert raised.value.cause == "/w/out: No space left on device"
    assert told_to_end(monkeypatch, tmp_path, says.format("no such model", 1)) == 1
    # The command has come to its end, and says itself what it could not write.
    assert told_to_end(monkeypatch, tmp_path, says.format("o: No space left on device", 3)) == 3


def test_a_command_that_native_code_ends_is_told(tmp_path, monkeypatch):
    with pytest.raises(errors.TftrtError, match="ended by SIGABRT") as raised:
        told_to_end(
            monkeypatch, tmp_path, "import os, sys; print('free(): bad', file=sys.stderr, flush=True); os.abort()"
        )
    assert "free(): bad" in raised.value.mend


def test_the_root_goes_from_texts_and_is_told_of_other_files(tmp_path):
    root = "/scratch/x/root"
    text, packed, other, plain = (tmp_path / name for name in ("a.json", "b.json.gz", "c.pb", "d.bin"))
    text.write_text(f'{{"a": "{root}/home/m", "b": "{root}"}}')
    packed.write_bytes(gzip.compress(f"{root}/home/m".encode()))
    other.write_bytes(b"\0" + f"{root}/home".encode())
    plain.write_bytes(b"\0\1")
    (tmp_path / "empty").touch()
    assert request_job._own(text, root) and json.loads(text.read_text()) == {"a": "/home/m", "b": "/"}
    assert request_job._own(packed, root) and gzip.decompress(packed.read_bytes()) == b"/home/m"
    assert not request_job._own(other, root) and other.read_bytes() == b"\0" + f"{root}/home".encode()
    assert request_job._own(plain, root) and request_job._own(tmp_path / "empty", root)
    remote_run = sending.RemoteRun(
        gpu_type="", status="done", exit_code=0, foreign=("/o/c.pb",), left=("/o/x",), tries=2
    )
    assert remote_run.notes() == (
        "ran nowhere for 0 s, in try 2: exit code 0",
        "no flag names /o/x: left on that machine",
        "/o/c.pb names paths of that machine",
    )


def test_links_to_files_and_folders_arrive_as_what_they_lead_to(tmp_path):
    (tmp_path / "real/deep").mkdir(parents=True)
    (tmp_path / "real/deep/one").write_text("1")
    (tmp_path / "real/again").symlink_to(tmp_path / "real")
    (tmp_path / "data").symlink_to(tmp_path / "real")
    with bundle.bundled([str(tmp_path / "data")], ["/w/here"]) as root:
        there = content.unpack(content.pack(root), tmp_path / "there")
    assert request.below(there, f"{tmp_path}/data/deep/one").read_text() == "1"
    assert request.below(there, "/w/here").is_dir() and not os.path.exists(root)


@pytest.mark.parametrize("link", ["a", "z"])
def test_a_folder_to_which_a_link_beside_it_leads_arrives_twice(link, tmp_path):
    (tmp_path / "model/real").mkdir(parents=True)
    (tmp_path / "model/real/one").write_text("1")
    (tmp_path / "model" / link).symlink_to("real")
    with bundle.bundled([str(tmp_path / "model")], []) as root:
        there = content.unpack(content.pack(root), tmp_path / "there")
    for name in ("real", link):
        assert request.below(there, f"{tmp_path}/model/{name}/one").read_text() == "1"


def test_a_place_that_no_fleet_answers_at_leaves_nothing(here, monkeypatch):
    with pytest.raises(errors.TftrtError):
        sending.run({"": Request(words=("doctor",), current=str(here))}, [], False, parse("ray://127.0.0.1:1"))
