"""`tftrt regress --launch=binary` of a converted model without a GPU: the real server has no kernel for its engine ops."""

import json
import os
import shutil
import sys

import pytest

from tests import server_log
from tests.conformance.launch import LocalServer
from tests.conftest import ROOT
from tests.rooms.studies.test_regress_run import QUICK, run
from tftrt_tools.base import errors


@pytest.fixture
def binary(tmp_path, monkeypatch):
    """tensorflow_model_server on PATH, which runs no engine op."""
    program = tmp_path / "bin" / "tensorflow_model_server"
    program.parent.mkdir()
    program.write_text(server_log.as_without_native_copies(sys.executable, str(ROOT)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")


def test_engine_ops_that_the_server_refuses_are_not_said_to_have_run(binary, zoo_model, converted, tmp_path, capsys):
    code = run(
        f"--native={zoo_model('digits_cnn')}",
        f"--candidate={converted('digits_cnn')}",
        "--launch=binary",
        *QUICK,
        f"--history_dir={tmp_path / 'history'}",
    )
    said = capsys.readouterr().out
    assert code == errors.EXIT_CHECK
    assert "does not run there: it has TF-TRT's engine ops, and TRTEngineOp has no kernel in this server" in said
    assert "ran as TensorFlow ops" not in said and "it refuses what reaches one" in said


def test_a_candidate_that_does_not_load_is_named_with_the_reason(binary, zoo_model, built_once, tmp_path):
    with pytest.raises(errors.TftrtError, match="model-tested version 1 did not load: .* it sees no GPU$") as raised:
        run(
            f"--native={zoo_model('digits_cnn')}",
            f"--candidate={built_once[0]}",
            "--launch=binary",
            *QUICK,
            f"--history_dir={tmp_path / 'history'}",
        )
    assert "--launch=local" in raised.value.mend


def test_a_server_of_this_machine_without_a_gpu_gives_no_verdict_on_the_speed_of_engines(
    zoo_model, converted, tmp_path, capsys
):
    models = {"native": zoo_model("digits_cnn"), "candidate": converted("digits_cnn")}
    text = ""
    for name, model in models.items():
        shutil.copytree(model, tmp_path / name / "1")
        text += f'config {{ name: "{name}" base_path: "{tmp_path / name}" model_platform: "tensorflow" }}\n'
    (tmp_path / "models.config").write_text(f"model_config_list {{ {text} }}")
    with LocalServer([f"--model_config_file={tmp_path / 'models.config'}"], tmp_path / "log", looked_at=True) as server:
        asked = (
            f"--address={server.grpc_address}",
            *(f"--{side}={side}" for side in models),
            *QUICK,
            f"--history_dir={tmp_path / 'history'}",
        )
        code = run(*asked, f"--candidate_dir={models['candidate']}", f"--json={tmp_path / 'r.json'}")
        said = capsys.readouterr().out
        assert code == errors.EXIT_DONE and "no verdict on speed: there is no GPU here" in said
        assert json.loads((tmp_path / "r.json").read_text())["speed_not_judged"]
        # The server's own command line says which files it serves.
        assert run(*asked) == errors.EXIT_DONE
        assert "no verdict on speed: there is no GPU here" in capsys.readouterr().out
        # Files that are gone tell nothing, and the speed of what may have engines is not judged.
        shutil.rmtree(tmp_path / "candidate")
        assert run(*asked) == errors.EXIT_DONE
        said = capsys.readouterr().out
        assert "no verdict on speed: the server has no GPU, and whether the candidate has engines is not known" in said
