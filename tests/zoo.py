"""Sample models for tests, each built once a test session, in small sizes.

A test takes the fixture `zoo_model` (a conftest or the test file imports it from here) and asks it for a folder:

    def test_something(zoo_model):
        path = zoo_model("ranker")                # a SavedModel; read it, or copy it before changing it
        inputs = zoo_inputs("ranker", batch=4)    # {signature: {input name: array}}
"""

import contextlib
import fcntl
import inspect
import os
import pathlib
import shutil
import sys

import pytest

import saved_models
from tests import forks

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

ROOT = pathlib.Path(__file__).resolve().parents[1]

# Smaller than the builders' own defaults: what a test sees is the kind of graph, not its size.
SMALL = {
    "resnet50": {"size": 64, "classes": 100, "width": 16},
    "mobilenet_v2": {"size": 64, "classes": 100},
    "spread_cnn": {"width": 32, "size": 8, "blocks": 2},
    "bert_encoder": {"layers": 2, "hidden": 64},
}


@pytest.fixture(scope="session")
def zoo_model(tmp_path_factory):
    """A function (name, **options) -> path of the SavedModel. `options` go to the builder, over those of SMALL."""
    folder = common(tmp_path_factory) / "zoo"

    def get(name, **options):
        if name == "digits_cnn" and not options:
            return trained(tmp_path_factory) / "digits_cnn"
        return built(folder, name, **{**SMALL.get(name, {}), **options})

    return get


def trained(tmp_path_factory):
    """The folder of the digits CNN, trained once a session: digits_cnn (the SavedModel), model.keras and model.h5."""

    def make(path):
        # What training gives depends on the threads of an op, and tests know the weights. Workers have one thread, and this process has all.
        env = {name: value for name, value in os.environ.items() if name != "TF_NUM_INTRAOP_THREADS"}
        training = forks.popen([sys.executable, "-m", "tests.zoo", str(path)], env=env, cwd=ROOT)
        assert training.wait(240) == 0

    return once(common(tmp_path_factory) / "zoo/digits", make)


def zoo_inputs(name, batch=4, seed=0, **options):
    """Sample inputs that fit `zoo_model(name, **options)`. Returns: {signature: {input name: array of `batch` rows}}."""
    import numpy as np

    known = inspect.signature(saved_models.builder(name).sample_inputs).parameters
    options = {key: value for key, value in {**SMALL.get(name, {}), **options}.items() if key in known}
    return saved_models.sample_inputs(name, np.random.default_rng(seed), batch, **options)


def built(folder, name, **options):
    """The path of the model in `folder`; builds it when it is missing. Safe between processes."""
    label = "-".join([name, *(f"{key}_{value}" for key, value in sorted(options.items()))])
    return once(pathlib.Path(folder) / label, lambda path: saved_models.build(name, path, **options))


def common(tmp_path_factory):
    """The one folder of all workers of this session."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


def once(target, make):
    """`target`, a folder; function `make` writes it to the path that it is given, when it is missing. Safe between processes."""
    with lock(target.with_name(f".{target.name}.lock")):
        if not target.exists():
            partial = target.with_name(f".{target.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            make(partial)
            partial.rename(target)
    return target


@contextlib.contextmanager
def lock(path, shared=False):
    """Hold the lock of a file: alone, or with all others that share it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def turn(path, alone):
    """Wait for a turn: alone, or beside all others that are not alone. Who waits to be alone lets no other begin."""
    with contextlib.ExitStack() as held:
        with lock(path.with_suffix(".gate")):
            held.enter_context(lock(path, shared=not alone))
        yield


def _train(path):
    digits = saved_models.builder("digits_cnn")
    digits.build(path / "digits_cnn")
    for suffix in (".keras", ".h5"):
        digits.write_keras(path / f"model{suffix}")


if __name__ == "__main__":
    _train(pathlib.Path(sys.argv[1]))
