"""Fixtures and helpers of all tests."""

import contextlib
import functools
import gc
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import pytest

pytest.register_assert_rewrite("tests.command_line", "tests.gpu_commands")

from tests import quick  # noqa: E402
from tests.engine_files import built_once  # noqa: E402, F401
from tests.environments import environment, stub  # noqa: E402, F401
from tests.zoo import turn, zoo_model  # noqa: E402, F401
from tftrt_tools.base.process import collection  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]


def _own_gpu():
    """With TFTRT_TEST_GPUS=0,1 each of the workers of `pytest -n 2` sees one GPU only: engines are timed while they are built."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    if worker and os.environ.get("TFTRT_TEST_GPUS"):
        gpus = os.environ["TFTRT_TEST_GPUS"].split(",")
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[int(worker) % len(gpus)]


_own_gpu()


def run_tftrt(*arguments, env=None, cwd=None, timeout=240):
    """Run the command as a user would. Returns: CompletedProcess with text output."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    variables = {**os.environ, "PYTHONPATH": path, **(env or {})}
    return subprocess.run(
        [sys.executable, "-m", "tftrt_tools", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=variables,
        cwd=cwd or ROOT,
        timeout=timeout,
        check=False,
    )


@pytest.fixture(scope="session", autouse=True)
def shared_children(request):
    """Where no GPU is asked for, tests share children, and the commands of command_here run in this process."""
    from tests import command_here

    with command_here.shared() if request.config.getoption("-m").startswith("not gpu") else contextlib.nullcontext():
        yield


@pytest.fixture(scope="session")
def tftrt():
    """The function command_here.run_tftrt."""
    from tests import command_here

    return command_here.run_tftrt


@functools.cache
def _no_gpu():
    from tftrt_tools.base import stack

    capability = stack.diagnose(60).can("build")
    return "" if capability.can else f"no usable GPU: {capability.cause}"


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help="skip each test that starts a process or loads TensorFlow")


def pytest_configure(config):
    """Commands of one test run share an engine cache of their own: engines take long to build, and the user's cache is not ours. A worker
    of `pytest -n` imports TensorFlow, before it collects the tests."""
    # Else each of hundreds of processes compiles the package anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # Nor is it set where users are: it hid a full disk below what is still to be written when Python ends.
    os.environ.pop("PYTHONUNBUFFERED", None)
    sys.dont_write_bytecode = False
    if "PYTEST_XDIST_WORKER" not in os.environ:
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            # A shell lets what it starts in the background ignore Ctrl-C, and so would the commands that the tests interrupt.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        folder = tempfile.TemporaryDirectory(prefix="tftrt-test-cache-")
        os.environ["XDG_CACHE_HOME"] = folder.name
        config.add_cleanup(folder.cleanup)
    if hasattr(config, "workerinput") and config.getoption("-m").startswith("not gpu"):
        # As many workers as cores: where each op has a thread for each core, too, they wait for each other, and do so awake.
        os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    if hasattr(config, "workerinput") and not config.getoption("--quick"):
        # Nearly every test module imports it. Not where this file is imported: processes that a test starts do that too.
        with collection.paused():
            import tensorflow  # noqa: F401


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session):
    """With --quick, whoever runs tests (a worker, or this process where there are none) runs only the light ones."""
    if session.config.getoption("--quick") and (
        hasattr(session.config, "workerinput") or not session.config.getoption("numprocesses", None)
    ):
        quick.install()


def pytest_collection_finish():
    """The modules of all tests and of TensorFlow stay until the end: without this each full collection of garbage walks half a million of
    their objects."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    made = yield
    if item.config.getoption("--quick"):
        quick.watched(made.get_result())


def pytest_runtest_logreport(report):
    """Keep each failure at once where TFTRT_TEST_FAILURES names a file: a run with a time limit may end before its summary."""
    path = os.environ.get("TFTRT_TEST_FAILURES")
    if path and "PYTEST_XDIST_WORKER" not in os.environ and (report.failed or report.when == "call"):
        with open(path, "a") as file:
            file.write(
                f"{report.outcome} {report.duration:.1f} s {report.nodeid}\n{report.longreprtext[-3000:] if report.failed else ''}"
            )


def pytest_collection_modifyitems(config, items):
    """Skip the tests that need a GPU where there is none, with the doctor's reason, and those that download unless they are asked for. The
    tests that may take longest come first: at the end of a run one worker would be alone with them. Those that need a GPU alone come last:
    while one waits for it, no other begins."""
    items.sort(
        key=lambda item: (
            item.get_closest_marker("gpu_alone") is not None,
            -max((mark.args[0] for mark in item.iter_markers("timeout")), default=0),
        )
    )
    for marker, what, target in (
        ("corpus", "models", "corpus"),
        ("portable", "packages", "portable"),
        ("new", "packages", "test-new"),
        ("images", "packages", "test-images"),
    ):
        for item in items if marker not in config.getoption("-m") else ():
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=f"it downloads {what}: make {target}"))
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked or config.getoption("-m").startswith("not gpu"):
        return
    reason = "it needs a GPU: make gpu-test" if config.getoption("--quick") else _no_gpu()
    for item in marked if reason else ():
        item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    """Tests of several workers share a GPU, but for those that are marked gpu_alone. Waiting does not count as the test's time."""
    with contextlib.ExitStack() as held:
        if item.get_closest_marker("gpu"):
            name = f"gpu-{os.environ.get('CUDA_VISIBLE_DEVICES', 'all')}.lock"
            held.enter_context(
                turn(pathlib.Path(os.environ["XDG_CACHE_HOME"]) / name, bool(item.get_closest_marker("gpu_alone")))
            )
        yield


@pytest.fixture(scope="session")
def converted(zoo_model, tmp_path_factory):  # noqa: F811
    """A function (name, *flags) -> path of the sample model converted with these flags; each made once a session. The first test that asks
    for it may have a fixture `tftrt` of its own, which must not convert for all later ones."""
    from tests import command_here, zoo

    folder = zoo.common(tmp_path_factory) / "converted"

    def get(name, *flags):
        def convert(path):
            done = command_here.run_tftrt("convert", f"--model={zoo_model(name)}", f"--output={path}", *flags)
            assert done.returncode == 0, done.stderr

        return zoo.once(folder / _label(name, flags), convert)

    return get


def _label(name, flags):
    return name + "".join("_" + "".join(c if c.isalnum() else "-" for c in flag) for flag in flags)


@pytest.fixture(scope="session")
def onnx_model(zoo_model, tmp_path_factory):  # noqa: F811
    """A function (name, *flags) -> path of the sample model as an ONNX file, exported with these flags; each made once a session. Read it,
    or copy it before changing it."""
    from tests import command_here, zoo

    folder = zoo.common(tmp_path_factory) / "exported"

    def get(name, *flags):
        def export(path):
            path.mkdir(parents=True)
            done = command_here.run_tftrt("export", zoo_model(name), f"--output={path / f'{name}.onnx'}", *flags)
            assert done.returncode == 0, done.stderr

        return zoo.once(folder / _label(name, flags), export) / f"{name}.onnx"

    return get


@pytest.fixture(scope="session")
def images(tmp_path_factory):
    """Folder with calibration.npz (training images), held_back.npz and labels.npy of the digits."""
    import numpy as np

    import saved_models

    folder = tmp_path_factory.mktemp("images")
    digits = saved_models.builder("digits_cnn")
    np.savez(folder / "calibration.npz", image=digits.training_images()[0][:512])
    held_back, labels = digits.held_back()
    np.savez(folder / "held_back.npz", image=held_back)
    np.save(folder / "labels.npy", labels)
    return folder
