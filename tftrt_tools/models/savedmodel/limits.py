"""Which whole numbers the ops of a model take of an input, such as the rows of the table that it is an index of. No TensorFlow here.

A graph's reader follows each input through ops that move or shift its values (`Value`), and tells `Found` where these become an index.
Inputs that are drawn get values in these limits.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from tftrt_tools.base import records

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclasses.dataclass(frozen=True)
class Size(records.Record):
    """A size that a call decides: that of an input's axis, and a number more."""

    input: str
    axis: int
    plus: int = 0


# A size in a graph: a number, that of an input, or unknown.
Dim = int | Size | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limit(records.Record):
    """The values that a model takes of an input: from `low` to below `high`."""

    low: float = 0
    # The end that the graph knows; None where only a call knows it.
    high: float | None = None
    # Ends that a call decides; the smallest of all ends holds.
    sizes: tuple[Size, ...] = ()
    # The op that takes the values, in words.
    of: str = ""
    # Whether they are whole numbers, also in a float.
    whole: bool = True
    # Whether each is as large as the one before it, as segment numbers are.
    rising: bool = False
    # The keys of a table; then the numbers do not count.
    keys: tuple[str, ...] = ()

    def ends(self, shapes: Mapping[str, Sequence[int]]) -> tuple[float, float] | None:
        """(low, high) in a call of these shapes; None where no value is left, or no end is known."""
        dims = [
            shapes[size.input][size.axis] + size.plus
            for size in self.sizes
            if len(shapes.get(size.input, ())) > size.axis
        ]
        high = min([*dims, *([] if self.high is None else [self.high])], default=None)
        return None if high is None or high <= self.low else (self.low, high)

    def both(self, other: Limit) -> Limit:
        """The values that both take."""
        highs = [value.high for value in (self, other) if value.high is not None]
        low, high = max(self.low, other.low), min(highs, default=None)
        tight = other if high is not None and other.high == high and self.high != high else self
        keys = (
            tuple(key for key in self.keys if key in other.keys)
            if self.keys and other.keys
            else self.keys or other.keys
        )
        return Limit(
            low=low,
            high=high,
            sizes=tuple(dict.fromkeys((*self.sizes, *other.sizes))),
            of=tight.of,
            whole=self.whole and other.whole,
            rising=self.rising or other.rising,
            keys=keys,
        )


@dataclasses.dataclass(frozen=True)
class Known(records.Record):
    """What a model's graph tells of an input besides its type. limit: the values that its ops take; place: among the arguments of the
    user's function. None for what is not known."""

    limit: Limit | None = None
    place: int | None = None


def text(name: str, dtype: str, limit: Limit, shapes: Sequence[Mapping[str, Sequence[int]]]) -> str:
    """What was drawn for an input, for people; "" if the limit says nothing. Args: shapes: of the calls."""
    if limit.keys:
        return f"{name}: among the {len(limit.keys)} keys of {limit.of}"
    ends = [ends_of_shape for ends_of_shape in (limit.ends(shape) for shape in shapes) if ends_of_shape]
    if not ends or dtype in ("bool", "string"):
        return ""
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    if not limit.whole:
        return f"{name}: {low:g} to {high:g}, which {limit.of} takes"
    return f"{name}: {'rising ' * limit.rising}whole numbers from {low:.0f} to {high - 1:.0f}, which {limit.of} takes"


@dataclasses.dataclass(frozen=True)
class Trace:
    """Values of an input, times a number, plus one of some numbers."""

    input: str
    times: float = 1
    least: float = 0
    most: float = 0


@dataclasses.dataclass(frozen=True)
class Claim:
    """The claim that an input's values are below a number. traces: of the values."""

    traces: tuple[Trace, ...]
    below: int


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Value:
    """The known facts about a tensor in a graph."""

    # The inputs whose values are in it.
    traces: tuple[Trace, ...] = ()
    # The tensor's shape; None for an unknown rank.
    dims: tuple[Dim, ...] | None = None
    # The value of a constant of few elements.
    constant: npt.NDArray[Any] | None = None
    # The tensor's elements, where they are sizes.
    sizes: tuple[Dim, ...] | None = None
    # The name of the table that it is, for people.
    of: str = ""
    # Of a truth value: what it says of others.
    claims: tuple[Claim, ...] = ()

    def elements(self) -> tuple[Dim, ...] | None:
        """The tensor's elements as sizes."""
        if (
            self.sizes is None
            and self.constant is not None
            and self.constant.dtype.kind in "iu"
            and self.constant.ndim < 2
        ):
            return tuple(int(number) for number in self.constant.reshape(-1))
        return self.sizes

    def moved(self, dims: tuple[Dim, ...] | None = None) -> Value:
        """The same values in another order, or some of them."""
        return Value(traces=self.traces, dims=dims, of=self.of)


NOTHING = Value()
Operation = Literal["add", "sub", "mul", "div"]


def dimension(dims: tuple[Dim, ...] | None, axis: int) -> Dim:
    """The size along an axis, which may count from the end; None where it is not known."""
    return dims[axis] if dims and -len(dims) <= axis < len(dims) else None


def joined(values: Iterable[Value], dims: tuple[Dim, ...] | None = None) -> Value:
    """A tensor with values of several. Args: dims: its shape."""
    values = list(values)
    traces = dict.fromkeys(trace for one in values for trace in one.traces)
    return Value(traces=tuple(traces), dims=dims, of=next((one.of for one in values if one.of), ""))


def computed(operation: Operation, one: Value, other: Value) -> Value:
    """The result of arithmetic with a constant. Its shape is that of the operand that is none."""
    if one.constant is not None and other.constant is None:
        one, other, turned = other, one, True
    else:
        turned = False
    dims = one.dims if one.dims is not None else other.dims
    has_constant = other.constant is not None and other.constant.size and other.constant.dtype.kind in "iuf"
    if turned and operation in ("sub", "div") or other.constant is None or not has_constant:
        return Value(dims=dims, of=one.of)
    numbers = (float(other.constant.min()), float(other.constant.max()))
    if not all(map(math.isfinite, numbers)):
        return Value(dims=dims, of=one.of)
    return Value(
        traces=tuple(filter(None, (_shifted(operation, trace, *numbers) for trace in one.traces))), dims=dims, of=one.of
    )


def _shifted(operation: Operation, trace: Trace, low: float, high: float) -> Trace | None:
    if operation == "add":
        return dataclasses.replace(trace, least=trace.least + low, most=trace.most + high)
    if operation == "sub":
        return dataclasses.replace(trace, least=trace.least - high, most=trace.most - low)
    if low != high or low <= 0:
        return None
    factor = low if operation == "mul" else 1 / low
    return Trace(trace.input, trace.times * factor, trace.least * factor, trace.most * factor)


class Found:
    """The limits of a signature's inputs, found one after the other."""

    def __init__(self) -> None:
        self._limits: dict[str, list[Limit]] = {}
        self._claimed: dict[str, list[Limit]] = {}

    def index(self, value: Value, dim: Dim, of: str, low: int = 0, plus: int = 0, rising: bool = False) -> None:
        """`value` is an index from `low` to below `dim` + `plus`. Args: of: the op's or the table's name. rising: no index is smaller than
        the one before it."""
        for trace in value.traces:
            limit = _limit(trace, dim, of, low, plus)
            if limit:
                self._add(trace.input, dataclasses.replace(limit, rising=rising))

    def asserted(self, value: Value, of: str) -> None:
        """The model ends if `value` is false. Args: of: the op's name."""
        for claim in value.claims:
            for trace in claim.traces:
                if limit := _limit(trace, claim.below, of, 0, 0):
                    self._claimed.setdefault(trace.input, []).append(limit)

    def keys(self, value: Value, keys: Sequence[str], of: str) -> None:
        """`value` holds keys of a table."""
        for trace in value.traces:
            if trace == Trace(trace.input) and keys:
                self._add(trace.input, Limit(of=of, keys=tuple(keys)))

    def _add(self, name: str, limit: Limit) -> None:
        self._limits.setdefault(name, []).append(limit)

    def limits(self, whole_numbers: Collection[str] = ()) -> dict[str, Limit]:
        """{input: its Limit}, without those that no value fits. Args: whole_numbers: inputs of an integer type; of others, what the model
        asserts does not make them an index."""
        checked = {}
        for name in {**self._limits, **dict.fromkeys(key for key in self._claimed if key in whole_numbers)}:
            whole = functools.reduce(Limit.both, [*self._limits.get(name, ()), *self._claimed.get(name, ())])
            if whole.keys or whole.high is None or whole.high > whole.low:
                checked[name] = whole
        return checked


def _limit(trace: Trace, dim: Dim, of: str, low: int, plus: int) -> Limit | None:
    start = max(0, math.ceil((low - trace.least) / trace.times))
    if isinstance(dim, Size):
        plain = trace.times == 1 and float(trace.most).is_integer()
        size = dataclasses.replace(dim, plus=dim.plus + plus - int(trace.most))
        return Limit(low=start, sizes=(size,), of=of) if plain else None
    if dim is None or dim + plus <= low:
        return None
    last = (dim + plus - 1 - trace.most) / trace.times
    # A factor means that the input is a share of the table, such as a brightness from 0 to 1.
    whole = trace.times <= 1
    return Limit(low=start, high=math.floor(last + 1e-6) + 1 if whole else last, of=of, whole=whole)
