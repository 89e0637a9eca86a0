"""What a calibration holds, for reading."""

from __future__ import annotations

import dataclasses
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.tftrt.calibration import edit
from tftrt_tools.tftrt.calibration.file import Calibration, EngineTable

ORDERS = ("graph", "scale", "name")


@dataclasses.dataclass(frozen=True)
class Tensor:
    """name; scale: float32; range: the largest |x| that it keeps."""

    name: str
    scale: float
    range: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineListing:
    """The tensors of one engine."""

    # Names, as in file.EngineTable.
    engine: str
    signature: str
    segment: str
    # The first line of its table.
    header: str
    # How many tensors its table has, those that a filter hides included.
    total: int
    tensors: tuple[Tensor, ...]
    # (tensor, reason) of those that have no scale on purpose.
    left_out: tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True)
class Listing:
    """source: what was read. calibration: the Calibration it came from. engines: EngineListings."""

    source: str
    calibration: Calibration
    engines: tuple[EngineListing, ...]

    def to_dict(self) -> dict[str, Any]:
        """The calibration's own document, with the listed engines in place of its own."""
        whole = self.calibration.to_dict()
        engines = [
            {
                **dataclasses.asdict(engine),
                "left_out": [{"tensor": name, "reason": reason} for name, reason in engine.left_out],
            }
            for engine in self.engines
        ]
        return {**whole, "kind": "calibration_listing", "source": self.source, "engines": engines}


def listing(
    calibration: Calibration, source: str, engine: str | None = None, pattern: str | None = None, order: str = "graph"
) -> Listing:
    """List a Calibration.

    Args: engine: only this one. pattern: a regular expression; only tensors whose whole name it matches. order: one of ORDERS: as in the
      file, the largest scale first, or by name.

    Returns: Listing. Raises: UsageError for an unknown engine and a pattern that matches nothing.
    """
    chosen = engines(calibration, engine)
    shown = None
    if pattern is not None:
        names = dict.fromkeys(name for table in chosen for name in [*table.table.scales, *dict(table.left_out)])
        shown = set(edit.matching("filter", pattern, list(names)))
    rows = []
    for one in chosen:
        tensors = [
            Tensor(name, scale, one.table.range(name))
            for name, scale in one.table.scales.items()
            if shown is None or name in shown
        ]
        if order != "graph":
            tensors.sort(key=(lambda tensor: -tensor.scale) if order == "scale" else (lambda tensor: tensor.name))
        left_out = tuple(pair for pair in one.left_out if shown is None or pair[0] in shown)
        total = len(one.table.scales)
        rows.append(
            EngineListing(
                engine=one.engine,
                signature=one.signature,
                segment=one.segment,
                header=one.table.header,
                total=total,
                tensors=tuple(tensors),
                left_out=left_out,
            )
        )
    return Listing(source, calibration, tuple(rows))


def engines(calibration: Calibration, name: str | None = None) -> list[EngineTable]:
    """The EngineTables, or those of engine `name`. Raises: UsageError where there is none of that name."""
    named = [engine for engine in calibration.engines if name in (None, engine.engine)]
    if not named:
        names = [engine.engine for engine in calibration.engines if engine.engine]
        raise errors.UsageError(
            f"--engine={name}: no such engine",
            edit.near(name or "", names, "engines here")
            if names
            else "the file holds one table and no engine's name; leave --engine out",
        )
    return named
