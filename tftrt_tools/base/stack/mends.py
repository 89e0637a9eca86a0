"""The one line that mends a problem: as far as possible a command to copy."""

import os
import shlex
import sysconfig

from tftrt_tools.base.stack import libraries, releases
from tftrt_tools.base.stack.installed import TensorFlow


def install() -> str:
    """Install the recommended stack."""
    return releases.install_command()


def replace(tensorflow: TensorFlow) -> str:
    """Replace a TensorFlow without TF-TRT by the recommended stack."""
    if tensorflow.distribution in (None, "tensorflow"):
        return install()
    return f"pip uninstall -y {tensorflow.distribution} && {install()}"


def reinstall(tensorflow: TensorFlow) -> str:
    """Reinstall the same TensorFlow and its dependencies."""
    extra = "[and-cuda]" if tensorflow.pins else ""
    version = f"=={tensorflow.version}" if tensorflow.version else ""
    return f'pip install --force-reinstall "{tensorflow.distribution or "tensorflow"}{extra}{version}"'


def missing(name: str, tensorflow: TensorFlow) -> str:
    """Let the loader find a library."""
    if libraries.stem(name) == "nvrtc":
        return _link_nvrtc(tensorflow)
    elsewhere = libraries.find_elsewhere(name)
    if elsewhere:
        return f'export LD_LIBRARY_PATH="{os.path.dirname(elsewhere)}:$LD_LIBRARY_PATH"'
    if _of_nvidias_index(name, tensorflow):
        other = _same_library_under_its_major_name(name)
        return _link(os.path.dirname(other), tensorflow) if other else releases.TENSORRT_OF_LAST
    return _install_wheel(name, tensorflow) or install()


def wrong(name: str, path: str | None, tensorflow: TensorFlow) -> str:
    """Remove a library that the loader finds but that is broken or of the wrong version."""
    shadowing = _shadowing(path)
    if shadowing:
        rest = [folder for folder in libraries.from_environment() if folder not in shadowing]
        return f'export LD_LIBRARY_PATH="{":".join(rest)}"' if rest else "unset LD_LIBRARY_PATH"
    if path and _of_nvidias_index(name, tensorflow):
        # In TensorFlow's folder it is a link that somebody made. Elsewhere it may be a package's, and a link there comes before it.
        own = os.path.dirname(path) == os.path.realpath(tensorflow.folder or "")
        other = _same_library_under_its_major_name(name) if own else None
        if other and os.path.realpath(path) != os.path.realpath(other):
            return _link(os.path.dirname(other), tensorflow)
        gone = f"rm {shlex.quote(path)} && " if own else ""
        return f"{gone}{releases.TENSORRT_OF_LAST}   (then `tftrt doctor` again)"
    return _install_wheel(name, tensorflow, "--force-reinstall --no-deps ") or install()


def _shadowing(path: str | None) -> list[str]:
    """The entries of LD_LIBRARY_PATH that `path` was found through."""
    folder = os.path.dirname(path or "")
    return [entry for entry in libraries.from_environment() if os.path.realpath(entry) == os.path.realpath(folder)]


def _install_wheel(name: str, tensorflow: TensorFlow, options: str = "") -> str | None:
    """The wheel at the version that TensorFlow's own `and-cuda` extra pins."""
    wheel = libraries.wheel(name, tensorflow.cuda_major)
    pin = tensorflow.pins.get(wheel) if wheel else None
    return f"pip install {options}{wheel}=={pin}" if pin else None


def _of_nvidias_index(name: str, tensorflow: TensorFlow) -> bool:
    """Whether a library is TensorRT's, and TensorFlow (2.15 to 2.17) names none of PyPI's wheels for it."""
    release = releases.release(tensorflow.version)
    asks = release is not None and "." in release.nvinfer and "tensorrt" not in tensorflow.pins
    return "nvinfer" in name and asks and not tensorflow.of_a_vendor


def _same_library_under_its_major_name(name: str) -> str | None:
    """TensorFlow 2.15 to 2.17 ask for libnvinfer.so.8.6.1; TensorRT's wheels and packages carry it as libnvinfer.so.8."""
    base, _, suffix = name.partition(".so.")
    major = f"{base}.so.{suffix.split('.')[0]}"
    return libraries.find_elsewhere(major) if major != name else None


def _link(folder: str, tensorflow: TensorFlow) -> str:
    """Give TensorRT's libraries in `folder` the names that TensorFlow asks for, in its own folder, where all its parts look."""
    release = releases.release(tensorflow.version)
    assert release is not None and tensorflow.folder is not None
    major, source = release.nvinfer.split(".")[0], os.path.relpath(folder, tensorflow.folder)
    steps = [f"cd {shlex.quote(tensorflow.folder)}"]
    for library in ("libnvinfer", "libnvinfer_plugin"):
        steps.append(f"ln -sf {shlex.quote(source)}/{library}.so.{major} {library}.so.{release.nvinfer}")
    steps.append(f"ln -sf {shlex.quote(source)}/libnvinfer_builder_resource.so.* .")
    return " && ".join(steps)


def _link_nvrtc(tensorflow: TensorFlow) -> str:
    """cuDNN 8 looks for the bare libnvrtc.so, which NVIDIA's wheel does not carry: give it that name."""
    major = tensorflow.cuda_major
    folder = f"{sysconfig.get_paths()['purelib']}/nvidia/cuda_nvrtc/lib"
    file = f"libnvrtc.so.{(releases.NVRTC.get(major) if major else None) or major}"
    steps = [f'export LD_LIBRARY_PATH="{folder}:$LD_LIBRARY_PATH"']
    if not os.path.exists(f"{folder}/libnvrtc.so"):
        steps.insert(0, f"ln -s {file} {folder}/libnvrtc.so")
    if not os.path.exists(f"{folder}/{file}"):
        steps.insert(0, f"pip install nvidia-cuda-nvrtc-cu{major}")
    return " && ".join(steps)
