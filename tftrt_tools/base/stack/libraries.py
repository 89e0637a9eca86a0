"""The shared libraries that TF-TRT needs: their names, and where the loader would find each."""

import dataclasses
import glob
import os
import re
import sysconfig
import typing
from collections.abc import Iterable, Sequence

from tftrt_tools.base import records
from tftrt_tools.base.stack import releases
from tftrt_tools.base.stack.installed import TensorFlow

# What a machine may be able to do; each needs those before it.
Purpose = typing.Literal["convert", "build", "run"]
PURPOSES: tuple[Purpose, ...] = typing.get_args(Purpose)
# A library's name, and what it is needed for.
Wanted = tuple[str, Purpose]
DRIVER = "libcuda.so.1"
# TensorFlow asks for these too, but does not need them: profiling, several GPUs.
_OPTIONAL = ("cupti", "nccl", "nvToolsExt")
# The wheel that carries each library; `{cu}` is cu11 or cu12.
_WHEELS = {
    "nvinfer": "tensorrt",
    "nvinfer_plugin": "tensorrt",
    "nvinfer_builder_resource": "tensorrt",
    "cudart": "nvidia-cuda-runtime-{cu}",
    "cublas": "nvidia-cublas-{cu}",
    "cublasLt": "nvidia-cublas-{cu}",
    "cufft": "nvidia-cufft-{cu}",
    "cusolver": "nvidia-cusolver-{cu}",
    "cusparse": "nvidia-cusparse-{cu}",
    "curand": "nvidia-curand-{cu}",
    "nvrtc": "nvidia-cuda-nvrtc-{cu}",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Library(records.Record):
    """One shared library as a process of its own found it."""

    # The name given to the loader.
    name: str
    # What does not work without it. Building and running need a conversion too.
    needed_for: Purpose
    # The file; None where it is not found.
    path: str | None = None
    # The version that the library states; None if it states none.
    version: str | None = None
    # Why it cannot be used; "" where it can.
    error: str = ""
    # The signal that ended the process which loaded it, or None.
    died: str | None = None


def stem(name: str) -> str:
    """ "libcudnn_ops_infer.so.8" -> "cudnn_ops_infer"."""
    return re.sub(r"^lib|\.so.*$", "", name)


def wheel(name: str, cuda_major: int | None) -> str | None:
    """The pip wheel that carries a library, or None."""
    form = "nvidia-cudnn-{cu}" if stem(name).startswith("cudnn") else _WHEELS.get(stem(name))
    if form is None or ("{cu}" in form and cuda_major is None):
        return None
    return form.format(cu=f"cu{cuda_major}")


def needed(tensorflow: TensorFlow | None) -> list[Wanted]:
    """The libraries that converting and running need with an installed TensorFlow with CUDA; only the driver for any other."""
    release = releases.release(tensorflow.version) if tensorflow else None
    if tensorflow is None or release is None or tensorflow.build.get("is_cuda_build") is False:
        return [(DRIVER, "run")]
    cuda = tensorflow.cuda or releases.CUDA_LIBRARIES[int(release.cuda.split(".")[0])]
    cudnn = cuda.get("CUDNN", str(release.cudnn[0]))
    nvinfer = tensorrt(tensorflow)
    names: list[Wanted] = [(f"libnvinfer.so.{nvinfer}", "convert"), (f"libnvinfer_plugin.so.{nvinfer}", "convert")]
    names += [
        (f"lib{library}.so.{cuda[key]}", "run")
        for library, key in (
            ("cudart", "CUDART"),
            ("cublas", "CUBLAS"),
            ("cublasLt", "CUBLAS"),
            ("cufft", "CUFFT"),
            ("cusolver", "CUSOLVER"),
            ("cusparse", "CUSPARSE"),
        )
        if key in cuda
    ]
    names.append((f"libcudnn.so.{cudnn}", "run"))
    if cudnn.split(".")[0] == "8":
        # libcudnn.so.8 opens these at the first convolution and ends the process where it cannot.
        names += [(f"libcudnn_{part}_infer.so.{cudnn}", "run") for part in ("ops", "cnn")]
    return [*names, (DRIVER, "run")]


def tensorrt(tensorflow: TensorFlow) -> str | None:
    """The part after "libnvinfer.so." in the name that TensorFlow loads, None where that is not known. A vendor's build brings a TensorRT
    of its own: there it is the newest major version that the loader finds."""
    release = releases.release(tensorflow.version)
    folders = loader_path(tensorflow) if tensorflow.of_a_vendor else ()
    majors = releases.TENSORRTS if tensorflow.of_a_vendor else ()
    found = next((str(major) for major in majors if find(f"libnvinfer.so.{major}", folders)), None)
    return found or (release.nvinfer if release else None)


def as_asked_for(wanted: Iterable[Wanted], log: str) -> list[Wanted]:
    """`wanted` with the names that TensorFlow asked for by its log: vendors' builds use other and more names.

    Args: log: TensorFlow's, with TF_CPP_VMODULE=dso_loader=1.
    """
    opened = re.findall(r"Successfully opened dynamic library (\S+)", log)
    opened_as = {stem(name): name for name in (*opened, *failures_in(log))}
    renamed: list[Wanted] = [(opened_as.pop(stem(name), name), needed_for) for name, needed_for in wanted]
    return [*renamed, *((name, "run") for name in opened_as.values() if stem(name) not in _OPTIONAL)]


def failures_in(log: str) -> dict[str, str]:
    """{library name: the loader's words} from TensorFlow's log."""
    return dict(re.findall(r"Could not load dynamic library '([^']+)'; dlerror: ([^;\n]+)", log))


def from_environment() -> list[str]:
    """The directories of LD_LIBRARY_PATH."""
    return [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]


def loader_path(tensorflow: TensorFlow | None) -> list[str]:
    """The directories that the loader searches for TensorFlow, in its order, before the system's own."""
    return from_environment() + list(tensorflow.runpath if tensorflow else ())


def find(name: str, folders: Sequence[str]) -> str | None:
    """The file that the loader would choose: the first of `folders` that has it, else the system's, else None."""
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            return os.path.join(os.path.realpath(folder), name)
    return _in_system(name)


def find_elsewhere(name: str) -> str | None:
    """A file of that name in a place that installers use and the loader does not search, or None."""
    for folder in _usual_folders():
        path = os.path.join(folder, name)
        if os.path.exists(path):
            return path
    return None


def _in_system(name: str) -> str | None:
    try:
        with open("/etc/ld.so.cache", "rb") as file:
            # The cache ends with a table of strings: …\0soname\0path\0…
            match = re.search(rb"\0(/[^\0]*/" + re.escape(name.encode()) + rb")\0", file.read())
    except OSError:
        match = None
    if match and os.path.exists(match[1]):
        return match[1].decode()
    folders = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
    return next((path for path in (os.path.join(folder, name) for folder in folders) if os.path.exists(path)), None)


def _usual_folders() -> list[str]:
    site = sysconfig.get_paths()["purelib"]
    patterns = [
        f"{site}/tensorrt",
        f"{site}/tensorrt_libs",
        f"{site}/tensorrt/lib",
        f"{site}/nvidia/*/lib",
        "/usr/local/cuda*/lib64",
        "/usr/local/cuda*/targets/x86_64-linux/lib",
        "/usr/local/nvidia/lib64",
        "/usr/local/TensorRT*/lib",
        "/opt/TensorRT*/lib",
        "/opt/tensorrt*/lib",
        "/usr/lib/wsl/lib",
        "/usr/lib/x86_64-linux-gnu",
        os.path.join(os.environ.get("CONDA_PREFIX", "/nonexistent"), "lib"),
    ]
    return [folder for pattern in patterns for folder in sorted(glob.glob(pattern))]
