"""Plans in a real tritonserver on a GPU, in its Python backend: `tftrt publish --server=triton --triton_backend=python`. `make gpu-test`."""

import concurrent.futures
import json
import os
import shutil
import subprocess

import numpy as np
import pytest

from tests import stacks
from tests.conftest import run_tftrt
from tests.gpu.test_gpu_plans import SHAPES, build
from tests.triton_server import TritonServer, installed
from tftrt_tools.models.execution import run
from tftrt_tools.models.kinds.plan import kind as plan_kind
from tftrt_tools.servers.client import ServingError, TritonClient

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(380), stacks.needs_bindings]
BATCHES = (1, 2, 7, 32)


@pytest.fixture(scope="module")
def plan(zoo_model, tmp_path_factory):
    """digits_cnn in FP16: batch 1, and 2 to 32."""
    installed()
    path = tmp_path_factory.mktemp("plan") / "digits"
    build(zoo_model("digits_cnn"), path, "--precision=FP16", SHAPES)
    return path


@pytest.fixture(scope="module")
def answers(plan, tmp_path_factory):
    """{batch: (images, what the plan answers without a server)}."""
    folder = tmp_path_factory.mktemp("answers")
    asked = [np.random.default_rng(batch).random((batch, 8, 8, 1), np.float32) for batch in BATCHES]
    saved = run.save_calls([run.Call("serving_default", {"image": one}) for one in asked], folder / "in")
    done = run.run(plan_kind.at(str(plan)), saved, folder / "out", "the plan", trace=True)
    return {batch: (asked[index], done.answer(index)["probabilities"]) for index, batch in enumerate(BATCHES)}


@pytest.fixture(scope="module")
def repository(plan, tmp_path_factory):
    folder = tmp_path_factory.mktemp("triton") / "repository"
    done = run_tftrt(
        "publish",
        plan,
        "--server=triton",
        "--model_name=digits",
        f"--base_path={folder}",
        "--triton_backend=python",
        "--unverified",
        "--triton_queue_delay_us=20000",
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def server(repository, tmp_path_factory):
    with TritonServer(repository, tmp_path_factory.mktemp("server")) as one:
        yield one


def gpus():
    if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return len(visible.split(","))
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    return listed.count("UUID")


def test_the_server_runs_the_plan_and_answers_as_the_plan_does_alone(server, answers):
    assert "runs model.plan on GPU 0" in server.log.read_text(), server.log.read_text()
    with TritonClient(server.address, timeout=60) as client:
        for _ in range(3):
            for asked, wanted in answers.values():
                np.testing.assert_array_equal(client.predict("digits", {"image": asked})["probabilities"], wanted)


def test_joined_requests_get_the_rows_of_their_own(server, answers):
    """Joined to other batch sizes, kernels may differ: the answers agree as those of FP16 do."""
    with TritonClient(server.address, timeout=60) as client:
        before = client.statistics("digits")
        with concurrent.futures.ThreadPoolExecutor(8) as callers:
            found = list(
                callers.map(lambda _: client.predict("digits", {"image": answers[2][0]})["probabilities"], range(80))
            )
        after = client.statistics("digits")
    assert all(np.allclose(one, answers[2][1], atol=5e-3) for one in found)
    counted = [{one.version: one for one in said}[1] for said in (before, after)]
    calls, rows = (getattr(counted[1], name) - getattr(counted[0], name) for name in ("executions", "rows"))
    assert rows == 160 and calls < 80, (calls, rows)


def test_a_batch_beyond_the_plan_is_an_error_of_its_own(server, answers):
    with TritonClient(server.address, timeout=60) as client:
        with pytest.raises(ServingError, match="batch"):
            client.predict("digits", {"image": np.zeros((33, 8, 8, 1), np.float32)})
        np.testing.assert_array_equal(
            client.predict("digits", {"image": answers[7][0]})["probabilities"], answers[7][1]
        )


def test_smoke_and_bench_ask_it(server, zoo_model):
    done = run_tftrt("smoke", server.address, "--model_name=digits", f"--original={zoo_model('digits_cnn')}")
    assert done.returncode == 0, done.stdout + done.stderr
    done = run_tftrt("bench", server.address, "--model_name=digits", "--concurrency=1,4", "--json=-", timeout=200)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert len(rows) == 2 and all(row["answered"] and row["checked"] and not row["wrong"] for row in rows), rows


def test_calls_are_cuda_graphs_where_the_environment_says_so(repository, answers, tmp_path):
    with (
        TritonServer(repository, tmp_path, environment={"TFTRT_PLAN_CUDA_GRAPH": "1"}) as server,
        TritonClient(server.address, timeout=60) as client,
    ):
        for _ in range(3):
            for asked, wanted in answers.values():
                np.testing.assert_allclose(
                    client.predict("digits", {"image": asked})["probabilities"], wanted, atol=1e-6
                )


def kinds(plan, folder, *names):
    """A folder as `tftrt build --on` makes it: the plan of this machine's GPU, and for kinds that are not here files that nothing loads."""
    for name in names:
        shutil.copytree(plan, folder / name)
        if name != "here":
            document = json.loads((folder / name / "plan.json").read_text())
            # A kind of GPU that no machine has.
            (folder / name / "plan.json").write_text(json.dumps({**document, "compute_capability": f"0.{len(name)}"}))
    return folder


def published_kinds(built, repository):
    done = run_tftrt(
        "publish",
        built,
        "--server=triton",
        "--model_name=digits",
        f"--base_path={repository}",
        "--triton_backend=python",
        "--unverified",
    )
    assert done.returncode == 0, done.stderr
    return repository


def test_of_a_version_for_several_kinds_the_plan_for_this_gpu_runs(plan, answers, tmp_path):
    repository = published_kinds(kinds(plan, tmp_path / "built", "another", "here"), tmp_path / "repository")
    with TritonServer(repository, tmp_path) as server, TritonClient(server.address, timeout=60) as client:
        assert "digits version 1 runs here/model.plan on GPU 0" in server.log.read_text(), server.log.read_text()
        for asked, wanted in answers.values():
            np.testing.assert_array_equal(client.predict("digits", {"image": asked})["probabilities"], wanted)


def test_a_version_without_a_plan_for_this_gpu_is_one_line_of_triton(plan, tmp_path):
    repository = published_kinds(kinds(plan, tmp_path / "built", "a", "bb"), tmp_path / "repository")
    capability = json.loads((plan / "plan.json").read_text())["compute_capability"]
    with TritonServer(repository, tmp_path) as server, TritonClient(server.address, timeout=60) as client:
        (state,) = client.status("digits")
    told = f"has no model for GPU 0, of compute capability {capability}: a is for 0.1, bb is for 0.2;"
    assert state.failed and told in state.error, state.error


def test_each_gpu_has_an_instance(server, tmp_path):
    if gpus() < 2:
        pytest.skip("one GPU is visible here")
    said = server.log.read_text()
    assert "runs model.plan on GPU 1" in said
    lines = subprocess.run(
        ["nvidia-smi", "--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    children = subprocess.run(
        ["pgrep", "-P", str(server.process.pid)], capture_output=True, text=True, check=False
    ).stdout.split()
    used = {line.split(", ")[0] for line in lines if line.split(", ")[1] in children}
    # In some containers nvidia-smi sees no process.
    assert len(used) > 1 or not lines, lines
