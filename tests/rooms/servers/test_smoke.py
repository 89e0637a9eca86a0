"""`tftrt smoke` against the development server as a process of its own, with TF-TRT's gate closed in its environment.

Nothing runs an engine here: whatever else is seen, the answer has to be no, and certain.
"""

import contextlib
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import textwrap
import types

import numpy as np
import onnx
import pytest

from tests import engine_files, onnx_files
from tests.command_line import assert_clear
from tests.conformance import models as conformance
from tests.conformance.launch import LocalServer
from tests.conftest import ROOT
from tests.trace_lines import HEAD
from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.base.stack import probes
from tftrt_tools.models.savedmodel import describe_job, engine_assets, passport
from tftrt_tools.servers.serving.publishing import publish
from tftrt_tools.servers.serving.smoke import (
    answer_check,
    gate,
    gpu_use,
    latency,
    measurement,
    served_model,
    server_process,
    smoke,
    steps,
    version_on_disk_job,
)
from tftrt_tools.servers.serving.smoke.engine_evidence import CERTAIN, CONTRADICTION, LIKELY, NO, NOTHING, YES

NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}
QUICK = {"repeats": 2}


def reciprocal(path):
    import tensorflow as tf

    function = tf.function(lambda x: {"y": 1 / x}, input_signature=[tf.TensorSpec([None], tf.float32, "x")])
    tf.saved_model.save(tf.Module(), str(path), {"serving_default": function})


@pytest.fixture(scope="module")
def house(zoo_model, converted, tmp_path_factory):
    """A running server: digits (converted, warmed with batch 1 and 4), digits_native, and models of the conformance suite."""
    folder = tmp_path_factory.mktemp("smoke")
    made = converted("digits_cnn", "--precision=FP16")
    from tftrt_tools.servers.serving.warmup import warmup_requests

    publish.publish(
        made,
        "digits",
        str(folder / "models"),
        publish.Options(unverified=True, requests=warmup_requests.Options(shapes="image:1x8x8x1,4x8x8x1")),
    )
    shutil.copytree(zoo_model("digits_cnn"), folder / "models" / "digits_native" / "1")
    names = ("digits", "digits_native", "half_plus_two", "dtypes", "texts", "fragile", "slow", "versions")
    for name in names[2:]:
        for version in conformance.VERSIONS[:2] if name == "versions" else (1,):
            path = folder / "models" / name / str(version)
            path.parent.mkdir(exist_ok=True)
            getattr(conformance, name)(path)
    reciprocal(folder / "models" / "reciprocal" / "1")
    listed = "\n".join(
        f'config {{ name: "{name}" base_path: "{folder / "models" / name}" model_platform: "tensorflow" }}'
        for name in (*names, "reciprocal")
    )
    (folder / "models.config").write_text(f"model_config_list {{ {listed} }}")
    with LocalServer(
        [f"--model_config_file={folder / 'models.config'}"],
        folder / "log",
        env={gate.VARIABLE: "False", **NO_GPU},
        looked_at=True,
    ) as server:
        server.models, server.original = folder / "models", zoo_model("digits_cnn")
        yield server
        server.stop()


@pytest.fixture(scope="module", autouse=True)
def one_child():
    """The smoke tests of this module share the child process that has TensorFlow loaded."""
    with steps.worker() as shared, pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "worker", lambda: contextlib.nullcontext(shared))
        yield


def asked(house, name, **options):
    return smoke.smoke(house.grpc_address, name, smoke.Options(**{**QUICK, **options}))


def engine_name(house):
    return describe_job.job([str(house.models / "digits" / "1")])[0].engines[0].name


def of_source(done, source):
    return [one for one in done.engines.evidence if one.source == source]


def test_native_segments_on_a_cpu_are_a_certain_no_although_the_gate_is_closed(house, tftrt, tmp_path):
    ran = tftrt(
        "smoke",
        house.grpc_address,
        "--model_name=digits",
        f"--original={house.original}",
        "--native_model_name=digits_native",
        "--requests=3",
        f"--json={tmp_path / 'out.json'}",
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = json.loads((tmp_path / "out.json").read_text())
    engines = said["engines"]
    assert (engines["answer"], engines["certainty"]) == (NO, CERTAIN) and "without a GPU" in engines["reason"]
    assert "did they run? no (certain)" in ran.stdout and "PASSED" in ran.stdout
    assert {one["weight"] for one in engines["evidence"] if one["speaks"] == NO and one["source"] == "GPU"} == {CERTAIN}
    assert {one["speaks"] for one in engines["evidence"] if one["source"] == "gate"} == {NOTHING}
    assert [list(one["shapes"].values()) for one in said["calls"]] == [
        [[4, 8, 8, 1]],
        [[1, 8, 8, 1]],
    ]  # as it was warmed up
    assert all(
        one["requests"] == 4 and one["native"]["blocks"] == 3 and one["first_seconds"] > 0 for one in said["calls"]
    )
    assert said["rightness_judged"] and said["arithmetic"] == "rewrite" and said["comparisons"][0]["snr_db"] > 80
    assert said["model"]["files"] == {
        "path": str(house.models / "digits" / "1"),
        "named_by_server": True,
        "engine_ops": 1,
        "precisions": ["FP16"],
        "warmup_records": 2,
        "built_for": [],
    }
    assert said["server"]["process"]["pid"] == house.process.pid and "2.14.1" in said["server"]["version"]


def test_tensorflow_is_asked_for_gpus_as_the_development_server_was_started(house, monkeypatch):
    """Where devices are there, the environment or a missing library can still hide them."""
    monkeypatch.setattr(gpu_use, "open_devices", lambda pid: ["/dev/nvidia0"])
    use = gpu_use.look(server_process.of_id(house.process.pid))
    assert use.uses is False and "TensorFlow sees none" in use.seen and use.evidence().weight == CERTAIN


def test_require_engines_fails_and_names_the_reason(house, tftrt):
    ran = tftrt("smoke", house.grpc_address, "--model_name=digits", "--require_engines", "--requests=2", "--json=-")
    said = json.loads(ran.stdout)
    assert ran.returncode == 3 and "failed: --require_engines: no: " in ran.stderr
    assert said["problems"] and not said["passed"] and not said["rightness_judged"]
    assert "only their form was checked" in ran.stderr


def test_a_model_without_engine_ops_has_nothing_to_run(house):
    done = asked(house, "digits_native")
    assert (done.engines.answer, done.engines.certainty) == (NO, CERTAIN) and "no engine op" in done.engines.reason
    assert done.passed and not done.engines.settle


def test_a_line_of_the_log_counts_for_the_shape_during_which_it_came(house, tmp_path):
    log, name = tmp_path / "server.log", engine_name(house)
    log.write_text(HEAD.format("I") + f"Executing TRT engine: {name}\n")  # from before

    def meanwhile(text, done=None, total=None):
        if text.startswith("asking serving_default(image 4x8x8x1)"):
            with log.open("a") as file:
                file.write(
                    HEAD.format("W")
                    + "TF-TRT Warning: Engine retrieval for input shapes: [[4,8,8,1]] failed. Running native segment "
                    f"for {name}\n"
                )

    with progress.listening(meanwhile):
        done = asked(house, "digits", log_file=str(log))
    found = {one.call: (one.speaks, one.weight) for one in of_source(done, "log")}
    assert found == {
        "serving_default(image 4x8x8x1)": (NO, CERTAIN),
        "serving_default(image 1x8x8x1)": (NOTHING, "weak"),
    }
    assert f"{name} ran natively" in next(one.seen for one in of_source(done, "log") if one.speaks == NO)


def test_evidence_that_cannot_be_true_together_is_a_contradiction(house, tmp_path):
    log, name = tmp_path / "server.log", engine_name(house)
    log.touch()

    def meanwhile(text, done=None, total=None):
        if text.startswith("asking"):
            with log.open("a") as file:
                file.write((HEAD.format("I") + f"Executing TRT engine: {name}\n") * 3)

    with progress.listening(meanwhile):
        done = asked(house, "digits", log_file=str(log), require_engines=True)
    assert done.engines.answer == CONTRADICTION and done.engines.settle and not done.passed
    assert of_source(done, "log")[0].speaks == YES


def test_answers_of_another_model_are_wrong(house):
    """Version 2 adds two, version 1 adds one."""
    original = house.models / "versions" / "1"
    right = asked(house, "versions", model_version=None, original=str(house.models / "versions" / "2"))
    assert right.model_version == 2 and right.passed and right.judged.comparisons[0].max_abs == 0
    done = asked(house, "versions", original=str(original), shapes="x:5")
    assert not done.passed and "serving_default/y: snr_db" in done.problems[0]
    assert done.judged.comparisons[0].max_abs == pytest.approx(1)


@pytest.fixture(scope="module")
def exported(onnx_model):
    """The digits as an ONNX file."""
    return onnx_model("digits_cnn")


def test_an_onnx_file_can_be_the_original(house, exported, tftrt):
    ran = tftrt(
        "smoke", house.grpc_address, "--model_name=digits", f"--original={exported}", "--requests=2", "--json=-"
    )
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert said["passed"] and said["rightness_judged"] and said["original"] == str(exported)
    assert said["arithmetic"] == "FP32" and 60 < said["comparisons"][0]["snr_db"] < 200
    assert "TensorFlow's float32 there, float32 of ONNX Runtime on the CPU here" in ran.stderr


def test_names_of_an_onnx_file_are_matched_and_its_wrong_answers_found(house, exported, tmp_path):
    model = onnx.load(exported)
    for node in model.graph.node:
        node.input[:] = ["image:0" if name == "image" else name for name in node.input]
    model.graph.input[0].name = "image:0"
    onnx.save(model, tmp_path / "renamed.onnx")
    assert asked(house, "digits", original=str(tmp_path / "renamed.onnx")).passed
    weights = next(
        one for one in model.graph.initializer if one.data_type == onnx.TensorProto.FLOAT and len(one.dims) > 1
    )
    weights.CopyFrom(onnx.numpy_helper.from_array(-onnx.numpy_helper.to_array(weights), weights.name))
    onnx.save(model, tmp_path / "other.onnx")
    done = asked(house, "digits", original=str(tmp_path / "other.onnx"))
    assert not done.passed and "serving_default/probabilities: snr_db" in done.problems[0]


def test_an_onnx_file_that_cannot_be_the_original_is_refused_in_a_line(house, exported, tftrt, tmp_path):
    address, other = house.grpc_address, onnx_files.product(tmp_path / "product.onnx")
    (tmp_path / "damaged.onnx").write_bytes(b"\x08 damaged")
    for name, original, code, says in (
        (
            "digits",
            other,
            2,
            "product.onnx takes float32[?,4] where signature 'serving_default' of digits takes float32[?,8,8,1] as 'image'",
        ),
        ("digits", tmp_path / "none.onnx", 2, "no such file: "),
        ("digits", tmp_path / "damaged.onnx", 1, "damaged.onnx"),
    ):
        assert_clear(tftrt("smoke", address, f"--model_name={name}", f"--original={original}"), code, says)
    served = served_model.Served("two", 1, {})
    with (
        pytest.raises(errors.UsageError, match="digits_cnn.onnx has one signature, and 2 are asked: a, b"),
        answer_check.opened(exported, served, ("a", "b"), None),
    ):
        pass


def test_data_is_cut_to_the_shapes_of_the_passport(house, tmp_path):
    images = np.random.default_rng(0).random((6, 8, 8, 1), np.float32)
    np.savez(tmp_path / "images.npz", image=images)
    done = asked(house, "digits", data=str(tmp_path / "images.npz"), original=str(house.original))
    assert [(list(one.shapes.values()), one.requests) for one in done.calls] == [
        ([(4, 8, 8, 1)], 3),
        ([(1, 8, 8, 1)], 3),
    ]
    assert (
        done.shapes_from == {"serving_default": "--data"} and done.passed and done.judged.comparisons[0].elements == 60
    )
    np.savez(tmp_path / "images.npz", imag=images)
    with pytest.raises(errors.UsageError, match="'imag'"):
        asked(house, "digits", data=str(tmp_path / "images.npz"))


def test_all_dtypes_and_strings_go_through(house):
    done = asked(house, "dtypes", original=str(house.models / "dtypes" / "1"))
    assert done.passed, done.problems
    assert {one.dtype for one in done.judged.comparisons} >= set(conformance.DTYPES.values())
    assert asked(house, "texts", original=str(house.models / "texts" / "1")).passed


def test_a_refused_request_fails_the_check_with_the_servers_words_and_the_others_go_on(house, tmp_path):
    np.savez(tmp_path / "data.npz", index=np.array([7, 7, 1, 1], np.int32))
    done = asked(house, "fragile", data=str(tmp_path / "data.npz"), batch_size=2)
    assert not done.passed and "was refused: INVALID_ARGUMENT: " in done.problems[0]
    done = asked(house, "fragile", shapes="index:1,3")
    assert done.passed and len(done.calls) == 2 and done.shapes_from == {"serving_default": "--shapes"}


def test_unknown_shapes_are_asked_for(house):
    with pytest.raises(errors.UsageError, match="unknown dimensions") as raised:
        asked(house, "half_plus_two")
    assert "--shapes='serving_default/x:" in raised.value.mend
    assert asked(house, "half_plus_two", shapes="x:2x3").calls[0].shapes == {"x": (2, 3)}


def test_infinite_answers_are_found_without_an_original(house, tmp_path):
    np.savez(tmp_path / "data.npz", x=np.array([0, 1], np.float32))
    done = asked(house, "reciprocal", data=str(tmp_path / "data.npz"))
    assert not done.passed and done.problems == ("serving_default(x 2): output 'y' has 1 NaN or Inf among 2 elements",)


def test_faults_are_one_line(house, tftrt, tmp_path):
    address = house.grpc_address
    for arguments, code, says in (
        ([address], 2, "--model_name is missing"),
        ([address, "--model_name=nothing"], 2, "serves no model 'nothing'"),
        ([f"127.0.0.1:{house.rest_port}", "--model_name=digits"], 1, "127.0.0.1"),
        (
            [address, "--model_name=slow", "--ranges=steps:1000000000:1000000001", "--timeout_seconds=0.3"],
            1,
            "within 0.3 s",
        ),
    ):
        assert_clear(tftrt("smoke", *arguments), code, says)


def test_refusals_name_what_is_known(house, zoo_model, tmp_path):
    for name, options, cause, mend in (
        ("digitz", {}, "serves no model 'digitz'", "digits_native"),
        ("versions", {"model_version": 9}, "version 9", "2 AVAILABLE"),
        ("versions", {"version_label": "canary"}, "label 'canary'", "2 AVAILABLE"),
        ("digits", {"signature_keys": ("score",)}, "no signature 'score'", "serving_default"),
        ("digits", {"shapes": "image:1x9x8x1"}, "refuses image:1x9x8x1", "float32"),
        ("digits", {"shapes": "imag:1"}, "no input 'imag'", "image"),
        ("digits", {"ranges": "imag:0:1"}, "no input 'imag'", "image"),
        ("digits", {"thresholds": "snr>=3"}, "no bound", "snr_db"),
        ("digits", {"original": str(tmp_path)}, "not a SavedModel", ""),
        ("digits", {"original": str(house.models / "digits" / "1")}, "is a converted model itself", ""),
        (
            "digits",
            {"original": str(house.models / "texts" / "1")},
            "has no signature 'serving_default' with the inputs image",
            "",
        ),
        ("digits", {"native_model_name": "texts"}, "no signature 'serving_default' with the same inputs", ""),
        ("digits", {"native_model_name": "nothing"}, "'nothing'", "--native_model_name"),
        ("digits", {"log_file": str(tmp_path / "none")}, "No such file", ""),
        ("digits", {"model_dir": str(house.models / "digits_native")}, "the server serves", "published from"),
    ):
        with pytest.raises(errors.UsageError) as raised:
            asked(house, name, **options)
        assert cause in raised.value.cause and mend in raised.value.mend, (
            name,
            options,
            raised.value.cause,
            raised.value.mend,
        )


def test_without_its_process_nothing_is_certain_and_what_would_settle_it_is_listed(house, monkeypatch):
    """As seen from another machine: the port leads to no process."""
    monkeypatch.setattr(server_process, "find", lambda target: (None, "it is another machine"))
    done = asked(house, "digits", model_dir=str(house.models / "digits"))
    assert (done.engines.answer, done.engines.certainty) == ("cannot tell", "") and done.passed
    assert [one for one in done.engines.settle if gate.VARIABLE in one] and [
        one for one in done.engines.settle if "--server_log" in one
    ]
    assert done.model.to_dict()["named_by_server"] is False
    native = asked(house, "digits_native", model_dir=str(house.models / "digits_native"))
    assert (native.engines.answer, native.engines.certainty) == (
        NO,
        LIKELY,
    )  # nobody but --model_dir says that these are the files
    unknown = asked(house, "digits", shapes="image:2x8x8x1")
    assert unknown.model is None and [one for one in unknown.engines.settle if "--model_dir" in one]


def test_the_shapes_that_engines_were_built_for_come_before_those_of_the_warm_up(house):
    path = house.models / "digits" / "1"
    kept = passport.read(path, passport.MANIFEST)
    declared = json.loads(json.dumps(kept))
    declared["signatures"][0]["calls"] = [{"image": [3, 8, 8, 1]}]
    try:
        passport.write(path, passport.MANIFEST, declared)
        done = asked(house, "digits")
    finally:
        passport.write(path, passport.MANIFEST, kept)
    assert [one.shapes for one in done.calls] == [{"image": (3, 8, 8, 1)}] and "manifest.json" in done.shapes_from[
        "serving_default"
    ]


def test_tensorflow_stays_out_of_this_process(house):
    code = textwrap.dedent(f"""
        import sys
        from tftrt_tools.servers.serving.smoke import smoke
        done = smoke.smoke({house.grpc_address!r}, "digits", smoke.Options(repeats=2))
        assert done.passed and done.model and done.engines.answer == "no"
        assert "tensorflow" not in sys.modules
    """)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_server_that_ends_is_said_with_the_end_of_its_log(house, tmp_path):
    with LocalServer(
        ["--model_name=slow", f"--model_base_path={house.models / 'slow'}"],
        tmp_path / "log",
        env=NO_GPU,
        looked_at=True,
    ) as server:

        def meanwhile(text, done=None, total=None):
            if text.startswith("asking serving_default"):
                (tmp_path / "log").open("a").write("Segmentation fault\n")
                server.kill()

        with progress.listening(meanwhile), pytest.raises(errors.CheckFailed, match="the server ended") as raised:
            smoke.smoke(server.grpc_address, "slow", smoke.Options(log_file=str(tmp_path / "log")))
    assert "serving_default(steps 1)" in raised.value.cause and "Segmentation fault" in raised.value.mend


def test_likely_is_never_more_than_likely(house, monkeypatch):
    """A converted model that is much faster than the native one beside it, from afar."""
    monkeypatch.setattr(server_process, "find", lambda target: (None, "it is another machine"))
    monkeypatch.setattr(
        measurement,
        "against_native",
        lambda *_: latency.Ratio(value=4.0, low=3.8, high=4.1, first=0.02, second=0.005, blocks=20),
    )
    done = asked(house, "digits", native_model_name="digits_native", require_engines=True)
    assert (done.engines.answer, done.engines.certainty) == (YES, LIKELY) and done.passed and done.engines.settle


def test_the_files_of_another_kind_of_gpu_fail_the_check(house, monkeypatch):
    """As after `tftrt publish` of what `tftrt build --on` wrote, where a server was given the base path of another kind."""
    read = steps.Steps.read_version
    monkeypatch.setattr(
        steps.Steps, "read_version", lambda self, path: dataclasses.replace(read(self, path), built_for=("7.5",))
    )
    for here, fails in (([{"compute_capability": "9.0"}], True), ([{"compute_capability": "7.5"}], False), ([], False)):
        answer = types.SimpleNamespace(result=here)
        monkeypatch.setattr(probes.gpu_states, "run", lambda _, answer=answer: answer)
        done = asked(house, "digits")
        assert done.passed is not fails and done.model.to_dict()["built_for"] == ["7.5"]
        assert fails == any(
            "compute capability 7.5, and the GPU of this machine has 9.0" in one for one in done.problems
        )


def test_the_kind_of_gpu_is_read_from_the_engines(converted, tmp_path):
    model = tmp_path / "1"
    shutil.copytree(converted("digits_cnn", "--precision=FP16"), model)
    assert version_on_disk_job.read(str(model)).built_for == ()
    engine_files.engine_file(
        model / f"assets/{engine_assets.PREFIX}TRTEngineOp_000_000", (1, 8, 8, 1), engine=engine_files.HEAD
    )
    assert version_on_disk_job.read(str(model)).built_for == ("9.0",)
