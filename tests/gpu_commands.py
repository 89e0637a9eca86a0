"""What tests on a GPU share: converting, building, verifying, and what a machine without one cannot do."""

import json
import os

import pytest

from tests.conftest import run_tftrt
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.models.savedmodel.job import protos

NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}
EXACT = "--shapes=image:1x8x8x1,8x8x8x1"


def report(**row):
    """Keep a row for the table."""
    path = os.environ.get("TFTRT_GPU_REPORT")
    if path:
        with open(path, "a") as file:
            file.write(json.dumps(row) + "\n")


def convert(source, target, *flags, env=None):
    done = run_tftrt("convert", f"--model={source}", f"--output={target}", *flags, env=env, timeout=550)
    assert done.returncode == 0, done.stderr
    return passport.read(target, passport.MANIFEST)


def verify(source, target, *flags, env=None):
    """Returns: (exit code, the result or None, stderr)."""
    done = run_tftrt("verify", source, target, *flags, "--json=-", env=env, timeout=550)
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def needs_int8_kernels(said):
    """Skip where verify says that TensorRT took no kernel in INT8: it times each beside the other precisions, and small layers gain little."""
    if not said["kernels"].get("INT8"):
        assert any("not taken" in warning for warning in said["warnings"]), said["warnings"]
        pytest.skip("TensorRT took no INT8 kernel in this small model; verify says so")


def change_engines(path, **attributes):
    """Set attributes on every engine op of a saved model."""
    from tftrt_tools.models.savedmodel.job import graph

    proto = protos.read(path)
    graph.set_on_engines(proto.meta_graphs[0].graph_def, **attributes)
    (path / "saved_model.pb").write_bytes(proto.SerializeToString())


def build(model, *flags, cache=None):
    """Returns: what `tftrt build` says as JSON."""
    where = [f"--engine_cache_dir={cache}"] if cache else []
    done = run_tftrt("build", model, *flags, *where, "--json=-", timeout=550)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def engines_of(said):
    return [engine for signature in said["signatures"] for engine in signature["built"]]
