"""What this machine can do, as one typed result made from the facts."""

import dataclasses
import platform
import sys
from collections.abc import Iterator, Sequence

from tftrt_tools.base import records, tensorrt_rule
from tftrt_tools.base.stack import bindings, gpus, installed, libraries, problems, releases
from tftrt_tools.base.stack import facts as _facts
from tftrt_tools.base.stack.facts import Facts
from tftrt_tools.base.stack.libraries import PURPOSES, Purpose


@dataclasses.dataclass(frozen=True)
class Capability(records.Record):
    """convert: rewrite a SavedModel. build: make TensorRT engines. run: execute them. cause and mend are "" where can."""

    name: Purpose
    can: bool
    cause: str = ""
    mend: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Diagnosis(records.Record):
    """The state of this machine."""

    # Version of Python, and where its program lies.
    python: str
    # Operating system and processor.
    platform: str
    # Version; None where it is missing.
    tensorflow: str | None
    # Name of its wheel.
    distribution: str | None
    # Its directory.
    folder: str | None
    # Versions that TensorFlow was built with, as it states them.
    cuda: str | None
    cudnn: str | None
    # Versions, None where unknown.
    tensorrt_linked: str | None
    tensorrt_loaded: str | None
    libraries: tuple[libraries.Library, ...]
    # Version of the driver.
    driver: str | None
    # The newest CUDA that the driver runs.
    driver_cuda: str | None
    # Why the driver could not be asked, or "".
    driver_error: str
    gpus: tuple[gpus.Gpu, ...]
    # One for each Purpose.
    capabilities: tuple[Capability, ...]
    # Remarks that stop nothing.
    notes: tuple[str, ...]

    def can(self, name: Purpose) -> Capability:
        """The Capability with this name."""
        return next(capability for capability in self.capabilities if capability.name == name)


def diagnose(seconds: float = 30) -> Diagnosis:
    """Probe this machine in child processes; never raises for a broken one. Args: seconds: limit for each child."""
    return of(_facts.collect(seconds))


def of(facts: Facts) -> Diagnosis:
    """Make the Diagnosis from facts."""
    tensorflow, answers = facts.tensorflow, facts.asked
    build = (tensorflow.build if tensorflow else None) or answers.get("build", {})
    return Diagnosis(
        python=f"{platform.python_version()} ({sys.executable})",
        platform=platform.platform(),
        tensorflow=answers.get("version") or (tensorflow.version if tensorflow else None),
        distribution=tensorflow.distribution if tensorflow else None,
        folder=tensorflow.folder if tensorflow else None,
        cuda=build.get("cuda_version"),
        cudnn=build.get("cudnn_version"),
        tensorrt_linked=_text(answers.get("linked")),
        tensorrt_loaded=_loaded(facts),
        libraries=facts.libraries,
        driver=facts.driver.driver,
        driver_cuda=facts.driver.cuda,
        driver_error=facts.driver.error,
        gpus=facts.gpus,
        capabilities=_capabilities(facts),
        notes=tuple(_notes(facts)),
    )


def _loaded(facts: Facts) -> str | None:
    """The version that TensorRT's library states, or else TensorFlow."""
    stated = (library.version for library in facts.libraries if libraries.stem(library.name) == "nvinfer")
    return next(stated, None) or _text(facts.asked.get("tensorrt", {}).get("loaded"))


def _capabilities(facts: Facts) -> tuple[Capability, ...]:
    convert = problems.in_conversion(facts)
    run = convert or problems.in_gpu(facts)
    problem_of = {"convert": convert, "build": run or problems.in_builder(facts), "run": run}
    return tuple(
        Capability(name, False, problem.cause, problem.mend)
        if (problem := problem_of[name])
        else Capability(name, True)
        for name in PURPOSES
    )


# Commands that only send requests to a server or read files.
_WITHOUT_TENSORFLOW = (
    "bench, regress --address, versions, promote, rollback, history, log, configure, cache, serve with the real server"
)


def _notes(facts: Facts) -> Iterator[str]:
    tensorflow = facts.tensorflow
    if tensorflow is None:
        yield (
            f"without TensorFlow, {_WITHOUT_TENSORFLOW} work here, and `tftrt inspect` of ONNX files and PyTorch programs"
        )
        return
    others = installed.also_installed(tensorflow)
    if others:
        yield (
            f"{tensorflow.distribution} and {', '.join(others)} write to the same directory: "
            f"the one installed last is imported"
        )
    linked, loaded = (tuple(facts.asked.get("linked", ())), tuple(facts.asked.get("tensorrt", {}).get("loaded", ())))
    explicit = bool(loaded) and not releases.has_implicit_batch(loaded[0])
    if not facts.bindings:
        yield bindings.note(releases.text(loaded) if explicit else "")
    if linked and loaded and tensorrt_rule.stands_in(loaded, linked):
        yield (
            f"TensorRT {releases.text(loaded)} stands in for the {releases.text(linked)} that {tensorflow.name} asks for, "
            f"because {tensorrt_rule.ALLOW} says so; engines fit {releases.text(loaded)} alone"
        )
    if explicit:
        yield from _notes_of_explicit_batch(releases.text(loaded))
        if facts.bindings:
            package = installed.version_of("tensorrt")
            yield (
                "plans: `tftrt convert --backend=tensorrt` uses TensorRT's Python package, which is here"
                + (f": {package}" if package else "")
            )
    compiled = tensorflow.build.get("cuda_compute_capabilities", [])
    for capability in sorted({gpu.compute_capability for gpu in facts.gpus}):
        if compiled and not any(_runs(code, capability) for code in compiled):
            yield (
                f"{tensorflow.name} has no machine code for compute capability {capability}: its first run on this GPU "
                f"compiles for a minute or so; `export CUDA_CACHE_MAXSIZE=4294967296` keeps the result"
            )


def _notes_of_explicit_batch(loaded: str) -> Iterator[str]:
    """What works with a TensorRT without implicit batch mode."""
    yield f"TensorRT {loaded} was not run with this project: what follows was read in sources (docs/dev/stack.md)"
    yield (
        f"TensorRT {loaded} has no implicit batch mode: convert, inspect and tune use dynamic shapes by themselves; a model that was "
        "converted with an implicit batch has to be converted again"
    )
    yield (
        f"INT8: ranges reach the engines through calibrators, which TensorRT deprecates since {releases.CALIBRATORS_DEPRECATED}; "
        "`tftrt verify` says whether the engines keep them"
    )


def _runs(code: str, capability: str) -> bool:
    """ "sm_80" is machine code that runs on 8.0 and newer of the same major version."""
    kind, _, number = code.partition("_")
    major, minor = capability.split(".")
    return kind == "sm" and number[:-1] == major and int(number[-1]) <= int(minor)


def _text(version: Sequence[int] | None) -> str | None:
    return releases.text(version) if version and any(version) else None
