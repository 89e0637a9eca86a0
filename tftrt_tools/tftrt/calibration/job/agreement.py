"""Whether the tables on a converted model's engine ops are those of its calibration file."""

from __future__ import annotations

from collections.abc import Mapping

from tftrt_tools.base import errors
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.models.savedmodel.inspection import Finding
from tftrt_tools.tftrt.calibration import table
from tftrt_tools.tftrt.calibration.file import Calibration

_AGAIN = "convert again"


def read(model: str) -> tuple[Calibration | None, tuple[Finding, ...]]:
    """Returns: (the Calibration of SavedModel directory `model`, or None; Findings about one that cannot be read)."""
    try:
        document = passport.read(model, passport.CALIBRATION)
        return Calibration.from_dict(document) if document else None, ()
    except errors.TftrtError as error:
        return None, (Finding(passport.CALIBRATION, error.cause, error.mend),)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return None, (Finding(passport.CALIBRATION, f"it is damaged: {error!r}", _AGAIN),)


def find(texts: Mapping[str, str], calibration: Calibration | None) -> tuple[Finding, ...]:
    """Args: texts: {engine: calibration_data of its op, "" for none}. calibration: file.Calibration, or None.

    Returns: Findings. A model without any table has none.
    """
    given = {engine: text for engine, text in texts.items() if text}
    if given and calibration is None:
        return (
            Finding(passport.CALIBRATION, "it is missing: what the INT8 tables were made from is not known", _AGAIN),
        )
    tables = {engine.engine: engine.table for engine in calibration.engines} if calibration else {}
    findings = [_difference(engine, text, tables) for engine, text in given.items()]
    findings += [
        Finding(engine, f"{passport.CALIBRATION} has a table for it, and the engine op has none", _AGAIN)
        for engine in tables
        if not texts.get(engine)
    ]
    return tuple(filter(None, findings))


def _difference(engine: str, text: str, tables: Mapping[str, table.Table]) -> Finding | None:
    if engine not in tables:
        return Finding(engine, f"its INT8 table is not in {passport.CALIBRATION}", _AGAIN)
    try:
        same = table.parse(text) == tables[engine]
    except errors.TftrtError as error:
        return Finding(engine, f"its INT8 table cannot be read: {error.cause}", _AGAIN)
    return None if same else Finding(engine, f"its INT8 table is another than that of {passport.CALIBRATION}", _AGAIN)
