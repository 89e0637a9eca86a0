"""The layers of a built engine, each with its tactic and the types, sizes and formats of what it reads and writes: the list "Engine Layer
Information" of TensorRT's verbose log, as 8.5.3 writes it under TensorFlow 2.14.1. The engine itself keeps only the names.
"""

from __future__ import annotations

import dataclasses
import os
import re
import typing
from collections.abc import Iterator, Sequence

from tftrt_tools.base import records
from tftrt_tools.base.logs import builder_lines
from tftrt_tools.base.logs.engine_layers import Row as Row
from tftrt_tools.base.logs.engine_layers import Tensor as Tensor
from tftrt_tools.base.logs.engine_layers import rows as rows
from tftrt_tools.base.logs.engine_layers import without_profile as without_profile
from tftrt_tools.models.savedmodel import passport

_BLOCK = re.compile(r"Engine Layer Information:\n((?:Layer\(.*\n?)*)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Built(records.Record):
    """What the log says of a built engine."""

    # The layers in the order in which they run, profile by profile.
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
    return {
        engine: Built(
            rows=rows(block), scratch_bytes=_bytes(before, "Scratch"), activation_bytes=_bytes(before, "Activation")
        )
        for engine, before, block in builds(text, engines)
    }


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
            yield engine, text[start : block.start()], block.group(1)
        start = block.end()


def _bytes(log: str, what: str) -> tuple[int, ...]:
    """The sums of a kind of memory, one for each profile. TensorRT writes that of activations twice; the first one is no size."""
    sums = [(found["what"], int(found["bytes"])) for found in builder_lines.MEMORY.finditer(log)]
    return tuple(size for kind, size in sums if kind == what and size < builder_lines.NO_BYTES)
