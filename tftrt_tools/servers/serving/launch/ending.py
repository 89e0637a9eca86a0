"""Why a server ended by itself, read from its exit code and the end of its log."""

import re
import signal
from collections.abc import Sequence

from tftrt_tools.base import errors
from tftrt_tools.base.logs import load_failure
from tftrt_tools.base.logs.known import requests

_SHOWN_LINES = 15
_DOCKER_REFUSED = 125
# The last words of a server that could not start, in one line or more; and what they say of the first version that did not load.
_REFUSED = re.compile(r"Failed to start server\. Error: (.*)", re.DOTALL)
_NOT_LOADED = re.compile(r"did not become available: \{+name: (\S+) version: (\d+)\} due to error: (.*)", re.DOTALL)
# What follows behind the message of a version: the next version, or the end.
_NEXT = re.compile(r"\}, (?:\{+name: |\}\s*$)", re.MULTILINE)
# Log lines that say what is wrong better than the exit code does, each with its mend.
_LINES = (
    (
        re.compile(r"Failed to start server\. Error: (.*)"),
        "fix what it names; a model that cannot load is tried again --max_num_load_retries times before",
    ),
    (
        re.compile(r"((?:[Aa]ddress already in use|Failed to add port to server|port is already allocated).*)"),
        "another process took the port meanwhile: choose another with --port and --rest_api_port",
    ),
    (
        re.compile(r"(could not select device driver.*)"),
        "Docker has no access to GPUs: install NVIDIA's container toolkit",
    ),
    (
        re.compile(r"(.*(?:libnvinfer|libnvrtc|libcudnn)\S*: cannot open shared object file.*)"),
        "the server does not find that library: set LD_LIBRARY_PATH for it",
    ),
)


def read(code: int, tail: Sequence[str], models_with_engines: Sequence[str]) -> errors.TftrtError:
    """A TftrtError for a server that ended by itself.

    Args:
      code: its exit code as subprocess gives it; a container's 128 + N counts as signal N.
      tail: the last lines of its log.
      models_with_engines: names of the models whose version to load carries TensorRT engines.
    """
    number = -code if code < 0 else code - 128 if code > 128 else 0
    if number in {Signal.value for Signal in signal.Signals}:
        name = signal.Signals(number).name
        cause, mend = f"the server ended by itself ({name})", _signal_mend(name, models_with_engines)
    else:
        cause, mend = f"the server ended by itself with exit code {code}", _code_mend(code)
    words, said_mend = _said(tail)
    if words:
        cause, mend = f"{cause}: {words}", said_mend
    return errors.TftrtError(
        cause, "\n  ".join(filter(None, [mend, "the end of its log:", *list(tail)[-_SHOWN_LINES:]]))
    )


def _said(tail: Sequence[str]) -> tuple[str, str]:
    """(cause, mend) that the end of the log names, ("", "") where it names none."""
    if refused := _REFUSED.search("\n".join(tail)):
        if label := load_failure.label(refused[1]):
            return label
        if failed := _NOT_LOADED.search(refused[1]):
            why, mend = load_failure.explain(_NEXT.split(failed[3])[0])
            return f"{failed[1]} version {failed[2]} did not load: {why}", mend
    for message in (requests.WRONG_RANK, requests.NO_ROWS):
        if any(map(message.find, tail)):
            return message.meaning.rstrip("."), message.mend
    for pattern, mend in _LINES:
        first_match = next((match for match in map(pattern.search, reversed(tail)) if match), None)
        if first_match:
            return first_match[1], mend
    return "", ""


def _signal_mend(name: str, models_with_engines: Sequence[str]) -> str:
    if name in ("SIGSEGV", "SIGABRT") and models_with_engines:
        return (
            f"{', '.join(models_with_engines)} carries TensorRT engines; a server with another TensorRT, or on another kind of GPU, "
            "ends like this while it loads them: `tftrt inspect` on the version directory says what they were built for, `tftrt build` "
            "builds them here, `tftrt build --strip` takes them away"
        )
    return {
        "SIGKILL": "often the system ran out of memory, or someone killed it",
        "SIGILL": "this CPU lacks instructions that the server was compiled for",
    }.get(name, "")


def _code_mend(code: int) -> str:
    return {
        _DOCKER_REFUSED: "docker could not start the container",
        127: "the image has no tensorflow_model_server on its PATH",
        255: "the server refused a flag or could not start",
    }.get(code, "")
