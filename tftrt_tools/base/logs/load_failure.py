"""Why a server could not load a version, read from the words of TensorFlow Serving 2.14.1 and its TensorFlow: the cause and the mend."""

import re

from tftrt_tools.base import errors
from tftrt_tools.base.logs.known import loading, versions

LABELS_FLAG = "allow_version_labels_for_unavailable_models"
LABELS_MEND = f"add --{LABELS_FLAG}"
_ENGINE_OPS = ("TRTEngineOp", "CreateTRTResourceHandle", "InitializeTRTResource", "GetCalibrationDataOp")
_ELSEWHERE = "serve the original model here, or use --launch=local, which runs engine ops as TensorFlow ops"
# What else a message may say, each with its mend.
_MENDS = (
    (
        re.compile(r"[Cc]ould not find meta ?graph"),
        "start the server with the model's own tags: --saved_model_tags=…; `tftrt inspect` on the version directory shows them",
    ),
    (re.compile(r"allowed_batch_sizes"), "fix the batching parameters: `tftrt configure --check_files` says where"),
    (
        re.compile(
            r"(?i)Could not find SavedModel|data[ _]loss|checkpoint|variables|read less bytes|(can't|cannot|failed to) parse"
        ),
        "publish the model again: files are missing or damaged",
    ),
    (
        re.compile(r"(?i)RESOURCE_EXHAUSTED|insufficient resources|out of memory"),
        "serve fewer models or versions at a time, or on a machine with more memory",
    ),
    (
        re.compile(r"(?i)warm-?up"),
        "publish the model again, which writes its warm-up requests anew; --noenable_model_warmup goes without them",
    ),
)


def no_engine_ops(said: str) -> str:
    """Why a server cannot run TF-TRT's ops, "" where its message `said` is about something else."""
    kernel, unknown = _ops(said)
    if kernel in _ENGINE_OPS:
        return f"it has TF-TRT's engine ops, and {kernel} has no kernel in this server, because it sees no GPU"
    if unknown in _ENGINE_OPS:
        return f"it has TF-TRT's engine ops, and this server is built without TF-TRT ({unknown} is not registered)"
    return ""


def _ops(said: str) -> tuple[str, str]:
    """(the op without a kernel, the op that is not registered), "" where the message names none."""
    kernel, unknown = (message.find(said) or {} for message in (versions.NO_OP_KERNEL, versions.UNKNOWN_OP))
    return kernel.get("op", ""), unknown.get("op", "")


def explain(said: str) -> tuple[str, str]:
    """Why a version did not load, and what helps. Args: said: the server's message, of any number of lines.

    Returns: (cause in one line, mend, "" where none is known).
    """
    if engines := no_engine_ops(said):
        return engines, _ELSEWHERE
    kernel, unknown = _ops(said)
    if op := kernel or unknown:
        return f"this server has no {'kernel for the ' if kernel else ''}op {op}", "use a server that is built with it"
    cause = errors.first_line(said)
    return cause, next((mend for pattern, mend in _MENDS if pattern.search(said)), "")


def label(said: str) -> tuple[str, str] | None:
    """(cause, mend) where the server refuses a label because its version is not loaded, else None."""
    values = loading.LABEL.find(said)
    if not values:
        return None
    return (
        f"a label names version {values['version']} of {values['model']}, which is not loaded yet: a server reads labels before it loads "
        "anything",
        LABELS_MEND,
    )
