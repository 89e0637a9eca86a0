"""The package in a Python without TensorFlow: what needs none runs, what needs it says what to install.

In the usual tests that Python is this one, in which the extra's packages cannot be imported. `make portable` adds new environments of each
Python from 3.10 to 3.13, into which the package is installed without the extra.
"""

import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from tests import stacks
from tests.conformance.launch import LocalServer
from tests.conftest import ROOT
from tftrt_tools.base import errors
from tftrt_tools.command_line import cli

HIDDEN = "this Python, with TensorFlow hidden"
VERSIONS = ("3.10", "3.11", "3.12", "3.13")
CLIENT = """
import sys
import numpy as np
from tftrt_tools.servers.client import Client
with Client(sys.argv[1]) as client:
    answer = client.predict("digits", {"image": np.zeros([2, 8, 8, 1], np.float32)})
    print(answer["probabilities"].shape, answer.model.version, "serving_default" in client.metadata("digits"), client.status("digits")[0].state)
    client.reload(open(sys.argv[2]).read())
assert "tensorflow" not in sys.modules
"""
# Commands that need TensorFlow, up to the point where they do.
NEEDY = {
    "build": ("MODEL", "--shapes=image:1x8x8x1"),
    "calibrate": ("MODEL", "--calibration_data=ROWS", "--output=table"),
    "convert": ("--model=MODEL", "--output=out"),
    "data": ("MODEL", "ROWS", "--output=out.npz"),
    "inspect": ("MODEL",),
    "publish": ("MODEL", "--base_path=base", "--model_name=m"),
    "sensitivity": ("MODEL", "--data=ROWS"),
    "serve": ("--launch=local", "--model_base_path=MODEL", "--model_name=m"),
    "smoke": ("ADDRESS", "--model_name=digits", "--model_dir=MODEL"),
    "verify": ("MODEL", "MODEL"),
    "tune": ("MODEL", "--data=ROWS", "--shapes=image:8x8x8x1", "--accuracy=snr_db:threshold=20", "--output=out"),
}


def interpreter(version):
    """Path of a Python `version`, or None: on PATH, or one of pyenv's."""
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")) / "versions"
    for path in filter(None, (shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python")))):
        asked = subprocess.run(
            [path, "-c", "import ensurepip, sys; print(*sys.version_info[:2], sep='.')"], capture_output=True, text=True
        )
        if asked.stdout.strip() == version:
            return path
    return None


def _installed(version, folder):
    """A new environment with the package in it, and nothing else that was asked for. Returns: its Python."""
    found = interpreter(version)
    if not found:
        pytest.skip(f"there is no Python {version} here")
    subprocess.run([found, "-m", "venv", folder / "venv"], check=True)
    source = folder / "source"  # building leaves files beside pyproject.toml
    shutil.copytree(ROOT / "tftrt_tools", source / "tftrt_tools", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source)
    subprocess.run([folder / "venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", source], check=True)
    return folder / "venv/bin/python"


@dataclasses.dataclass(frozen=True)
class Bare:
    """python: an interpreter without TensorFlow; path: its PYTHONPATH."""

    python: str
    path: str

    def run(self, *arguments, cwd):
        env = {**os.environ, "PYTHONPATH": self.path, "XDG_STATE_HOME": str(cwd)}
        return subprocess.run(
            [self.python, *map(str, arguments)], capture_output=True, text=True, env=env, cwd=cwd, timeout=240
        )

    def tftrt(self, *arguments, cwd):
        return self.run("-m", "tftrt_tools", *arguments, cwd=cwd)


@pytest.fixture(
    scope="module", params=[HIDDEN, *(pytest.param(version, marks=pytest.mark.portable) for version in VERSIONS)]
)
def bare(request, tmp_path_factory):
    if request.param != HIDDEN:
        return Bare(_installed(request.param, tmp_path_factory.mktemp("portable")), "")
    return Bare(sys.executable, os.pathsep.join([str(ROOT / "tests/without_tensorflow"), str(ROOT)]))


@pytest.fixture(scope="module")
def server(zoo_model, tmp_path_factory):
    """A development server of the digits in versions 1 (stable) and 2. `config` is its models.config, `model` the model."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "digits").mkdir()
    for version in ("1", "2"):
        (folder / "digits" / version).symlink_to(zoo_model("digits_cnn"))
    config = folder / "models.config"
    config.write_text(
        f'model_config_list {{ config {{ name: "digits" base_path: "{folder}/digits" model_platform: "tensorflow" '
        'model_version_policy { specific { versions: 1 versions: 2 } } version_labels { key: "stable" value: 1 } } }'
    )
    with LocalServer(
        (f"--model_config_file={config}", "--allow_version_labels_for_unavailable_models"), folder / "log"
    ) as running:
        running.config, running.model, running.base = config, zoo_model("digits_cnn"), folder / "digits"
        yield running
        running.stop()


def test_each_command_helps(bare, tmp_path):
    code = (
        "from tftrt_tools.command_line import cli; import sys; codes = [cli.main([name, '--help']) for name in cli.COMMANDS]; "
        "sys.exit(any(codes) or 'tensorflow' in sys.modules)"
    )
    helped = bare.run("-c", code, cwd=tmp_path)
    assert helped.returncode == 0, helped.stderr
    assert re.findall(r"^usage: tftrt (\w+)", helped.stdout, re.MULTILINE) == list(cli.COMMANDS)
    assert bare.tftrt("--help", cwd=tmp_path).returncode == 0


def test_what_is_missing_is_missing(bare, tmp_path):
    assert "No module named 'tensorflow'" in bare.run("-c", "import tensorflow", cwd=tmp_path).stderr
    told = bare.tftrt("doctor", "--json=doctor.json", cwd=tmp_path)
    assert told.returncode == 0 and "TensorFlow is not installed for this Python" in told.stdout
    assert json.loads((tmp_path / "doctor.json").read_text())["tensorflow"] is None


@pytest.mark.parametrize("command", NEEDY)
def test_a_command_that_needs_tensorflow_says_what_to_install(bare, command, server, tmp_path):
    np.savez(tmp_path / "rows.npz", image=np.random.default_rng(0).random([16, 8, 8, 1], np.float32))
    words = {"MODEL": server.model, "ROWS": tmp_path / "rows.npz", "ADDRESS": server.grpc_address}
    arguments = [re.sub("MODEL|ROWS|ADDRESS", lambda found: str(words[found[0]]), one) for one in NEEDY[command]]
    done = bare.tftrt(command, *arguments, cwd=tmp_path)
    cause, mend = [line for line in done.stderr.splitlines() if not line.startswith("backend:")]
    assert (
        done.returncode == errors.EXIT_FAILED
        and cause.startswith("tftrt: error: TensorFlow ")
        and "not installed for this Python" in cause
    )
    assert "install" in mend
    assert "3.10" in mend or sys.version_info[:2] == (3, 10) or f"pip install {stacks.INSTALL}" in mend
    assert {path.name for path in tmp_path.iterdir()} <= {"rows.npz", "base"}


def test_the_client(bare, server, tmp_path):
    done = bare.run("-c", CLIENT, server.grpc_address, server.config, cwd=tmp_path)
    assert done.stdout == "(2, 10) 2 True AVAILABLE\n", done.stderr


def test_versions_promote_rollback(bare, server, tmp_path):
    def labelled():
        done = bare.tftrt(
            "versions",
            server.grpc_address,
            f"--model_config_file={server.config}",
            "--json=versions.json",
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr
        return re.findall(r"digits +(\d) .*stable", done.stdout)

    assert labelled() == ["1"]
    for arguments, now in ((("promote", "--model_version=2", "--version_label=stable"), ["2"]), (("rollback",), ["1"])):
        command, *flags = arguments
        done = bare.tftrt(
            command,
            server.grpc_address,
            "--model_name=digits",
            f"--model_config_file={server.config}",
            *flags,
            cwd=tmp_path,
        )
        assert done.returncode == 0 and labelled() == now, done.stderr


def test_configure(bare, server, tmp_path):
    done = bare.tftrt(
        "configure",
        "--output=config",
        f"--model=digits={server.base}:versions=1,2:stable=1",
        "--monitoring",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    checked = bare.tftrt("configure", "--check_files", "config/models.config", "config/monitoring.config", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr + checked.stdout


def test_bench_with_its_files(bare, server, tmp_path):
    done = bare.tftrt(
        "bench",
        server.grpc_address,
        "--model_name=digits",
        "--duration_seconds=0.5",
        "--warmup_seconds=0",
        "--concurrency=1",
        "--json=bench.json",
        "--html=bench.html",
        "--csv=bench.csv",
        "--hdr=bench.hdr",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "bench.json").read_text())["kind"] == "bench"
    assert all((tmp_path / f"bench.{name}").stat().st_size for name in ("html", "csv"))


def test_regress_and_its_history(bare, server, tmp_path):
    done = bare.tftrt(
        "regress",
        f"--address={server.grpc_address}",
        "--native=digits",
        "--native_version=1",
        "--candidate=digits",
        "--candidate_version=2",
        "--rounds=11",
        "--max_rounds=11",
        "--requests=16",
        "--save_baseline=auto",
        "--json=regress.json",
        cwd=tmp_path,
    )
    assert done.returncode in (errors.EXIT_DONE, errors.EXIT_UNSURE, errors.EXIT_CHECK), (
        done.stderr
    )  # whatever so few rounds say
    assert json.loads((tmp_path / "regress.json").read_text())["kind"]
    kept = bare.tftrt("history", cwd=tmp_path)
    assert kept.returncode == 0 and "digits" in kept.stdout, kept.stderr


def test_inspect_of_an_onnx_file(bare, tmp_path):
    import onnx

    from tests.rooms.models.test_inspect_onnx import model

    onnx.save(model(), tmp_path / "m.onnx")
    done = bare.tftrt("inspect", "m.onnx", "--json=overview.json", cwd=tmp_path)
    assert done.returncode == 0 and json.loads((tmp_path / "overview.json").read_text())["ops"]["MatMul"] == 1, (
        done.stderr
    )


def test_the_engine_cache(bare, tmp_path):
    assert bare.tftrt("cache", "list", cwd=tmp_path).returncode == 0


def test_a_log(bare, tmp_path):
    done = bare.tftrt(
        "log", ROOT / "tests/data/logs/fallback.log.gz", "--fail_on=fallback,build", "--json=log.json", cwd=tmp_path
    )
    assert done.returncode == errors.EXIT_CHECK and "fallback: no_engine_fits (5×)" in done.stderr
    assert (
        json.loads((tmp_path / "log.json").read_text())["engines"]["engines"][0]["name"] == "TRTEngineOp_65d45f244b_0_0"
    )
