"""Asks native code for facts. Everything here runs in a child process, because it may end its process."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import resource
import signal
import tempfile
import time
import typing
from collections.abc import Callable, Sequence

from tftrt_tools.base import records
from tftrt_tools.base.stack import libraries, nvml_job
from tftrt_tools.base.stack.facts import SeenGpu, TensorRtAnswer
from tftrt_tools.base.stack.gpus import Driver
from tftrt_tools.base.stack.probes import Found, Machine, Request

if typing.TYPE_CHECKING:
    import tensorflow as tf

_DLINFO_LINK_MAP = 2
# Called with the name of a fact and its value.
Note = Callable[[str, object], None]
# Takes the stem of a library's name and the library; asks it for its version.
Ask = Callable[[str, ctypes.CDLL], str | None]


def tensorflow(facts: str) -> None:
    """Import TensorFlow and ask it about TensorRT and GPUs.

    Args: facts: a file. Each step adds a JSON line [name, value] to it, so that an abort loses nothing of the steps before;
      the names are those of facts.Asked, and the last `step` is the one that did not end.
    """
    _no_core_dump()
    with open(facts, "w", buffering=1) as file:

        def note(name: str, value: object) -> None:
            file.write(json.dumps([name, value]) + "\n")

        try:
            _ask_tensorflow(note)
        # SystemExit and the like too: a broken package may raise anything while it is imported.
        except BaseException as error:
            note("error", f"{type(error).__name__}: {' '.join(str(error).split())}")


def _ask_tensorflow(note: Note) -> None:
    note("step", "importing TensorFlow")
    import tensorflow as tf

    note("version", tf.__version__)
    note(
        "build",
        {key: value for key, value in tf.sysconfig.get_build_info().items() if isinstance(value, (str, bool, list))},
    )
    note("step", "asking TensorFlow for TensorRT")
    note("tensorrt", _ask_tensorrt(note))
    note("step", "listing the GPUs that TensorFlow sees")
    devices = tf.config.list_physical_devices("GPU")
    note("gpus", [_details(device) for device in devices])
    note("step", "")


def _ask_tensorrt(note: Note) -> TensorRtAnswer:
    try:
        from tensorflow.compiler.tf2tensorrt import _pywrap_py_utils as tensorrt
    except ImportError:
        return {"built": False}
    linked = tensorrt.get_linked_tensorrt_version()
    note("linked", linked)
    # It is False both for a build without TensorRT and for libraries that cannot be loaded; in the second case, asking for the loaded
    # version aborts the process.
    if not tensorrt.is_tensorrt_enabled():
        return {"built": any(linked), "loads": False}
    note("step", "asking TensorRT for its version")
    return {"built": True, "loads": True, "loaded": tensorrt.get_loaded_tensorrt_version()}


def _details(device: tf.config.PhysicalDevice) -> SeenGpu:
    import tensorflow as tf

    details = tf.config.experimental.get_device_details(device)
    capability = details.get("compute_capability")
    return {
        "name": details.get("device_name", device.name),
        "compute_capability": "{}.{}".format(*capability) if capability else None,
    }


def machine(request: Request) -> Machine:
    """Load libraries and ask the driver for its GPUs, each in a process of its own."""
    _no_core_dump()
    deadline = time.monotonic() + request.seconds
    # Before the forks, which shall not each import the converter of records.
    records.plain(Driver())
    tasks = [_forked(functools.partial(_load, name, request.libraries)) for name in request.libraries]
    answer = _forked(nvml_job.query)
    return Machine(
        libraries=tuple(Found.from_dict(_answer(*task, deadline)) for task in tasks),
        gpus=Driver.from_dict(_answer(*answer, deadline)),
    )


def _forked(work: Callable[[], records.Record]) -> tuple[int, int, typing.IO[bytes]]:
    """Do `work` in a process of its own. Returns: its id, where its answer can be read, and what it writes to stderr."""
    reader, writer = os.pipe()
    output = tempfile.TemporaryFile()
    process = os.fork()
    if process:
        os.close(writer)
        return process, reader, output
    os.close(reader)
    os.dup2(output.fileno(), 2)
    try:
        os.write(writer, json.dumps(work().to_dict()).encode())
    except BaseException as error:
        os.write(writer, json.dumps({"error": str(error)}).encode())
    finally:
        # No exit handlers: those of CUDA libraries may abort.
        os._exit(0)


def _answer(process: int, reader: int, output: typing.IO[bytes], deadline: float) -> dict[str, typing.Any]:
    """What the forked process wrote (far less than a pipe holds, so it never waits for a reader)."""
    status = 0
    while time.monotonic() < deadline:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            break
        time.sleep(0.005)
    else:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        return {"error": "it did not answer in time", "died": "SIGKILL"}
    with os.fdopen(reader, "rb") as file:
        text = file.read()
    if text:
        result: dict[str, typing.Any] = json.loads(text)
        return result
    name = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit code {os.WEXITSTATUS(status)}"
    output.seek(0)
    last = output.read().decode(errors="replace").strip().splitlines()[-1:]
    return {"error": ": ".join([f"loading it ends the process ({name})", *last]), "died": name}


def _load(name: str, names: Sequence[str]) -> Found:
    stem = libraries.stem(name)
    try:
        if stem.startswith("cudnn"):
            _load_cudnn(stem, name, names)
        if stem == "nvinfer_plugin":
            # As TensorFlow does. The plugin asks for libnvinfer.so.8, which 2.15 and later have loaded under another name.
            _load_before(names, "nvinfer")
        library = ctypes.CDLL(name)
    except OSError as error:
        return Found(error=str(error))
    return Found(path=_path(library), version=_version(stem, library))


def _load_cudnn(stem: str, name: str, names: Sequence[str]) -> None:
    """Load cuDNN as TensorFlow does: after cuBLAS, and its parts through libcudnn's own check.

    cuDNN 8 ends the process if it cannot open a part, and treats a failed search inside that part (for libnvrtc.so) as such a failure. A
    plain dlopen of the part would not show it.
    """
    _load_before(names, "cublas", "cublasLt")
    check = {"cudnn_ops_infer": "cudnnOpsInferVersionCheck", "cudnn_cnn_infer": "cudnnCnnInferVersionCheck"}.get(stem)
    if check:
        with contextlib.suppress(AttributeError, OSError):
            getattr(ctypes.CDLL(f"libcudnn.so.{name.rpartition('.so.')[2]}"), check)()


def _load_before(names: Sequence[str], *stems: str) -> None:
    """Load those of `names` that have these stems, if they can be loaded."""
    for name in names:
        if libraries.stem(name) in stems:
            with contextlib.suppress(OSError):
                ctypes.CDLL(name)


def _path(library: ctypes.CDLL) -> str | None:
    """Where the loader found it (dlinfo's link map: base address, then name)."""
    link = ctypes.POINTER(ctypes.c_void_p * 2)()
    if ctypes.CDLL(None).dlinfo(ctypes.c_void_p(library._handle), _DLINFO_LINK_MAP, ctypes.byref(link)):
        return None
    path = ctypes.string_at(link.contents[1] or 0).decode()
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def version_of_loaded(*names: str) -> str:
    """The version of a library that this process has loaded already. Args: names: its name in several releases. Returns: "" where it has
    loaded none of them, or the library does not say."""
    for name in names:
        with contextlib.suppress(OSError):
            return _version(libraries.stem(name), ctypes.CDLL(name, os.RTLD_NOW | os.RTLD_NOLOAD)) or ""
    return ""


def _version(stem: str, library: ctypes.CDLL) -> str | None:
    try:
        return _VERSIONS.get(stem, _by_property)(stem, library)
    # ctypes finds no such symbol: a library without a version, or another library with this name.
    except AttributeError:
        return None


def _by_property(stem: str, library: ctypes.CDLL) -> str | None:
    """CUDA's mathematics libraries answer "which major (0), minor (1), patch (2)"."""
    ask, value, parts = getattr(library, f"{stem}GetProperty"), ctypes.c_int(), []
    for part in range(3):
        ask(part, ctypes.byref(value))
        parts.append(value.value)
    return ".".join(map(str, parts))


def _tensorrt(_stem: str, library: ctypes.CDLL) -> str | None:
    number = library.getInferLibVersion()
    base = 10000 if number >= 10000 else 1000
    return f"{number // base}.{number % base // 100}.{number % 100}"


def _cudnn(_stem: str, library: ctypes.CDLL) -> str | None:
    number = library.cudnnGetVersion()
    # From 9 on one more digit for the major version.
    base = 10000 if number >= 90000 else 1000
    return f"{number // base}.{number % base // 100}.{number % 100}"


def _cuda(function: str) -> Ask:
    def ask(_stem: str, library: ctypes.CDLL) -> str | None:
        value = ctypes.c_int()
        # The runtime cannot say its version without a driver.
        if getattr(library, function)(ctypes.byref(value)) or not value.value:
            return None
        return f"{value.value // 1000}.{value.value % 1000 // 10}"

    return ask


_VERSIONS: dict[str, Ask] = {
    "nvinfer": _tensorrt,
    "cudnn": _cudnn,
    "cudart": _cuda("cudaRuntimeGetVersion"),
    "cuda": _cuda("cuDriverGetVersion"),
}


def _no_core_dump() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
