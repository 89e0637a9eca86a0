"""`tftrt smoke` without a server: the rule, the gate, TF-TRT's log lines, the statistics, the process behind a port."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trace_lines import BUILD, ENGINE, NAME, NATIVE, WHY
from tftrt_tools.base import errors
from tftrt_tools.models.execution import run
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.servers.client import request_bytes, response_arrays
from tftrt_tools.servers.serving.smoke import (
    answer_check,
    gate,
    gpu_use,
    latency,
    log_watch,
    measurement,
    plan,
    platform_evidence,
    server_process,
    smoke,
    version_on_disk,
)
from tftrt_tools.servers.serving.smoke.engine_evidence import (
    CERTAIN,
    CONTRADICTION,
    LIKELY,
    NO,
    NOTHING,
    PARTLY,
    UNKNOWN,
    WEAK,
    YES,
    Evidence,
    judge,
    judge_call,
)
from tftrt_tools.servers.serving.smoke.platform_evidence import Platform
from tftrt_tools.servers.serving.smoke.served_model import Served

CALL = "serving_default(image 1x8x8x1)"


# The rule


def seen(*pairs):
    return [
        Evidence(source="test", seen=f"{speaks} {weight}", speaks=speaks, weight=weight) for speaks, weight in pairs
    ]


@pytest.mark.parametrize(
    ("evidence", "answer", "certainty"),
    [
        ([], UNKNOWN, ""),
        ([(YES, WEAK)], UNKNOWN, ""),
        ([(NOTHING, CERTAIN)], UNKNOWN, ""),
        ([(YES, LIKELY), (NO, WEAK)], YES, LIKELY),
        ([(YES, LIKELY), (YES, LIKELY)], YES, LIKELY),
        ([(YES, LIKELY), (NO, LIKELY)], UNKNOWN, ""),
        ([(YES, LIKELY), (NO, CERTAIN)], NO, CERTAIN),
        ([(YES, CERTAIN), (NO, LIKELY), (NO, WEAK)], YES, CERTAIN),
        ([(YES, CERTAIN), (NO, CERTAIN)], CONTRADICTION, CERTAIN),
    ],
)
def test_the_rule_for_one_call(evidence, answer, certainty):
    judged = judge_call(seen(*evidence), CALL)
    assert (judged.answer, judged.certainty) == (answer, certainty)


@given(st.lists(st.tuples(st.sampled_from([YES, NO, NOTHING]), st.sampled_from([CERTAIN, LIKELY, WEAK]))))
def test_nothing_is_certain_that_was_not_seen_as_certain(evidence):
    judged = judge_call(seen(*evidence), CALL)
    if judged.certainty == CERTAIN and judged.answer != CONTRADICTION:
        assert (judged.answer, CERTAIN) in evidence
        assert ({YES: NO, NO: YES}[judged.answer], CERTAIN) not in evidence
    if judged.certainty == LIKELY:
        assert (judged.answer, LIKELY) in evidence and not {(YES, CERTAIN), (NO, CERTAIN)} & set(evidence)


@pytest.mark.parametrize(
    ("calls", "answer", "certainty"),
    [
        ([(YES, CERTAIN), (YES, CERTAIN)], YES, CERTAIN),
        ([(YES, CERTAIN), (YES, LIKELY)], YES, LIKELY),
        ([(YES, CERTAIN), (YES, WEAK)], UNKNOWN, ""),
        ([(YES, CERTAIN), (NO, CERTAIN)], PARTLY, CERTAIN),
        ([(YES, LIKELY), (NO, CERTAIN)], PARTLY, LIKELY),
        ([(NO, CERTAIN), (YES, WEAK)], NO, CERTAIN),
        ([(NO, LIKELY), (NO, CERTAIN)], NO, CERTAIN),
        ([(NO, LIKELY), (NO, WEAK)], NO, LIKELY),
    ],
)
def test_the_rule_for_all_calls(calls, answer, certainty):
    evidence = [
        Evidence(source="test", seen="seen", speaks=speaks, weight=weight, call=str(number))
        for number, (speaks, weight) in enumerate(calls)
    ]
    verdict = judge(evidence, {str(number): True for number in range(len(calls))}, ["do this"])
    assert (verdict.answer, verdict.certainty) == (answer, certainty)
    assert verdict.ran == (answer == YES)
    assert verdict.settle == (() if certainty == CERTAIN else ("do this",))


def test_a_signature_without_engines_does_not_count_beside_one_that_has_some():
    evidence = [
        Evidence(source="gate", seen="answered", speaks=YES, weight=CERTAIN, call="a"),
        Evidence(source="model", seen="no engine op", speaks=NO, weight=CERTAIN, call="b"),
    ]
    assert judge(evidence, {"a": True, "b": False}).answer == YES
    assert judge(evidence[1:], {"b": False}).answer == NO


# The gate


LATE = {
    "signatures": [
        {
            "name": "s",
            "unbuilt": [
                {"name": "TRTEngineOp_late", "reason": "not ready when --max_build_minutes=2 were over"},
                {"name": "TRTEngineOp_far", "reason": "no declared shape reaches it"},
            ],
        }
    ]
}


def test_what_the_build_left_native_is_no_fallback_and_is_named():
    left = passport.left_native(LATE)
    assert left == {
        "TRTEngineOp_late": "left native: not built in time",
        "TRTEngineOp_far": "left native: no declared shape reaches it",
    }
    assert passport.left_native(None) == passport.left_native({"signatures": [{"name": "s"}]}) == {}
    engines = [
        version_on_disk.Engine(name=name, precision="FP16", hole="", silent=False, left=left.get(name, ""))
        for name in (NAME, "TRTEngineOp_late")
    ]

    def said(*engines):
        model = version_on_disk.Model(
            path=pathlib.Path("/m/1"), same=True, engines={"s": engines}, signatures={}, warmup_records=0
        )
        return smoke._of_model(model, plan.Group((run.Call("s", {"image": np.zeros((1, 8, 8, 1))}),)))

    both = said(*engines)
    assert (both.speaks, both.call) == (NOTHING, "s(image 1x8x8x1)") and "2 engine ops" in both.seen
    assert "TRTEngineOp_late left native: not built in time, which is no fallback" in both.seen
    alone = said(engines[1])
    assert (alone.speaks, alone.weight) == (
        NO,
        CERTAIN,
    ) and "TRTEngineOp_late left native: not built in time" in alone.seen
    # Its own lines say nothing; those of the engine that is there count as ever.
    of_late = (WHY + NATIVE).replace(NAME, "TRTEngineOp_late")
    assert [(one.speaks, one.weight) for one in log_watch.read(of_late + ENGINE, CALL, [NAME], 1, left)[0]] == [
        (YES, CERTAIN)
    ]
    assert [(one.speaks, one.weight) for one in log_watch.read(of_late + NATIVE, CALL, [NAME], 1, left)[0]] == [
        (NO, CERTAIN)
    ]
    refused = gate.of_refusal(
        "ABORTED: User disallowed engine native segment execution. [[{{node TRTEngineOp_late}}]]", CALL, left
    )
    assert refused.speaks == NOTHING and refused.seen.startswith(
        "TRTEngineOp_late was left native: not built in time, and the server forbids"
    )
    other = gate.of_refusal(
        "ABORTED: User disallowed engine native segment execution. [[{{node TRTEngineOp_0}}]]", CALL, left
    )
    assert (other.speaks, other.weight) == (NO, CERTAIN)


def served_model(same=True, **engine):
    one = version_on_disk.Engine(**{"name": NAME, "precision": "FP16", "hole": "", "silent": False, **engine})
    return version_on_disk.Model(
        path=pathlib.Path("/m/1"),
        same=same,
        engines={"serving_default": (one,), "plain": ()},
        signatures={},
        warmup_records=0,
    )


CLOSED, USED = {gate.VARIABLE: "False"}, gpu_use.Use(uses=True, seen="a GPU")


def answered(environ=None, use=USED, of=None, signature="serving_default"):
    found = gate.of_answer(
        CLOSED if environ is None else environ, use, served_model() if of is None else of, CALL, signature
    )
    assert found.call == CALL
    return found.speaks, found.weight


def test_an_answer_past_the_closed_gate_is_certain_for_the_model_that_the_server_names_itself():
    assert answered() == (YES, CERTAIN)
    assert answered(of=served_model(same=False)) == (YES, LIKELY)


@pytest.mark.parametrize(
    ("value", "closed"),
    [("False", True), ("0", True), ("FALSE", True), ("no", False), ("", False), ("1", False), ("off", False)],
)
def test_only_what_tensorflow_reads_as_false_closes_the_gate(value, closed):
    assert gate.closed({gate.VARIABLE: value}) is closed
    assert answered({gate.VARIABLE: value}) == ((YES, CERTAIN) if closed else (NOTHING, WEAK))


@pytest.mark.parametrize("use", [gpu_use.Use(uses=False, seen="none"), gpu_use.Use(uses=None, seen="not known")])
def test_without_a_gpu_in_use_the_gate_says_nothing(use):
    assert answered(use=use) == (NOTHING, WEAK)


def test_a_signature_or_a_model_without_engine_ops_passes_the_gate_for_nothing():
    assert answered(signature="plain") == (NOTHING, WEAK)
    assert gate.of_answer(CLOSED, USED, None, CALL, "serving_default").speaks == NOTHING


def test_ways_past_the_gate_are_known():
    assert answered(of=served_model(hole="unequal batches")) == (YES, LIKELY)
    assert answered(of=served_model(hole="calibrates", silent=True)) == (NOTHING, WEAK)


def test_a_refusal_of_the_gate_proves_the_fallback():
    found = gate.of_refusal(
        "ABORTED: User disallowed engine native segment execution. [[{{node TRTEngineOp_0}}]]", CALL
    )
    assert (found.speaks, found.weight, found.call) == (NO, CERTAIN, CALL)
    assert gate.of_refusal("INVALID_ARGUMENT: Incompatible shapes", CALL) is None


# The log


def logged(text, engines=(NAME,), sent=1):
    return [(one.speaks, one.weight) for one in log_watch.read(text, CALL, engines and list(engines), sent)[0]]


def test_lines_of_the_log_speak_for_what_they_name():
    assert logged(WHY) == logged(NATIVE) == logged(WHY + NATIVE + ENGINE) == [(NO, CERTAIN)]
    assert logged(ENGINE) == logged(ENGINE, None) == [(YES, CERTAIN)]
    assert logged(ENGINE, sent=2) == [(YES, LIKELY)]  # one of the two requests left no line
    assert logged(ENGINE, (NAME, "TRTEngineOp_other")) == [(YES, LIKELY)]
    assert logged(BUILD) == [(YES, LIKELY)]
    assert logged(BUILD + ENGINE) == [(YES, CERTAIN), (NOTHING, LIKELY)]
    assert logged("Executing TRT calibration: TRTEngineOp_37b316205f_0_0\n") == [(NO, CERTAIN)]


def test_a_silent_log_and_another_models_lines_say_nothing():
    assert logged("") == logged("loaded servable version\n") == [(NOTHING, WEAK)]
    assert logged(WHY + NATIVE, ("TRTEngineOp_another",)) == [(NOTHING, WEAK)]
    assert logged(WHY + NATIVE, ()) != [(NO, CERTAIN)]


def test_the_reason_and_the_engine_are_quoted():
    (found,) = log_watch.read(WHY, CALL, [NAME], 1)[0]
    assert (
        NAME in found.seen
        and "Engine retrieval for input shapes: [[4,8,8,1]] failed" in found.seen
        and found.call == CALL
    )


def test_only_what_comes_after_the_start_is_read_also_from_a_log_that_was_rotated(tmp_path):
    path = tmp_path / "log"
    path.write_text(NATIVE * 3)
    watch = log_watch.LogWatch(path)
    assert watch.new() == ""
    with path.open("a") as file:
        file.write(ENGINE)
    assert watch.new() == ENGINE
    path.write_text(WHY)
    assert watch.new() == WHY
    path.unlink()
    assert watch.new() == ""


# Statistics


def test_blocks_that_drift_give_a_longer_interval_than_the_same_blocks_in_any_order():
    rng = np.random.default_rng(3)
    drift = np.stack([np.exp(0.3 * np.sin(np.arange(60) / 6) + rng.normal(0, 0.02, 60)), np.ones(60)], 1)
    ordered, shuffled = latency.ratio(drift), latency.ratio(rng.permutation(drift))
    assert ordered.value == shuffled.value
    assert ordered.high / ordered.low > 1.2 * shuffled.high / shuffled.low


def test_the_ratio_of_medians_and_its_interval_on_known_numbers():
    found = latency.ratio([(4.0, 2.0)] * 10)
    assert (found.value, found.low, found.high, found.first, found.second, found.blocks) == (
        2.0,
        2.0,
        2.0,
        4.0,
        2.0,
        10,
    )
    # Of three blocks one is an outlier: the median ignores it, the interval reaches it.
    found = latency.ratio([(3.0, 1.0), (3.0, 1.0), (30.0, 1.0)])
    assert found.value == 3.0 and found.low == pytest.approx(3.0) and found.high > 30.0
    with pytest.raises(ValueError, match="two blocks"):
        latency.ratio([(1.0, 1.0)])


def test_the_interval_holds_the_truth_about_as_often_as_it_says():
    rng, hits = np.random.default_rng(5), 0
    for number in range(200):
        found = latency.ratio(
            np.stack([rng.lognormal(np.log(1.5), 0.2, 30), rng.lognormal(0, 0.2, 30)], 1), seed=number
        )
        hits += found.low <= 1.5 <= found.high
    assert 180 <= hits <= 199  # 95 % of 200 is 190; the bootstrap of a median is somewhat off


def test_what_disturbs_a_whole_block_does_not_widen_the_interval():
    slow = np.linspace(1, 3, 30)[:, None] * np.array([[2.0, 1.0]])
    rng = np.random.default_rng(0)
    apart = latency.ratio(np.stack([rng.permutation(slow[:, 0]), rng.permutation(slow[:, 1])], 1))
    together = latency.ratio(slow)
    assert together.high - together.low < 1e-9 < apart.high - apart.low


@pytest.mark.parametrize(
    ("blocks", "says"),
    [
        ([(0.030, 0.010)] * 5, (YES, LIKELY)),
        ([(0.030, 0.029)] * 5, (NO, LIKELY)),
        ([(0.003, 0.0029)] * 5, (NO, WEAK)),
        ([(0.030, 0.026)] * 5, (NOTHING, WEAK)),
        ([(0.010, 0.030)] * 5, (NO, LIKELY)),
    ],
)
def test_a_ratio_decides_only_where_it_is_clear(blocks, says):
    found = measurement.of_ratio(latency.ratio(blocks), CALL)
    assert (found.speaks, found.weight) == says


def test_a_slow_first_request_is_shown_and_never_decides():
    def of(first, later):
        return measurement.first_request(measurement.Measured(first, later, "", ()), CALL)

    found = of(8.0, (0.001, 0.002, 0.4))
    assert (found.speaks, found.weight) == (YES, WEAK) and "4000 times" in found.seen
    assert of(0.002, (0.001, 0.001)) is None and of(None, ()) is None
    elsewhere = measurement.first_request(measurement.Measured(8.0, (0.001, 0.002), "", ()), CALL, builds=False)
    assert elsewhere.speaks == NOTHING and "engine" not in elsewhere.seen


# Answers


def test_answers_of_a_wrong_form_are_named():
    specs = [InputSpec("y", "float32", (None, 2)), InputSpec("z", "string", None)]
    good = {"y": np.zeros((3, 2), np.float32), "z": np.array([b"a"], object)}
    assert answer_check.form_problems(CALL, good, specs) == []
    for changed, says in (
        ({"y": np.zeros((3, 3), np.float32)}, "float32[3,3]"),
        ({"y": np.zeros((3, 2))}, "float64[3,2]"),
        ({"y": np.array([[0, np.nan], [np.inf, 0]], np.float32)}, "2 NaN or Inf among 4"),
        ({"x": good["y"]}, "'x'"),
    ):
        (problem,) = answer_check.form_problems(CALL, good | changed, specs)
        assert says in problem and CALL in problem
    assert "lacks the output 'z'" in answer_check.form_problems(CALL, {"y": good["y"]}, specs)[0]


def test_the_bounds_are_those_of_what_ran():
    none, some = gpu_use.Use(uses=False, seen="no GPU"), gpu_use.Use(uses=True, seen="a GPU")
    assert answer_check.arithmetic(served_model(), None, none)[0] == "rewrite"
    assert answer_check.arithmetic(served_model(precision="INT8"), True, some)[0] == "INT8"
    assert answer_check.arithmetic(served_model(precision="INT8"), False, some)[0] == "TF32"
    assert answer_check.arithmetic(served_model(precision="FP32"), None, some)[0] == "TF32"
    assert (
        answer_check.arithmetic(None, None, None)[0] == "FP16"
        and "--model_dir" in answer_check.arithmetic(None, None, None)[1]
    )
    assert "--model_dir" not in answer_check.arithmetic(None, None, None, triton=True)[1]


@pytest.mark.parametrize(
    "dtype",
    [
        "float32",
        "float64",
        "float16",
        "bfloat16",
        "int8",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "bool",
        "complex64",
        "string",
    ],
)
def test_requests_are_what_the_servers_own_classes_read(dtype):
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2

    value = (
        np.array([[b"a", b""]], object)
        if dtype == "string"
        else np.array([[1, 0]]).astype(tf.as_dtype(dtype).as_numpy_dtype)
    )
    request = predict_pb2.PredictRequest.FromString(request_bytes("m", {"x": value}, "s", 7))
    assert (request.model_spec.name, request.model_spec.version.value, request.model_spec.signature_name) == (
        "m",
        7,
        "s",
    )
    assert tf.make_ndarray(request.inputs["x"]).tolist() == value.tolist()
    answer = predict_pb2.PredictResponse(model_spec=request.model_spec)
    answer.outputs["y"].CopyFrom(tf.make_tensor_proto(value))
    model, arrays = response_arrays(answer.SerializeToString())
    assert arrays["y"].tolist() == value.tolist() and arrays["y"].dtype == value.dtype and model.version == 7


def test_what_is_no_answer_is_refused():
    for raw in (b"\xff\xff", b"\x0a\x02\x08"):
        with pytest.raises(ValueError, match="does not end|is cut off"):
            response_arrays(raw)


# The process behind a port


def test_the_holder_of_a_port_is_found_and_a_program_that_is_no_server_says_so(tmp_path):
    with socket.socket() as one, socket.socket(socket.AF_UNIX) as other:
        one.bind(("127.0.0.1", 0))
        one.listen()
        other.bind(str(tmp_path / "socket"))
        other.listen()
        for target in (
            f"127.0.0.1:{one.getsockname()[1]}",
            f"localhost:{one.getsockname()[1]}",
            f"unix:{tmp_path / 'socket'}",
        ):
            found, why = server_process.find(target)
            assert found.pid == os.getpid() and not found.known and not why
        port = one.getsockname()[1]
    assert server_process.find(f"127.0.0.1:{port}")[0] is None
    assert "another machine" in server_process.find("192.0.2.1:8500")[1]
    with pytest.raises(errors.UsageError, match="--server_pid"):
        server_process.of_id(os.getpid())


LISTENER = "import socket,sys;s=socket.socket();s.bind(('127.0.0.1',0));s.listen();print(s.getsockname()[1],flush=True);sys.stdin.read()"


@pytest.fixture
def listener(tmp_path):
    """A process that is called tensorflow_model_server and listens: (Popen, port)."""
    argv = ["/usr/bin/tensorflow_model_server", "-c", LISTENER, "--model_name=m", "--model_base_path=models/m"]
    started = subprocess.Popen(
        argv,
        executable=os.path.realpath(sys.executable),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={gate.VARIABLE: "0", "PATH": "/usr/bin"},
    )
    yield started, int(started.stdout.readline())
    started.communicate("", timeout=20)


def test_a_server_is_known_by_its_program_with_flags_environment_and_open_devices(listener, tmp_path):
    started, port = listener
    found, _ = server_process.find(f"127.0.0.1:{port}")
    assert (found.pid, found.program, found.known) == (started.pid, server_process.SERVING, True)
    assert server_process.of_id(started.pid) == found
    assert gate.closed(found.environ) and found.flag("model_base_path") == "models/m" and found.flag("port") == ""
    assert found.path("models/m") == tmp_path / "models/m"
    assert gpu_use.open_devices(found.pid) == []
    use = gpu_use.look(found)
    assert use.uses is False and (use.evidence().speaks, use.evidence().weight) == (NO, CERTAIN)


def version_at(base, number):
    path = base / str(number)
    path.mkdir(parents=True)
    (path / "saved_model.pb").touch()
    return path


def test_the_version_directory_is_the_one_that_the_server_names_and_no_other_is_taken(listener, tmp_path):
    found = server_process.of_id(listener[0].pid)
    own, other = version_at(tmp_path / "models/m", 3), version_at(tmp_path / "models/other", 3)
    served = Served("m", 3, {})
    assert version_on_disk.locate("", served, found) == (own, True)
    assert version_on_disk.locate(str(own.parent), served, found) == (own, True)
    assert version_on_disk.locate(str(other), served, found) == (other, True), "a copy is the same model"
    (other / "saved_model.pb").write_bytes(b"other")
    with pytest.raises(errors.UsageError, match="the server serves .* is another model"):
        version_on_disk.locate(str(other), served, found)
    assert version_on_disk.locate("", Served("m", 4, {}), found) == (None, False)  # not there any more
    assert version_on_disk.names(found) == ["m"]


def test_a_version_directory_given_for_another_machine_must_at_least_be_that_version(tmp_path):
    path, served = version_at(tmp_path / "m", 3), Served("m", 3, {})
    assert version_on_disk.locate(str(tmp_path / "m"), served, None) == (path, False)
    assert version_on_disk.locate(str(path), served, None) == (path, False)
    assert version_on_disk.locate("", served, None) == (None, False)
    with pytest.raises(errors.UsageError, match="is version 3, and version 4"):
        version_on_disk.locate(str(path), Served("m", 4, {}), None)
    with pytest.raises(errors.UsageError, match="no version 4|not a SavedModel"):
        version_on_disk.locate(str(tmp_path / "m"), Served("m", 4, {}), None)
    with pytest.raises(errors.UsageError, match="no such file"):
        version_on_disk.locate(str(tmp_path / "nothing"), served, None)


def test_evidence_is_json():
    verdict = judge(seen((YES, LIKELY)), {CALL: None}, ["more"])
    assert json.loads(json.dumps(verdict.to_dict()))["evidence"][0]["weight"] == LIKELY


def test_the_platform_of_a_plan_is_certain_an_instance_on_the_cpu_likely_and_no_other_says_anything():
    plan = judge([Platform("tensorrt_plan").evidence()], {"x": None}, [platform_evidence.SETTLE])
    assert (plan.answer, plan.certainty, plan.settle) == ("yes", "certain", ())
    for name, builds in (("python", False), ("onnxruntime_onnx", True), ("tensorflow_savedmodel", True)):
        other = judge([Platform(name).evidence()], {"x": None}, Platform(name).settle)
        assert (other.answer, other.settle) == ("cannot tell", (platform_evidence.SETTLE,)) and Platform(
            name
        ).builds == builds
        cpu = judge([Platform(name, on_cpu=True).evidence()], {"x": None}, Platform(name, on_cpu=True).settle)
        assert (cpu.answer, cpu.certainty, len(cpu.settle)) == ("no", "likely", 2) and not Platform(
            name, on_cpu=True
        ).builds
