"""Reads what is installed from files, in milliseconds. TensorFlow is never imported here."""

import ast
import dataclasses
import importlib.metadata
import importlib.util
import os
import re
import typing

from tftrt_tools.base.stack import elf

# In the order of preference: if a plain `tensorflow` is installed beside another one, either may own the files.
_DISTRIBUTIONS = (
    "tensorflow",
    "tensorflow-gpu",
    "nvidia-tensorflow",
    "tf-nightly",
    "tensorflow-cpu",
    "intel-tensorflow",
    "tensorflow-intel",
    "tf-nightly-cpu",
    "tensorflow-rocm",
    "tensorflow-macos",
)
# Wheels of TensorRT; each has another one for its libraries.
_TENSORRT = ("tensorrt", "tensorrt-cu11", "tensorrt-cu12", "tensorrt-cu13")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TensorFlow:
    """An installed TensorFlow."""

    # Name of its wheel; None where there is only a package without metadata.
    distribution: str | None
    # The version of that wheel, or None.
    version: str | None
    # The package's directory; None where only the metadata is left.
    folder: str | None
    # What its build_info.py states: cuda_version, cudnn_version, is_cuda_build, is_tensorrt_build, ….
    build: dict[str, typing.Any]
    # {"CUBLAS": "11", …} from its cuda_config.h: the suffixes of the libraries that it loads.
    cuda: dict[str, str]
    # {"nvidia-cudnn-cu11": "8.7.0.84", …}, which the `and-cuda` extra asks for.
    pins: dict[str, str]

    @property
    def name(self) -> str:
        """Such as "TensorFlow 2.14.1" or "tensorflow-cpu 2.14.1"."""
        title = "TensorFlow" if self.distribution in (None, "tensorflow") else self.distribution
        return f"{title} {self.version}" if self.version else f"{title} (of unknown version)"

    @property
    def of_a_vendor(self) -> bool:
        """Whether it may ask for other libraries than TensorFlow's own releases do: "2.17.0+nv25.2"."""
        return self.distribution != "tensorflow" or "+" in (self.version or "")

    @property
    def cuda_major(self) -> int | None:
        """Major version of the CUDA that it was built with; None without CUDA."""
        version = self.build.get("cuda_version") or ""
        return int(version.split(".")[0]) if version[:1].isdigit() else None

    @property
    def runpath(self) -> tuple[str, ...]:
        """The directories that TensorFlow itself searches for TensorRT, CUDA and cuDNN."""
        return elf.read(os.path.join(self.folder, "libtensorflow_framework.so.2")).runpath if self.folder else ()

    @property
    def tensorrt_runpath(self) -> tuple[str, ...]:
        """The directories that it searches for TensorRT. From 2.15 on a library of its own asks for it first, and looks in fewer."""
        asks = elf.read(os.path.join(self.folder or "", "compiler", "tf2tensorrt", "_pywrap_py_utils.so"))
        return asks.runpath if asks.opens else self.runpath


def tensorflow() -> TensorFlow | None:
    """The TensorFlow that `import tensorflow` would find, or None."""
    distribution = _distribution()
    spec = importlib.util.find_spec("tensorflow")
    folder = os.path.dirname(spec.origin) if spec is not None and spec.origin else None
    if distribution is None and folder is None:
        return None
    name, version = (_called(distribution), distribution.version) if distribution else (None, None)
    return TensorFlow(
        distribution=name,
        version=version,
        folder=folder,
        build=_build_info(folder),
        cuda=_cuda_config(folder),
        pins=_pins(distribution),
    )


def also_installed(tensorflow: TensorFlow | None) -> list[str]:
    """The other TensorFlow wheels that write to the same directory."""
    known = (name for name in _DISTRIBUTIONS if tensorflow and name != tensorflow.distribution)
    return [name for name in known if version_of(name)]


def tensorrt_packages() -> dict[str, str]:
    """{wheel: version} of the installed wheels that are called after TensorRT. One may hold no library, or one of another release."""
    names = (f"{name}{suffix}" for suffix in ("", "-libs") for name in _TENSORRT)
    return {name: version for name in ("nvidia-tensorrt", *names) if (version := version_of(name))}


def version_of(distribution: str) -> str | None:
    """The installed version of a wheel, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _called(distribution: importlib.metadata.Distribution) -> str:
    """The name of a wheel as indexes have it: newer wheels state tensorflow_cpu."""
    return re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower()


def _distribution() -> importlib.metadata.Distribution | None:
    for name in _DISTRIBUTIONS:
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        # A half-deleted installation can leave a dist-info without METADATA.
        if distribution.metadata["Name"] and distribution.version:
            return distribution
    return None


def _build_info(folder: str | None) -> dict[str, typing.Any]:
    match = re.search(
        r"build_info = collections\.OrderedDict\((.*)\)", _text(folder, "python/platform/build_info.py"), re.S
    )
    try:
        return dict(ast.literal_eval(match[1])) if match else {}
    except (ValueError, SyntaxError, TypeError):
        return {}


def _cuda_config(folder: str | None) -> dict[str, str]:
    header = _text(folder, "include/third_party/gpus/cuda/cuda_config.h")
    return dict(re.findall(r'#define TF_(\w+)_VERSION "([\d.]+)"', header))


def _text(folder: str | None, name: str) -> str:
    try:
        with open(os.path.join(folder or "", *name.split("/")), errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _pins(distribution: importlib.metadata.Distribution | None) -> dict[str, str]:
    lines = (distribution.requires or []) if distribution else []
    found = (re.match(r"([\w.-]+)\s*\(?==([\w.]+)\)?\s*;\s*extra\s*==\s*.and-cuda", line) for line in lines)
    return {match[1]: match[2] for match in found if match}
