"""TensorRT's calibration table, as its calibrators write and read it: text.

    TRT-8503-EntropyCalibration2                  TensorRT 8.5.3 and the algorithm
    TensorRTInputPH_0: 3c03156f                   tensor: big-endian hex of the float32 scale
    (Unnamed Layer* 10) [Shuffle]_output: 3b25c70c

scale = range / 127: TensorRT rounds x / scale to an integer and clips it to [-128, 127], so `range` is the largest |x| that survives.
A tensor without a line has no scale, and layers that need it stay out of INT8. For a tensor that was zero in all of the data TensorRT
writes a bare 0 (seen: the initial state of an LSTM). Nothing can be divided by it, so it is read as no scale.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.models.savedmodel import engine_op

# The headers of IInt8Calibrator's kinds. TF-TRT uses only the first one, and TensorRT refuses a table of a kind other than its
# calibrator's.
TFTRT_CALIBRATOR = "EntropyCalibration2"
CALIBRATORS = (TFTRT_CALIBRATOR, "EntropyCalibration", "MinMaxCalibration", "LegacyCalibration")
LEVELS = 127
_NUMBERED = "(Unnamed Layer* "
_HEADER = re.compile(r"TRT-([0-9]{4}|[0-9]{6})-(\w+)")
# Less than eight digits may mean a truncated file.
_HEX = re.compile(r"[0-9a-fA-F]{8}|0")
_FORM = "a table is a line like TRT-8503-EntropyCalibration2, then lines like `tensor name: 3c03156f`"


def is_numbered(name: str) -> bool:
    """Whether a tensor's name has the number of a TensorRT layer in it: "(Unnamed Layer* 12) [Shuffle]_output"."""
    return name.startswith(_NUMBERED)


@dataclasses.dataclass(frozen=True)
class Table:
    """One engine's scales.

    header: the first line. scales: {tensor: scale}, in the engine's order; values are rounded to float32, held as Python floats. Two
    tables are equal where header and scales are, in any order.

    Raises: TftrtError for a header or a name that the text cannot hold, and for a scale that is not positive and finite in float32.
    """

    header: str
    scales: dict[str, float]

    def __post_init__(self) -> None:
        _check_header(self.header)
        object.__setattr__(
            self, "scales", {_checked_name(name): _checked_scale(name, scale) for name, scale in self.scales.items()}
        )

    @classmethod
    def of_ranges(cls, ranges: Mapping[str, float], tensorrt: str) -> Table:
        """The table of {tensor: range}, range = the largest |x| to keep, > 0, with the header that TF-TRT's calibrator writes for
        TensorRT `tensorrt` ("8.5.3"). Raises: TftrtError."""
        return cls(header(tensorrt), {name: float(value) / LEVELS for name, value in ranges.items()})

    @property
    def tensorrt(self) -> str:
        """The version in the header, such as "8.5.3"."""
        return engine_op.table_tensorrt(self.header)

    @property
    def major(self) -> int:
        """TensorRT's major version, an int."""
        return int(self.tensorrt.split(".")[0])

    @property
    def calibrator(self) -> str:
        """The algorithm in the header, one of CALIBRATORS."""
        return _parts(self.header)[2]

    def for_tensorrt(self, tensorrt: str) -> Table:
        """The same scales for another TensorRT, which may skip a table with the version of another. Raises: as `header`."""
        return Table(header(tensorrt), self.scales)

    def range(self, name: str) -> float:
        """The largest |x| of tensor `name` that its scale keeps."""
        return self.scales[name] * LEVELS

    def text(self) -> str:
        """What TensorRT reads; `parse` gives the same table back, bit by bit."""
        lines = [self.header, *(f"{name}: {struct.pack('>f', scale).hex()}" for name, scale in self.scales.items())]
        return "\n".join(lines) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """By hand: the checks of this class name the tensor whose scale is wrong, also where it is no number."""
        return {"header": self.header, "scales": dict(self.scales)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Table:
        return cls(data["header"], data["scales"])


def _parts(checked: str) -> re.Match[str] | Any:
    """The version and the calibrator in a header that was checked."""
    return _HEADER.fullmatch(checked)


def header(tensorrt: str) -> str:
    """The first line for TensorRT `tensorrt`, such as "8.5.3" or "8.5.3.1". Raises: TftrtError for a text that is not a version."""
    match = re.fullmatch(r"([0-9]{1,2})\.([0-9]{1,2})\.([0-9]{1,2})(\.[0-9]+)*", tensorrt)
    if not match:
        raise errors.TftrtError(f"{tensorrt!r} is no version of TensorRT", "a version is like 8.5.3")
    major, minor, patch = (int(part) for part in match.groups()[:3])
    digits = f"{major}{minor}{patch:02d}" if major < 10 else f"{major}{minor:02d}{patch:02d}"
    return f"TRT-{digits}-{TFTRT_CALIBRATOR}"


def parse(text: str, source: str = "the table") -> Table:
    """The Table of a text, as `read` without the remarks."""
    return read(text, source)[0]


def read(text: str, source: str = "the table") -> tuple[Table, tuple[str, ...]]:
    """Read a table. Args: source: its name in errors, such as its path.

    Returns: (Table, names of the tensors whose scale is zero, which the Table does not have).

    Raises: TftrtError that names the line.
    """
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise errors.TftrtError(f"{source} is empty", _FORM)
    first = lines[0].strip()
    scales: dict[str, float] = {}
    seen: dict[str, int] = {}
    with _at(source, 1):
        _check_header(first)
    for number, line in enumerate(lines[1:], 2):
        with _at(source, number):
            name, scale = _entry(line)
            if name in seen:
                raise errors.TftrtError(
                    f"{_short(name)} has a scale already, in line {seen[name]}", "leave one of the two lines"
                )
        scales[name], seen[name] = scale, number
    zeros = tuple(name for name, scale in scales.items() if not scale)
    return Table(first, {name: scale for name, scale in scales.items() if scale}), zeros


@contextlib.contextmanager
def _at(source: str, number: int) -> Iterator[None]:
    """In this block, errors get the place before their cause."""
    try:
        yield
    except errors.TftrtError as error:
        raise errors.TftrtError(f"{source}, line {number}: {error.cause}", error.mend) from None


def _entry(line: str) -> tuple[str, float]:
    name, colon, digits = line.rpartition(": ")
    if not colon:
        raise errors.TftrtError(f"{_short(line)} is not `tensor name: scale`", _FORM)
    digits = digits.strip()
    if not _HEX.fullmatch(digits):
        raise errors.TftrtError(
            f"{_short(digits)} is no scale of {_short(name)}",
            "a scale is eight hex digits: the big-endian bits of a float32",
        )
    if not int(digits, 16):
        return _checked_name(name), 0.0
    return _checked_name(name), _checked_scale(name, struct.unpack(">f", bytes.fromhex(digits))[0])


def _check_header(line: object) -> None:
    match = _HEADER.fullmatch(line) if isinstance(line, str) else None
    if not match:
        raise errors.TftrtError(f"{_short(line)} is no header of a calibration table", _FORM)
    if match[2] not in CALIBRATORS:
        raise errors.TftrtError(
            f"unknown calibrator {match[2]!r} in the header", "known ones: " + ", ".join(CALIBRATORS)
        )


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not name or "\n" in name or "\r" in name:
        raise errors.TftrtError(f"{_short(name)} is no tensor name", "a name is text in one line")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise errors.TftrtError(
            f"tensor name {_short(name)} cannot be written as UTF-8", "a name is text in one line"
        ) from None
    return name


def _checked_scale(name: str, scale: object) -> float:
    try:
        rounded = 0.0 if isinstance(scale, (str, bool)) else struct.unpack(">f", struct.pack(">f", scale))[0]
    except (struct.error, OverflowError):
        rounded = 0.0
    if rounded == float("inf"):
        raise errors.TftrtError(
            f"the scale of {_short(name)} is infinite: so were values of the calibration data there",
            "leave that data out, or keep the node out of INT8 engines (--keep_native_nodes): no scale can hold it",
        )
    if not 0 < rounded < float("inf"):
        raise errors.TftrtError(
            f"the scale of {_short(name)} is {_short(scale)}", "a scale is a positive, finite float32: range / 127"
        )
    return rounded


def _short(value: object) -> str:
    """A text for messages: quoted, in one line, shortened."""
    shown = repr(value) if isinstance(value, str) else str(value)
    return shown if len(shown) <= 160 else shown[:120] + "…" + shown[-30:]
