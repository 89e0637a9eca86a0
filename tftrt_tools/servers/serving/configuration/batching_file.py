"""batching_parameters.txt: how the server joins requests into batches, and which sizes of batch the engines will see.

With allowed_batch_sizes the server pads a batch to the next of these sizes by repeating the first row of its last request. Without them
it pads nothing, and every size up to max_batch_size reaches the engines.

Padding takes Tensor::Slice(0, 1) of that request (batching_session.cc, MergeInputTensors). On a tensor with 0 rows TensorFlow 2.14.1 ends
the process there: "Check failed: limit <= dim0_size (1 vs. 0)", tensor.cc.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tftrt_tools.base import errors, records
from tftrt_tools.base.wire import config_messages
from tftrt_tools.servers.serving.configuration.config_problem import ERROR, WARNING, Problem
from tftrt_tools.servers.serving.configuration.text_places import Field

if TYPE_CHECKING:
    from tftrt_tools.base.wire import config_types


# Of SharedBatchScheduler::QueueOptions::input_batch_size_limit.
DEFAULT_MAX_BATCH_SIZE = 1000

_PADDED = """\
# Batches are padded up to the next of allowed_batch_sizes, so that the engines see no other size.
#
# A request with 0 rows must not reach this server. Padding repeats the first row of a batch's last request; where that has
# none, a check in TensorFlow fails and the whole server process ends. TensorFlow Serving does not refuse such requests:
# refuse them in every client, or in a proxy in front of the server. Engines for all sizes without a gap (a range in --shapes,
# or implicit batch mode) need no padding at all.
"""
_NOT_PADDED = """\
# The engines serve every size up to max_batch_size, so allowed_batch_sizes is left out and nothing is padded. Thereby a
# request with 0 rows cannot end the server, as it can where batches are padded.
"""
_ANY = """\
# Nothing is padded: the models have no engines, and TensorFlow takes every batch size.
"""
_UNKNOWN = """\
# Which batch sizes the engines serve is not known here, and allowed_batch_sizes was not given: nothing is padded.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(records.Record):
    """Values of BatchingParameters; None and () leave the server's default."""

    # Rows; a batch is padded to the next of them.
    allowed_batch_sizes: tuple[int, ...] = ()
    # The most rows of a batch.
    max_batch_size: int | None = None
    # Microseconds that a batch waits for more requests.
    batch_timeout_micros: int | None = None
    # Threads, of all models together.
    num_batch_threads: int | None = None
    # Batches that wait for a thread.
    max_enqueued_batches: int | None = None


def chosen(given: Settings, covered: Sequence[int] | None, known: bool = True) -> Settings:
    """Fill in the sizes that were not given. Args: given: Settings. covered: sizes that the engines cover, None for every size; known:
    whether `covered` is known. Returns: Settings. Raises: UsageError where sizes are not increasing or the last is not max_batch_size."""
    sizes, largest = given.allowed_batch_sizes, given.max_batch_size
    if sizes and (list(sizes) != sorted(set(sizes)) or sizes[0] < 1):
        raise errors.UsageError(
            f"--allowed_batch_sizes={_listed(sizes)} do not increase from 1 or more",
            "give each size once, the smallest first",
        )
    if sizes and largest not in (None, sizes[-1]):
        raise errors.UsageError(
            f"--max_batch_size={largest} is not the last of --allowed_batch_sizes={_listed(sizes)}",
            "leave --max_batch_size out, or make the two equal: the server refuses to load otherwise",
        )
    if not sizes and covered is not None and known:
        fitting = tuple(size for size in covered if largest is None or size <= largest)
        if not fitting or largest not in (None, fitting[-1]):
            raise errors.UsageError(
                f"--max_batch_size={largest} is not covered by the engines", f"they cover {text_of(fitting)}"
            )
        largest = fitting[-1]
        sizes = () if is_whole(fitting) else fitting
    return dataclasses.replace(given, allowed_batch_sizes=sizes, max_batch_size=sizes[-1] if sizes else largest)


def is_whole(sizes: Sequence[int]) -> bool:
    """Whether sizes are 1, 2, … without a gap."""
    return tuple(sizes) == tuple(range(1, len(sizes) + 1))


def text_of(sizes: Sequence[int] | None) -> str:
    """Sizes for people: "1 to 32", "1, 8, 32"; None is "every size"."""
    if sizes is None:
        return "every size"
    if not sizes:
        return "no size"
    parts: list[str] = []
    start = sizes[0]
    for size, after in zip(sizes, (*sizes[1:], 0), strict=True):
        if after != size + 1:
            parts.append(
                str(size) if size == start else f"{start} to {size}" if size > start + 1 else f"{start}, {size}"
            )
            start = after
    return ", ".join(parts)


def _listed(sizes: Sequence[int]) -> str:
    return ",".join(map(str, sizes))


def text(settings: Settings, covered: Sequence[int] | None, known: bool = True) -> str:
    """The text of the file. Args: settings: Settings as `chosen` made them; covered, known: as there."""
    message = config_messages.new(config_messages.BATCHING)
    for name in ("max_batch_size", "batch_timeout_micros", "num_batch_threads", "max_enqueued_batches"):
        if getattr(settings, name) is not None:
            getattr(message, name).value = getattr(settings, name)
    message.allowed_batch_sizes.extend(settings.allowed_batch_sizes)
    comment = (
        _PADDED if settings.allowed_batch_sizes else _UNKNOWN if not known else _ANY if covered is None else _NOT_PADDED
    )
    return comment + config_messages.render(message)


def problems(message: config_types.BatchingParameters, root: Field) -> Iterator[Problem]:
    """Problems of BatchingParameters. Args: message; root: its text as a Field."""
    for name, least in (
        ("max_batch_size", 1),
        ("batch_timeout_micros", 0),
        ("num_batch_threads", 1),
        ("max_enqueued_batches", 1),
        ("max_execution_batch_size", 1),
    ):
        if message.HasField(name) and getattr(message, name).value < least:
            yield Problem(
                root.line_of(name), ERROR, f"{name} is {getattr(message, name).value}", f"give {least} or more"
            )
    largest = message.max_batch_size.value if message.HasField("max_batch_size") else DEFAULT_MAX_BATCH_SIZE
    yield from _of_sizes(list(message.allowed_batch_sizes), largest, message.HasField("max_batch_size"), root)
    if message.HasField("max_execution_batch_size") and message.max_execution_batch_size.value > largest:
        yield Problem(
            root.line_of("max_execution_batch_size"),
            ERROR,
            f"max_execution_batch_size is larger than max_batch_size, {largest}",
            f"give {largest} or less",
        )


def _of_sizes(sizes: Sequence[int], largest: int, is_given: bool, root: Field) -> Iterator[Problem]:
    lines = [field.line for field in root.all("allowed_batch_sizes")]
    for line, size, before in zip(lines, sizes, [0, *sizes], strict=False):
        if size < 1:
            yield Problem(line, ERROR, f"{size} is no batch size", "give 1 or more")
        elif size <= before:
            yield Problem(
                line,
                ERROR,
                f"allowed_batch_sizes do not increase: {size} behind {before}",
                "give each size once, the smallest first",
            )
    if not sizes:
        return
    if sizes[-1] != largest:
        default = "" if is_given else " (the default)"
        yield Problem(
            lines[-1],
            ERROR,
            f"the last of allowed_batch_sizes is {sizes[-1]}, and max_batch_size is {largest}{default}: the "
            "server refuses to load the models",
            f"write max_batch_size {{ value: {sizes[-1]} }}, or add {largest}",
        )
    # Also with 1, 2, …: a batch without rows is padded to 1.
    yield Problem(
        lines[0],
        WARNING,
        "batches are padded, so one request with 0 rows can end the server process",
        "refuse such requests in the clients or in a proxy; where engines serve every size, leave allowed_batch_sizes out",
    )
