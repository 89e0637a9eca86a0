"""Collects facts about this machine, in child processes, and never fails."""

import dataclasses
import json
import os
import sysconfig
import typing
from collections.abc import Sequence

from tftrt_tools.base import errors
from tftrt_tools.base.files import scratch
from tftrt_tools.base.process import child, progress
from tftrt_tools.base.stack import bindings, gpus, installed, libraries, probes


class TensorRtAnswer(typing.TypedDict, total=False):
    """What TensorFlow says about TensorRT. built: it has TF-TRT. loads: TensorRT's libraries can be loaded. loaded: their version."""

    built: bool
    loads: bool
    loaded: list[int]


class SeenGpu(typing.TypedDict):
    """A GPU that TensorFlow sees. compute_capability: such as "9.0", None where it does not say."""

    name: str
    compute_capability: str | None


class Asked(typing.TypedDict, total=False):
    """The answers of the imported TensorFlow, up to the step where it failed."""

    # The step that it had reached: "" at the end.
    step: str
    version: str
    # tf.sysconfig.get_build_info().
    build: dict[str, typing.Any]
    tensorrt: TensorRtAnswer
    # Version of TensorRT that TensorFlow is linked with.
    linked: list[int]
    gpus: list[SeenGpu]
    # Why a step failed, one line.
    error: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """What the probes found."""

    # The TensorFlow that `import tensorflow` would find.
    tensorflow: installed.TensorFlow | None
    # What that TensorFlow answers when it is imported.
    asked: Asked
    # How its process ended, if not normally ("SIGABRT", …).
    died: str | None
    # What TensorFlow printed.
    log: str
    libraries: tuple[libraries.Library, ...]
    # Versions of the driver, or why it cannot be asked.
    driver: gpus.Driver
    # The GPUs that the driver lists.
    gpus: tuple[gpus.Gpu, ...]
    # Whether TensorRT's Python package is installed.
    bindings: bool


def collect(seconds: float) -> Facts:
    """Probe this machine. Args: seconds: the most time for each of the two child processes."""
    tensorflow = installed.tensorflow()
    progress.say("asking TensorFlow")
    answers, died, log = _ask_tensorflow(seconds) if tensorflow and tensorflow.folder else (Asked(), None, "")
    progress.say("loading the libraries")
    libraries_wanted = libraries.as_asked_for(libraries.needed(tensorflow), log)
    machine = _machine(tensorflow, libraries_wanted, seconds)
    loaded = [
        libraries.Library(
            name=name,
            needed_for=needed_for,
            path=library.path,
            version=library.version,
            error=library.error,
            died=library.died,
        )
        for (name, needed_for), library in zip(libraries_wanted, machine.libraries, strict=True)
    ]
    loaded = _with_wheel_versions(_as_tensorflow_saw(loaded, log), tensorflow.cuda_major if tensorflow else None)
    everything = sorted((*loaded, *_builder(loaded)), key=lambda library: libraries.PURPOSES.index(library.needed_for))
    return Facts(
        tensorflow=tensorflow,
        asked=answers,
        died=died,
        log=log,
        libraries=tuple(everything),
        driver=machine.gpus,
        gpus=machine.gpus.gpus,
        bindings=bindings.installed(),
    )


def _machine(
    tensorflow: installed.TensorFlow | None, wanted: Sequence[libraries.Wanted], seconds: float
) -> probes.Machine:
    request = probes.Request(libraries=tuple(name for name, _ in wanted), seconds=seconds)
    # The loader searches a caller's RUNPATH after LD_LIBRARY_PATH and before the system's directories. The probe has no
    # RUNPATH, so TensorFlow's is appended here.
    env = {"LD_LIBRARY_PATH": ":".join(libraries.loader_path(tensorflow)) or None}
    try:
        return probes.machine.run(request, env=env, timeout=seconds + 5).result
    except (errors.TftrtError, child.ChildBug) as error:
        reason = f"the probe failed: {error}".splitlines()[0]
        return probes.Machine(
            libraries=tuple(probes.Found(error=reason) for _ in wanted), gpus=gpus.Driver(error=reason)
        )


def _ask_tensorflow(seconds: float) -> tuple[Asked, str | None, str]:
    with scratch.folder("doctor") as folder:
        path = os.path.join(folder, "facts")
        env = {"TF_CPP_VMODULE": "dso_loader=1", "TF_CPP_MIN_LOG_LEVEL": "0"}
        died = None
        try:
            log = probes.tensorflow.run(path, env=env, timeout=seconds).log
        except child.ChildDied as error:
            died, log = error.signal_name or error.cause, error.log
        except (errors.TftrtError, child.ChildBug) as error:
            died, log = str(error).splitlines()[-1], str(error)
        return _read(path), died, log


def _read(path: str) -> Asked:
    try:
        with open(path) as file:
            return typing.cast(Asked, dict(json.loads(line) for line in file if line.endswith("\n")))
    except OSError:
        return {}


def _as_tensorflow_saw(loaded: Sequence[libraries.Library], log: str) -> list[libraries.Library]:
    """If TensorFlow's own loader failed, its error counts, not the probe's result."""
    failures = libraries.failures_in(log)
    return [
        dataclasses.replace(library, path=None, version=None, error=library.error or failures[library.name])
        if library.name in failures
        else library
        for library in loaded
    ]


def _with_wheel_versions(loaded: Sequence[libraries.Library], cuda_major: int | None) -> list[libraries.Library]:
    """A library without a version gets that of the wheel in whose directory it lies."""
    site = sysconfig.get_paths()["purelib"] + os.sep
    wheels = {
        library.name: libraries.wheel(library.name, cuda_major)
        for library in loaded
        if library.version is None and (library.path or "").startswith(site)
    }
    return [
        dataclasses.replace(library, version=installed.version_of(wheel))
        if (wheel := wheels.get(library.name))
        else library
        for library in loaded
    ]


def _builder(loaded: Sequence[libraries.Library]) -> tuple[libraries.Library, ...]:
    """The library that TensorRT opens beside itself when it builds an engine (TensorRT 8.4 and newer)."""
    nvinfer = next((library for library in loaded if libraries.stem(library.name) == "nvinfer" and library.path), None)
    if nvinfer is None or nvinfer.path is None or nvinfer.version is None:
        return ()
    if not (8, 4) <= tuple(map(int, nvinfer.version.split(".")))[:2] < (9, 0):
        return ()
    name = f"libnvinfer_builder_resource.so.{nvinfer.version}"
    # The folder that the loader took it from, which may be a link: what it opens is looked for there.
    folders = [*libraries.from_environment(), os.path.dirname(nvinfer.path)]
    path = libraries.find(name, folders)
    return (
        libraries.Library(
            name=name,
            needed_for="build",
            path=path,
            version=nvinfer.version if path else None,
            error="" if path else f"{name} is not beside {nvinfer.path}",
        ),
    )
