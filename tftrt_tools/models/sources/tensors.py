"""Tensors of a graph as --inputs and --outputs name them. No TensorFlow here."""

import dataclasses
import itertools
import re
from collections.abc import Sequence

from tftrt_tools.base import errors

_FORM = re.compile(r"(?P<node>[^:=\s]+)(:(?P<port>\d+))?(=(?P<shape>[^=\s]+))?")
_OPEN = ("?", "-1", "None")
_SCALAR = "scalar"


@dataclasses.dataclass(frozen=True)
class Tensor:
    """Output `port` of node `node`. shape: None where it was not given, else dims, None for an open one."""

    node: str
    port: int = 0
    shape: tuple[int | None, ...] | None = None

    @property
    def name(self) -> str:
        """As TensorFlow calls it."""
        return f"{self.node}:{self.port}"

    @property
    def flag(self) -> str:
        """The tensor as --inputs names it, without a shape."""
        return self.name if self.port else self.node


def keys(tensors: list[Tensor]) -> list[str]:
    """Their names in a signature: the last part of the node's name, or the whole name if two end alike, with the port if it is not 0; all
    different, as `unique` makes them.

    They have no slashes, because a slash separates a signature from its input in --shapes, --data and --thresholds.
    """
    ends = [_with_port(tensor, tensor.node.rpartition("/")[2]) for tensor in tensors]
    return unique(
        [
            end if ends.count(end) == 1 else _with_port(tensor, tensor.node.replace("/", "_"))
            for tensor, end in zip(tensors, ends, strict=True)
        ]
    )


def unique(names: Sequence[str]) -> list[str]:
    """A name that is there several times gets its place as a number, or the next that makes it no other name."""
    taken, found = set(names), []
    for place, name in enumerate(names):
        if names.count(name) > 1:
            name = next(one for number in itertools.count(place) if (one := f"{name}_{number}") not in taken)
            taken.add(name)
        found.append(name)
    return found


def _with_port(tensor: Tensor, name: str) -> str:
    return f"{name}_{tensor.port}" if tensor.port else name


def parse(flag: str, texts: tuple[str, ...]) -> tuple[Tensor, ...]:
    """The Tensors of a flag. Args: flag: its name. texts: NODE[:PORT][=SHAPE] each; SHAPE as 1x224x224x3, ? for an open size, or scalar.
    Raises: UsageError."""
    parsed = tuple(_parsed(flag, text) for text in texts)
    for number, tensor in enumerate(parsed):
        if tensor.name in [other.name for other in parsed[:number]]:
            raise errors.UsageError(f"--{flag} names {tensor.flag} twice", "name each tensor once")
    return parsed


def _parsed(flag: str, text: str) -> Tensor:
    match = _FORM.fullmatch(text.strip())
    if not match or match["shape"] and flag != "inputs":
        form = "NODE[:PORT][=SHAPE]" if flag == "inputs" else "NODE[:PORT]"
        raise errors.UsageError(
            f"--{flag}: {text!r} is not of the form {form}",
            "such as --inputs=image=?x224x224x3" if flag == "inputs" else "such as --outputs=softmax",
        )
    return Tensor(match["node"], int(match["port"] or 0), _shape(text, match["shape"]) if match["shape"] else None)


def _shape(text: str, shape: str) -> tuple[int | None, ...]:
    if shape == _SCALAR:
        return ()
    dims = [None if dim in _OPEN else int(dim) if dim.isdecimal() else -1 for dim in shape.split("x")]
    if any(dim is not None and dim < 1 for dim in dims):
        raise errors.UsageError(
            f"--inputs: {shape} in {text!r} is no shape", "such as 1x224x224x3, with ? for an open size, or scalar"
        )
    return tuple(dims)
