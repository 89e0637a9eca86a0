"""`tftrt bench MODEL …`: its flags, its table, and what is a model and what an address."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from absl import flags

from tftrt_tools.base import errors, terminal
from tftrt_tools.base.process import progress
from tftrt_tools.command_line.commands import _data_flags, _help, _output, _places, _source_flags
from tftrt_tools.models.kinds import table
from tftrt_tools.models.sources import kinds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tftrt_tools.studies.side_by_side.measured import Row, SideBySide

_OWN = ("rounds", "max_rounds", "max_seconds", "min_effect", "rename")
# Flags of bench that have the same meaning here.
_SHARED = (
    "signature_keys",
    "shapes",
    "batch_size",
    "data",
    "data_rows",
    "ranges",
    "seed",
    "distinct",
    "concurrency",
    "timeout_seconds",
    "require_no_errors",
    "allow_unsafe_deserialization",
    "custom_objects",
    "op_library",
    "inputs",
    "outputs",
    "json",
    "help",
    "flagfile",
    "undefok",
)
_ADDRESS = re.compile(r"(\w+://|unix:|dns:|ipv[46]:)\S+|\[[0-9A-Fa-f:.]+\](:\d+)?|[^/\\]*:\d+")
# The first look needs so many rounds; the later ones look again after as many.
_ROUNDS = 30


def define(values: flags.FlagValues) -> None:
    """Define the flags on FlagValues `values`."""
    text = dict(flag_values=values)
    flags.DEFINE_integer(
        "rounds",
        _ROUNDS,
        "with MODEL: rounds before the first look at the data, and between two looks",
        lower_bound=1,
        **text,
    )
    flags.DEFINE_integer(
        "max_rounds",
        90,
        "with MODEL: the most rounds; by default 90, or --rounds if that is more",
        lower_bound=1,
        **text,
    )
    flags.DEFINE_float(
        "max_seconds", 600.0, "with MODEL: no further round begins after this many seconds", lower_bound=0, **text
    )
    flags.DEFINE_float(
        "min_effect",
        0.03,
        "with MODEL: the smallest difference that counts, as a fraction",
        lower_bound=0.001,
        upper_bound=10,
        **text,
    )
    flags.DEFINE_list(
        "rename",
        [],
        "with two MODELs: inputs and outputs that have another name in the second, FIRST=SECOND each",
        **text,
    )


def check_absent(values: flags.FlagValues) -> None:
    """Refuse the flags of models where none is named. Raises: UsageError."""
    given = next((name for name in _OWN if values[name].present), None)
    if given:
        raise errors.UsageError(
            f"--{given} has no effect without MODEL", "leave it out, or name models: tftrt bench MODEL …"
        )


def models(values: flags.FlagValues, positional: Sequence[str]) -> list[str]:
    """The arguments where they are models; [] where there is none, or where the only one is an address.

    With --model_name the argument is an address, whatever it looks like. Else what is there is a model, and so is a name that only a model
    can have (.onnx, .pt2, .h5). Raises: UsageError for what is neither, and where there are several and not all are models.
    """
    if values["model_name"].present and len(positional) == 1 or not positional:
        return []
    paths = [_places.local(one) if _places.is_storage(one) else one for one in positional]
    unlike = [one for one in paths if not _is_model(one)]
    if not unlike:
        return paths
    if _ADDRESS.fullmatch(unlike[0]):
        if len(paths) == 1:
            return []
        raise errors.UsageError(
            f"{unlike[0]} is the address of a server, and the others are models",
            "models are measured beside each other, and a server alone",
        )
    raise errors.UsageError(
        f"no such model: {unlike[0]}", f"give {table.forms()}; or the address of a server, HOST:PORT, with --model_name"
    )


def _is_model(path: str) -> bool:
    if os.path.exists(path):
        return True
    return not _ADDRESS.fullmatch(path) and (
        not table.kind(path).of_tensorflow or os.path.splitext(path)[1].lower() in kinds.KERAS_SUFFIXES
    )


def result(values: flags.FlagValues, paths: Sequence[str]) -> SideBySide:
    """Measure. Raises: UsageError, TftrtError."""
    _check_flags(values)
    from tftrt_tools.studies.bench import points
    from tftrt_tools.studies.side_by_side import measure

    options = measure.Options(
        models=tuple(_source_flags.read_each(values, *paths)),
        signature_name=values.signature_keys,
        asked=_data_flags.asked(values),
        batch_size=_one(points.integers("batch_size", values.batch_size), "batch_size"),
        distinct=values.distinct,
        concurrency=_one(points.integers("concurrency", values.concurrency), "concurrency") or 1,
        rounds=values.rounds,
        max_rounds=values.max_rounds if values["max_rounds"].present else max(values.max_rounds, values.rounds),
        min_effect=values.min_effect,
        rename=tuple(values.rename),
        timeout=values.timeout_seconds,
        max_seconds=values.max_seconds,
        given={
            name: values[name].value
            for name in sorted(values)
            if values[name].present and values[name].name == name and name not in ("json", "help")
        },
    )
    with progress.on_terminal():
        return measure.measure(options)


def _check_flags(values: flags.FlagValues) -> None:
    allowed = {*_OWN, *_SHARED}
    for name in _help.own(values):
        known = values[name].name in allowed or name.startswith("image_")
        if values[name].present and not known:
            raise errors.UsageError(
                f"--{name} has no effect with MODEL: it is about a server, or another load",
                "leave it out; `tftrt bench --in_process=MODEL` has the loads of a server without one",
            )


def _one(given: Sequence[int], flag: str) -> int | None:
    if len(given) > 1:
        raise errors.UsageError(f"--{flag} takes one number with MODEL", f"such as --{flag}={given[0]}")
    return given[0] if given else None


def failure(done: SideBySide, values: flags.FlagValues) -> errors.TftrtError | None:
    """What ends the command with another exit code than 0. Raises: Interrupted where the user ended it."""
    from tftrt_tools.studies.side_by_side import measured

    if done.ended == measured.INTERRUPTED:
        raise errors.Interrupted(mend=f"{done.rounds} rounds were measured")
    if done.failed and values.require_no_errors:
        return errors.CheckFailed(
            f"{terminal.counted(done.failed, 'request')} failed (--require_no_errors)", "the result says which"
        )
    return None


def show(done: SideBySide, values: flags.FlagValues) -> None:
    """Print the table, and what can be said of each model against the first."""
    console = _output.console(values.json)

    def say(label: str, text: str) -> None:
        console.print(f"{label:<10}{text}", soft_wrap=True)

    several = len(done.rows) > 1
    say(
        "asked",
        f"signature {done.signature}; {terminal.counted(done.distinct, 'request')} in turn ({done.values}); {'; '.join(done.shapes)}",
    )
    say("machine", done.machine.text())
    say(
        "measured",
        f"{terminal.counted(done.rounds, 'round')} of {done.requests} requests to each model, {done.concurrency} at a time, in one process"
        + (", in turns" if several else ""),
    )
    columns = ["model", "kind", ">p50 ms", ">p90 ms", ">p99 ms", ">answers/s"]
    columns += [">p50 / first", ">interval", "verdict"] if several else []
    console.print(_output.table("Without a server", columns, [_cells(row, several) for row in done.rows]))
    for line in done.sentences:
        console.print(line, soft_wrap=True)
    for row in done.rows:
        if row.answers:
            console.print(f"  answers of {row.name}: {row.answers}", soft_wrap=True)
        if row.failed:
            said = f" ({'; '.join(row.errors)})" if row.errors else ""
            console.print(f"  {row.name}: {terminal.counted(row.failed, 'request')} failed{said}", soft_wrap=True)
    for note in done.notes:
        console.print(f"  {note}", soft_wrap=True)
    if done.ended:
        console.print(f"NOT COMPLETE: {done.ended}", style="bold red")


def _cells(row: Row, several: bool) -> list[object]:
    cells: list[object] = [row.name, row.form, *(one.text() for one in row.figures)]
    judged = row.of("p50")
    if not several or judged is None:
        return cells + ["", "", "the first"] * several
    interval = "{:.3f} to {:.3f}".format(*judged.judged_interval) if judged.judged_interval else ""
    return [*cells, "" if judged.ratio is None else f"{judged.ratio:.3f}", interval, judged.verdict]
