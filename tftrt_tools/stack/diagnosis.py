"""What this machine can do, as one typed result made from the facts."""

import dataclasses
import platform
import sys

from tftrt_tools.stack import facts as _facts
from tftrt_tools.stack import gpus, installed, libraries, problems, versions

CAPABILITIES = ("convert", "build", "run")


@dataclasses.dataclass(frozen=True)
class Capability:
    """convert: rewrite a SavedModel. build: make TensorRT engines. run: execute them. cause and mend are "" where can."""

    name: str
    can: bool
    cause: str = ""
    mend: str = ""


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """The state of this machine.

    tensorflow: version; distribution: its wheel; folder: where it is. All None where it is missing.
    cuda, cudnn: what TensorFlow was built with, as it states them.
    tensorrt_linked, tensorrt_loaded: versions, None where unknown.
    driver: version; driver_cuda: the newest CUDA that it runs; driver_error: why it could not be asked, or "".
    notes: what is worth knowing but stops nothing.
    """

    python: str
    platform: str
    tensorflow: str | None
    distribution: str | None
    folder: str | None
    cuda: str | None
    cudnn: str | None
    tensorrt_linked: str | None
    tensorrt_loaded: str | None
    libraries: tuple[libraries.Library, ...]
    driver: str | None
    driver_cuda: str | None
    driver_error: str
    gpus: tuple[gpus.Gpu, ...]
    capabilities: tuple[Capability, ...]
    notes: tuple[str, ...]

    def can(self, name):
        """The Capability of that name."""
        return next(capability for capability in self.capabilities if capability.name == name)

    def to_dict(self):
        return dataclasses.asdict(self)


def diagnose(seconds=30):
    """Probe this machine in child processes; never raises for a broken one. Args: seconds: limit for each child."""
    return of(_facts.collect(seconds))


def of(facts):
    """The Diagnosis of facts.Facts."""
    tensorflow, asked = facts.tensorflow, facts.asked
    build = (tensorflow.build if tensorflow else None) or asked.get("build", {})
    return Diagnosis(
        python=f"{platform.python_version()} ({sys.executable})",
        platform=platform.platform(),
        tensorflow=asked.get("version") or (tensorflow.version if tensorflow else None),
        distribution=tensorflow.distribution if tensorflow else None,
        folder=tensorflow.folder if tensorflow else None,
        cuda=build.get("cuda_version"),
        cudnn=build.get("cudnn_version"),
        tensorrt_linked=_text(asked.get("linked")),
        tensorrt_loaded=next((library.version for library in facts.libraries if libraries.stem(library.name) == "nvinfer"), None),
        libraries=facts.libraries,
        driver=facts.driver.get("driver"),
        driver_cuda=facts.driver.get("cuda"),
        driver_error=facts.driver.get("error", ""),
        gpus=facts.gpus,
        capabilities=_capabilities(facts),
        notes=tuple(_notes(facts)),
    )


def _capabilities(facts):
    convert = problems.in_conversion(facts)
    run = convert or problems.in_gpu(facts)
    found = {"convert": convert, "build": run or problems.in_builder(facts), "run": run}
    return tuple(Capability(name, found[name] is None, *(dataclasses.astuple(found[name]) if found[name] else ()))
                 for name in CAPABILITIES)


def _notes(facts):
    others = installed.also_installed(facts.tensorflow)
    if others:
        yield (f"{facts.tensorflow.distribution} and {', '.join(others)} write to the same directory: "
               f"the one installed last is imported")
    compiled = facts.tensorflow.build.get("cuda_compute_capabilities", []) if facts.tensorflow else []
    for capability in sorted({gpu.compute_capability for gpu in facts.gpus}):
        if compiled and not any(_runs(code, capability) for code in compiled):
            yield (f"{facts.tensorflow.name} has no machine code for compute capability {capability}: its first run on this GPU "
                   f"compiles for a minute or so; `export CUDA_CACHE_MAXSIZE=4294967296` keeps the result")


def _runs(code, capability):
    """"sm_80" is machine code that runs on 8.0 and newer of the same major version."""
    kind, _, number = code.partition("_")
    major, minor = capability.split(".")
    return kind == "sm" and number[:-1] == major and int(number[-1]) <= int(minor)


def _text(version):
    return versions.text(version) if version and any(version) else None
