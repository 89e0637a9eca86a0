"""`tftrt doctor` in broken installations that are really broken: other site-packages, stub libraries, packages that abort.

No test needs a GPU; where there is one, those that state its absence are skipped.
"""

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import types

import pytest

from tests import stacks
from tests.environments import mirror
from tftrt_tools.base import errors, stack, tensorrt_rule
from tftrt_tools.base.stack import diagnosis, elf, facts, gpus, installed, libraries, mends, problems, releases

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
SITE = pathlib.Path(sysconfig.get_paths()["purelib"])
RECOMMENDED = stacks.INSTALL

needs_tensorflow = pytest.mark.skipif(
    not (SITE / "tensorflow").is_dir() or not (SITE / "tensorrt").is_dir(),
    reason="TensorFlow or TensorRT is not installed in these site-packages",
)
without_gpu = pytest.mark.skipif(
    libraries.find(libraries.DRIVER, libraries.from_environment()) is not None,
    reason="this machine has an NVIDIA driver",
)


@dataclasses.dataclass(frozen=True)
class Ran:
    code: int
    text: str
    result: dict | None

    def capability(self, name):
        return next(entry for entry in self.result["capabilities"] if entry["name"] == name)

    def library(self, name):
        return next(entry for entry in self.result["libraries"] if entry["name"] == name)


def doctor(*arguments, python=sys.executable, **environment):
    """Run the command with --json=-: the tables then go to stderr."""
    env = {name: value for name, value in os.environ.items() if name not in ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")}
    env |= {"PYTHONPATH": str(REPOSITORY)} | {name: str(value) for name, value in environment.items()}
    done = subprocess.run(
        [python, "-m", "tftrt_tools", "doctor", "--json=-", *arguments],
        env=env,
        text=True,
        capture_output=True,
        timeout=120,
    )
    return Ran(done.returncode, done.stderr, json.loads(done.stdout) if done.stdout else None)


def assert_refuses(ran, name, cause, mend):
    """One line of cause, one of mend, both also in the text."""
    entry = ran.capability(name)
    assert not entry["can"]
    assert cause in entry["cause"] and mend in entry["mend"]
    assert "\n" not in entry["cause"] + entry["mend"]
    assert entry["cause"] in ran.text and entry["mend"] in ran.text


@pytest.fixture(scope="module")
def bare(environment):
    """No TensorFlow and no TensorRT."""
    return environment("tensorflow", "tensorflow_cpu", "tensorrt")


@pytest.fixture
def fake(bare):
    """A function that installs a stand-in wheel for the time of one test; returns the interpreter."""
    python, site = bare
    made = []

    def install(name, version, init="", build=None):
        info, package = site / f"{name.replace('-', '_')}-{version}.dist-info", site / "tensorflow"
        made.extend([info, package])
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (package / "python" / "platform").mkdir(parents=True)
        (package / "__init__.py").write_text(init)
        stated = (
            ""
            if build is None
            else f"import collections\nbuild_info = collections.OrderedDict({list(build.items())})\n"
        )
        (package / "python" / "platform" / "build_info.py").write_text(stated)
        return python

    yield install
    for folder in made:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def healthy():
    return doctor()


@needs_tensorflow
def test_a_whole_installation_can_convert(healthy):
    assert healthy.code == 0
    assert healthy.capability("convert") == {"name": "convert", "can": True, "cause": "", "mend": ""}
    assert healthy.result["tensorflow"] == installed.version_of("tensorflow")
    assert healthy.result["tensorrt_linked"].split(".")[0] == healthy.result["tensorrt_loaded"].split(".")[0]


@needs_tensorflow
def test_each_library_is_told_with_its_file_and_version(healthy):
    nvinfer = healthy.library("libnvinfer.so.8")
    assert pathlib.Path(nvinfer["path"]).samefile(SITE / "tensorrt" / "libnvinfer.so.8")
    assert nvinfer["version"] == healthy.result["tensorrt_loaded"]
    assert healthy.library("libcudnn.so.8")["version"].startswith("8.")
    assert "…/nvidia/cudnn/lib" in healthy.text


@needs_tensorflow
@without_gpu
def test_without_a_gpu_build_and_run_are_refused_together(healthy):
    assert_refuses(healthy, "run", "no NVIDIA driver", "--gpus=all")
    assert healthy.capability("build")["cause"] == healthy.capability("run")["cause"]
    assert healthy.text.count("no NVIDIA driver") == 1
    assert healthy.result["gpus"] == []


@needs_tensorflow
def test_json_goes_to_a_file_and_the_text_to_stdout(bare, tmp_path):
    python, _ = bare
    done = subprocess.run(
        [python, "-m", "tftrt_tools", "doctor", f"--json={tmp_path}/doctor.json"],
        env=dict(os.environ, PYTHONPATH=str(REPOSITORY)),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert "not installed" in done.stdout
    assert json.loads((tmp_path / "doctor.json").read_text())["tensorflow"] is None


def test_no_tensorflow(bare):
    ran = doctor(python=bare[0])
    assert ran.code == 0
    for name in libraries.PURPOSES:
        assert_refuses(ran, name, "TensorFlow is not installed", RECOMMENDED)


def test_require_turns_a_no_into_exit_code_3(bare):
    assert doctor("--require=convert", python=bare[0]).code == errors.EXIT_CHECK


@pytest.mark.parametrize("arguments", [["--require=fly"], ["--timeout_seconds=0"], ["extra"]])
def test_wrong_usage(arguments):
    ran = doctor(*arguments)
    assert ran.code == errors.EXIT_USAGE
    assert ran.result is None


def test_a_release_without_tf_trt(fake):
    ran = doctor(python=fake("tensorflow", "2.18.0", "__version__ = '2.18.0'"))
    assert_refuses(ran, "convert", "TensorFlow 2.18.0 has no TF-TRT: 2.17 was the last", RECOMMENDED)
    assert [library["name"] for library in ran.result["libraries"]] == [libraries.DRIVER]


def test_a_release_that_is_too_old(fake):
    ran = doctor(python=fake("tensorflow", "2.4.1", "__version__ = '2.4.1'"))
    assert_refuses(ran, "convert", "TensorFlow 2.4.1 is older than 2.9", RECOMMENDED)


def test_tensorflow_cpu(fake):
    ran = doctor(python=fake("tensorflow-cpu", "2.14.1", "__version__ = '2.14.1'"))
    assert_refuses(
        ran, "convert", "tensorflow-cpu 2.14.1 is a CPU-only build", "pip uninstall -y tensorflow-cpu && pip install"
    )


def test_a_cpu_build_under_the_plain_name(fake):
    ran = doctor(python=fake("tensorflow", "2.14.1", "__version__ = '2.14.1'", {"is_cuda_build": False}))
    assert_refuses(ran, "convert", "TensorFlow 2.14.1 is a CPU-only build", RECOMMENDED)


def test_metadata_without_the_package(fake, bare):
    python = fake("tensorflow", "2.14.1")
    shutil.rmtree(bare[1] / "tensorflow")
    (bare[1] / "tensorflow").mkdir()
    assert_refuses(
        doctor(python=python), "convert", "its files are gone", 'pip install --force-reinstall "tensorflow==2.14.1"'
    )


@pytest.mark.parametrize(
    "init, cause",
    [
        ("import os; os.abort()", "importing TensorFlow ends the process (SIGABRT)"),
        ("import os; os._exit(7)", "importing TensorFlow ends the process (the process ended with exit code 7"),
        (
            "raise ImportError('numpy.core.multiarray failed\\nto import')",
            "ImportError: numpy.core.multiarray failed to import",
        ),
        ("raise SystemExit('no')", "import tensorflow fails: SystemExit: no"),
    ],
)
def test_a_tensorflow_that_cannot_be_imported(fake, stub, init, cause):
    python = fake("tensorflow", "2.14.1", init, {"is_cuda_build": True, "cuda_version": "11.8"})
    path = _harmless_tensorrt(stub)
    assert_refuses(doctor(python=python, LD_LIBRARY_PATH=path), "convert", cause, "pip install --force-reinstall")


def test_a_tensorflow_that_hangs(fake, stub):
    python = fake(
        "tensorflow", "2.14.1", "import time; time.sleep(60)", {"is_cuda_build": True, "cuda_version": "11.8"}
    )
    ran = doctor("--timeout_seconds=1", python=python, LD_LIBRARY_PATH=_harmless_tensorrt(stub))
    assert_refuses(ran, "convert", "importing TensorFlow did not end in time", "tftrt doctor --timeout_seconds=120")


def _harmless_tensorrt(stub, version=8503):
    folder = stub("libnvinfer.so.8", f"int getInferLibVersion(void) {{ return {version}; }}")
    return stub("libnvinfer_plugin.so.8", "int initLibNvInferPlugins(void *a, const char *b) { return 1; }", folder)


@needs_tensorflow
def test_no_tensorrt(environment):
    python, _ = environment("tensorrt")
    ran = doctor(python=python)
    pin = installed.tensorflow().pins["tensorrt"]
    assert_refuses(ran, "convert", "libnvinfer.so.8 is not found", f"pip install tensorrt=={pin}")
    # TensorFlow was asked all the same, and told what it was linked with.
    assert ran.result["tensorrt_linked"] and ran.result["tensorrt_loaded"] is None
    check = subprocess.run(
        [python, "-c", "from tftrt_tools.base import stack; stack.check_can_convert()"],
        text=True,
        capture_output=True,
        env=dict(os.environ, PYTHONPATH=str(REPOSITORY)),
    )
    assert "TftrtError: libnvinfer.so.8 (TensorRT) is not found" in check.stderr


@needs_tensorflow
def test_no_cublas_stops_conversion_too(environment):
    python, site = environment("nvidia")
    (site / "nvidia").mkdir()
    for package in (SITE / "nvidia").iterdir():
        if package.name != "cublas":
            (site / "nvidia" / package.name).symlink_to(package)
    # A linked tensorrt would lead its `$ORIGIN/..` back to the nvidia packages that are whole.
    (site / "tensorrt").unlink()
    mirror(SITE / "tensorrt", site / "tensorrt")
    ran = doctor(python=python)
    pin = installed.tensorflow().pins["nvidia-cublas-cu11"]
    assert_refuses(ran, "convert", "libnvinfer_plugin.so.8 needs libcublas", f"pip install nvidia-cublas-cu11=={pin}")


@needs_tensorflow
@pytest.mark.parametrize(
    "number, version, rule", [(100100, "10.1.0", "must be equal"), (8203, "8.2.3", "must not be older")]
)
def test_a_tensorrt_of_the_wrong_version(stub, number, version, rule):
    folder = _harmless_tensorrt(stub, number)
    ran = doctor(LD_LIBRARY_PATH=folder)
    assert_refuses(ran, "convert", f"TensorRT {version} is loaded ({folder}/libnvinfer.so.8)", "unset LD_LIBRARY_PATH")
    assert rule in ran.capability("convert")["cause"]


@needs_tensorflow
def test_a_library_that_aborts_while_it_is_loaded(stub, tmp_path):
    source = "#include <stdlib.h>\n__attribute__((constructor)) static void end(void) { abort(); }"
    folder = stub("libnvinfer.so.8", source)
    ran = doctor(LD_LIBRARY_PATH=f"{folder}:{tmp_path}")
    assert_refuses(
        ran,
        "convert",
        f"{folder}/libnvinfer.so.8: loading it ends the process (SIGABRT)",
        f'export LD_LIBRARY_PATH="{tmp_path}"',
    )
    assert ran.library("libcufft.so.10")["path"], "the other libraries are told all the same"


@needs_tensorflow
def test_a_file_that_is_no_library(tmp_path):
    (tmp_path / "libnvinfer.so.8").write_text("not a library")
    ran = doctor(LD_LIBRARY_PATH=tmp_path)
    assert_refuses(ran, "convert", f"{tmp_path}/libnvinfer.so.8", "unset LD_LIBRARY_PATH")


@pytest.fixture(scope="module")
def driver(stub):
    """A driver that is there and knows no GPU."""
    source = "int cuDriverGetVersion(int *v) { *v = 12000; return 0; }\nint cuInit(unsigned f) { return 100; }"
    return stub("libcuda.so.1", source)


@needs_tensorflow
@without_gpu
@pytest.mark.parametrize("number, version", [(8100, "8.1.0"), (90100, "9.1.0")])
def test_a_cudnn_of_the_wrong_version(stub, driver, number, version):
    plugin = SITE / "tensorrt" / "libnvinfer_plugin.so.8"
    symbols = {word for word in _strings(plugin) if word.startswith("cudnn") and word.isalnum()} - {"cudnnGetVersion"}
    source = "".join(f"void {symbol}(void) {{}}\n" for symbol in symbols)
    folder = stub(
        "libcudnn.so.8",
        source + f"unsigned long cudnnGetVersion(void) {{ return {number}; }}",
        version_of_symbols="libcudnn.so.8",
    )
    ran = doctor(LD_LIBRARY_PATH=f"{folder}:{driver}")
    assert ran.library("libcudnn.so.8")["version"] == version
    assert ran.capability("convert")["can"]
    assert_refuses(
        ran, "run", f"cuDNN {version} is loaded ({folder}/libcudnn.so.8)", f'export LD_LIBRARY_PATH="{driver}"'
    )


def _strings(path):
    import re

    return {match.decode() for match in re.findall(rb"[A-Za-z0-9_]{4,}", path.read_bytes())}


@needs_tensorflow
@without_gpu
@pytest.mark.skipif(libraries.find("libnvrtc.so", []) is not None, reason="the system has libnvrtc.so")
def test_a_cudnn_that_ends_the_process_without_nvrtc(driver):
    ran = doctor(LD_LIBRARY_PATH=driver)
    assert ran.library("libcudnn_cnn_infer.so.8")["died"] == "SIGABRT"
    assert_refuses(
        ran, "run", "libcudnn_cnn_infer.so.8 needs libnvrtc.so", "pip install nvidia-cuda-nvrtc-cu11 && ln -s"
    )


_NVML = """
#include <string.h>
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { strcpy(text, "535.1"); return 0; }
int nvmlSystemGetCudaDriverVersion(int *version) { *version = 12020; return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)1; return 0; }
int nvmlDeviceGetName(void *device, char *text, unsigned size) { strcpy(text, "Stub [GPU]"); return 0; }
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) { *major = 8; *minor = 6; return 0; }
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory) { memory[0] = 24ULL << 30; return 0; }
"""


@needs_tensorflow
@without_gpu
def test_a_gpu_that_the_driver_lists_and_tensorflow_does_not_see(driver, stub):
    names = (
        "Version GetErrorString CreateProgram DestroyProgram CompileProgram GetPTXSize GetPTX GetCUBINSize GetCUBIN "
        "GetProgramLogSize GetProgramLog AddNameExpression GetLoweredName GetNumSupportedArchs GetSupportedArchs"
    ).split()
    nvrtc = stub("libnvrtc.so", "".join(f"int nvrtc{name}(void) {{ return 0; }}\n" for name in names))
    ran = doctor(LD_LIBRARY_PATH=f"{driver}:{nvrtc}:{stub('libnvidia-ml.so.1', _NVML)}")
    assert ran.result["gpus"] == [{"index": 0, "name": "Stub [GPU]", "memory_mib": 24576, "compute_capability": "8.6"}]
    assert "535.1, runs CUDA 12.2 and older" in ran.text
    assert "Stub [GPU], 24 GiB, compute capability 8.6" in ran.text
    assert_refuses(ran, "run", "TensorFlow sees no GPU", "nvidia-smi")


def library(name, needed_for, **found):
    return libraries.Library(name=name, needed_for=needed_for, **found)


# What needs a GPU is judged from facts; these are what an H100 with this stack gives.
@pytest.fixture
def on_a_gpu():
    build = {"cuda_version": "11.8", "cuda_compute_capabilities": ["sm_80", "compute_80"]}
    tensorflow = installed.TensorFlow(
        distribution="tensorflow",
        version="2.14.1",
        folder="/site/tensorflow",
        build=build,
        cuda={},
        pins={"nvidia-cudnn-cu11": "8.7.0.84"},
    )
    asked = {
        "version": "2.14.1",
        "linked": [8, 4, 3],
        "tensorrt": {"built": True, "loads": True, "loaded": [8, 5, 3]},
        "gpus": [{"name": "H100", "compute_capability": "9.0"}],
        "step": "",
    }
    found = (
        library("libnvinfer.so.8", "convert", path="/site/tensorrt/libnvinfer.so.8", version="8.5.3"),
        library("libcudnn.so.8", "run", path="/site/nvidia/cudnn/lib/libcudnn.so.8", version="8.7.0"),
        library("libcuda.so.1", "run", path="/lib/libcuda.so.1", version="13.0"),
    )
    return facts.Facts(
        tensorflow=tensorflow,
        asked=asked,
        died=None,
        log="",
        libraries=found,
        driver=gpus.Driver(driver="580.0", cuda="13.0"),
        gpus=(gpus.Gpu(0, "H100", 81559, "9.0"),),
        bindings=True,
    )


def test_with_a_gpu_everything_can_be_done(on_a_gpu):
    found = diagnosis.of(on_a_gpu)
    assert [capability.can for capability in found.capabilities] == [True, True, True]
    assert "compute capability 9.0" in found.notes[0]


@pytest.mark.parametrize(
    "change, cause",
    [
        ({"driver": gpus.Driver(driver="450.1", cuda="10.2")}, "the driver runs CUDA 10.2 and older"),
        ({"gpus": ()}, "lists no GPU"),
    ],
)
def test_a_driver_that_is_not_enough(on_a_gpu, change, cause):
    assert cause in problems.in_gpu(dataclasses.replace(on_a_gpu, **change)).cause


def test_a_gpu_newer_than_tensorrt(on_a_gpu):
    on_a_gpu.asked["gpus"][0]["compute_capability"] = "12.0"
    assert "up to 9.0, this GPU has 12.0" in problems.in_gpu(on_a_gpu).cause


def test_hidden_gpus(on_a_gpu, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert problems.in_gpu(on_a_gpu).mend == "unset CUDA_VISIBLE_DEVICES"


def test_a_build_with_another_cudnn_of_its_own(on_a_gpu):
    on_a_gpu.tensorflow.build["cudnn_version"] = "9"
    assert "needs 9.x" in problems.in_gpu(on_a_gpu).cause


def test_names_that_tensorflow_asked_for_replace_those_of_the_matrix():
    log = (
        "I tsl/dso_loader.cc:55] Successfully opened dynamic library libnvinfer.so.10\n"
        "I tsl/dso_loader.cc:66] Could not load dynamic library 'libcurand.so.10'; dlerror: libcurand.so.10: no; LD_LIBRARY_PATH: /x\n"
    )
    wanted = [("libnvinfer.so.8.6.1", "convert"), ("libcuda.so.1", "run")]
    assert libraries.as_asked_for(wanted, log) == [
        ("libnvinfer.so.10", "convert"),
        ("libcuda.so.1", "run"),
        ("libcurand.so.10", "run"),
    ]
    assert libraries.failures_in(log) == {"libcurand.so.10": "libcurand.so.10: no"}


def test_building_needs_more_than_running(on_a_gpu):
    missing = library("libnvinfer_builder_resource.so.8.5.3", "build", error="it is not beside libnvinfer.so.8")
    found = diagnosis.of(dataclasses.replace(on_a_gpu, libraries=(*on_a_gpu.libraries, missing)))
    assert found.can("run").can and not found.can("build").can


def test_the_quick_check_imports_no_tensorflow():
    code = (
        "import sys; from tftrt_tools.base import errors, stack\n"
        "try: stack.check_can_convert()\nexcept errors.TftrtError as error: assert error.mend\n"
        "assert not {'tensorflow', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=dict(os.environ, PYTHONPATH=str(REPOSITORY)))


@needs_tensorflow
def test_the_quick_check_accepts_a_whole_installation():
    stack.check_can_convert()


def test_the_quick_check_refuses_with_cause_and_mend(fake):
    python = fake("tensorflow", "2.18.0")
    code = "from tftrt_tools.base import errors, stack\ntry: stack.check_can_convert()\nexcept errors.TftrtError as e: print(e.mend)"
    done = subprocess.run(
        [python, "-c", code], text=True, capture_output=True, env=dict(os.environ, PYTHONPATH=str(REPOSITORY))
    )
    assert RECOMMENDED in done.stdout


def working_command(python, *arguments):
    """Run a command that needs TensorFlow in an environment; returns its stderr lines, of which there must be two."""
    done = subprocess.run(
        [python, "-m", "tftrt_tools", *map(str, arguments)],
        text=True,
        capture_output=True,
        timeout=120,
        env=dict(os.environ, PYTHONPATH=str(REPOSITORY)),
    )
    assert done.returncode == 1 and done.stdout == "" and len(done.stderr.splitlines()) == 2, done.stderr
    return done.stderr


@pytest.fixture
def looks_like_a_model(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "saved_model.pb").write_bytes(b"\x08\x01")
    return tmp_path / "model"


def test_the_working_commands_say_what_is_missing(fake, bare, looks_like_a_model, tmp_path):
    convert = "convert", f"--model={looks_like_a_model}", f"--output={tmp_path / 'out'}"
    python, _ = bare
    assert "TensorFlow is not installed" in working_command(python, *convert)
    for command in (("inspect", looks_like_a_model), ("verify", looks_like_a_model, looks_like_a_model)):
        said = working_command(python, *command)
        assert (
            "TensorFlow 2.14 is not installed for this Python" in said
            and "pip install -c constraints.txt '.[tftrt]'" in said
        )
    assert "2.17 was the last release with it" in working_command(fake("tensorflow", "2.18.0"), *convert)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


def test_the_matrix_has_every_release_with_tf_trt():
    assert list(releases.RELEASES) == [(2, minor) for minor in range(releases.OLDEST[1], releases.NEWEST[1] + 1)]
    assert releases.release(releases.RECOMMENDED).tensorrt == 8
    assert releases.release("2.18.0") is None


@needs_tensorflow
def test_tensorflows_own_search_path_is_read():
    folders = {os.path.normpath(folder) for folder in installed.tensorflow().runpath}
    assert str(SITE / "tensorrt") in folders


def test_a_file_that_is_no_elf_wants_nothing(tmp_path):
    (tmp_path / "file").write_bytes(b"\x7fELF\x02\x01 and then nothing")
    assert elf.read(tmp_path / "file") == elf.read(tmp_path / "absent") == elf.Wants()


def test_without_tensorflow_it_says_what_works_here():
    from tftrt_tools.base.stack import diagnosis

    (note,) = diagnosis._notes(types.SimpleNamespace(tensorflow=None, gpus=()))
    assert all(word in note for word in ("without TensorFlow", "bench", "log", "regress --address"))


# TensorFlow 2.15 to 2.17, whose TensorRT comes from NVIDIA's index.
LIBS = releases.TENSORRT_OF_LAST


@pytest.fixture
def living(on_a_gpu, tmp_path, monkeypatch):
    """A function: the facts of TensorFlow 2.17.1 with a TensorRT, and no other one on the machine."""
    monkeypatch.setattr(libraries, "_usual_folders", lambda: [])
    (tmp_path / "a site" / "tensorflow").mkdir(parents=True)
    folder = str(tmp_path / "a site" / "tensorflow")
    tensorflow = dataclasses.replace(
        on_a_gpu.tensorflow, version="2.17.1", folder=folder, pins={"nvidia-cudnn-cu12": "8.9.7.29"}
    )

    def made(*loaded):
        asked = {
            **on_a_gpu.asked,
            "linked": [8, 6, 1],
            "tensorrt": {"built": True, "loads": True, "loaded": list(loaded)},
        }
        version = ".".join(map(str, loaded))
        found = library("libnvinfer.so.8.6.1", "convert", path=f"{folder}/libnvinfer.so.8.6.1", version=version)
        return dataclasses.replace(on_a_gpu, tensorflow=tensorflow, asked=asked, libraries=(found,))

    return made


def test_an_older_patch_of_tensorrt_is_refused_until_the_user_names_it(living, monkeypatch):
    monkeypatch.delenv(tensorrt_rule.ALLOW, raising=False)
    assert problems.in_conversion(living(8, 6, 1)) is None
    refused = problems.in_conversion(living(8, 6, 0))
    assert "TensorRT 8.6.0 is loaded" in refused.cause and "linked with 8.6.1: it must not be older" in refused.cause
    assert LIBS in refused.mend and refused.mend.endswith(
        "to use 8.6.0 all the same: export TFTRT_ALLOW_TENSORRT=8.6.0"
    )
    monkeypatch.setenv(tensorrt_rule.ALLOW, "8.6.0")
    assert problems.in_conversion(living(8, 6, 0)) is None
    (note, *_) = diagnosis.of(living(8, 6, 0)).notes
    assert note.startswith("TensorRT 8.6.0 stands in for the 8.6.1 that TensorFlow 2.17.1 asks for")
    assert not any("stands in" in one for one in diagnosis.of(living(8, 6, 1)).notes)


@pytest.mark.parametrize("loaded", [(8, 5, 3), (8, 6, 0), (10, 3, 0)])
def test_no_other_tensorrt_stands_in(loaded, living, monkeypatch):
    """Another minor version, a release that was not named, and libnvinfer.so.10 linked to the name of 8.6.1."""
    monkeypatch.setenv(tensorrt_rule.ALLOW, "8.6.2" if loaded[:2] == (8, 6) else ".".join(map(str, loaded)))
    refused = problems.in_conversion(living(*loaded))
    rule = "the major versions must be equal" if loaded[0] == 10 else "it must not be older"
    assert rule in refused.cause and refused.mend.startswith("rm ") and LIBS in refused.mend
    assert ("all the same" in refused.mend) == (loaded == (8, 6, 0))


def test_a_library_of_the_system_is_not_to_be_removed(living):
    facts_of = living(10, 3, 0)
    of_system = dataclasses.replace(facts_of.libraries[0], path="/usr/lib/x86_64-linux-gnu/libnvinfer.so.8.6.1")
    refused = problems.in_conversion(dataclasses.replace(facts_of, libraries=(of_system,)))
    assert "/usr/lib" in refused.cause and refused.mend.startswith(LIBS)


def test_tensorrt_that_no_folder_of_the_loader_has_is_linked_where_tensorflow_looks(living, monkeypatch, tmp_path):
    tensorflow, folder = living(8, 6, 1).tensorflow, tmp_path / "a site" / "tensorrt_libs"
    monkeypatch.setattr(libraries, "_usual_folders", lambda: [str(folder)])
    assert mends.missing("libnvinfer.so.8.6.1", tensorflow) == LIBS
    folder.mkdir()
    names = ("libnvinfer.so.8", "libnvinfer_plugin.so.8", "libnvinfer_builder_resource.so.8.6.1")
    for name in names:
        (folder / name).write_text(name)
    subprocess.run(["sh", "-c", mends.missing("libnvinfer_plugin.so.8.6.1", tensorflow)], check=True)
    made = {path.name: path.read_text() for path in pathlib.Path(tensorflow.folder).iterdir()}
    assert made == {
        "libnvinfer.so.8.6.1": names[0],
        "libnvinfer_plugin.so.8.6.1": names[1],
        "libnvinfer_builder_resource.so.8.6.1": names[2],
    }


@pytest.mark.parametrize("needs", ["libcublas.so.11", "libnvinfer.so.10"])
def test_a_library_of_another_stack_is_replaced_and_no_wheel_brings_what_it_needs(needs, living, monkeypatch, tmp_path):
    """The plugin library of TensorRT 8.5, or 10, under the name of 8.6.1's."""
    monkeypatch.setattr(libraries, "_usual_folders", lambda: [])
    facts_of = living(8, 6, 1)
    error = f"{needs}: cannot open shared object file: No such file or directory"
    path = f"{facts_of.tensorflow.folder}/libnvinfer_plugin.so.8.6.1"
    plugin = library("libnvinfer_plugin.so.8.6.1", "convert", path=path, error=error)
    refused = problems.in_conversion(
        dataclasses.replace(
            facts_of,
            asked={**facts_of.asked, "tensorrt": {"built": True, "loads": False}},
            libraries=(*facts_of.libraries, plugin),
        )
    )
    assert refused.cause.startswith(
        f"{path} needs {needs}: it was built for other libraries than TensorFlow 2.17.1 has"
    )
    assert "pip install nvidia" not in refused.mend and LIBS in refused.mend


def test_the_builder_is_looked_for_where_the_link_is(tmp_path):
    """The loader takes what a library opens from the folder of the link to it."""
    package, links = tmp_path / "tensorrt_libs", tmp_path / "tensorflow"
    for folder in (package, links):
        folder.mkdir()
    resource = "libnvinfer_builder_resource.so.8.6.0"
    for name in ("libnvinfer.so.8", resource):
        (package / name).touch()
    (links / "libnvinfer.so.8.6.1").symlink_to(package / "libnvinfer.so.8")
    nvinfer = library("libnvinfer.so.8.6.1", "convert", path=str(links / "libnvinfer.so.8.6.1"), version="8.6.0")
    (builder,) = facts._builder([nvinfer])
    assert builder.path is None and "is not beside" in builder.error
    (links / resource).symlink_to(package / resource)
    (builder,) = facts._builder([nvinfer])
    assert builder.path == str(links / resource) and not builder.error


@pytest.fixture
def container(on_a_gpu):
    """The facts of NVIDIA's container 25.02 as its lists of packages have it; it was not run."""
    tensorflow = dataclasses.replace(on_a_gpu.tensorflow, version="2.17.0+nv25.2", pins={})
    return dataclasses.replace(
        on_a_gpu,
        tensorflow=tensorflow,
        asked={
            **on_a_gpu.asked,
            "version": "2.17.0",
            "linked": [10, 8, 0],
            "tensorrt": {"built": True, "loads": True, "loaded": [10, 8, 0]},
        },
        libraries=(),
    )


def test_a_tensorrt_without_implicit_batch_is_told_what_works(container, monkeypatch):
    monkeypatch.setattr(installed, "version_of", lambda name: "10.8.0.43" if name == "tensorrt" else None)
    found = diagnosis.of(container)
    assert found.can("convert").can and (found.tensorrt_linked, found.tensorrt_loaded) == ("10.8.0", "10.8.0")
    unseen, batch, int8, plans, *_ = found.notes
    assert "TensorRT 10.8.0 was not run with this project" in unseen
    assert "use dynamic shapes by themselves" in batch and "calibrators" in int8 and "since 10.1" in int8
    assert plans.startswith("plans: ") and plans.endswith("which is here: 10.8.0.43")


def test_without_its_python_package_plans_are_said_once_with_what_installs_the_one_that_is_loaded(container):
    (plans,) = (
        one for one in diagnosis.of(dataclasses.replace(container, bindings=False)).notes if "--backend=tensorrt" in one
    )
    assert plans.endswith("For plans: pip install 'tensorrt==10.8.0.*'")


def test_a_tensorrt_of_another_major_version_than_the_linked_one_is_refused_there_too(container):
    container.asked["tensorrt"]["loaded"] = [8, 6, 1]
    refused = problems.in_conversion(container)
    assert "TensorRT 8.6.1 is loaded" in refused.cause and "linked with 10.8.0: the major versions" in refused.cause
    assert "8.6.1" not in refused.mend.partition("==2.")[0]


@pytest.mark.parametrize(
    ("version", "there", "major"),
    [
        ("2.17.0+nv25.2", ("10",), 10),
        ("2.15.0+nv24.4", ("8",), 8),
        ("2.17.0+nv25.2", (), 8),
        # A library that this TensorFlow does not ask for.
        ("2.17.1", ("10",), 8),
        ("2.11.0", (), 7),
        ("2.18.0", ("10",), None),
    ],
)
def test_files_say_which_tensorrt_a_tensorflow_loads(on_a_gpu, monkeypatch, version, there, major):
    tensorflow = dataclasses.replace(on_a_gpu.tensorflow, version=version)
    monkeypatch.setattr(installed, "tensorflow", lambda: tensorflow)
    monkeypatch.setattr(libraries, "find", lambda name, folders: name if name.rpartition(".so.")[2] in there else None)
    assert stack.tensorrt_major() == major and stack.has_implicit_batch() == (major != 10)
    if major:
        assert libraries.needed(tensorflow)[0][0].startswith(f"libnvinfer.so.{major}")


def test_without_tensorflow_no_tensorrt_is_known(monkeypatch):
    monkeypatch.setattr(installed, "tensorflow", lambda: None)
    assert stack.tensorrt_major() is None and stack.has_implicit_batch()


@pytest.mark.parametrize(
    ("python", "said"),
    [
        ((3, 10), 'pip install "tensorflow[and-cuda]==2.14.1"'),
        ((3, 12), 'pip install "tensorflow[and-cuda]==2.17.1" && pip install --no-deps tensorrt-libs==8.6.1'),
        ((3, 13), "python3.10 -m venv"),
    ],
)
def test_each_python_is_told_the_stack_that_it_can_have(python, said, monkeypatch):
    monkeypatch.setattr(releases.sys, "version_info", (*python, 0))
    assert releases.install_command().startswith(said)


def test_the_plugin_is_loaded_behind_the_library_that_it_needs_under_another_name(stub):
    """As TensorFlow 2.15 and later do: libnvinfer_plugin.so.8.6.1 asks for libnvinfer.so.8, which is the SONAME of libnvinfer.so.8.6.1."""
    folder = stub("libnvinfer.so.8", "int needed(void) { return 1; } int getInferLibVersion(void) { return 8601; }")
    libnvinfer = [f"-L{folder}", "-l:libnvinfer.so.8"]
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-w", "-o", folder / "libnvinfer_plugin.so.8.6.1", "-xc", "-", *libnvinfer],
        input=b"int needed(void); int uses(void) { return needed(); }",
        check=True,
    )
    (folder / "libnvinfer.so.8").rename(folder / "libnvinfer.so.8.6.1")
    code = (
        "from tftrt_tools.base.stack import probe_job; names = ['libnvinfer.so.8.6.1', 'libnvinfer_plugin.so.8.6.1']; "
        "print([probe_job._load(names[1], some).error for some in (names[1:], names)])"
    )
    env = dict(os.environ, PYTHONPATH=str(REPOSITORY), LD_LIBRARY_PATH=str(folder))
    said = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, env=env, check=True).stdout
    assert said.endswith(", '']\n") and "libnvinfer.so.8: cannot open shared object file" in said
