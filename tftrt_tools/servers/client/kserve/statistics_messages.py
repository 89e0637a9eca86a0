"""ModelStatistics: what a Triton counted for a version of a model, to and from bytes."""

import dataclasses
from collections.abc import Iterator, Mapping

from tftrt_tools.base.wire import fields
from tftrt_tools.servers.client.kserve.model import asked, version_text
from tftrt_tools.servers.client.model_spec import ModelSpec, text

STATISTICS = "/inference.GRPCInferenceService/ModelStatistics"


@dataclasses.dataclass(frozen=True)
class Duration:
    """count: how many; ns: nanoseconds of all of them together."""

    count: int = 0
    ns: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Statistics:
    """Since the version was loaded. A *request* may have several rows; an *execution* runs one or more requests."""

    version: int | None
    # Rows, and executions.
    rows: int = 0
    executions: int = 0
    # Whole requests in the server: those that went well, and the others.
    success: Duration = Duration()
    fail: Duration = Duration()
    # Parts of those that went well: waiting for the model, and in the model.
    queue: Duration = Duration()
    infer: Duration = Duration()
    # {rows of an execution: how many}.
    batches: Mapping[int, int]


def request(model: ModelSpec) -> bytes:
    """bytes of the ModelStatisticsRequest. Raises: UsageError."""
    return b"".join(asked(model))


def read(raw: bytes) -> list[Statistics]:
    """The Statistics of each version in a ModelStatisticsResponse. Raises: ValueError."""
    return [
        _statistics(value)
        for field, wire_type, value in fields.walk(memoryview(raw))
        if field == 1 and wire_type == fields.DELIMITED
    ]


def _statistics(raw: memoryview) -> Statistics:
    version, parts, batches = "", memoryview(b""), dict[int, int]()
    for field, wire_type, value in fields.walk(raw):
        if wire_type != fields.DELIMITED:
            continue
        if field == 2:
            version = text(value)
        elif field == 6:
            parts = value
        elif field == 7:
            batches[_numbers(value).get(1, 0)] = dict(_durations(value)).get(3, Duration()).count
    numbers, durations = _numbers(raw), dict(_durations(parts))
    none = Duration()
    return Statistics(
        version=version_text(version),
        rows=numbers.get(4, 0),
        executions=numbers.get(5, 0),
        success=durations.get(1, none),
        fail=durations.get(2, none),
        queue=durations.get(3, none),
        infer=durations.get(5, none),
        batches=batches,
    )


def _durations(raw: memoryview) -> Iterator[tuple[int, Duration]]:
    """(field, StatisticDuration) of each field that is one."""
    for field, wire_type, value in fields.walk(raw):
        if wire_type == fields.DELIMITED:
            numbers = _numbers(value)
            yield field, Duration(numbers.get(1, 0), numbers.get(2, 0))


def _numbers(raw: memoryview) -> dict[int, int]:
    """{field: value} of the numbers in a message."""
    return {field: value for field, wire_type, value in fields.walk(raw) if wire_type == fields.VARINT}
