"""The grammar of --shapes, and its shapes checked against signatures. No TensorFlow here.

    --shapes='x:1x224x224x3,8x224x224x3'         two shapes of input x
    --shapes='ids:1x128,8x128;mask:1x128,8x128'  two inputs; the first shapes belong together, then the second
    --shapes='ids:1x64;mask:8x64'                is an error: the batch sizes of one call differ only where the signature says so
    --shapes='score/user:4x16;score/item:4x32'   inputs of signature "score"
    --shapes='n:scalar'                          rank 0
    --shapes='x:min=1x224x224x3,opt=8x224x224x3,max=32x224x224x3'
                                                 every shape from min to max, the best speed at opt (by default max)

An input that is not named takes its static shape; an unknown first dimension takes the batch size of the named inputs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tftrt_tools.base import errors, records
from tftrt_tools.models.savedmodel.engine_op import Shape
from tftrt_tools.models.savedmodel.limits import Known, Limit

if TYPE_CHECKING:
    from tftrt_tools.base.choices import Strategy

# The default name of the flag in messages.
FLAG = "--shapes"
_EXAMPLE = "INPUT:1x224x224x3,8x224x224x3;OTHER:…' (SIGNATURE/INPUT where several signatures share a name)"
_DIMENSION = re.compile(r"[0-9]+$")
_PROFILE = ("min", "opt", "max")


# The shape of each input of one call.
Call = dict[str, tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class InputSpec(records.Record):
    """An input or output of a signature. dtype: as NumPy names it, or "string"."""

    name: str
    dtype: str
    shape: Shape
    # What the model's graph tells of its values; specs that differ in nothing else are equal.
    known: Known = dataclasses.field(default=Known(), compare=False)

    @property
    def limit(self) -> Limit | None:
        """The values that the model's ops take, as far as its graph tells; drawn values keep to them."""
        return self.known.limit

    @property
    def place(self) -> int | None:
        """The input's place among the arguments of the user's function; None where it is unknown, or where there is only one."""
        return self.known.place

    def knowing(self, limit: Limit | None, place: int | None = None) -> InputSpec:
        """The input with these facts added."""
        return dataclasses.replace(self, known=Known(limit, place))

    def to_dict(self) -> dict[str, Any]:
        """As Record.to_dict; without facts, if there are none."""
        written = super().to_dict()
        return written if self.known != Known() else {name: value for name, value in written.items() if name != "known"}

    def accepts(self, shape: Sequence[int]) -> bool:
        """Whether a concrete shape fits."""
        if self.shape is None:
            return True
        return len(shape) == len(self.shape) and all(
            want in (None, got) for want, got in zip(self.shape, shape, strict=True)
        )

    def text(self) -> str:
        """Dtype and shape, such as float32[?,224,224,3]."""
        return f"{self.dtype}[{text(self.shape)}]"


def rows(specs: Sequence[InputSpec], shapes: Mapping[str, Sequence[int]]) -> int | None:
    """How many rows a call has: the first size of all inputs whose first dimension is open, else of all inputs. Returns: None where these
    differ, so that the call is one item; 1 for scalars alone."""
    first = {spec.name: shapes[spec.name][0] for spec in specs if shapes[spec.name]}
    free = {first[spec.name] for spec in specs if spec.name in first and (spec.shape is None or spec.shape[0] is None)}
    batch_sizes = free or set(first.values())
    return None if len(batch_sizes) > 1 else next(iter(batch_sizes), 1)


def text(shape: Shape) -> str:
    """A shape for people: (None, 3) is "?,3", an unknown rank "…"."""
    return "…" if shape is None else ",".join("?" if dim is None else str(dim) for dim in shape)


def call_text(shapes: Call) -> str:
    """The shapes of one call for people, {"x": (1, 8), "n": ()} as "x 1x8, n scalar"."""
    return ", ".join(f"{name} {'x'.join(map(str, shape)) or 'scalar'}" for name, shape in shapes.items())


def flag_text(signature: str, calls: Sequence[Call]) -> str:
    """The text of --shapes for `calls`, [{input: shape}, …] of one signature; `parse` and `calls` turn it into the same calls again."""
    names = calls[0] if calls else ()
    return ";".join(
        f"{signature}/{name}:" + ",".join("x".join(map(str, call[name])) or "scalar" for call in calls)
        for name in names
    )


def is_range(flag: str) -> bool:
    """Whether --shapes gives ranges (min=…,max=…), not a list of exact shapes."""
    return any(f"{kind}=" in flag.lower() for kind in _PROFILE)


def strategy(flag: str) -> Strategy:
    """The profile strategy that serves --shapes best. TF-TRT's "Range" optimizes for the largest shape, so that an `opt` below it needs
    "Range+Optimal", which adds a profile for each of min, opt and max. Raises: UsageError."""
    if not is_range(flag):
        return "Optimal"
    return "Range" if all(len(shapes) <= 2 for shapes in parse(flag).values()) else "Range+Optimal"


def parse(flag: str, named: str = FLAG) -> dict[tuple[str, str], list[tuple[int, ...]]]:
    """Parse --shapes. Args: named: what messages call the flag. Returns: {(signature or "", input): [shape, …]}; of a range
    [min, opt, max], or [min, max] where opt is max in all inputs. Raises: UsageError."""
    with _named(named):
        return _parsed(flag)


class _Wrong(Exception):
    """What is wrong with a flag. cause: what follows the flag's name; mend: what to do; example: whether an example of the flag follows."""

    def __init__(self, cause: str, mend: str = "", example: bool = False) -> None:
        super().__init__(cause)
        self.cause, self.mend, self.example = cause, mend, example


@contextlib.contextmanager
def _named(flag: str) -> Iterator[None]:
    """Raise what is wrong in this block as a UsageError that names the flag."""
    try:
        yield
    except _Wrong as wrong:
        example = f"write {flag}='{_EXAMPLE}" if wrong.example else ""
        raise errors.UsageError(f"{flag}{wrong.cause}", wrong.mend + example) from None


def _parsed(flag: str) -> dict[tuple[str, str], list[tuple[int, ...]]]:
    declared = _declared(flag)
    ranges = {key: shapes for key, shapes in declared.items() if isinstance(shapes, dict)}
    if ranges and any(len(shapes) > 1 for key, shapes in declared.items() if key not in ranges):
        raise _Wrong(": one input has a range, another a list of shapes", "give all inputs min=…,opt=…,max=…, or none")
    with_opt = any(bounds["opt"] != bounds["max"] for bounds in ranges.values())
    for key, of_input in ranges.items():
        declared[key] = [of_input["min"], *([of_input["opt"]] if with_opt else []), of_input["max"]]
    return declared


def _declared(flag: str) -> dict[tuple[str, str], Any]:
    """{(signature, input): [shape, …], or {"min", "opt", "max"} of a range}."""
    declared = {}
    for item in filter(None, (part.strip() for part in flag.split(";"))):
        name, colon, shapes = item.rpartition(":")
        if not colon and os.path.exists(item):
            raise _Wrong(f"={item} is a file or folder, and shapes of inputs are asked for", example=True)
        if not colon or not name:
            raise _unnamed(item)
        signature, _, given = name.strip().rpartition("/")
        key = (signature, given)
        if key in declared:
            raise _Wrong(f": input {name!r} is given twice", example=True)
        if shapes.strip()[:1] in ("[", "(") and (meant := _joined(shapes)):
            raise _Wrong(
                f": {shapes.strip()!r} of input {name!r} is no shape", f"dimensions are joined by x, as in {meant}"
            )
        listed = [shape.strip() for shape in shapes.split(",")]
        declared[key] = _range(name, listed) if is_range(shapes) else [_shape(name, shape) for shape in listed]
    if not declared:
        raise _Wrong(" is empty", example=True)
    return declared


def _unnamed(item: str) -> _Wrong:
    """The error for a part of --shapes without a name and a colon."""
    name, equals, shape = item.partition("=")
    is_shape = re.match(r"[\dx, ]+$|scalar$|(min|opt|max)=", shape.strip().lower())
    if equals and name and name.lower() not in _PROFILE and is_shape:
        return _Wrong(
            f": {item!r} has = behind the input's name", f"write : for =, as in {name.strip()}:{shape.strip()}"
        )
    return _Wrong(f": {item!r} names no input", example=True)


def _joined(numbers: str) -> str:
    """A shape whose dimensions are not joined by x, as in 1x8x8x1; "" for other texts."""
    plain = re.fullmatch(r"[\[(]?\s*(\d+(?:[\s,*×]+\d+)+)\s*[\])]?", numbers.strip())
    return "x".join(re.findall(r"\d+", plain[1])) if plain else ""


def _range(name: str, listed: Sequence[str]) -> dict[str, tuple[int, ...]]:
    ranges = {}
    for item in listed:
        kind, equals, shape = item.partition("=")
        kind = kind.strip().lower()
        if not equals or kind not in _PROFILE or kind in ranges:
            raise _Wrong(f": {item!r} of input {name!r} does not belong into a range", "write INPUT:min=…,opt=…,max=…")
        ranges[kind] = _shape(name, shape.strip())
    missing = [kind for kind in ("min", "max") if kind not in ranges]
    if missing:
        raise _Wrong(f": input {name!r} has no {missing[0]}", "write INPUT:min=…,opt=…,max=…; opt may be left out")
    ranges.setdefault("opt", ranges["max"])
    for low, high in (("min", "opt"), ("opt", "max")):
        small, large = ranges[low], ranges[high]
        if len(small) != len(large) or any(lower > other for lower, other in zip(small, large, strict=True)):
            raise _Wrong(
                f": {low} of input {name!r} is larger than its {high}, or of another rank",
                "every dimension has to grow from min over opt to max",
            )
    return ranges


def _shape(name: str, given: str) -> tuple[int, ...]:
    if given == "scalar":
        return ()
    dims = given.lower().split("x")
    if not all(map(_DIMENSION.match, dims)):
        meant = _joined(given)
        raise _Wrong(
            f": {given!r} of input {name!r} is no shape",
            *((f"dimensions are joined by x, as in {meant}",) if meant else ("", True)),
        )
    if "0" in (dim.lstrip("0") or "0" for dim in dims):
        raise _Wrong(
            f": {given!r} of input {name!r} has a dimension of 0", "every dimension is 1 or more: ", example=True
        )
    return tuple(map(int, dims))


def calls(
    declared: Mapping[tuple[str, str], Sequence[tuple[int, ...]]],
    signatures: Mapping[str, Sequence[InputSpec]],
    named: str = FLAG,
) -> dict[str, list[Call]]:
    """Turn declared shapes into whole calls.

    Args:
      declared: what `parse` returned.
      signatures: {signature: [InputSpec, …]}.
      named: what messages call the flag.

    Returns: {signature: [{input: shape}, …]}, for each signature that has at least one declared input.

    Raises: UsageError for an unknown signature or input, a shape that the signature refuses, lists that do not go together,
      and an input whose shape cannot be known.
    """
    given: dict[str, dict[str, Sequence[tuple[int, ...]]]] = {}
    with _named(named):
        for (signature, name), shapes in declared.items():
            for key, input_name in _holders(signature, name, signatures):
                given.setdefault(key, {})[input_name] = shapes
        return {key: _whole_calls(key, shapes, signatures[key]) for key, shapes in given.items()}


def _holders(signature: str, name: str, signatures: Mapping[str, Sequence[InputSpec]]) -> list[tuple[str, str]]:
    """[(signature, input)] that a name can mean; the name of an input may have a slash itself."""
    text = f"{signature}/{name}" if signature else name
    inputs = [(key, spec.name) for key, specs in signatures.items() for spec in specs]
    named = [pair for pair in inputs if "/".join(pair) == text] or [pair for pair in inputs if pair[1] == text]
    if named:
        return named
    if signature and signature not in signatures:
        raise _Wrong(f": no signature {signature!r}", "signatures here: " + ", ".join(signatures))
    among = [signature] if signature else list(signatures)
    listed = "; ".join(
        f"{key}: " + ", ".join(f"{spec.name} {spec.text()}" for spec in signatures[key]) for key in among
    )
    raise _Wrong(f": no input {name!r}", f"inputs here: {listed}")


def _whole_calls(
    signature: str, shapes: Mapping[str, Sequence[tuple[int, ...]]], specs: Sequence[InputSpec]
) -> list[Call]:
    ranks = {spec.name: None if spec.shape is None else len(spec.shape) for spec in specs}
    for name, listed in shapes.items():
        if ranks[name] not in (None, 1) and len(listed) > 1 and all(len(shape) == 1 for shape in listed):
            given = ",".join(str(shape[0]) for shape in listed)
            raise _Wrong(
                f": {name}:{given} is a list of shapes with one dimension each",
                f"dimensions are joined by x, as in {name}:{_joined(given)}",
            )
    count = max(map(len, shapes.values()))
    if any(len(shape) not in (1, count) for shape in shapes.values()):
        lengths = ", ".join(f"{name} has {len(shapes_of_input)}" for name, shapes_of_input in shapes.items())
        raise _Wrong(
            f": the inputs of one signature need equally many shapes; in {signature!r} {lengths}", example=True
        )
    return [
        _one_call(
            signature,
            {name: shapes_of_input[index % len(shapes_of_input)] for name, shapes_of_input in shapes.items()},
            specs,
        )
        for index in range(count)
    ]


def _one_call(signature: str, given: Mapping[str, tuple[int, ...]], specs: Sequence[InputSpec]) -> Call:
    batches = {shape[0] for shape in given.values() if shape}
    call = {}
    for spec in specs:
        shape = given.get(spec.name)
        if shape is None:
            shape = _implied(signature, spec, batches)
        if not spec.accepts(shape):
            raise _Wrong(f": {signature!r} refuses {spec.name}:{'x'.join(map(str, shape))}", f"it takes {spec.text()}")
        call[spec.name] = shape
    return call


def _implied(signature: str, spec: InputSpec, batches: Collection[int]) -> tuple[int, ...]:
    if spec.shape is not None:
        fixed = tuple(dim for dim in spec.shape if dim is not None)
        if len(fixed) == len(spec.shape):
            return fixed
        if None not in spec.shape[1:] and len(batches) == 1:
            return (*batches, *fixed)
    raise _Wrong(
        f": input {spec.name!r} of {signature!r} has unknown dimensions ({spec.text()}) and no shape", example=True
    )
