"""A calibration changed by hand: tensors kept out of INT8, ranges set or scaled."""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from tftrt_tools.base import errors, records
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.tftrt.calibration.file import Calibration, EngineTable
from tftrt_tools.tftrt.calibration.table import LEVELS, Table, is_numbered

REASON = "removed by hand"
# A function of a tensor's range that gives the new one; None for no range.
_Edit = Callable[[Any], float | None]


@dataclasses.dataclass(frozen=True)
class Change(records.Record):
    """A changed tensor. before, after: its range; None where it has no scale."""

    engine: str
    tensor: str
    before: float | None
    after: float | None


@dataclasses.dataclass(frozen=True)
class Edited(records.Record):
    """source: what was edited. changes: Changes. warnings: changes that may not do what the user
    meant. calibration: the new Calibration."""

    document: ClassVar[str] = "calibration_edit"

    source: str
    changes: tuple[Change, ...]
    warnings: tuple[str, ...]
    calibration: Calibration


@dataclasses.dataclass(frozen=True)
class Edits:
    """What to do. remove: regular expressions; set: (tensor, range) pairs; scale: (regular expression, factor) pairs. Expressions match
    whole names."""

    remove: tuple[str, ...] = ()
    set: tuple[tuple[str, float], ...] = ()
    scale: tuple[tuple[str, float], ...] = ()

    @classmethod
    def parse(cls, remove: Iterable[str], set_: Iterable[str], scale: Iterable[str]) -> Edits:
        """From lists of the flags' values. Raises: UsageError."""
        edits = cls(
            tuple(remove),
            tuple(_assignment("set", text, "NAME=RANGE") for text in set_),
            tuple(_assignment("scale", text, "REGEX=FACTOR") for text in scale),
        )
        if not (edits.remove or edits.set or edits.scale):
            raise errors.UsageError(
                "nothing to change", "give --remove=REGEX, --set='NAME=RANGE' or --scale='REGEX=FACTOR'"
            )
        return edits


def matching(flag: str, pattern: str, names: Sequence[str]) -> list[str]:
    """Names that the regular expression `pattern` of --`flag` matches as a whole. Raises: UsageError if it is not a regular expression
    or matches none."""
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise errors.UsageError(
            f"--{flag}={pattern} is no regular expression: {error}", "see Python's `re` syntax"
        ) from None
    matches = [name for name in names if expression.fullmatch(name)]
    if matches:
        return matches
    inside = [name for name in names if expression.search(name)]
    if inside:
        mend = (
            f"the whole name must match; did you mean --{flag}='.*{pattern}.*'? ({len(inside)} of {len(names)} tensors)"
        )
    else:
        mend = near(pattern, names, "tensors here")
    raise errors.UsageError(f"--{flag}={pattern} matches no tensor", mend)


def near(name: str, names: Iterable[str], what: str) -> str:
    """A hint for a name that is not among `names`."""
    names = list(dict.fromkeys(names))
    close = difflib.get_close_matches(name, names, 3, 0.5)
    if close:
        return "did you mean " + " or ".join(close) + "?"
    return (
        f"{what}: "
        + ", ".join(names[:5])
        + (f", … ({len(names)}; `tftrt table show` lists them)" if len(names) > 5 else "")
    )


def edit(calibration: Calibration, edits: Edits, source: str, engine: str | None = None) -> Edited:
    """Make `edits` in all tables, or only in those of `engine`.

    A removed tensor goes to left_out; a set tensor leaves left_out. Seen ranges stay, because the data showed them.

    Returns: Edited. Raises: UsageError where an edit matches no tensor, two match the same tensor, or no tensor would remain.
    """
    chosen = [candidate for candidate in calibration.engines if engine is None or candidate.engine == engine]
    names = list(dict.fromkeys(name for table in chosen for name in table.table.scales))
    requested = _asked(edits, names, [name for table in chosen for name, _ in table.left_out])
    engines: list[EngineTable] = []
    changes: list[Change] = []
    warnings: list[str] = []
    for engine_table in calibration.engines:
        edited, changed = _engine(engine_table, requested) if engine_table in chosen else (engine_table, [])
        warnings += _left_behind(engine_table, changed)
        if changed and not edited.table.scales:
            raise errors.UsageError(
                f"no tensor of {engine_table.label} would remain", "convert with --precision=FP16 to do without INT8"
            )
        engines.append(edited)
        changes += changed
    step = {
        "step": "edited",
        **passport.stamp(),
        "source": source,
        "created_source": calibration.created,
        "method": calibration.method,
        "changes": [change.to_dict() for change in changes],
    }
    whole = dataclasses.replace(
        calibration,
        **passport.stamp(),
        method="edited",
        engines=tuple(engines),
        comparison=None,
        provenance=(*calibration.provenance, step),
    )
    return Edited(source, tuple(changes), tuple(warnings), whole)


def _to(value: float) -> _Edit:
    return lambda _: value


def _times(factor: float) -> _Edit:
    return lambda before: before * factor


def _asked(edits: Edits, names: Sequence[str], left_out: Sequence[str]) -> dict[str, tuple[_Edit, str]]:
    """{tensor: (function of its range to its new range, the flag that asks)}."""
    edit_of: dict[str, tuple[_Edit, str]] = {}

    def ask(flag: str, text: str, tensors: Iterable[str], change: _Edit) -> None:
        for name in tensors:
            if name in edit_of:
                raise errors.UsageError(
                    f"{flag}={text} and {edit_of[name][1]} both change {name}",
                    "change each tensor once; edit the output again for more",
                )
            edit_of[name] = (change, f"{flag}={text}")

    for pattern in edits.remove:
        ask("--remove", pattern, matching("remove", pattern, names), lambda _: None)
    for name, value in edits.set:
        if name not in names and name not in left_out:
            raise errors.UsageError(
                f"--set={name}={value:g}: no such tensor", near(name, [*names, *left_out], "tensors here")
            )
        ask("--set", f"{name}={value:g}", [name], _to(value))
    for pattern, factor in edits.scale:
        ask("--scale", f"{pattern}={factor:g}", matching("scale", pattern, names), _times(factor))
    return edit_of


def _engine(table: EngineTable, edit_of: Mapping[str, tuple[_Edit, str]]) -> tuple[EngineTable, list[Change]]:
    scales, left_out, changes = dict(table.table.scales), dict(table.left_out), []
    for name, (change, flag) in edit_of.items():
        if name not in scales and name not in left_out:
            continue
        before = table.table.range(name) if name in scales else None
        after = change(before)
        if after is None:
            del scales[name]
            left_out[name] = REASON
        else:
            left_out.pop(name, None)
            scales[name] = _scale(table.table.header, after, name, flag)
        changes.append(Change(table.engine, name, before, after))
    return dataclasses.replace(
        table, table=Table(table.table.header, scales), left_out=tuple(left_out.items())
    ), changes


def _left_behind(table: EngineTable, changes: Sequence[Change]) -> Iterator[str]:
    """Warnings for numbered tensors whose range was the same as that of a changed tensor: TensorRT holds the same values there again. A
    removed tensor needs no warning: a build then leaves out its numbered names too."""
    changed = {change.tensor for change in changes}
    for change in changes:
        if change.before is None or change.after is None or is_numbered(change.tensor):
            continue
        same = [
            name
            for name, scale in table.table.scales.items()
            if is_numbered(name) and name not in changed and scale == table.table.scales[change.tensor]
        ]
        for name in same:
            yield f"{name} had the range of {change.tensor} and keeps it: --set='{name}={change.after:g}' where it holds the same values"


def _scale(header: str, range_: float, name: str, flag: str) -> float:
    try:
        return Table(header, {name: range_ / LEVELS}).scales[name]
    except errors.TftrtError:
        raise errors.UsageError(
            f"{flag} gives {name} a range of {range_:g}", f"its scale, range / {LEVELS}, must be a positive float32"
        ) from None


def _assignment(flag: str, text: str, form: str) -> tuple[str, float]:
    name, equals, number = text.rpartition("=")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not equals or not name or not 0 < value < math.inf:
        raise errors.UsageError(
            f"--{flag}={text} is not {form} with a positive number",
            f"write --{flag}='{form}', such as "
            + ("--set='StatefulPartitionedCall/model/add/add=6.0'" if flag == "set" else "--scale='.*/Relu=1.1'"),
        )
    return name, value
