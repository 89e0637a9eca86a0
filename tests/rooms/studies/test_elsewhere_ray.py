"""A whole command on a cluster of Ray on this machine, with GPUs that are counted and are none: real commands, two kinds at once, a worker
that is killed, a stack that is another one, and Ctrl-C."""

import contextlib
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tests import fleets
from tests.command_line import assert_clear, processes_marked
from tests.conftest import ROOT, run_tftrt
from tests.onnx_files import product

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: the extra `fleet`"),
    pytest.mark.slow,
]
T4, L4 = "accelerator_type:T4", "accelerator_type:L4"
NAME = "a 'b\" c.onnx"


@pytest.fixture(scope="module")
def cluster():
    """The address of a cluster with two T4s and an L4, whose processes are marked."""
    mark = {"TFTRT_TEST_MARK": f"elsewhere-{os.getpid()}"}
    with fleets.cluster(T4, T4, L4, env=dict.fromkeys(range(3), mark)) as (_, address, _):
        yield address


@pytest.fixture
def here(tmp_path):
    """A folder with two models, which answer differently, and rows."""
    product(tmp_path / "m.onnx")
    product(tmp_path / NAME, seed=1)
    np.save(tmp_path / "rows.npy", np.ones((16, 4), np.float32))
    return tmp_path


def names(folder):
    return sorted(one.name for one in folder.iterdir())


def test_two_kinds_at_once_with_an_exit_code_of_their_own(cluster, here):
    (here / "o ut-T4.json").write_text("before")
    words = ("verify", "m.onnx", NAME, "--data=rows.npy", "--json=o ut.json")
    done = run_tftrt(*words, f"--on={cluster}", "--gpu_types=T4,L4", cwd=here)
    assert done.returncode == 3, done.stderr
    assert "T4: ran on " in done.stderr and "L4: ran on " in done.stderr and "in try" not in done.stderr
    assert names(here) == sorted(["m.onnx", NAME, "rows.npy", "o ut-T4.json", "o ut-L4.json"])
    for kind in ("T4", "L4"):
        found = json.loads((here / f"o ut-{kind}.json").read_text())
        assert found["converted"] == str(here / NAME) and found["passed"] is False


def test_a_command_with_json_on_stdout_and_a_file_that_it_makes(cluster, here):
    done = run_tftrt("export", NAME, "--output=o.onnx", "--target=10", "--json=-", f"--on={cluster}", cwd=here)
    assert done.returncode == 0, done.stderr
    (file,) = json.loads(done.stdout)["files"]
    assert file["path"] == str(here / "o.onnx") and (here / "o.onnx").is_file()
    assert done.stderr.splitlines()[-1].startswith("ran on ")


def test_a_comparison_without_a_gpu_has_the_machine_in_its_evidence(cluster, here):
    words = (
        "regress",
        "m.onnx",
        NAME,
        "--rounds=11",
        "--max_rounds=11",
        "--requests=2",
        "--json=r.json",
        "--junit=r.xml",
    )
    done = run_tftrt(*words, "--allow_worse", "--must_decide=", f"--on={cluster}", cwd=here)
    assert done.returncode in (0, 3, 4), done.stderr
    text = (here / "r.json").read_text()
    assert json.loads(text)["machine"]["cpu"] and str(here / NAME).replace('"', '\\"') in text
    assert not any("tftrt-scratch" in one.read_text() for one in (here / "r.json", here / "r.xml"))


def test_a_kind_that_is_not_there_is_told_and_the_other_one_is_done(cluster, here):
    words = ("verify", "m.onnx", "m.onnx", "--json=o.json", f"--on={cluster}", "--wait_seconds=0")
    done = run_tftrt(*words, "--gpu_types=L4,H100", cwd=here)
    assert done.returncode == 1 and "tftrt: error: H100: " in done.stderr and "no GPU of the kind H100" in done.stderr
    assert (here / "o-L4.json").is_file() and not (here / "o-H100.json").exists()
    assert_clear(run_tftrt(*words, "--gpu_types=H100", cwd=here), 1, "no GPU of the kind H100")


def started(here, address, *more):
    return subprocess.Popen(
        [sys.executable, "-m", "tftrt_tools", "regress", "m.onnx", NAME, "--max_seconds=60", "--rounds=2000",
         "--max_rounds=2000", "--json=o.json", "--allow_worse", "--must_decide=", f"--on={address}", *more],
        cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))},
    )  # fmt: skip


def command_on_the_machine(process, seconds=90):
    """(the process of the command, the worker of Ray that it lies below) of a machine of the cluster."""
    for _ in range(seconds * 10):
        assert process.poll() is None, process.communicate()
        for one in processes_marked(f"elsewhere-{os.getpid()}"):
            with contextlib.suppress(OSError):
                if b"\0tftrt_tools\0regress\0" in pathlib.Path(f"/proc/{one}/cmdline").read_bytes():
                    return int(one), parent(parent(int(one)))
        time.sleep(0.1)
    raise AssertionError("no command")


def parent(process):
    return int(pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def gone(process):
    for _ in range(100):
        if not os.path.exists(f"/proc/{process}"):
            return True
        time.sleep(0.1)
    return False


def test_a_worker_that_is_killed_is_followed_by_another_try(cluster, here):
    process = started(here, cluster, "--gpu_types=T4", "--max_seconds=10")
    command, worker = command_on_the_machine(process)
    os.kill(worker, signal.SIGKILL)
    _, said = process.communicate(timeout=240)
    assert "in try 2" in said and process.returncode in (0, 3, 4), said
    assert gone(command) and json.loads((here / "o.json").read_text())["candidate"]


def test_ctrl_c_leaves_no_process_and_no_file(cluster, here):
    process = started(here, cluster)
    command, _ = command_on_the_machine(process)
    before = names(here)
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=120)
    assert process.returncode == 1 and "interrupted" in said and "Traceback" not in said and out == ""
    assert gone(command) and names(here) == before


def test_a_machine_with_another_stack_refuses_in_one_line(cluster, here, tmp_path_factory):
    """This side says that it has another version of this package."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "sitecustomize.py").write_text(
        "from tftrt_tools.base import version\nversion.__version__ = '0.0.other'\n"
    )
    path = os.pathsep.join(filter(None, [str(folder), str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", "tftrt_tools", "verify", "m.onnx", NAME, "--json=o.json", f"--on={cluster}"],
        cwd=here, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=False,
    )  # fmt: skip
    assert_clear(done, 1, "not 0.0.other")
    assert not (here / "o.json").exists()
