"""TensorFlow Serving's BatchingParameters: read from its text format, defaults filled in, checked."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from typing import Any

from tftrt_tools.base.files import documents
from tftrt_tools.base.wire import config_messages
from tftrt_tools.servers.serving.local import failure

PER_MODEL_FILE = "batching_params.pbtxt"
_FIELDS = {
    "max_batch_size": "Int64Value",
    "batch_timeout_micros": "Int64Value",
    "max_enqueued_batches": "Int64Value",
    "num_batch_threads": "Int64Value",
    "thread_pool_name": "StringValue",
    "allowed_batch_sizes": "repeated int64",
    "pad_variable_length_inputs": "bool",
    "enable_large_batch_splitting": "BoolValue",
    "max_execution_batch_size": "Int64Value",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchingParameters:
    """Names and defaults of the real message; each unset field has its default here."""

    # Rows of the largest request and, unless requests are split, of the largest batch.
    max_batch_size: int = 1000
    # Microseconds that a batch may wait for more requests while a thread is free.
    batch_timeout_micros: int = 0
    # Batches that one queue holds.
    max_enqueued_batches: int = 10
    # Threads that run batches, of all models together; by default the CPUs of this process.
    num_batch_threads: int = dataclasses.field(default_factory=lambda: len(os.sched_getaffinity(0)))
    # Label of the queuing latency metric.
    thread_pool_name: str = "batch_threads"
    # Ascending; a batch is padded to the next of them. () pads nothing.
    allowed_batch_sizes: tuple[int, ...] = ()
    # Pad the other dimensions of the requests of a batch to the largest among them.
    pad_variable_length_inputs: bool = False
    # Split requests over batches of at most so many rows, None for max_batch_size.
    enable_large_batch_splitting: bool = False
    max_execution_batch_size: int | None = None

    @property
    def execution_rows(self) -> int:
        """Rows of the largest batch before padding."""
        if self.enable_large_batch_splitting and self.max_execution_batch_size is not None:
            return self.max_execution_batch_size
        return self.max_batch_size

    def padded(self, rows: int) -> int:
        """Rows that a batch of `rows` rows is run with: the smallest allowed size that holds them."""
        return next((size for size in self.allowed_batch_sizes if size >= rows), rows)

    def check(self) -> None:
        """Refuse parameters that allow no batch. The ascending order is checked too; the real server does not check it.

        Raises: Failure INVALID_ARGUMENT; it makes the load of a model fail.
        """
        sizes = self.allowed_batch_sizes
        if sizes and sizes[-1] != self.max_batch_size:
            raise failure.invalid(
                "Last entry in allowed_batch_sizes must match max_batch_size; last entry was "
                f"{sizes[-1]}, expected {self.max_batch_size}"
            )
        if any(after <= before for before, after in zip((0, *sizes), sizes, strict=False)):
            raise failure.invalid("allowed_batch_sizes entries must be monotonically increasing")
        if self.num_batch_threads < 1:
            raise failure.invalid(f"num_batch_threads must be positive; was {self.num_batch_threads}")
        if self.max_batch_size < 1:
            raise failure.invalid(f"input_batch_size_limit must be positive; was {self.max_batch_size}")
        if self.batch_timeout_micros < 0:
            raise failure.invalid(f"batch_timeout_micros must be non-negative; was {self.batch_timeout_micros}")
        # Zero counts as one if nothing is split: so the real scheduler accepts old configurations.
        if self.max_enqueued_batches < (1 if self.enable_large_batch_splitting else 0):
            raise failure.invalid(f"max_enqueued_batches must be positive; was {self.max_enqueued_batches}")
        if not 1 <= self.execution_rows <= self.max_batch_size:
            raise failure.invalid(
                "When enable_large_batch_splitting is true, input_batch_size_limit must be greater than or equal to "
                f"max_execution_batch_size, and that positive; they are {self.max_batch_size} and {self.execution_rows}"
            )


def parse(text: str, source: str | pathlib.Path = "batching parameters") -> BatchingParameters:
    """BatchingParameters of protobuf text, such as "max_batch_size { value: 8 }". Raises: Failure INVALID_ARGUMENT, naming `source`."""
    try:
        message = documents.parse_message(text, config_messages.new(config_messages.BATCHING))
    except ValueError as error:
        raise failure.invalid(f"Invalid protobuf file: '{source}' ({error})") from None
    given: dict[str, Any] = {}
    for name, kind in _FIELDS.items():
        if kind.endswith("Value"):
            if message.HasField(name):
                given[name] = getattr(message, name).value
        else:
            given[name] = tuple(getattr(message, name)) if kind.startswith("repeated") else getattr(message, name)
    return BatchingParameters(**given)


def read(path: str | os.PathLike[str]) -> BatchingParameters:
    """BatchingParameters of a file. Raises: Failure NOT_FOUND without the file, INVALID_ARGUMENT."""
    try:
        text = pathlib.Path(path).read_text()
    except FileNotFoundError:
        raise failure.not_found(f"{path}; No such file or directory") from None
    except (OSError, ValueError) as error:
        raise failure.invalid(f"Invalid protobuf file: '{path}' ({error})") from None
    return parse(text, str(path))


def of_version(
    path: str | os.PathLike[str], common: BatchingParameters | None, per_model: bool
) -> BatchingParameters | None:
    """The parameters that version directory `path` is batched with.

    Args: common: BatchingParameters of the server. per_model: bool, `--enable_per_model_batching_parameters`: the version's own file
      batching_params.pbtxt counts, and only that.
    Returns: BatchingParameters, or None: not batched. Raises: Failure, as `read`.
    """
    if not per_model:
        return common
    own = pathlib.Path(path) / PER_MODEL_FILE
    return read(own) if own.exists() else None
