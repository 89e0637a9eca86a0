"""Collects what can be known about this machine, in child processes, and never fails."""

import dataclasses
import json
import os
import sysconfig

from tftrt_tools import child, errors, progress, scratch
from tftrt_tools.stack import gpus, installed, libraries


@dataclasses.dataclass(frozen=True)
class Facts:
    """What the probes found.

    tensorflow: installed.TensorFlow or None.
    asked: what the imported TensorFlow answered: version, build, linked, tensorrt, gpus, error, step.
    died: how its process ended where it did not end well ("SIGABRT", …).
    log: what TensorFlow printed.
    driver: {"driver", "cuda"} versions, or {"error"}.
    """

    tensorflow: installed.TensorFlow | None
    asked: dict
    died: str | None
    log: str
    libraries: tuple
    driver: dict
    gpus: tuple


def collect(seconds):
    """Probe this machine. Args: seconds: what each of the two child processes may take."""
    found = installed.tensorflow()
    progress.say("asking TensorFlow")
    asked, died, log = _ask_tensorflow(seconds) if found and found.folder else ({}, None, "")
    progress.say("loading the libraries")
    wanted = libraries.as_asked_for(libraries.needed(found), log)
    machine = _machine(found, wanted, seconds)
    loaded = [libraries.Library(name, needed_for, **answer)
              for (name, needed_for), answer in zip(wanted, machine["libraries"], strict=True)]
    loaded = _with_wheel_versions(_as_tensorflow_saw(loaded, log), found.cuda_major if found else None)
    order = ("convert", "build", "run")
    everything = sorted((*loaded, *_builder(loaded)), key=lambda library: order.index(library.needed_for))
    driver = dict(machine["gpus"])
    listed = tuple(gpus.Gpu(**gpu) for gpu in driver.pop("gpus", []))
    return Facts(found, asked, died, log, tuple(everything), driver, listed)


def _machine(found, wanted, seconds):
    names = [name for name, _ in wanted]
    # The loader searches a caller's RUNPATH after LD_LIBRARY_PATH and before the system's directories. The probe has no
    # RUNPATH, so TensorFlow's is appended here.
    env = {"LD_LIBRARY_PATH": ":".join(libraries.loader_path(found)) or None}
    try:
        return child.run("tftrt_tools.stack.probe:machine", {"libraries": names, "seconds": seconds}, env=env,
                         timeout=seconds + 5).result
    except (errors.TftrtError, child.ChildBug) as error:
        failed = {"error": f"the probe failed: {error}".splitlines()[0]}
        return {"libraries": [dict(failed) for _ in names], "gpus": failed}


def _ask_tensorflow(seconds):
    with scratch.folder("doctor") as folder:
        path = os.path.join(folder, "facts")
        env = {"TF_CPP_VMODULE": "dso_loader=1", "TF_CPP_MIN_LOG_LEVEL": "0"}
        died = None
        try:
            log = child.run("tftrt_tools.stack.probe:tensorflow", {"facts": path}, env=env, timeout=seconds).log
        except child.ChildDied as error:
            died, log = error.signal_name or error.cause, error.log
        except (errors.TftrtError, child.ChildBug) as error:
            died, log = str(error).splitlines()[-1], str(error)
        return _read(path), died, log


def _read(path):
    try:
        with open(path) as file:
            return dict(json.loads(line) for line in file if line.endswith("\n"))
    except OSError:
        return {}


def _as_tensorflow_saw(loaded, log):
    """Where TensorFlow's own loader failed, its word counts, not the probe's."""
    failures = libraries.failures_in(log)
    return [dataclasses.replace(library, path=None, version=None, error=library.error or failures[library.name])
            if library.name in failures else library for library in loaded]


def _with_wheel_versions(loaded, cuda_major):
    """For a library that states no version: that of the wheel whose directory it lies in."""
    site = sysconfig.get_paths()["purelib"] + os.sep
    wheels = {library.name: libraries.wheel(library.name, cuda_major) for library in loaded
              if library.version is None and (library.path or "").startswith(site)}
    return [dataclasses.replace(library, version=installed.version_of(wheels[library.name]))
            if wheels.get(library.name) else library for library in loaded]


def _builder(loaded):
    """The library that TensorRT opens beside itself when it builds an engine (TensorRT 8.4 and newer)."""
    nvinfer = next((library for library in loaded if libraries.stem(library.name) == "nvinfer" and library.path), None)
    if nvinfer is None or nvinfer.version is None or not (8, 4) <= tuple(map(int, nvinfer.version.split(".")))[:2] < (9, 0):
        return ()
    name = f"libnvinfer_builder_resource.so.{nvinfer.version}"
    folders = libraries.from_environment() + [os.path.dirname(os.path.realpath(nvinfer.path))]
    path = libraries.find(name, folders)
    return (libraries.Library(name, "build", path, nvinfer.version if path else None,
                              "" if path else f"{name} is not beside {nvinfer.path}"),)
