"""A server for as long as a block lasts, as `tftrt regress` and `tftrt bench --tune_batching` start theirs."""

import os
import pathlib
import sys

import pytest

from tests import server_log
from tftrt_tools.base import errors
from tftrt_tools.servers.serving.launch import block, watched_process

# A server that cannot load its model, says so, and stays.
STAYS = f"""#!{sys.executable}
import time
print({server_log.load_failure("model", 1, server_log.DAMAGED)!r}, flush=True)
time.sleep(600)
"""


def test_a_server_that_stays_without_its_model_is_ended_with_the_reason(zoo_model, tmp_path, monkeypatch):
    program = tmp_path / "tensorflow_model_server"
    program.write_text(STAYS)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with (
        pytest.raises(errors.TftrtError, match="model version 1 did not load: DATA_LOSS"),
        block.served({"model": zoo_model("digits_cnn")}, "binary"),
    ):
        pytest.fail("it never served")


def test_parameters_that_a_server_refuses_are_named(zoo_model, tmp_path):
    path = tmp_path / "batching_parameters.txt"
    path.write_text("max_batch_size { value: 8 } allowed_batch_sizes: 4")
    flags = {"enable_batching": True, "batching_parameters_file": str(path)}
    with (
        pytest.raises(errors.TftrtError, match="Last entry in allowed_batch_sizes must match max_batch_size"),
        block.served({"model": zoo_model("digits_cnn")}, flags=flags),
    ):
        pytest.fail("it never served")


def test_the_server_ends_with_the_block(zoo_model):
    with block.served({"one": zoo_model("digits_cnn"), "two": zoo_model("digits_cnn")}) as running:
        assert running.backend == "local" and running.problem() is None
        assert pathlib.Path(f"/proc/{running.pid}").exists()
    assert running.problem() is not None and not pathlib.Path(f"/proc/{running.pid}").exists()


def test_its_grpc_threads_are_no_limit_to_the_load_that_it_is_started_for(zoo_model, monkeypatch):
    start, started = watched_process.subprocess.Popen, []
    monkeypatch.setattr(
        watched_process.subprocess, "Popen", lambda argv, **more: (started.append(argv), start(argv, **more))[1]
    )
    with block.served({"model": zoo_model("digits_cnn")}) as running:
        assert running.problem() is None
    (argv,) = started
    assert "--grpc_max_threads=256" in argv
