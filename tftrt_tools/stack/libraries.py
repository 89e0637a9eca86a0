"""The shared libraries that TF-TRT needs: their names, and where the loader would find each."""

import dataclasses
import glob
import os
import re
import sysconfig

from tftrt_tools.stack import versions

DRIVER = "libcuda.so.1"
# TensorFlow asks for these too, and does without: profiling, several GPUs.
_OPTIONAL = ("cupti", "nccl", "nvToolsExt")
# The wheel that carries each library; `{cu}` is cu11 or cu12.
_WHEELS = {
    "nvinfer": "tensorrt", "nvinfer_plugin": "tensorrt", "nvinfer_builder_resource": "tensorrt",
    "cudart": "nvidia-cuda-runtime-{cu}", "cublas": "nvidia-cublas-{cu}", "cublasLt": "nvidia-cublas-{cu}",
    "cufft": "nvidia-cufft-{cu}", "cusolver": "nvidia-cusolver-{cu}", "cusparse": "nvidia-cusparse-{cu}",
    "curand": "nvidia-curand-{cu}", "nvrtc": "nvidia-cuda-nvrtc-{cu}",
}


@dataclasses.dataclass(frozen=True)
class Library:
    """One shared library as a process of its own found it.

    name: the name given to the loader. needed_for: "convert" (then also build and run), "run" or "build".
    path: the file, None where it is not found. version: as the library states it, None where it does not.
    error: why it cannot be used, "" where it can. died: the signal that loading it ended the process with, or None.
    """

    name: str
    needed_for: str
    path: str | None = None
    version: str | None = None
    error: str = ""
    died: str | None = None


def stem(name):
    """"libcudnn_ops_infer.so.8" -> "cudnn_ops_infer"."""
    return re.sub(r"^lib|\.so.*$", "", name)


def wheel(name, cuda_major):
    """The pip wheel that carries a library, or None."""
    known = "nvidia-cudnn-{cu}" if stem(name).startswith("cudnn") else _WHEELS.get(stem(name))
    if known is None or ("{cu}" in known and cuda_major is None):
        return None
    return known.format(cu=f"cu{cuda_major}")


def needed(tensorflow):
    """[(library name, "convert" or "run"), …] for an installed TensorFlow with CUDA; the driver alone for any other."""
    release = versions.release(tensorflow.version) if tensorflow else None
    if release is None or tensorflow.build.get("is_cuda_build") is False:
        return [(DRIVER, "run")]
    cuda = tensorflow.cuda or versions.CUDA_LIBRARIES[int(release.cuda.split(".")[0])]
    cudnn = cuda.get("CUDNN", str(release.cudnn[0]))
    names = [(f"libnvinfer.so.{release.nvinfer}", "convert"), (f"libnvinfer_plugin.so.{release.nvinfer}", "convert")]
    names += [(f"lib{library}.so.{cuda[key]}", "run") for library, key in (
        ("cudart", "CUDART"), ("cublas", "CUBLAS"), ("cublasLt", "CUBLAS"), ("cufft", "CUFFT"),
        ("cusolver", "CUSOLVER"), ("cusparse", "CUSPARSE")) if key in cuda]
    names.append((f"libcudnn.so.{cudnn}", "run"))
    if cudnn.split(".")[0] == "8":
        # libcudnn.so.8 opens these at the first convolution and ends the process where it cannot.
        names += [(f"libcudnn_{part}_infer.so.{cudnn}", "run") for part in ("ops", "cnn")]
    return names + [(DRIVER, "run")]


def as_asked_for(wanted, log):
    """`wanted` with the names that TensorFlow's log shows it asked for: vendors' builds use others, and more of them.

    Args: log: TensorFlow's, with TF_CPP_VMODULE=dso_loader=1.
    """
    opened = re.findall(r"Successfully opened dynamic library (\S+)", log)
    asked = {stem(name): name for name in (*opened, *failures_in(log))}
    renamed = [(asked.pop(stem(name), name), needed_for) for name, needed_for in wanted]
    return renamed + [(name, "run") for name in asked.values() if stem(name) not in _OPTIONAL]


def failures_in(log):
    """{library name: the loader's words} from TensorFlow's log."""
    return dict(re.findall(r"Could not load dynamic library '([^']+)'; dlerror: ([^;\n]+)", log))


def from_environment():
    """The directories of LD_LIBRARY_PATH."""
    return [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]


def loader_path(tensorflow):
    """The directories that the loader searches for TensorFlow, in its order, before the system's own."""
    return from_environment() + list(tensorflow.runpath if tensorflow else ())


def find(name, folders):
    """The file that the loader would choose: the first of `folders` that has it, else the system's, else None."""
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            return os.path.join(os.path.realpath(folder), name)
    return _in_system(name)


def find_elsewhere(name):
    """A file of that name where installers put it but the loader does not look, or None."""
    for folder in _usual_folders():
        path = os.path.join(folder, name)
        if os.path.exists(path):
            return path
    return None


def _in_system(name):
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


def _usual_folders():
    site = sysconfig.get_paths()["purelib"]
    patterns = [f"{site}/tensorrt", f"{site}/tensorrt_libs", f"{site}/tensorrt/lib", f"{site}/nvidia/*/lib",
                "/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/x86_64-linux/lib", "/usr/local/nvidia/lib64",
                "/usr/local/TensorRT*/lib", "/opt/TensorRT*/lib", "/opt/tensorrt*/lib", "/usr/lib/wsl/lib",
                "/usr/lib/x86_64-linux-gnu", os.path.join(os.environ.get("CONDA_PREFIX", "/nonexistent"), "lib")]
    return [folder for pattern in patterns for folder in sorted(glob.glob(pattern))]
