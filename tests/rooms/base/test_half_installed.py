"""TensorRT half installed, for real: what `convert` says before it writes anything, in the words of `tftrt doctor`."""

import contextlib
import importlib.util
import os
import pathlib
import subprocess
import sysconfig

import pytest

from tests.environments import mirror
from tftrt_tools.base import errors, tensorrt_rule

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
SITE = pathlib.Path(sysconfig.get_paths()["purelib"])
# TensorRT's folder, and the one that TensorFlow takes it from.
FOLDER = next((name for name in ("tensorrt_libs", "tensorrt") if (SITE / name / "libnvinfer.so.8").is_file()), "")
pytestmark = pytest.mark.skipif(
    not FOLDER or importlib.util.find_spec("tensorflow") is None, reason="TensorFlow or TensorRT is not installed here"
)
needs_links = pytest.mark.skipif(
    FOLDER != "tensorrt_libs", reason="TensorFlow 2.14 finds TensorRT in its wheel, without links"
)
TEN = "int getInferLibVersion(void) { return 100300; }"
ALLOWED = {tensorrt_rule.ALLOW: "8.6.0"}


@pytest.fixture(scope="module")
def whole(environment):
    """An installation that may be broken: its Python, and its site-packages."""
    python, site = environment("nvidia")
    (site / "nvidia").mkdir()
    for package in (SITE / "nvidia").iterdir():
        (site / "nvidia" / package.name).symlink_to(package)
    (site / FOLDER).unlink()
    mirror(SITE / FOLDER, site / FOLDER)
    return python, site


@contextlib.contextmanager
def away(*paths):
    """Without these files, which go where no command looks."""
    kept = {path: path.parents[1] / f"{path.name}.away" for path in paths}
    for path, place in kept.items():
        path.rename(place)
    try:
        yield
    finally:
        for path, place in reversed(kept.items()):
            path.unlink(missing_ok=True)
            place.rename(path)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    import tensorflow as tf

    module, path = tf.Module(), tmp_path_factory.mktemp("model") / "m"
    module.serve = tf.function(lambda x: {"y": tf.nn.relu(x)}, input_signature=[tf.TensorSpec((None, 4), name="x")])
    tf.saved_model.save(module, str(path), signatures=module.serve)
    return path


@pytest.fixture
def convert(whole, model, tmp_path):
    """A function that runs `tftrt convert`, which must end in two lines. Returns: (the cause, the mend)."""

    def run(command="convert", **variables):
        out = tmp_path / "out"
        words = {
            "convert": (f"--model={model}", f"--output={out}"),
            "inspect": (str(model),),
            "calibrate": (str(model), "--calibration_data=random", f"--output={out}"),
        }
        unset = ("LD_LIBRARY_PATH", tensorrt_rule.ALLOW)
        env = {name: value for name, value in os.environ.items() if name not in unset} | variables
        done = subprocess.run(
            [whole[0], "-m", "tftrt_tools", command, *words[command]],
            env=env | {"PYTHONPATH": str(REPOSITORY)},
            text=True,
            capture_output=True,
            timeout=200,
        )
        assert done.returncode == errors.EXIT_FAILED and done.stdout == "", done.stdout + done.stderr
        assert list(tmp_path.iterdir()) == []
        cause, mend = done.stderr.splitlines()
        return cause.removeprefix("tftrt: error: "), mend.strip()

    return run


def _tensorflows(site, name):
    """The file of a library under the name that TensorFlow asks for."""
    folder, release = ("tensorflow", "8.6.1") if FOLDER == "tensorrt_libs" else (FOLDER, "8")
    return site / folder / f"{name}.so.{release}"


@pytest.mark.parametrize(
    ("package", "library", "command"), [("cudnn", "libcudnn.so.8", "convert"), ("cublas", "libcublas", "inspect")]
)
def test_a_library_that_tensorrt_needs(package, library, command, whole, convert):
    """TensorRT itself is there. TensorFlow 2.17 with the switch would go on without the plugins."""
    with away(whole[1] / "nvidia" / package):
        cause, mend = convert(command, **ALLOWED)
    assert "libnvinfer_plugin.so.8" in cause and f"needs {library}" in cause and cause.endswith("which is not found")
    assert mend.startswith(f"pip install nvidia-{package}-cu1")


def test_tensorrt_10_under_the_name_of_8(whole, convert, stub):
    """Its plugins are still those of 8, and miss it: that is not what is wrong."""
    nvinfer = _tensorflows(whole[1], "libnvinfer")
    ten = stub("libnvinfer.so.10", TEN)
    with away(nvinfer):
        nvinfer.symlink_to(ten / "libnvinfer.so.10")
        cause, mend = convert(**ALLOWED)
    assert cause.startswith(f"TensorRT 10.3.0 is loaded ({nvinfer}) but TensorFlow")
    assert cause.endswith("the major versions must be equal")
    if FOLDER == "tensorrt_libs":
        assert "ln -sf ../tensorrt_libs/libnvinfer.so.8 libnvinfer.so.8.6.1" in mend
    else:
        assert mend.startswith("pip install --force-reinstall --no-deps tensorrt==8.")


def test_a_library_that_ends_the_process(whole, convert, stub):
    """Not this one: the command goes on to tell."""
    nvinfer = _tensorflows(whole[1], "libnvinfer")
    ends = stub("ends.so", "void abort(void); __attribute__((constructor)) static void end(void) { abort(); }")
    with away(nvinfer):
        nvinfer.symlink_to(ends / "ends.so")
        cause, mend = convert()
    assert cause == f"{nvinfer}: loading it ends the process (SIGABRT)"
    assert "pip install" in mend or "ln -sf" in mend


def test_a_package_that_brings_no_tensorrt(whole, convert):
    """As PyPI's nvidia-tensorrt does, which is empty."""
    site = whole[1]
    info = site / "nvidia_tensorrt-99.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nvidia-tensorrt\nVersion: 99.0.0\n")
    asked = _tensorflows(site, "libnvinfer")
    try:
        with away(asked, site / FOLDER):
            cause, mend = convert()
    finally:
        (info / "METADATA").unlink()
        info.rmdir()
    assert cause == f"{asked.name} (TensorRT) is not found; nvidia-tensorrt 99.0.0 does not bring it"
    assert mend.startswith(("pip install tensorrt==8.", "pip install --no-deps tensorrt-libs==8.6.1"))


@needs_links
def test_links_in_a_folder_where_tensorflow_does_not_look(whole, convert):
    """TensorFlow's framework looks into site-packages/tensorrt, and the library that asks for TensorRT first does not."""
    site = whole[1]
    links = [_tensorflows(site, name) for name in ("libnvinfer", "libnvinfer_plugin")]
    (site / "tensorrt").mkdir()
    for link in links:
        (site / "tensorrt" / link.name).symlink_to(f"../{FOLDER}/{link.name.removesuffix('.6.1')}")
    with away(*links):
        cause, mend = convert()
        for name in links:
            (site / "tensorrt" / name.name).unlink()
        (site / "tensorrt").rmdir()
        assert convert()[1].startswith("cd ")
    assert cause == "libnvinfer.so.8.6.1 (TensorRT) is not found" and mend.startswith("export LD_LIBRARY_PATH=")


@needs_links
@pytest.mark.skipif(
    not (SITE / "tensorrt_libs/libnvinfer_builder_resource.so.8.6.0").is_file(), reason="TensorRT here is not 8.6.0"
)
def test_an_older_patch_without_the_switch(convert):
    cause, mend = convert("calibrate")
    assert "TensorRT 8.6.0 is loaded" in cause and cause.endswith("is linked with 8.6.1: it must not be older")
    assert mend.endswith("to use 8.6.0 all the same: export TFTRT_ALLOW_TENSORRT=8.6.0")
