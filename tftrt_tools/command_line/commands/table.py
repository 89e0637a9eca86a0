"""usage: tftrt table show FILE [--flags]
       tftrt table diff A B [--flags]
       tftrt table merge A [B …] --how=max --output=FILE
       tftrt table edit FILE --output=FILE [--remove=REGEX] [--set='NAME=RANGE'] [--scale='REGEX=FACTOR']

INT8 calibration tables hold a scale for each tensor of an engine: range / 127, so that values up to +-range fit into 8 bits. The layers
of a tensor without a scale do not run in INT8.

FILE is a calibration file, a converted model that carries one, or a table in TensorRT's own text form.

show   tensors, ranges, tensors left out and why; --format=tensorrt prints an engine's table as TensorRT reads it
diff   compare two tables tensor by tensor: B's scale as a multiple of A's; --check exits with 3 if they differ
merge  combine several tables of one model, such as from two data sets; of one file alone: engines with equal graphs get one table
edit   remove, set or scale entries, by the names that `show` prints; regular expressions match whole names

examples:
  tftrt table show resnet.calibration.json --sort=scale
  tftrt table show resnet_int8 --engine=TRTEngineOp_51c8edcc46_0_0 --format=tensorrt --output=resnet.table
  tftrt table diff monday.json tuesday.json --check
  tftrt table merge day.json night.json --how=max --output=both.json
  tftrt table edit resnet.json --remove='.*/logits/.*' --scale='.*/Relu=1.1' --output=edited.json
  tftrt table edit resnet.json --set='StatefulPartitionedCall/model/add/add=6.0' --output=edited.json
"""

from __future__ import annotations

import difflib
import pathlib
import sys
from typing import TYPE_CHECKING, Any

from absl import flags

from tftrt_tools.base import errors, terminal
from tftrt_tools.base.files import whole_file
from tftrt_tools.command_line.commands import _flags, _output
from tftrt_tools.tftrt.calibration import difference, edit, file, listing, merge

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rich.console import Console

# Bytes of a file by which a table is known.
_HEAD = 512
_HELP = "`tftrt table --help` explains show, diff, merge and edit"
# Which of the flags each subcommand takes.
_OWN = {
    "show": ("sort", "filter", "engine", "format", "output"),
    "diff": ("check",),
    "merge": ("how", "output"),
    "edit": ("output", "remove", "set", "scale", "engine"),
}


def define(values: flags.FlagValues) -> None:
    """Define the command's flags on FlagValues `values`."""
    text = dict(flag_values=values)
    flags.DEFINE_enum(
        "sort",
        "graph",
        listing.ORDERS,
        "show: tensors in the file's order, the largest scale first, or by name",
        **text,
    )
    flags.DEFINE_string("filter", None, "show: regular expression; only tensors whose whole name matches", **text)
    flags.DEFINE_enum(
        "format",
        "table",
        ["table", "tensorrt"],
        "show: for people, or one engine's table in TensorRT's text form",
        **text,
    )
    flags.DEFINE_string("engine", None, "show, edit: only this engine", **text)
    flags.DEFINE_boolean("check", False, "diff: exit with 3 where the two differ", **text)
    flags.DEFINE_enum("how", None, list(merge.HOW), "merge: how several scales of a tensor become one", **text)
    flags.DEFINE_string(
        "output",
        None,
        "show --format=tensorrt, merge, edit: the file to write; a table that is there is replaced",
        **text,
    )
    flags.DEFINE_multi_string(
        "remove", [], "edit: take these tensors out: layers that need them stay out of INT8", **text
    )
    flags.DEFINE_multi_string("set", [], "edit: NAME=RANGE, the largest value to keep", **text)
    flags.DEFINE_multi_string("scale", [], "edit: REGEX=FACTOR, multiply these ranges", **text)


def run(values: flags.FlagValues, positional: list[str]) -> int:
    """Run a subcommand. Returns: the exit code."""
    action, *arguments = positional or [""]
    if action not in _OWN:
        near = difflib.get_close_matches(action, _OWN, 1)
        cause = f"no `tftrt table {action}`" if action else "usage: tftrt table show|diff|merge|edit FILE … [--flags]"
        raise errors.UsageError(cause, f"did you mean `tftrt table {near[0]}`?" if near else _HELP)
    for name in sorted({name for own in _OWN.values() for name in own} - set(_OWN[action])):
        if values[name].present:
            takers = " and ".join(f"`tftrt table {one}`" for one, own in _OWN.items() if name in own)
            raise errors.UsageError(
                f"`tftrt table {action}` takes no --{name}", f"{takers} {'do' if ' and ' in takers else 'does'}"
            )
    return {"show": _show, "diff": _diff, "merge": _merge, "edit": _edit}[action](values, arguments)


def _show(values: flags.FlagValues, arguments: list[str]) -> int:
    source = _flags.one_argument("table show", arguments, "FILE")
    calibration = file.read(source)
    if values.format == "tensorrt":
        return _export(values, calibration, source)
    if values.output:
        raise errors.UsageError("--output goes with --format=tensorrt", "--json=FILE writes what is shown as JSON")
    shown = listing.listing(calibration, source, values.engine, values.filter, values.sort)
    _print_listing(shown, _output.console(values.json))
    _output.write_json(shown, values.json)
    return errors.EXIT_DONE


def _export(values: flags.FlagValues, calibration: file.Calibration, source: str) -> int:
    for name in ("filter", "sort"):
        if values[name].present:
            raise errors.UsageError(
                f"--{name} does not go with --format=tensorrt: the whole table is written",
                "`tftrt table edit --remove` takes tensors out",
            )
    if values.json == "-" and not values.output:
        raise errors.UsageError(
            "--json=- and the table cannot both go to stdout", "name an --output=FILE for the table"
        )
    chosen = listing.engines(calibration, values.engine)
    if len(chosen) > 1:
        names = " or ".join(f"--engine={one.engine}" for one in chosen)
        raise errors.UsageError(f"{source} holds {len(chosen)} tables", f"name one: {names}")
    text = chosen[0].table.text()
    if values.output:
        _check_output(values.output)
        whole_file.write_text(values.output, text)
        _say(_output.console(values.json), f"written: {pathlib.Path(values.output).absolute()}")
    else:
        terminal.unguarded(sys.stdout).write(terminal.shown(text) if sys.stdout.isatty() else text)
    _output.write_json(listing.listing(calibration, source, values.engine), values.json)
    return errors.EXIT_DONE


def _print_listing(shown: listing.Listing, console: Console) -> None:
    for line in _origin(shown):
        _say(console, line)
    for one in shown.engines:
        title = f"{one.engine or 'Table'}{f', {one.signature}' if one.signature else ''} ({one.header})"
        rows = [(_number(tensor.range), _number(tensor.scale), tensor.name) for tensor in one.tensors]
        hidden = one.total - len(rows)
        _table(console, title, [">range", ">scale", "tensor"], rows)
        _say(console, terminal.counted(one.total, "tensor") + (f", {hidden} hidden by --filter" if hidden else ""))
        if one.left_out:
            _table(console, "Left out: layers that need them stay out of INT8", ["tensor", "reason"], one.left_out)


def _origin(shown: listing.Listing) -> Iterator[str]:
    whole, data = shown.calibration, shown.calibration.data
    if not whole.model and not whole.provenance:
        yield f"{shown.source}: a table of TensorRT {whole.tensorrt}; made from which model and data is not known"
        return
    yield (
        f"{shown.source}: {whole.method} ({whole.calibrator}), TensorRT {whole.tensorrt}"
        + (f", TensorFlow {whole.tensorflow}" if whole.tensorflow else "")
        + f", by {whole.tool} on {whole.created}"
    )
    if whole.model:
        yield f"model {whole.model} {whole.model_digest[:19]}".rstrip()
    if data.get("source") or data.get("samples"):
        yield f"data: {_samples(data)} of {data.get('source') or 'unknown data'}{' (random)' if data.get('random') else ''}"
    for warning in data.get("warnings") or ():
        yield f"warning: {warning}"
    for step in whole.provenance:
        what = {"edited": "edited from {source}", "merged": "merged by --how={how}"}.get(
            str(step.get("step")), "{step}"
        )
        names = [str(one.get("source")) for one in step.get("sources") or () if isinstance(one, dict)]
        text = what.format_map({"source": step.get("source"), "how": step.get("how"), "step": step.get("step")})
        yield f"{text}{' of ' + ', '.join(names) if names else ''} on {step.get('created')}"


def _samples(data: Mapping[str, Any]) -> str:
    samples, size = data.get("samples"), data.get("batch_size")
    text = "an unknown number of samples" if samples is None else terminal.counted(samples, "sample")
    return text + (f" in batches of {size}" if size else "")


def _diff(values: flags.FlagValues, arguments: list[str]) -> int:
    a, b = _flags.arguments("table diff", arguments, ["A", "B"])
    found = difference.compare(file.read(a), file.read(b), a, b)
    console = _output.console(values.json)
    _print_difference(found, console)
    _output.write_json(found, values.json)
    return errors.EXIT_CHECK if values.check and not found.equal else errors.EXIT_DONE


def _print_difference(found: difference.Difference, console: Console) -> None:
    _say(console, f"A: {found.a}\nB: {found.b}")
    for note in found.notes:
        _say(console, note)
    several = len({one.engine for one in found.tensors}) > 1
    differing = [one for one in found.tensors if one.a != one.b]
    rows = [
        (
            one.engine,
            _number(one.a),
            _number(one.b),
            _number(one.ratio),
            one.tensor if one.ratio else f"{one.tensor} (only in {'A' if one.b is None else 'B'})",
        )
        for one in differing
    ]
    columns = ["engine", ">scale in A", ">scale in B", ">B / A", "tensor"]
    if rows:
        _table(
            console,
            "Tensors that differ",
            columns if several else columns[1:],
            rows if several else [row[1:] for row in rows],
        )
    _print_summary(found, console)


def _print_summary(found: difference.Difference, console: Console) -> None:
    summary = found.summary
    lonely = [sum(one.b is None for one in found.tensors), sum(one.a is None for one in found.tensors)]
    both = (
        f"{terminal.counted(summary.tensors, 'tensor')} in both, {summary.equal} of them equal"
        if summary
        else "no tensor in both"
    )
    _say(console, f"{both}; {lonely[0]} only in A, {lonely[1]} only in B")
    if summary and summary.equal < summary.tensors:
        _say(
            console,
            f"B / A: median {_number(summary.median)}, 5th to 95th percentile {_number(summary.p5)} to {_number(summary.p95)}, "
            f"standard deviation {_number(summary.spread)} octaves (log2)",
        )
        _say(console, f"worst: {_number(summary.worst.ratio)} at {summary.worst.tensor}")
    _say(console, "EQUAL" if found.equal else "DIFFERENT", "bold")


def _merge(values: flags.FlagValues, sources: list[str]) -> int:
    if not sources:
        raise errors.UsageError("usage: tftrt table merge A [B …] --how=HOW --output=FILE; no file given", _HELP)
    if not values.how:
        raise errors.UsageError("merge needs --how", "use one of " + ", ".join(f"--how={how}" for how in merge.HOW))
    _check_output(values.output)
    merged = merge.merge([file.read(source) for source in sources], values.how, sources)
    merged.write(values.output)
    console = _output.console(values.json)
    tensors = terminal.counted(sum(len(one.table.scales) for one in merged.engines), "tensor")
    left_out = sum(len(one.left_out) for one in merged.engines)
    files, engines = terminal.counted(len(sources), "file"), terminal.counted(len(merged.engines), "engine")
    _say(
        console,
        f"{files} merged by --how={values.how}: {engines}, {tensors}" + (f", {left_out} left out" if left_out else ""),
    )
    for warning in merged.data["warnings"]:
        _say(console, f"warning: {warning}")
    _say(console, f"written: {pathlib.Path(values.output).absolute()}")
    _output.write_json(merged, values.json)
    return errors.EXIT_DONE


def _edit(values: flags.FlagValues, arguments: list[str]) -> int:
    source = _flags.one_argument("table edit", arguments, "FILE")
    edits = edit.Edits.parse(values.remove, values["set"].value, values.scale)
    _check_output(values.output)
    calibration = file.read(source)
    listing.engines(calibration, values.engine)
    edited = edit.edit(calibration, edits, source, values.engine)
    edited.calibration.write(values.output)
    console = _output.console(values.json)
    several = len({one.engine for one in edited.changes}) > 1
    rows = [
        (one.engine, _number(one.before) or "none", _number(one.after) or "removed", one.tensor)
        for one in edited.changes
    ]
    columns = ["engine", ">range before", ">range now", "tensor"]
    _table(console, None, columns if several else columns[1:], rows if several else [row[1:] for row in rows])
    _say(console, f"{terminal.counted(len(edited.changes), 'tensor')} changed")
    for warning in edited.warnings:
        _say(console, f"warning: {warning}")
    _say(console, f"written: {pathlib.Path(values.output).absolute()}")
    _output.write_json(edited, values.json)
    return errors.EXIT_DONE


def _check_output(output: str | None) -> None:
    if not output:
        raise errors.UsageError("no --output=FILE", "name the file to write")
    if pathlib.Path(output).is_dir():
        raise errors.UsageError(f"--output={output} is a directory", "name the file to write")
    if _is_something_else(output):
        raise errors.UsageError(f"--output={output} is there, and is no table", "name another file")


def _is_something_else(path: str) -> bool:
    """Whether a file is there that none of these commands wrote: data or a model, say."""
    if not pathlib.Path(path).is_file():
        return False
    try:
        with open(path, "rb") as there:
            head = there.read(_HEAD)
    except OSError:
        return False  # what cannot be read is told when it is written
    return bool(head) and not head.startswith(b"TRT-") and b'"kind": "calibration"' not in head


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _table(console: Console, title: str | None, columns: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    if title:  # a line of its own, because a table's title is folded to the width of its columns
        _say(console, title, "bold")
    console.print(_output.table(None, columns, rows))


def _say(console: Console, text: str, style: str | None = None) -> None:
    console.print(text, style=style, soft_wrap=True)
