"""The layers of a built engine, each with its tactic and the types, sizes and formats of what it reads and writes: the list "Engine Layer
Information" of TensorRT's verbose log, as 8.5.3 writes it under TensorFlow 2.14.1. The engine itself keeps only the names.
"""

from __future__ import annotations

import dataclasses
import os
import re
import typing
from collections.abc import Iterator, Sequence

from tftrt_tools import records
from tftrt_tools.savedmodel import passport

_BLOCK = re.compile(r"Engine Layer Information:\n((?:Layer\(.*\n?)*)")
_LAYER = re.compile(r"^Layer\((?P<kind>\w+)\): (?P<name>.*?), Tactic: (?P<tactic>0x[0-9a-f]+), (?P<inputs>.*) -> (?P<outputs>.*)$",
                    re.MULTILINE)
# This suffix ends layer names of an engine's second and later profiles.
_PROFILE = re.compile(r" \[profile (\d+)\]")
# "NAME (Half[32,256:8,14,14])": after the channels, by how many a format packs them.
_TENSOR = re.compile(r"(.+?) \((\w+)[\[(]([^\])]*)[\])]\)(?:, |$)")

_SCRATCH, _ACTIVATIONS = re.compile(r"Total Scratch Memory: (\d+)"), re.compile(r"Total Activation Memory: (\d+)")
_NO_SIZE = 1 << 60


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tensor(records.Record):
    """What a layer reads or writes."""

    # TensorRT's; often that of the TensorFlow tensor.
    name: str
    # TensorRT's: "Float", "Half", "Int8", "Int32", "Bool".
    type: str
    # As the log writes them; a size that is open in the profile may be negative.
    sizes: tuple[int, ...]
    # How many channels lie side by side: 1 for a plain layout, 8 for channels packed by eight.
    packed: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row(records.Record):
    """A layer."""

    # TensorRT's, without the mark of a profile.
    name: str
    # TensorRT's, such as "CaskConvolution", "Reformat", "NoOp", "Myelin".
    kind: str
    # The number of the chosen implementation, in hexadecimal; "0x0000000000000000" where there is no choice.
    tactic: str
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    # The number of its optimization profile, from 0: each profile has its own layers.
    profile: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Built(records.Record):
    """What the log says of a built engine."""

    # In the order in which they run, profile by profile.
    rows: tuple[Row, ...]
    # Device memory of each profile in bytes: for activations, and the scratch memory of its layers among it.
    activation_bytes: tuple[int, ...] = ()
    scratch_bytes: tuple[int, ...] = ()

    def of_profile(self, profile: int) -> tuple[Row, ...]:
        """The layers of one profile."""
        return tuple(row for row in self.rows if row.profile == profile)


@dataclasses.dataclass(frozen=True)
class Table(records.Record):
    """The document in a model's passport. engines: {engine op: what the log of its build said}."""

    engines: dict[str, Built]

    document: typing.ClassVar[str] = "engine layers"


def of_log(text: str, engines: Sequence[str]) -> dict[str, Built]:
    """Read the log of a build.

    Args: text: the log. engines: names of engine ops.
    Returns: {engine: Built}, of each engine's last build; an engine of which the log lists nothing is missing.
    """
    # TensorRT says a number for activations twice for each profile; the first is no size, but more than any memory.
    return {engine: Built(rows=rows(block), scratch_bytes=tuple(map(int, _SCRATCH.findall(before))),
                          activation_bytes=tuple(size for size in map(int, _ACTIVATIONS.findall(before)) if size < _NO_SIZE))
            for engine, before, block in builds(text, engines)}


def keep(model: str | os.PathLike[str], text: str, engines: Sequence[str]) -> None:
    """Put what the log of a build says of the engines into the model's passport, where it says anything. Args: as for `of_log`."""
    found = of_log(text, engines)
    if found:
        passport.write(model, passport.LAYERS, Table(found).to_dict())


def builds(text: str, engines: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """(engine, what the log says before, the list of its layers) for each build."""
    start = 0
    for block in _BLOCK.finditer(text):
        engine = next((name for name in engines if f"{name}/" in block.group(1)), None)
        if engine:
            yield engine, text[start:block.start()], block.group(1)
        start = block.end()


def rows(block: str) -> tuple[Row, ...]:
    """The layers of a list, in the order in which they run."""
    return tuple(_row(match) for match in _LAYER.finditer(block))


def _row(match: re.Match[str]) -> Row:
    profile = _PROFILE.search(match["name"])
    return Row(name=_PROFILE.sub("", match["name"]), kind=match["kind"], tactic=match["tactic"], inputs=_tensors(match["inputs"]),
               outputs=_tensors(match["outputs"]), profile=int(profile[1]) if profile else 0)


def _tensors(text: str) -> tuple[Tensor, ...]:
    return tuple(_tensor(*found) for found in _TENSOR.findall(text))


def _tensor(name: str, kind: str, sizes: str) -> Tensor:
    numbers = [one.partition(":") for one in sizes.split(",") if one]
    return Tensor(name=name, type=kind, sizes=tuple(int(size) for size, _, _ in numbers),
                  packed=next((int(packed) for _, _, packed in numbers if packed), 1))


def without_profile(name: str) -> tuple[str, int]:
    """(A layer's name without the mark of its profile, the profile)."""
    found = _PROFILE.search(name)
    return _PROFILE.sub("", name), int(found[1]) if found else 0
