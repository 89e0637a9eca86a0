"""Why something cannot be done here: each check returns the first Problem it finds, or None."""

import dataclasses
import os
import re

from tftrt_tools.base import tensorrt_rule
from tftrt_tools.base.stack import installed, libraries, mends, releases
from tftrt_tools.base.stack.facts import Facts
from tftrt_tools.base.stack.installed import TensorFlow

_CPU_ONLY = ("tensorflow-cpu", "tf-nightly-cpu", "intel-tensorflow", "tensorflow-intel", "tensorflow-macos")
_ABSENT = re.compile(r"(lib[\w.+-]+\.so[\w.]*): cannot open shared object file")
# cuBLAS and cuDNN are needed for libnvinfer_plugin to load, with or without a GPU.
_OF_PLUGIN = ("cublasLt", "cublas", "cudnn")


@dataclasses.dataclass(frozen=True)
class Problem:
    """cause: what is wrong, one line. mend: what to do about it, one line."""

    cause: str
    mend: str


def in_installation(tensorflow: TensorFlow | None) -> Problem | None:
    """Problems that installed files show; takes milliseconds."""
    if tensorflow is None:
        return Problem("TensorFlow is not installed for this Python", mends.install())
    if tensorflow.folder is None:
        return Problem(f"{tensorflow.name} is registered, but its files are gone", mends.reinstall(tensorflow))
    minor = releases.minor(tensorflow.version)
    if minor and minor > releases.NEWEST:
        last = releases.text(releases.NEWEST)
        return Problem(
            f"{tensorflow.name} has no TF-TRT: {last} was the last release with it", mends.replace(tensorflow)
        )
    if minor and minor < releases.OLDEST:
        return Problem(
            f"{tensorflow.name} is older than {releases.text(releases.OLDEST)}, the oldest supported here",
            mends.replace(tensorflow),
        )
    if tensorflow.build.get("is_cuda_build") is False or tensorflow.distribution in _CPU_ONLY:
        return Problem(f"{tensorflow.name} is a CPU-only build, without CUDA and TensorRT", mends.replace(tensorflow))
    if tensorflow.build.get("is_tensorrt_build") is False:
        return Problem(f"{tensorflow.name} was built without TensorRT", mends.replace(tensorflow))
    return None


def in_files(tensorflow: TensorFlow | None) -> Problem | None:
    """A library that conversion needs and that no directory of the loader has; takes milliseconds."""
    if tensorflow is None or tensorflow.of_a_vendor:
        return None
    folders = [*libraries.from_environment(), *tensorflow.tensorrt_runpath]
    for name, needed_for in libraries.needed(tensorflow):
        if needed_for == "convert" and libraries.find(name, folders) is None:
            return _absent(name, tensorflow, " (TensorRT)")
    return None


def in_conversion(facts: Facts) -> Problem | None:
    """Why convert() cannot work."""
    return (
        in_installation(facts.tensorflow)
        or _in_version(facts)
        or _in_convert_libraries(facts)
        or _in_import(facts)
        or _in_tensorrt(facts)
    )


def _tensorflow(facts: Facts) -> TensorFlow:
    """Problems of TensorFlow that in_installation cannot find."""
    assert facts.tensorflow is not None
    return facts.tensorflow


def in_gpu(facts: Facts) -> Problem | None:
    """Why no engine can run: the driver, the GPUs, CUDA and cuDNN."""
    return _in_driver(facts) or _in_run_libraries(facts) or _in_cudnn(facts) or _in_visible_gpus(facts)


def in_builder(facts: Facts) -> Problem | None:
    """Why no engine can be built, on a machine where engines can run."""
    return next(
        (_in_library(facts, library) for library in facts.libraries if library.needed_for == "build" and library.error),
        None,
    )


def _in_import(facts: Facts) -> Problem | None:
    name, answers = _tensorflow(facts).name, facts.asked
    if facts.died == "SIGKILL":
        return Problem(
            f"{answers.get('step') or 'starting Python'} did not end in time", "tftrt doctor --timeout_seconds=120"
        )
    if facts.died == "SIGILL":
        return Problem(
            f"{name} uses instructions that this processor lacks (AVX)", "use a machine whose processor has AVX"
        )
    if facts.died:
        return Problem(
            f"{answers.get('step') or 'starting Python'} ends the process ({facts.died})",
            mends.reinstall(_tensorflow(facts)),
        )
    if "error" in answers:
        return Problem(f"import tensorflow fails: {_short(answers['error'])}", mends.reinstall(_tensorflow(facts)))
    return None


def _in_convert_libraries(facts: Facts) -> Problem | None:
    if facts.asked.get("tensorrt", {}).get("loads"):
        return None
    broken = {libraries.stem(library.name): library for library in facts.libraries if library.error}
    if "nvinfer_plugin" in broken:
        # If a dependency ends the process, this library does so too: name the dependency.
        culprits = [broken[stem] for stem in (*_OF_PLUGIN, "nvinfer") if stem in broken and broken[stem].died]
        if culprits and broken["nvinfer_plugin"].died:
            return _in_library(facts, culprits[0])
    for stem in ("nvinfer", "nvinfer_plugin"):
        if stem in broken:
            return _in_library(facts, broken[stem])
    return None


def _in_tensorrt(facts: Facts) -> Problem | None:
    answer = facts.asked.get("tensorrt", {})
    tensorflow = _tensorflow(facts)
    name = tensorflow.name
    if not answer.get("built"):
        return Problem(f"{name} was built without TensorRT", mends.replace(tensorflow))
    if not answer.get("loads"):
        return Problem(
            f"{name} cannot load TensorRT", 'see why: TF_CPP_VMODULE=dso_loader=1 python -c "import tensorflow"'
        )
    return None


def _in_version(facts: Facts) -> Problem | None:
    """A TensorRT that TensorFlow refuses. It comes before libraries that do not load: such a one may lack what they need of it."""
    tensorflow, nvinfer = _tensorflow(facts), _library(facts, "nvinfer")
    linked, name = tuple(facts.asked.get("linked", ())), tensorflow.name
    loaded = tuple(facts.asked.get("tensorrt", {}).get("loaded", ()))
    if nvinfer and nvinfer.version:
        loaded = _numbers(nvinfer.version)
    if not loaded or not any(linked) or tensorrt_rule.goes_with(loaded, linked):
        return None
    rule = "the major versions must be equal" if loaded[0] != linked[0] else "it must not be older"
    where = nvinfer.path if nvinfer else "the loader's path"
    mend = mends.wrong(nvinfer.name if nvinfer else "libnvinfer.so", nvinfer.path if nvinfer else None, tensorflow)
    if loaded[:2] == linked[:2]:
        mend += (
            f"; or, to use {releases.text(loaded)} all the same: export {tensorrt_rule.ALLOW}={releases.text(loaded)}"
        )
    return Problem(
        f"TensorRT {releases.text(loaded)} is loaded ({where}) but {name} is linked with "
        f"{releases.text(linked)}: {rule}",
        mend,
    )


def _in_driver(facts: Facts) -> Problem | None:
    driver = _library(facts, "cuda")
    if driver is None or driver.error:
        return Problem(
            "no NVIDIA driver here (libcuda.so.1 is not found)",
            "use a machine with an NVIDIA GPU and its driver; in Docker: docker run --gpus=all",
        )
    if facts.driver.driver and not facts.gpus:
        return Problem(
            "the NVIDIA driver lists no GPU", "use a machine with an NVIDIA GPU; in Docker: docker run --gpus=all"
        )
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.split(",")[0].strip() in ("", "-1"):
        return Problem(f"CUDA_VISIBLE_DEVICES={visible!r} hides every GPU", "unset CUDA_VISIBLE_DEVICES")
    newest, major = facts.driver.cuda or driver.version, _tensorflow(facts).cuda_major
    if newest and major and int(newest.split(".")[0]) < major:
        return Problem(
            f"the driver runs CUDA {newest} and older, {_tensorflow(facts).name} needs CUDA {major}",
            f"install NVIDIA driver {releases.OLDEST_DRIVER[major]} or newer"
            if major in releases.OLDEST_DRIVER
            else "install a newer NVIDIA driver",
        )
    return None


def _in_run_libraries(facts: Facts) -> Problem | None:
    return next(
        (_in_library(facts, library) for library in facts.libraries if library.needed_for == "run" and library.error),
        None,
    )


def _in_cudnn(facts: Facts) -> Problem | None:
    tensorflow, cudnn = _tensorflow(facts), _library(facts, "cudnn")
    release = releases.release(tensorflow.version)
    if release is None or cudnn is None or cudnn.version is None:
        return None
    needed: tuple[int, ...] = release.cudnn
    loaded = _numbers(cudnn.version)
    stated = _numbers(tensorflow.build.get("cudnn_version") or "")
    if stated and stated[0] != needed[0]:
        # A vendor's build with a cuDNN of its own.
        needed = stated[:2]
    if loaded[0] == needed[0] and loaded >= needed:
        return None
    return Problem(
        f"cuDNN {cudnn.version} is loaded ({cudnn.path}), {tensorflow.name} needs {needed[0]}.x, "
        f"{releases.text(needed)} or newer",
        mends.wrong(cudnn.name, cudnn.path, tensorflow),
    )


def _in_visible_gpus(facts: Facts) -> Problem | None:
    seen = facts.asked.get("gpus", [])
    if not seen:
        reason = re.search(r"CUDA_ERROR_\w+", facts.log)
        return Problem(
            f"TensorFlow sees no GPU{f' ({reason[0]})' if reason else ''}, though the driver is there",
            "`nvidia-smi` must work for this user; after an upgrade of the driver, restart the machine",
        )
    newest = releases.NEWEST_COMPUTE_CAPABILITY.get(facts.asked["linked"][0])
    capabilities = [gpu["compute_capability"] for gpu in seen if gpu["compute_capability"]]
    if newest and capabilities and all(_numbers(capability) > newest for capability in capabilities):
        return Problem(
            f"TensorRT {facts.asked['linked'][0]} builds for compute capabilities up to {releases.text(newest)}, "
            f"this GPU has {capabilities[0]}",
            "use an NVIDIA GPU of the Hopper generation (H100, H200) or an older one",
        )
    return None


def _in_library(facts: Facts, library: libraries.Library) -> Problem:
    """The Problem with a library that could not be loaded."""
    tensorflow, absent = _tensorflow(facts), _ABSENT.search(library.error)
    if absent and absent[1] == library.name:
        return _absent(library.name, tensorflow)
    path = library.path or libraries.find(library.name, libraries.loader_path(tensorflow))
    if absent and _of_another_major(absent[1], tensorflow):
        return Problem(
            f"{path or library.name} needs {absent[1]}: it was built for other libraries than {tensorflow.name} has",
            mends.wrong(library.name, path, tensorflow),
        )
    if absent:
        return Problem(f"{library.name} needs {absent[1]}, which is not found", mends.missing(absent[1], tensorflow))
    return Problem(f"{path or library.name}: {_short(library.error)}", mends.wrong(library.name, path, tensorflow))


def _of_another_major(name: str, tensorflow: TensorFlow) -> bool:
    """Whether TensorFlow needs another major version of a library: that of CUDA 12 where something asks for CUDA 11's."""
    majors = {
        libraries.stem(one): _numbers(one.partition(".so.")[2])[:1]
        for one, _ in libraries.needed(tensorflow)
        if ".so." in one
    }
    wanted, asked = majors.get(libraries.stem(name)), _numbers(name.partition(".so.")[2])[:1]
    return bool(wanted and asked and wanted != asked)


def _absent(name: str, tensorflow: TensorFlow, what: str = "") -> Problem:
    """The Problem with a library that the loader does not find. Args: what: it is, for people."""
    others = installed.tensorrt_packages() if "nvinfer" in name else {}
    wanted = releases.release(tensorflow.version)
    text = ", ".join(
        f"{package} {version}"
        for package, version in others.items()
        if wanted and not version.startswith(f"{wanted.tensorrt}.")
    )
    return Problem(
        f"{name}{what} is not found" + (f"; {text} does not bring it" if text else ""), mends.missing(name, tensorflow)
    )


def _library(facts: Facts, stem: str) -> libraries.Library | None:
    return next((library for library in facts.libraries if libraries.stem(library.name) == stem), None)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _short(text: str, limit: int = 160) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
