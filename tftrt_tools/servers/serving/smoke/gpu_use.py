"""Whether the server's process uses a GPU: without one, no engine runs."""

import dataclasses
import os
import pathlib
import re
import subprocess
from collections.abc import Callable, Sequence

from tftrt_tools.base import errors, records
from tftrt_tools.base.process import background, child, starting
from tftrt_tools.servers.serving.smoke import gpu_questions
from tftrt_tools.servers.serving.smoke import server_process as processes
from tftrt_tools.servers.serving.smoke.engine_evidence import CERTAIN, LIKELY, NO, NOTHING, WEAK, Evidence, Weight
from tftrt_tools.servers.serving.smoke.server_process import Process

# A process that computes on an NVIDIA GPU holds one of these devices open: a card, WSL's, a Tegra's.
_DEVICE = re.compile(r"/dev/(nvidia\d+|dxg|nvhost-.*gpu|nvgpu.*)$")
# The kernel's first PID namespace (PROC_PID_INIT_INO): NVML's process ids are of this one.
_FIRST_NAMESPACE = "pid:[4026531836]"
_SECONDS = 60
# Variables that decide which libraries and GPUs a process finds.
_DECIDES = re.compile(r"(CUDA|NVIDIA|TF|XLA|LD)_\w+$")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Use(records.Record):
    """Whether a server uses a GPU."""

    # None if not known.
    uses: bool | None
    # In words.
    seen: str
    # How sure `uses` is.
    weight: Weight = CERTAIN
    # GPU memory of the server; None if NVML does not tell.
    memory_bytes: int | None = None
    # Highest utilisation in percent while it was asked; None without NVML.
    busy: int | None = None

    def evidence(self) -> Evidence:
        """The Evidence about the GPU. A used GPU proves nothing, because TensorFlow's own ops use it too."""
        if self.uses is False:
            return Evidence(source="GPU", seen=self.seen, speaks=NO, weight=self.weight)
        if self.busy == 0:  # NVML gives whole percents, and a small model can stay below one
            return Evidence(
                source="GPU",
                seen=f"{self.seen}; but no GPU was seen busy while the server was asked",
                speaks=NO,
                weight=WEAK,
            )
        return Evidence(source="GPU", seen=self.seen, speaks=NOTHING)


def look(server: Process, busy: Sequence[int] | None = None) -> Use:
    """The Use of a GPU by a server. Args: server: server_process.Process of a known program; busy: what `burst` returned, or None."""
    if server.program == processes.LOCAL:
        return _of_development_server(server)
    devices = open_devices(server.pid)
    if devices is not None and not devices:
        return Use(uses=False, seen=f"the server (pid {server.pid}) has no GPU open")
    memory, highest = _memory(server), busy[0] if busy else None
    if memory:
        return Use(
            uses=True,
            seen=f"the server (pid {server.pid}) holds {memory >> 20} MiB of GPU memory; TensorFlow's own ops need that too",
            memory_bytes=memory,
            busy=highest,
        )
    if memory == 0 and first_namespace():
        return Use(
            uses=False,
            seen=f"the server (pid {server.pid}) holds no GPU memory, says NVML",
            memory_bytes=0,
            busy=highest,
        )
    if devices:
        return Use(
            uses=True,
            seen=f"the server (pid {server.pid}) has {', '.join(devices)} open; TensorFlow's own ops need that too",
            weight=LIKELY,
            busy=highest,
        )
    return Use(uses=None, seen=f"nothing says whether the server (pid {server.pid}) uses a GPU", busy=highest)


def _of_development_server(server: Process) -> Use:
    """The development server runs engine ops natively if TensorFlow sees no GPU; so TensorFlow is started as the server was, and asked."""
    if open_devices(server.pid) == [] and not any(
        _DEVICE.match(str(device)) for device in pathlib.Path("/dev").iterdir()
    ):
        return Use(
            uses=False,
            seen=f"the development server (pid {server.pid}) runs engine ops natively without a GPU, and this machine has none",
        )
    if server.environ is None:
        return Use(uses=None, seen="the server's environment cannot be read")
    env: dict[str, str | None] = {name: None for name in os.environ if _DECIDES.match(name)}
    # Its packages may lie where PYTHONPATH says.
    env |= {name: value for name, value in server.environ.items() if _DECIDES.match(name) or name == "PYTHONPATH"}
    try:
        gpu = gpu_questions.tensorflow.run(None, env=env, python=_interpreter(server), timeout=_SECONDS).result
    except (errors.TftrtError, child.ChildBug, OSError) as error:
        return Use(
            uses=None, seen=f"TensorFlow could not be asked for its GPUs as the server did: {type(error).__name__}"
        )
    if gpu is None:
        return Use(
            uses=False,
            seen=f"the development server (pid {server.pid}) runs engine ops natively where TensorFlow sees no GPU, and started "
            "like it, TensorFlow sees none",
        )
    return Use(
        uses=True,
        seen=f"the development server (pid {server.pid}) sees a GPU: {gpu['name']}",
        memory_bytes=_memory(server),
    )


def _interpreter(server: Process) -> str | None:
    """The server's Python by its original path: the target of the link would be outside of its virtual environment."""
    named = server.argv[0]
    return str(server.path(named)) if "/" in named else None


def open_devices(pid: int) -> list[str] | None:
    """Names of the GPU devices that a process holds open, or None where this user may not see it."""
    try:
        links = [os.readlink(descriptor) for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return None
    return sorted({link for link in links if _DEVICE.match(link)})


def first_namespace() -> bool:
    """Whether NVML's process ids are the ones that this process sees."""
    try:
        return os.readlink("/proc/self/ns/pid") == _FIRST_NAMESPACE
    except OSError:
        return False


def _memory(server: Process) -> int | None:
    """Bytes of GPU memory that a server holds; None where NVML does not tell."""
    try:
        return gpu_questions.memory.run(server.pid, timeout=_SECONDS).result
    except (errors.TftrtError, child.ChildBug):
        return None


def _busy(seconds: float) -> int | None:
    """The highest utilisation in percent; None where NVML does not tell."""
    try:
        return gpu_questions.busy.run(seconds, timeout=_SECONDS).result
    except (errors.TftrtError, child.ChildBug):
        return None


def burst(send: Callable[[], object], seconds: float) -> list[int]:
    """Send requests to the server while NVML watches. Args: send: a function that sends one request. Returns: [percent], or [] without
    NVML or a GPU."""
    told = background.start(lambda: _busy(seconds))
    while not told.done():
        send()
    highest = told.result()
    return [] if highest is None else [highest]


def version(server: Process) -> str:
    """The first line that the server's program prints for --version, or ""."""
    argv, folder = list(server.argv[:1]), None
    if server.program == processes.LOCAL:
        argv, folder = list(server.argv[: server.argv.index("-m") + 2]), starting.start()[0]
    try:
        argv[0] = str(server.path(argv[0])) if "/" in argv[0] else argv[0]
        listed = subprocess.run(
            [*argv, "--version"],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            env=server.environ,
            cwd=folder,
            check=True,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return next((line.strip() for line in listed.stdout.splitlines() if line.strip()), "")
