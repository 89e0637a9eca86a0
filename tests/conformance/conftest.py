"""What TensorFlow Serving 2.14.1 answers, as tests that run against any address.

    pytest tests/conformance                                                        # the project's own server, started here
    pytest tests/conformance --server=HOST:8500 --rest=HOST:8501 [--models=DIR]     # a tensorflow_model_server
        [--batching_server=HOST:8510 --batching_rest=HOST:8511]

A foreign server serves the models of `python -m tests.conformance.models DIR`, with the flags that it prints. --models names DIR where
this process can write it too (tests of reloading put new models there); without it these tests are skipped, as those of batching
are without --batching_server. The paragraphs in the docstrings: B3 ModelSpec, B4 Predict, Classify, Regress and MultiInference,
B5 metadata, status and reload, B7 REST, B8 batching, B10 metrics.
"""

import pathlib
import signal

import pytest

from tests.conformance import address, launch, models

_OPTIONS = {
    "server": "gRPC address HOST:PORT of the server to test, instead of starting one",
    "rest": "its REST address HOST:PORT",
    "models": "the folder of its models, where this process can write to it",
    "batching_server": "gRPC address of the server with batching",
    "batching_rest": "its REST address",
}


def pytest_addoption(parser):
    group = parser.getgroup("conformance")
    for name, text in _OPTIONS.items():
        group.addoption(f"--{name}", default=None, help=text)


def _option(request, name):
    return request.config.getoption(
        name, default=None
    )  # a run of the whole of tests/ reads this file after the command line


@pytest.fixture(scope="session")
def models_folder(request, tmp_path_factory):
    """The folder of the models; None where the server has its own and it was not named."""
    if _option(request, "models"):
        return pathlib.Path(_option(request, "models"))
    if _option(request, "server"):
        return None
    return models.built_once(tmp_path_factory)


def _serve(request, models_folder, tmp_path_factory, names, batching):
    grpc_address = _option(request, names[0])
    if grpc_address:
        yield address.Server(grpc_address, _option(request, names[1]), models_folder)
        return
    log = tmp_path_factory.mktemp("server") / "log.txt"
    with launch.LocalServer(models.flags(models_folder, batching), log) as process:
        server = address.Server(process.grpc_address, process.rest_address, models_folder)
        yield server
        server.close()
        process.stop()
    # Killed by no signal of its own: an aborted server is a fault whatever the tests said.
    assert process.process.returncode in (0, -signal.SIGTERM), log.read_text(errors="replace")[-4000:]


@pytest.fixture(scope="session")
def server(request, models_folder, tmp_path_factory):
    """address.Server without batching."""
    if _option(request, "server") and not _option(request, "rest"):
        pytest.fail("--server needs --rest")
    yield from _serve(request, models_folder, tmp_path_factory, ("server", "rest"), False)


@pytest.fixture(scope="session")
def batching(request, models_folder, tmp_path_factory):
    """address.Server with the batching parameters of models.py."""
    if _option(request, "server") and not (_option(request, "batching_server") and _option(request, "batching_rest")):
        pytest.skip("a server with batching is needed: --batching_server and --batching_rest")
    yield from _serve(request, models_folder, tmp_path_factory, ("batching_server", "batching_rest"), True)


@pytest.fixture
def shared_folder(server):
    """The models' folder, which the server and this process both see."""
    if server.folder is None:
        pytest.skip("needs a file system shared with the server: --models")
    return server.folder
