"""The file of warm-up requests. A child process writes and reads it, because its records are messages of TensorFlow."""

import dataclasses
from collections.abc import Callable

from tftrt_tools.base import records
from tftrt_tools.base.process import jobs


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToWrite(records.Record):
    """A file to write: one Predict record for each call."""

    path: str
    model_name: str
    # (signature, .npz of its inputs) of each.
    calls: tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToRead(records.Record):
    """A file to read as a server would."""

    path: str
    # SavedModel directory.
    model: str
    # Directory to make, for each record's inputs.
    folder: str


@jobs.job
def write() -> Callable[[ToWrite], int]:
    """Write the file. Answers: its bytes. Raises: OSError, TftrtError."""
    from tftrt_tools.servers.serving.warmup import warmup_file_job

    return warmup_file_job.write


@jobs.job
def read() -> Callable[[ToRead], tuple[tuple[str, str], ...]]:
    """Read the file back. Answers: (signature, .npz) of each request; a record of a MultiInference has several. An input that a record
    leaves out has the signature's default. Raises: CheckFailed if this file would make a server's load fail."""
    from tftrt_tools.servers.serving.warmup import warmup_file_job

    return warmup_file_job.read
