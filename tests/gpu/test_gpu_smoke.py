"""`tftrt smoke` where engines do run: the development server on a GPU. `make gpu-test`.

The server's id is given: whether a port leads to its process is no question of the GPU.
"""

import shutil

import pytest

from tests.conformance.launch import LocalServer
from tests.gpu_commands import EXACT, NO_GPU, convert
from tftrt_tools.servers.serving.publishing import publish
from tftrt_tools.servers.serving.smoke import gate, smoke
from tftrt_tools.servers.serving.smoke.engine_evidence import CERTAIN, NO, NOTHING, PARTLY, YES

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(560)]

BATCH_1, BATCH_4, BATCH_8 = (f"serving_default(image {batch}x8x8x1)" for batch in (1, 4, 8))
WATCHED = {"TF_CPP_VMODULE": "trt_engine_op=1", "TF_CPP_MIN_LOG_LEVEL": "0"}


@pytest.fixture(scope="module")
def models(zoo_model, tmp_path_factory):
    """A folder with digits 1 (FP16, engines for batch 1 and 8), digits_native 1, and models.config."""
    folder = tmp_path_factory.mktemp("smoke")
    convert(zoo_model("digits_cnn"), folder / "converted", "--precision=FP16", EXACT)
    publish.publish(folder / "converted", "digits", str(folder / "models"), publish.Options(unverified=True))
    shutil.copytree(zoo_model("digits_cnn"), folder / "models" / "digits_native" / "1")
    listed = " ".join(
        f'config {{ name: "{name}" base_path: "{folder / "models" / name}" model_platform: "tensorflow" }}'
        for name in ("digits", "digits_native")
    )
    (folder / "models.config").write_text(f"model_config_list {{ {listed} }}")
    return folder


def server(models, tmp_path, env):
    return LocalServer(
        [f"--model_config_file={models / 'models.config'}", "--max_num_load_retries=0"],
        tmp_path / "server.log",
        env=env,
    )


def asked(running, name="digits", **options):
    return smoke.smoke(
        running.grpc_address, name, smoke.Options(**{"repeats": 5, "server_pid": running.process.pid, **options})
    )


def judged(done):
    return {call: (one.answer, one.certainty) for call, one in done.engines.calls.items()}


def test_the_closed_gate_makes_engines_certain_and_a_shape_without_one_an_error(models, zoo_model, tmp_path):
    with server(models, tmp_path, {gate.VARIABLE: "False"}) as running:
        done = asked(
            running, original=str(zoo_model("digits_cnn")), native_model_name="digits_native", require_engines=True
        )
        assert judged(done) == {BATCH_1: (YES, CERTAIN), BATCH_8: (YES, CERTAIN)}, done.engines.to_dict()
        assert (done.engines.answer, done.engines.certainty, done.engines.settle) == (YES, CERTAIN, ())
        assert done.passed and done.arithmetic[0] == "FP16" and done.judged.comparisons[0].snr_db > 30, done.problems
        assert done.gpu.uses is True and done.model.same and all(one.native for one in done.calls)
        # TensorRT's arithmetic did answer, in FP16 or in FP32 kernels: the same kernels would agree to the last bit.
        assert done.judged.comparisons[0].snr_db < 200

        done = asked(running, shapes="image:1x8x8x1,4x8x8x1")
        assert judged(done) == {BATCH_1: (YES, CERTAIN), BATCH_4: (NO, CERTAIN)}, done.engines.to_dict()
        assert done.engines.answer == PARTLY and not done.passed
        assert gate.REFUSAL in done.answer_problems[0] and BATCH_4 in done.answer_problems[0]

        native = asked(running, "digits_native", shapes="image:8x8x8x1")
        assert (native.engines.answer, native.engines.certainty) == (NO, CERTAIN) and native.passed


def test_with_the_gate_open_the_log_tells_engines_from_native_runs(models, tmp_path):
    with server(models, tmp_path, WATCHED) as running:
        done = asked(running, log_file=str(tmp_path / "server.log"), shapes="image:1x8x8x1,4x8x8x1,8x8x8x1")
        assert judged(done) == {BATCH_1: (YES, CERTAIN), BATCH_4: (NO, CERTAIN), BATCH_8: (YES, CERTAIN)}, (
            done.engines.to_dict()
        )
        assert done.engines.answer == PARTLY and done.passed  # answers are right all the same
        unseen = asked(running, shapes="image:4x8x8x1")
        assert (
            unseen.engines.calls[BATCH_4].certainty != CERTAIN and unseen.engines.settle
        )  # without the log nobody can tell for certain
        assert {one.speaks for one in unseen.engines.evidence if one.source in ("gate", "GPU")} <= {NOTHING, NO}


def test_a_server_that_sees_no_gpu_is_a_certain_no_on_a_machine_that_has_one(models, tmp_path):
    with server(models, tmp_path, {gate.VARIABLE: "False", **NO_GPU}) as running:
        done = asked(running)
        assert (done.engines.answer, done.engines.certainty) == (NO, CERTAIN), done.engines.to_dict()
        assert done.passed and done.gpu.uses is False
