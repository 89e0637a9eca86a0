"""`tftrt regress --in_process` with a model in the Python of another environment. In the usual tests that is this Python by another name, and
`make portable` takes new environments of other Pythons, with the newest ONNX Runtime for each."""

import json
import os
import pathlib
import subprocess
import sys
import sysconfig

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save_model

from tests.command_line import assert_clear
from tests.conftest import ROOT
from tests.rooms.command_line.test_without_tensorflow import VERSIONS, interpreter
from tftrt_tools.base.process import child
from tftrt_tools.base.process import interpreter as interpreters
from tftrt_tools.models.kinds import elsewhere, opening, table

# Which of the two is the faster is not the question here.
QUICK = ("--rounds=12", "--max_rounds=12", "--allow_worse")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Two ONNX files of one product whose answers agree, and one whose answers do not."""
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((16, 4)).astype(np.float32)
    for name, values in (("one", weights), ("other", weights * np.float32(1 + 1e-7)), ("wrong", weights * 2)):
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 16])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
            [numpy_helper.from_array(values, "w")],
        )
        save_model(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8), folder / f"{name}.onnx"
        )
    return folder


def environment(folder, packages=True):
    """A virtual environment of this Python, which sees the packages of this one without what makes them editable. Returns: its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    if packages:
        site = next(pathlib.Path(folder).glob("lib/python3*/site-packages"))
        (site / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin/python"


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    return environment(tmp_path_factory.mktemp("environment") / "venv")


def regress(tftrt, tmp_path, native, candidate, *flags):
    done = tftrt(
        "regress",
        "--in_process",
        f"--native={native}",
        f"--candidate={candidate}",
        *QUICK,
        f"--json={tmp_path / 'r.json'}",
        *flags,
    )
    return done, json.loads((tmp_path / "r.json").read_text()) if (tmp_path / "r.json").exists() else None


@pytest.mark.parametrize("side", ["native", "candidate"])
def test_one_model_runs_in_another_environment(tftrt, tmp_path, files, python, side):
    done, said = regress(tftrt, tmp_path, files / "one.onnx", files / "other.onnx", f"--{side}_python={python}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        f"the {side} model ran in onnxruntime" in done.stdout
        and str(python) in done.stdout
        and "a process of its own" in done.stdout
    )
    assert (
        said["workload"][f"{side}_in"].startswith("onnxruntime 1.")
        and str(python) not in said["workload"][f"{side}_in"]
    )
    assert said["failed"] == {"native": 0, "candidate": 0} and said["answers"]["problems"] == []


def test_wrong_answers_of_another_environment_fail(tftrt, tmp_path, files, python):
    done, said = regress(
        tftrt,
        tmp_path,
        files / "one.onnx",
        files / "wrong.onnx",
        f"--candidate_python={python}",
        f"--native_python={python}",
    )
    assert done.returncode == 3 and said["answers"]["problems"], done.stdout + done.stderr
    assert {"native_in", "candidate_in"} <= set(said["workload"])


def test_a_run_without_another_environment_is_described_as_before(tftrt, tmp_path, files):
    _, said = regress(tftrt, tmp_path, files / "one.onnx", files / "other.onnx")
    assert not any(name.endswith("_in") for name in said["workload"]) and "one process" in said["server"]["reason"]


def test_an_interpreter_that_cannot_is_told(tftrt, tmp_path, files, python, zoo_model):
    bare = environment(tmp_path / "bare", packages=False)
    one = files / "one.onnx"
    for flags, code, said in (
        ((f"--candidate_python={bare}",), 1, "does not load numpy"),
        (("--candidate_python=/nowhere/python",), 2, "is no program"),
        ((f"--native_python={tmp_path}",), 2, "is no program"),
        (("--candidate_python=/bin/true",), 1, "does not run tftrt-tools"),
    ):
        assert_clear(
            tftrt("regress", "--in_process", f"--native={one}", f"--candidate={one}", *QUICK, *flags), code, said
        )
    assert_clear(
        tftrt("regress", f"--native={one}", f"--candidate={one}", f"--candidate_python={python}", "--launch=local"),
        2,
        "--candidate_python has no effect on a server",
    )
    saved = zoo_model("digits_cnn")
    assert_clear(
        tftrt("regress", "--in_process", f"--native={saved}", f"--candidate={saved}", f"--candidate_python={python}"),
        2,
        "runs in this environment alone",
    )


def test_another_environment_runs_the_files_of_this_package_without_the_packages_of_this_one(python, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/of/this/environment")
    said = child.run(
        "tests_seen:path",
        None,
        env={"PYTHONPATH": str(pathlib.Path(__file__).parents[2] / "data/elsewhere")},
        python=str(python),
    ).result
    assert os.path.realpath(said["package"]) == os.path.realpath(pathlib.Path(interpreters.__file__).parents[2])
    assert "/of/this/environment" not in said["path"] and said["executable"] == str(python)


FEW = """
import importlib, sys

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {"tftrt_tools", *sys.stdlib_module_names}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refused())
for name in [name for name in sys.modules if name.partition(".")[0] == "google"]:
    del sys.modules[name]
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


def test_what_declares_the_jobs_of_other_environments_needs_no_package():
    """Not even those that they need: only so a child there can tell which of them is missing."""
    declared = [one.runtime.job.target.partition(":")[0] for one in table.KINDS if one.runtime.package]
    modules = [elsewhere.seen.target.partition(":")[0], *declared]
    assert len(modules) == 4
    done = subprocess.run([sys.executable, "-c", FEW, *modules], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.portable
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", VERSIONS)
def test_another_python_and_its_newest_onnx_runtime(tftrt, tmp_path, files, version):
    found = interpreter(version)
    if not found:
        pytest.skip(f"there is no Python {version} here")
    subprocess.run([found, "-m", "venv", tmp_path / "venv"], check=True)
    there = tmp_path / "venv/bin/python"
    subprocess.run(
        [there, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "onnxruntime", "ml_dtypes", "cattrs"],
        check=True,
    )
    with opening.opened(files / "one.onnx") as (model,):
        _, named = elsewhere.placed(model, str(there), "candidate_python")
    assert named.endswith(f"of Python {version}{named.rpartition(version)[2]}")
    done, said = regress(tftrt, tmp_path, files / "one.onnx", files / "other.onnx", f"--candidate_python={there}")
    assert done.returncode == 0 and said["workload"]["candidate_in"] == named and said["answers"]["problems"] == [], (
        done.stdout + done.stderr
    )
