"""Real runs of `tftrt regress` against the development server: a model against itself, against a slower one, goals, an interruption."""

import dataclasses
import json
import math
import shutil
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.command_here import run_program
from tests.conformance.launch import LocalServer
from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.base.statistics import interleaving
from tftrt_tools.command_line.commands import _flags
from tftrt_tools.command_line.commands import regress as command
from tftrt_tools.models.execution import run as execution
from tftrt_tools.models.execution.runner import Where
from tftrt_tools.models.execution.trace import CallTrace
from tftrt_tools.models.kinds.model import Contents
from tftrt_tools.models.kinds.names import Matched
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.servers.load import drive_job
from tftrt_tools.servers.load.request_entries import Entries
from tftrt_tools.studies.regression import in_process, models, pair, regress, rounds
from tftrt_tools.studies.regression.goals import Goals

# One metric and one look: the fewest rounds that can show something.
QUICK = ("--metrics=p50", "--rounds=12", "--max_rounds=12", "--requests=16")
# Where a difference has to be found: more rounds where a machine with other work hides it in the first ones.
DECIDED = (*QUICK, "--max_rounds=48")
SLOWER = """
import sys
import tensorflow as tf

from tensorflow.python.data.experimental.ops.testing import sleep

inner = tf.saved_model.load(sys.argv[1])


class Slower(tf.Module):
    def __init__(self):
        self.inner = inner

    @tf.function(input_signature=[tf.TensorSpec((None, 8, 8, 1), tf.float32, name="image")])
    def serve(self, image):
        zero = tf.data.Dataset.range(1).apply(sleep(5_000)).reduce(tf.constant(0, tf.int64), lambda _, value: value)
        return {"probabilities": self.inner.signatures["serving_default"](image=image)["probabilities"] + tf.cast(zero, tf.float32)}


class Strict(tf.Module):
    def __init__(self):
        self.inner = inner

    @tf.function(input_signature=[tf.TensorSpec((None, 8, 8, 1), tf.float32, name="image")])
    def serve(self, image):
        with tf.control_dependencies([tf.debugging.assert_less(tf.shape(image)[0], 3, "one or two images, please")]):
            return {"probabilities": self.inner.signatures["serving_default"](image=tf.identity(image))["probabilities"]}


for kind, path in ((Slower, sys.argv[2]), (Strict, sys.argv[3])):
    module = kind()
    tf.saved_model.save(module, path, signatures={"serving_default": module.serve})
"""


def run(*arguments):
    values, positional = _flags.parse("regress", command, [str(one) for one in arguments])
    return command.run(values, positional)


@pytest.fixture(scope="module")
def native(zoo_model):
    return zoo_model("digits_cnn")


@pytest.fixture(scope="module")
def made(native, tmp_path_factory):
    """Folder of two models that were made of the native one, `slower` and `strict`."""
    folder = tmp_path_factory.mktemp("made")
    run_program(SLOWER, native, folder / "slower", folder / "strict")
    return folder


@pytest.fixture(scope="module")
def slower(made):
    """The same model after 5 ms of sleep: slower on every machine, and it takes no processor from the tests beside it."""
    return made / "slower"


@pytest.fixture(scope="module")
def strict(made):
    """The same model, which refuses more than two images."""
    return made / "strict"


@pytest.fixture(scope="module")
def server(native, slower, strict, tmp_path_factory):
    """A server that has the model as `native` and `copy`, the slower one as `slower`, and the one that refuses as `strict`."""
    base = tmp_path_factory.mktemp("served")
    text = ""
    for name, model in (("native", native), ("copy", native), ("slower", slower), ("strict", strict)):
        shutil.copytree(model, base / name / "1")
        text += f'config {{ name: "{name}" base_path: "{base / name}" model_platform: "tensorflow" }}\n'
    (base / "models.config").write_text(f"model_config_list {{ {text} }}")
    with LocalServer([f"--model_config_file={base / 'models.config'}"], base / "log", looked_at=True) as one:
        yield one.grpc_address


@pytest.mark.slow
def test_a_model_against_itself_from_its_directory(native, tmp_path, capsys):
    code = run(
        f"--native={native}",
        f"--candidate={native}",
        *QUICK,
        f"--json={tmp_path / 'r.json'}",
        f"--html={tmp_path / 'r.html'}",
        f"--junit={tmp_path / 'r.xml'}",
        "--save_baseline=auto",
        f"--history_dir={tmp_path / 'history'}",
    )
    document = json.loads((tmp_path / "r.json").read_text())
    (judged,) = document["verdict"]["judgements"]
    assert code in (0, 4) and judged["verdict"] in ("same", "cannot tell"), judged
    assert (
        document["complete"]
        and document["server"]["backend"] == "in process"
        and document["native"]["digest"] == document["candidate"]["digest"]
    )
    assert (
        len(document["rounds"]["native_p50"]) == 12
        and document["requests_per_round"] == 16
        and document["failed"] == {"native": 0, "candidate": 0}
    )
    assert document["answers"]["problems"] == [] and document["answers"]["requests"] == 16
    assert document["workload"]["through"] == "in process", "the default: the ratio is the models' own"
    assert ElementTree.parse(tmp_path / "r.xml").getroot().get("failures") == "0"
    assert (tmp_path / "r.html").read_text().count("<svg") == 1
    (kept,) = (tmp_path / "history").rglob("0001.json")
    assert json.loads(kept.read_text())["outcome"] == document["outcome"] and str(
        kept
    ) in capsys.readouterr().out.replace("\n", "")


@pytest.mark.slow
def test_a_slower_candidate_fails_and_is_held_against_its_baseline(server, native, slower, tmp_path, capsys):
    both = (
        f"--address={server}",
        "--native=native",
        "--candidate=slower",
        f"--native_dir={native}",
        f"--candidate_dir={slower}",
        *DECIDED,
    )
    path, other = tmp_path / "kept.json", tmp_path / "not_kept.json"
    assert run(*both, "--allow_worse", f"--save_baseline={path}") == errors.EXIT_DONE and path.exists()
    code = run(
        *both,
        f"--baseline={path}",
        f"--save_baseline={other}",
        f"--junit={tmp_path / 'r.xml'}",
        f"--json={tmp_path / 'r.json'}",
    )
    assert code == errors.EXIT_CHECK and not other.exists() and "not kept as a baseline" in capsys.readouterr().out
    document = json.loads((tmp_path / "r.json").read_text())
    (judged,) = document["verdict"]["judgements"]
    assert (judged["verdict"], judged["direction"]) == ("worse", "slower") and judged["low"] > 1
    # What it is told by them depends on what else the machine did in both runs: five milliseconds of sleep are no fixed ratio.
    assert [one["metric"] for one in document["baseline"]["judgements"]] == ["p50", "throughput"]
    failed = ElementTree.parse(tmp_path / "r.xml").getroot().find(".//failure")
    assert "times as long" in failed.get("message")
    exchanged = (
        f"--address={server}",
        "--native=slower",
        "--candidate=native",
        f"--native_dir={slower}",
        f"--candidate_dir={native}",
        *DECIDED,
    )
    assert run(*exchanged, "--speed_up_at_least=1.1") == errors.EXIT_DONE
    # Of another native model: not compared at all.
    with pytest.raises(errors.UsageError, match="native model: sha256"):
        run(*exchanged, f"--baseline={path}")


@pytest.mark.slow
def test_without_a_server_the_slower_candidate_fails_too(native, slower, images, tmp_path):
    code = run(
        f"--native={native}",
        f"--candidate={slower}",
        "--in_process",
        "--batch_size=8",
        f"--data={images / 'held_back.npz'}",
        *DECIDED,
        "--no_engine_fallback",
        f"--json={tmp_path / 'r.json'}",
    )
    document = json.loads((tmp_path / "r.json").read_text())
    (judged,) = document["verdict"]["judgements"]
    assert code == errors.EXIT_CHECK and judged["verdict"] == "worse" and judged["low"] > 1
    assert document["server"]["backend"] == document["workload"]["through"] == "in process"
    assert (
        document["answers"]["problems"] == []
        and document["answers"]["requests"] == 50
        and document["failed"] == {"native": 0, "candidate": 0}
    )
    assert (document["engines"]["answer"], document["engines"]["reason"]) == ("no", "it has no engine op")


def test_in_process_engines_that_this_tensorrt_does_not_load_are_named(zoo_model, built_once, tmp_path, capsys):
    model = shutil.copytree(built_once[0], tmp_path / "built")
    manifest = passport.read(model, passport.MANIFEST)
    manifest["versions"]["tensorrt"] = "8.4.3"
    passport.write(model, passport.MANIFEST, manifest)
    run(
        f"--native={zoo_model('digits_cnn')}",
        f"--candidate={model}",
        "--in_process",
        *QUICK,
        "--no_engine_fallback",
        f"--json={tmp_path / 'r.json'}",
    )
    engines = json.loads((tmp_path / "r.json").read_text())["engines"]
    assert engines["answer"] == "no" and f"the engines of {model} were built for TensorRT 8.4.3" in engines["reason"]
    assert f"note: the engines of {model} were built for TensorRT 8.4.3" in " ".join(capsys.readouterr().err.split())


def test_in_process_a_request_that_the_model_refuses_is_told(native, tmp_path):
    with pytest.raises(errors.UsageError, match="exclude each other"):
        run(f"--native={native}", f"--candidate={native}", "--in_process", "--address=localhost:8500")
    np.savez(tmp_path / "x.npz", image=np.zeros((4, 9, 9, 1), np.float32))
    with pytest.raises(errors.TftrtError):
        run(f"--native={native}", f"--candidate={native}", "--in_process", f"--data={tmp_path / 'x.npz'}", *QUICK)


@pytest.mark.parametrize("in_process", [False, True])
def test_a_candidate_that_refuses_a_request_fails_with_every_file(server, native, strict, tmp_path, capsys, in_process):
    both = (
        (f"--native={native}", f"--candidate={strict}", "--in_process")
        if in_process
        else (f"--address={server}", "--native=native", "--candidate=strict")
    )
    files = (f"--json={tmp_path / 'r.json'}", f"--junit={tmp_path / 'r.xml'}", f"--html={tmp_path / 'r.html'}")
    code = run(
        *both, *QUICK, *files, "--batch_size=4", "--speed_up_at_least=1.1", f"--save_baseline={tmp_path / 'kept.json'}"
    )
    document = json.loads((tmp_path / "r.json").read_text())
    assert code == document["exit_code"] == errors.EXIT_CHECK and document["complete"] and document["verdict"] is None
    (failed,) = (one for one in document["checks"] if one["verdict"] == "fail")
    assert (
        failed["name"] == "requests/candidate"
        and "one or two images, please" in failed["reason"]
        and "[[{{" not in failed["reason"]
    )
    assert (
        ElementTree.parse(tmp_path / "r.xml").getroot().get("failures") == "1"
        and "one or two images" in (tmp_path / "r.html").read_text()
    )
    said = capsys.readouterr().out
    assert "nothing was timed" in said and not (tmp_path / "kept.json").exists()
    exchanged = (
        (f"--native={strict}", f"--candidate={native}", "--in_process")
        if in_process
        else (f"--address={server}", "--native=strict", "--candidate=native")
    )
    with pytest.raises(errors.TftrtError, match="one or two images, please") as told:
        run(*exchanged, *QUICK, "--batch_size=4")
    assert told.value.exit_code == errors.EXIT_FAILED, (
        "without the native model's answers there is nothing to compare with"
    )


def test_goals_are_judged_with_the_run(server, tmp_path):
    (tmp_path / "goals.toml").write_text(
        'p50_ms_at_most = 60000\nspeed_up_at_least = 50\nengine_mib_at_most = 1\naccuracy = "snr_db:threshold=30"\n'
    )
    code = run(
        f"--address={server}",
        "--native=native",
        "--candidate=copy",
        *QUICK,
        "--metrics=p50,p99",
        f"--goals={tmp_path / 'goals.toml'}",
        f"--json={tmp_path / 'r.json'}",
    )
    document = json.loads((tmp_path / "r.json").read_text())
    found = {one["name"]: one for one in document["checks"]}
    assert "p99 needs 662 requests to each model, and 12 rounds of 16 are 192" in document["notes"]
    assert code == errors.EXIT_CHECK and found["goal/speed_up_at_least"]["verdict"] == "fail"
    assert (
        found["goal/engine_mib_at_most"]["verdict"] == "cannot tell"
        and "metadata" in found["goal/engine_mib_at_most"]["reason"]
    )
    assert found["answers"]["verdict"] == "pass"


def test_labels_give_the_accuracy_of_both(server, images, tmp_path):
    goal = (
        "--accuracy=top1:max-degradation=0.01;top1:threshold=0.5",
        "--accuracy_output=serving_default/probabilities",
    )
    run(
        f"--address={server}",
        "--native=native",
        "--candidate=copy",
        *QUICK,
        f"--data={images / 'held_back.npz'}",
        "--batch_size=32",
        f"--labels={images / 'labels.npy'}",
        *goal,
        f"--json={tmp_path / 'r.json'}",
    )
    document = json.loads((tmp_path / "r.json").read_text())
    assert [one["kept"] for one in document["answers"]["goals"]] == [True, True] and document["answers"]["goals"][0][
        "native"
    ] > 0.97
    assert document["workload"]["timed"] == 12 and document["workload"]["compared"] == 12


def test_whether_engines_ran_is_asked_and_a_plain_model_has_none(server, tmp_path):
    code = run(
        f"--address={server}",
        "--native=native",
        "--candidate=copy",
        *QUICK,
        "--no_engine_fallback",
        f"--json={tmp_path / 'r.json'}",
    )
    document = json.loads((tmp_path / "r.json").read_text())
    found = {one["name"]: one for one in document["checks"]}["goal/no_engine_fallback"]
    assert code == errors.EXIT_CHECK and found["verdict"] == "fail" and document["engines"]["answer"] == "no"


def test_an_interrupted_run_keeps_what_was_measured_and_says_so(server, tmp_path):
    def interrupt(text, _done, _total):
        if text == "round 9":
            raise KeyboardInterrupt

    paths = {"json": tmp_path / "r.json", "junit": tmp_path / "r.xml", "html": tmp_path / "r.html"}
    with progress.listening(interrupt), pytest.raises(errors.Interrupted) as caught:
        run(
            f"--address={server}",
            "--native=native",
            "--candidate=copy",
            *QUICK,
            *(f"--{name}={path}" for name, path in paths.items()),
            f"--save_baseline={tmp_path / 'kept.json'}",
        )
    assert "8 rounds were measured" in caught.value.mend and caught.value.exit_code == 1
    document = json.loads(paths["json"].read_text())
    assert (document["complete"], document["ended"], len(document["rounds"]["native_p50"])) == (False, "interrupted", 8)
    assert ElementTree.parse(paths["junit"]).getroot().find(".//testcase[@name='complete']/error") is not None
    assert "ENDED EARLY" in paths["html"].read_text() and not (tmp_path / "kept.json").exists()


def test_a_percentile_that_can_never_be_decided_is_told_before_the_rounds(server):
    said = []
    with (
        progress.listening(lambda text, *_: said.append(text)),
        pytest.raises(errors.UsageError, match="p99 needs 662 requests") as caught,
    ):
        run(
            f"--address={server}",
            "--native=native",
            "--candidate=copy",
            *QUICK,
            "--metrics=p50,p99",
            "--must_decide=p99",
        )
    assert "--requests=56" in caught.value.mend and not any(one.startswith("round") for one in said)


def test_an_interruption_before_the_first_round_writes_nothing(server, tmp_path):
    def interrupt(text, _done, _total):
        if text == "round 1":
            raise KeyboardInterrupt

    with progress.listening(interrupt), pytest.raises(KeyboardInterrupt):
        run(f"--address={server}", "--native=native", "--candidate=copy", *QUICK, f"--json={tmp_path / 'r.json'}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments, text",
    [
        ([], "NATIVE is missing"),
        (["--native=a"], "CANDIDATE is missing"),
        (["a"], "CANDIDATE is missing"),
        (["a", "b", "c"], "unexpected argument|takes"),
        (["--native=a", "--candidate=b", "--metrics=p42"], "there is no p42"),
        (["--native=a", "--candidate=b", "--rounds=3"], "can show nothing: at least"),
        (["--native=a", "--candidate=b", "--rounds=50", "--max_rounds=20"], "is below"),
        (["--native=a", "--candidate=b", "--must_decide=p90"], "is not among --metrics"),
        (["--native=a", "--candidate=b", "--labels=x.npy"], "needs --data"),
        (["--native=a", "--candidate=b", "--thresholds=x>1"], "is no bound"),
        (["--native=a", "--candidate=b", "--goals=none.toml"], "no such file"),
        (["--native=a", "--candidate=b", "--baseline=none.json"], "no such baseline"),
        (["--native=a", "--candidate=b", "--html=/none/x.html"], "cannot be written"),
        (["--native=a", "--candidate=b", "--native_dir=/x"], "no effect without --address"),
        (["--native=a", "--candidate=b", "--tls"], "--tls has no effect without"),
        (["--native=a", "--candidate=b", "--native_version=2"], "--native_version has no effect without"),
        (["--native=a", "--candidate=a", "--address=x:1"], "are both 'a' on x:1"),
        (
            ["--native=a", "--candidate=a", "--address=x:1", "--candidate_version=2", "--candidate_label=canary"],
            "--candidate_version and --candidate_label exclude",
        ),
        (["--native=a", "--candidate=b", "--address=x:1", "--launch=docker"], "exclude each other"),
        (
            ["--native=a", "--candidate=a", "--candidate_address=triton://x:1"],
            "--native_address is missing: each model is on a server that runs",
        ),
        (
            [
                "--native=a",
                "--candidate=b",
                "--candidate_address=triton://x:1",
                "--native_address=x:2",
                "--launch=docker",
            ],
            "--native_address and --launch",
        ),
        (["--native=a", "--candidate=a", "--address=x:1", "--candidate_address=x:1"], "are both 'a' on x:1"),
        (
            ["--native=a", "--candidate=b", "--in_process", "--address=x:1", "--candidate_address=x:2"],
            "--in_process and --address=x:1",
        ),
        (["--native=/nowhere", "--candidate=b"], "/nowhere"),
    ],
)
def test_mistakes_are_told_before_a_server_starts(arguments, text):
    with pytest.raises(errors.TftrtError, match=text):
        run(*arguments)


def test_a_directory_of_another_model_is_refused(server, native, tmp_path):
    import tensorflow as tf

    class Other(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec((None, 8, 8, 1), tf.float16, name="image")])
        def serve(self, image):
            return {"probabilities": image}

    tf.saved_model.save(other := Other(), str(tmp_path / "other"), signatures={"serving_default": other.serve})
    with pytest.raises(
        errors.UsageError,
        match="--candidate_dir=.* is another model than 'copy'.*the inputs of .* are image float16, and not image",
    ):
        run(
            f"--address={server}",
            "--native=native",
            "--candidate=copy",
            f"--native_dir={native}",
            f"--candidate_dir={tmp_path / 'other'}",
            *QUICK,
        )


def test_names_that_a_server_does_not_have(server):
    with pytest.raises(errors.UsageError, match="serves no model 'other'"):
        run(f"--address={server}", "--native=native", "--candidate=other", *QUICK)
    with pytest.raises(errors.UsageError, match="are both 'native'"):
        run(f"--address={server}", "--native=native", "--candidate=native", *QUICK)


def test_both_models_get_the_same_requests_whatever_was_asked_before():
    """A team that answers at once and notes which requests it was asked for."""
    asked = {rounds.NATIVE: [], rounds.CANDIDATE: []}

    class Team:
        entries, messages, problems, beats, size, cores = [], {}, [], [], 1, 1

        def __init__(self, name):
            self.name, self.entries = name, []

        def tell(self, commands):
            own = drive_job.indices(0, 1, **commands[0]["part"])
            asked[self.name].append(taken := [next(own) for _ in range(commands[0]["limit"])])
            now = len(self.entries) * 10**9
            self.entries.append(
                Entries.of(
                    [now, now + 10 * place, now + 10 * place + 5, 0, index, 0] for place, index in enumerate(taken)
                )
            )

        def idle(self):
            return True

    asker = rounds.Asker({name: rounds.Share(Team(name), 3 * place, 3) for place, name in enumerate(asked)}, "x", 1)
    asker.block(rounds.NATIVE, 5)
    asker.warm_up()
    for one in asked.values():
        one.clear()
    measured = rounds.Measured()
    for number in range(2):
        asker.round(number, 5, measured)
    first, second = asked.values()
    assert [[index + 3 for index in block] for block in first] == second and {len(block) for block in first} == {
        5 + interleaving.LEAD
    }
    assert sorted(set(sum(first, []))) == [0, 1, 2] and first[0] != first[1], "it goes on where the block before ended"
    assert [len(one.seconds) for one in measured.native] == [20, 20]


def test_a_model_that_answers_nothing_ends_the_block_and_not_the_patience():
    class Dead:
        entries, messages, problems, beats, size, cores = [], {14: ("UNAVAILABLE", ["gone"])}, [], [], 1, 1
        told, stopped = 0, False

        def tell(self, commands):
            self.entries = list(self.entries)

        def tell_all(self, do):
            assert do == "stop"
            self.stopped = True

        def idle(self):
            return self.stopped

        def listen_until_idle(self, seconds):
            self.entries.append(Entries.of([[0, 0, 1, 14, 0, 0]] * 3))

    asker = rounds.Asker({rounds.NATIVE: rounds.Share(Dead(), 0, 1)}, "x", 1)
    with pytest.raises(errors.TftrtError, match="the native model answered none of 6 requests: UNAVAILABLE: gone"):
        asker.block(rounds.NATIVE, 1000)
    ended = rounds.Asker(
        {rounds.NATIVE: rounds.Share(Dead(), 0, 1)}, "x", 1, lambda: errors.TftrtError("the server ended")
    )
    with pytest.raises(errors.TftrtError, match="the server ended"):
        ended.block(rounds.NATIVE, 1000)


@pytest.mark.parametrize(
    "codes, until, text",
    [
        ([0, 0, 4], math.inf, "answers no more: the last 4 requests ran past their deadline"),
        ([0, 4, 0], -1, "did not answer 1 of 3 requests, and the time is over"),
        ([0, 14, 0], -1, "did not answer 1 of 3 requests"),
        ([4, 0, 4, 4, 0], math.inf, ""),
        ([0, 14], math.inf, ""),
        ([0, 8], -1, ""),
        ([0], -1, ""),
    ],
)
def test_a_model_that_hangs_later_ends_the_block_and_not_the_patience(codes, until, text):
    class Hanging:
        """Its requests end with `codes`, then with the last of them; a hundred in all if nobody stops it."""

        messages, problems, beats, size, cores = {}, [], [], 1, 1
        stopped = False

        def __init__(self):
            self.entries = []

        def tell(self, commands):
            pass

        def tell_all(self, do):
            self.stopped = True

        def idle(self):
            return self.stopped or len(self.entries) > 100

        def listen_until_idle(self, seconds):
            arrived = codes if not self.entries else codes[-1:]
            self.entries.append(
                Entries.of(
                    [[now, now, now + 1, code, 0, 0] for now, code in enumerate(arrived, 10 * len(self.entries))]
                )
            )

    asker = rounds.Asker({rounds.CANDIDATE: rounds.Share(hanging := Hanging(), 0, 1)}, "x", 1)
    asker.until = until
    if not text:
        assert asker.block(rounds.CANDIDATE, 100).failed == sum(map(bool, codes)) + 100 * bool(codes[-1])
        return
    with pytest.raises(errors.TftrtError, match=f"the candidate model {text}") as told:
        asker.block(rounds.CANDIDATE, 100)
    assert (
        told.value.exit_code == errors.EXIT_FAILED
        and "--timeout_seconds" in told.value.mend
        and len(hanging.entries) < 5
    )


def test_in_process_the_traces_of_the_timed_calls_are_those_of_the_first():
    trace = CallTrace(engine={"TRTEngineOp_0": 1}, fallback={}, build={}, calibration={})
    calls = [execution.Call("s", {"x": np.zeros((1, number + 1))}) for number in range(5)]
    where = Where(mode="gpu", runtime="TensorFlow", version="2.14.1")
    matched = Matched(signatures=(), second=Contents(signatures={}), names={})
    both = in_process.InProcess(
        regress.Options(native="a", candidate="b", goals=Goals(no_engine_fallback=True)),
        ("a", "b"),
        matched,
        "/tmp",
        True,
    )
    both._ran = execution.Run(answers=(), where=where, seconds=(), traces=(trace,) * 5)
    found = both.engines(calls[:2])
    assert (found.answer, found.certainty, len(found.calls)) == ("yes", "certain", 2)
    both._ran = execution.Run(
        answers=(),
        where=where,
        seconds=(),
        traces=(trace, CallTrace(engine={}, fallback={"TRTEngineOp_0": 1}, build={}, calibration={})),
    )
    assert both.engines(calls[:2]).answer == "partly" and both.gate_closed
    # What the build left native counts only where no engine runs beside it.
    left = models.Model(path="", name="b", left_native={"TRTEngineOp_0": "left native: not built in time"})
    both.models[rounds.CANDIDATE] = left
    mixed = CallTrace(engine={"TRTEngineOp_1": 1}, fallback={"TRTEngineOp_0": 1}, build={}, calibration={})
    both._ran = execution.Run(answers=(), where=where, seconds=(), traces=(mixed,) * 2)
    found = both.engines(calls[:2])
    assert (found.answer, found.certainty) == ("yes", "certain") and not both.gate_closed
    assert "1 runs of 1 engines" in found.reason and found.reason.endswith(
        "and TRTEngineOp_0 left native: not built in time"
    )
    assert regress._about_engines(dataclasses.replace(left, engine_ops=2), both, True) == [
        "TRTEngineOp_0 left native: not built in time: it ran in TensorFlow, which is no fallback"
    ]
    both._ran = execution.Run(
        answers=(),
        where=where,
        seconds=(),
        traces=(CallTrace(engine={}, fallback={"TRTEngineOp_0": 1}, build={}, calibration={}),) * 2,
    )
    assert both.engines(calls[:2]).answer == "no"


def test_nobody_has_to_look_for_engines_in_a_plan(tmp_path):
    """In process TensorRT alone runs it; in a Triton without a GPU its ONNX file may answer."""
    folder = tmp_path / "plan"
    folder.mkdir()
    (folder / "plan.json").write_text("{}")
    candidate = models.Model(path=str(folder), name="b", engine_ops=1)
    both = in_process.InProcess(
        regress.Options(native="a", candidate="b"),
        ("a", "b"),
        Matched(signatures=(), second=Contents(signatures={}), names={}),
        "/tmp",
        True,
    )
    assert regress._about_engines(candidate, both, False) == []
    saved = dataclasses.replace(candidate, path="a_saved_model")
    assert "nobody looked whether the candidate's engines ran" in regress._about_engines(saved, both, False)[0]


def test_a_last_look_may_be_a_short_one():
    assert (
        regress.Options(native="a", candidate="b", rounds=50, max_rounds=90).looks == 2
        and regress.Options(native="a", candidate="b", rounds=30, max_rounds=31).looks == 2
    )


def test_blocks_of_slow_models_are_short_and_of_fast_ones_long():
    assert (
        rounds.requests_of_block(1.0, 1) == 4
        and rounds.requests_of_block(1e-5, 1) == 256
        and rounds.requests_of_block(1e-2, 1) == 10
    )
    assert rounds.requests_of_block(1.0, 8) == 32


def test_both_names_have_equally_many_letters():
    assert len(pair.NATIVE) == len(pair.CANDIDATE)


def test_a_failed_request_is_counted_and_is_no_latency():
    block = rounds.Block(np.ones(3), 2, 3.0)
    one = rounds.Round((block, block))
    measured = rounds.Measured([one], [one])
    assert (measured.failed(rounds.NATIVE), len(one.seconds), one.rate, measured.usable) == (4, 6, 1.0, 1)
    empty = rounds.Round((rounds.Block(np.zeros(0), 5, 0.0),))
    assert rounds.Measured([one, empty, one], [one, one, one]).usable == 1


def test_the_options_of_the_command_are_those_of_the_function():
    assert regress.Options(native="a", candidate="b").looks == 3
