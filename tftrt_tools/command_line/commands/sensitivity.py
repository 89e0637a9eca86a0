"""usage: tftrt sensitivity MODEL --data=INPUTS [--flags]

Which nodes lose the most accuracy when a SavedModel goes to INT8 (the default) or FP16? It rounds each node alone, then all nodes, then
all but the worst, and compares the answers with those of the unrounded model. For INT8 it also tries every calibration method. It ends
with a suggestion: another calibration method if that gains more; else the flag of `tftrt convert` that keeps the most harmful nodes in
a higher precision, as many as `tftrt verify` needs to accept the answers. If it found no such nodes, it says so.

First it simulates rounding in floating point, which needs no GPU. For INT8 it rounds the inputs of convolutions, matrix products,
element-wise ops of two tensors and average pooling, with the ranges of --calibration_data, --calibration_table or else --data; it
rounds weights by output channel. For FP16 it rounds inputs, weights and outputs of every node. On a GPU it then measures the
--measure_nodes worst nodes: it builds engines with everything rounded, and again with all but one node rounded.

The flags of conversion and calibration are those of `tftrt convert`.

MODEL may be an ONNX file in FP32, or a plan directory, whose ONNX file is used. Nodes are then rounded as `tftrt export --precision`
does, in ONNX Runtime on the CPU, and the suggestion is a flag of `tftrt export`.

examples:
  tftrt sensitivity resnet --data=images.npz --calibration_data=training_images --html=sensitivity.html
  tftrt sensitivity encoder --data=my_data:calls --precision=FP16 --plot=encoder.svg
  tftrt sensitivity resnet.onnx --data=images.npz --precision=FP16
  tftrt sensitivity resnet --data=images.npz --calibration_table=resnet.calibration.json --nodes='.*/Conv2D' --measure=simulate
"""

from __future__ import annotations

import dataclasses
import shlex
from typing import TYPE_CHECKING

from absl import flags

from tftrt_tools.base import errors, records, terminal
from tftrt_tools.base.process import progress
from tftrt_tools.command_line.commands import (
    _calibration_flags,
    _comparison,
    _data_flags,
    _flags,
    _next,
    _output,
    _record_flags,
    _source_flags,
)
from tftrt_tools.command_line.commands import convert as convert_command
from tftrt_tools.models.backends import recipe
from tftrt_tools.models.backends.recipe import Recipe
from tftrt_tools.models.kinds import table
from tftrt_tools.studies import backends

if TYPE_CHECKING:
    from tftrt_tools.accuracy.harm import Node, Sensitivity, SignatureHarm

_ROWS = 20
# Settings that count for an ONNX file, too.
_OF_ONNX = ("precision", "calibration_table", "calibration_method", "calibration_percentile")

OUTPUTS = ("html", "plot")


def define(values: flags.FlagValues) -> None:
    """Define the command's flags on FlagValues `values`."""
    convert_command.define_settings(values)
    values.set_default("precision", "INT8")
    _source_flags.define(values)
    _calibration_flags.define(values)
    convert_command.define_calibrator(values)
    text = dict(flag_values=values)
    flags.DEFINE_string(
        "calibration_table", "", "INT8: a calibration file to take the ranges from, in place of data", **text
    )
    flags.DEFINE_string("data", "", f"inputs to score: {_data_flags.KINDS}", **text)
    _data_flags.define_reading(values)
    flags.DEFINE_integer("batch_size", 32, "rows of a call with --data", lower_bound=1, **text)
    flags.DEFINE_string(
        "nodes",
        "",
        "regular expression: round only nodes alone whose whole name matches; the others are rounded with the rest",
        **text,
    )
    flags.DEFINE_enum(
        "measure",
        "auto",
        ["auto", "gpu", "simulate"],
        "measure the worst nodes with engines: where a GPU is visible, in any case, or not at all",
        **text,
    )
    flags.DEFINE_integer("measure_nodes", 8, "nodes to measure on a GPU, the worst first", lower_bound=1, **text)
    flags.DEFINE_boolean("all", False, "print every node; --json and --html always have them all", **text)
    flags.DEFINE_string("html", None, "write a report with a plot to this file", **text)
    flags.DEFINE_string("plot", None, "write the plot to this file, .svg or .png", **text)
    flags.DEFINE_string("log_file", None, "keep what TensorFlow logs in this file", **text)


def run(values: flags.FlagValues, positional: list[str]) -> int:
    """Study. Returns: the exit code."""
    model = _flags.one_argument("sensitivity", positional, "MODEL")
    from tftrt_tools.accuracy import sensitivity
    from tftrt_tools.command_line.report import pictures
    from tftrt_tools.command_line.report import sensitivity as report
    from tftrt_tools.tensorrt.exporting import sensitivity as of_onnx

    _check_original(model)
    conversion = None if of_onnx.takes(model) else convert_command.read_settings(values)
    settings: Recipe = conversion or _settings_of_onnx(values, model)
    reading, calibration = _data_flags.reading_beside(values, convert_command.read_data(values, settings))
    if values.plot:
        pictures.check(values.plot)
    options = sensitivity.Options(
        data=values.data,
        batch_size=values.batch_size,
        nodes=values.nodes,
        measure=values.measure,
        measure_nodes=values.measure_nodes,
        calibration=calibration,
        log_file=values.log_file,
        reading=reading,
        data_rows=values.data_rows,
    )
    with progress.on_terminal():
        if conversion is None:
            done = of_onnx.study(model, of_onnx.Asked.of(settings), options)
        else:
            done = sensitivity.study(_source_flags.read(values, model), conversion, options)
    _print(done, values)
    _output.write_json(done, values.json)
    if values.html:
        report.write_page(done, values.html)
    if values.plot:
        report.write_picture(done, values.plot)
    if done.flag or not (done.missed or done.not_finite or done.nothing_shown):
        _next.show(values, _next_conversion(values, model, done) if conversion else _next_export(values, model, done))
    return errors.EXIT_DONE


def _check_original(model: str) -> None:
    """Refuse a model that was built already, and does not hold the file that it was built from. Raises: UsageError."""
    made_by = backends.of_made(model)
    if made_by and table.kind(model).onnx(model) in ("", model):
        raise errors.UsageError(
            f"{model} is a converted model, which {made_by.name} made", "give the original model that it was made from"
        )


def _settings_of_onnx(values: flags.FlagValues, model: str) -> Recipe:
    """Those of the flags that count for an ONNX file. Raises: UsageError."""
    useful = {*_calibration_flags.names(), *_OF_ONNX, "fp32_nodes"}
    for name in sorted(
        set(map(records.flag, dataclasses.fields(backends.default().settings)))
        | {"custom_objects", "inputs", "outputs"}
    ):
        if name not in useful and name in values and values[name].present:
            raise errors.UsageError(
                f"--{name} has no effect: {model} is studied as an ONNX file", "leave it out; --fp32_nodes keeps nodes"
            )
    return recipe.checked(_record_flags.read(values, Recipe))


def _next_export(values: flags.FlagValues, model: str, done: Sensitivity) -> list[str]:
    """`export` with the suggestion."""
    from tftrt_tools.tensorrt.exporting import sensitivity as of_onnx

    source = of_onnx.source(model)
    suggested = shlex.split(done.flag)
    kept = [f"--fp32_nodes={values.fp32_nodes}"] if values.fp32_nodes else []
    if kept and suggested and suggested[0].startswith("--fp32_nodes="):
        kept, suggested[0] = [], f"{kept[0]}|{suggested[0].partition('=')[2]}"
    replaced = {word.lstrip("-").partition("=")[0] for word in suggested}
    ranges = _next.given(values, sorted({*_calibration_flags.names(), *_OF_ONNX} - {"precision", *replaced}))
    if done.precision == "INT8" and not (
        values.calibration_data or values.calibration_table or values.calibrate_on_random_data
    ):
        ranges.append(f"--calibration_data={values.data}")
    return [
        "export",
        source,
        f"--output={_next.sibling(source, done.precision.lower(), '.onnx')}",
        f"--precision={done.precision}",
        f"--data={values.data}",
        *ranges,
        *kept,
        *suggested,
    ]


def _next_conversion(values: flags.FlagValues, model: str, done: Sensitivity) -> list[str]:
    """`convert` with the suggestion. Nodes that had a higher precision in the study keep it, besides the suggested ones."""
    suggested, ending = shlex.split(done.flag), ""
    replaced = [word.lstrip("-").partition("=")[0] for word in suggested]
    for number, name in enumerate(replaced):
        if name not in backends.default().keeps_high.values():
            continue
        ending = f"{done.precision.lower()}_mixed"  # beside the model that lost too much
        if values[name].value:
            suggested[number] = f"--{name}={values[name].value}|{suggested[number].partition('=')[2]}"
    ranges = []
    if done.precision == "INT8" and not (
        values.calibration_data or values.calibration_table or values.calibrate_on_random_data
    ):
        ranges = [f"--calibration_data={values.data}"]  # which gave the ranges here
    return _next.convert(values, model, done.precision, *ranges, *suggested, without=replaced, ending=ending)


def _print(done: Sensitivity, values: flags.FlagValues) -> None:
    from tftrt_tools.accuracy import harm, thresholds
    from tftrt_tools.command_line.report import sensitivity as report

    console = _output.console(values.json)

    def say(text: str) -> None:
        console.print(text, soft_wrap=True)

    for one in done.signatures:
        if len(one.methods) > 1:
            _comparison.table(
                console,
                f"{one.name}: everything rounded to INT8, SNR dB by calibration method",
                _levels(one),
                one.method,
            )
        shown = one.nodes if values.all else one.nodes[:_ROWS]
        columns = [
            ">rank",
            "node",
            "op",
            *([] if done.of_onnx else ["engine"]),
            ">SNR dB",
            ">share",
            ">top-1",
            *([">measured gain dB"] if one.measured else []),
        ]
        rows = [_row(rank, node, bool(one.measured), not done.of_onnx) for rank, node in enumerate(shown, 1)]
        title = f"{one.label}: one node alone rounded to {done.precision}, and the worst output's noise"
        console.print(_output.table(title, columns, rows))
        if len(one.nodes) > len(shown):
            say(f"  and {len(one.nodes) - len(shown)} less harmful nodes (--all)")
        rows = [(label, _decibels(effect.snr_db), _share(effect.top1)) for label, effect in report.kept_rows(one)]
        console.print(
            _output.table(
                f"{one.label}: everything rounded but", ["kept in a higher precision", ">SNR dB", ">top-1"], rows
            )
        )
        if one.measured:
            say(
                f"measured with everything in {done.precision}: "
                + ", ".join(f"{effect.output} {_decibels(effect.snr_db)} dB" for effect in one.measured)
            )
        for node in one.nodes:
            if node.measured and node.measured.problem:
                say(f"  not measured: {node.name}: {node.measured.problem}")
        if one.unrounded:
            say(
                f"  {terminal.counted(len(one.unrounded), 'node')} without a range stay in a higher precision anyway: "
                + ", ".join(one.unrounded[:3])
                + (", …" if len(one.unrounded) > 3 else "")
            )
        say(
            f"{one.rows} rows scored; {terminal.counted(len(one.nodes), 'node')} rounded alone"
            + (f", {one.other_nodes} more only with the rest" if one.other_nodes else "")
        )
    if done.ranges:
        say(f"ranges: {done.ranges}")
    for one in done.signatures:
        say(
            f"{one.label}: everything in {done.precision} leaves {_decibels(harm.worst(one.total).snr_db)} dB; `tftrt verify` asks for "
            f"{thresholds.DEFAULTS[done.precision]['snr_db']:.0f} dB by default"
        )
    say(
        f"evidence: simulated; the worst nodes measured on {(done.gpu or {}).get('name')}"
        if not done.measured_problem
        else f"evidence: {done.measured_problem}"
    )
    for text in done.not_finite:
        say(f"answers are not finite: {text}: check the inputs and the weights")
    for text in done.nothing_shown:
        say(f"  warning: nothing was shown: {text}; is the data scaled as in training?")
    say("suggestion: " + _suggestion(done) + (" (flags of `tftrt export`)" if done.of_onnx and done.flag else ""))


def _levels(signature: SignatureHarm) -> dict[str, dict[str, float]]:
    """{output: {method: dB}} of everything rounded."""
    found: dict[str, dict[str, float]] = {}
    for one in signature.methods:
        for effect in one.effects:
            found.setdefault(effect.output, {})[one.method] = effect.snr_db
    return found


def _suggestion(done: Sensitivity) -> str:
    """The suggestion, and the bounds of verify that it still misses."""
    from tftrt_tools.accuracy import harm

    if done.better_method:
        level = min(
            harm.worst(one.effects).snr_db
            for signature in done.signatures
            for one in signature.methods
            if one.method == done.better_method
        )
        nodes = (
            "; it gives more than the nodes that stand out would"
            if any(one.suggested for one in done.signatures)
            else ""
        )
        more = f"; {done.missed[0]}: study again with it, for the nodes" if done.missed else ""
        return f"{done.flag} ({_decibels(level)} dB{nodes}{more})"
    if done.flag:
        return done.flag + (f" ({done.missed[0]} in another signature)" if done.missed else "")
    if not done.missed and not done.not_finite and done.nothing_shown:
        return "none: these answers show nothing of rounding; give other --data"
    if not done.missed:
        return "none; " + (
            "no precision fixes answers that are not finite"
            if done.not_finite
            else "verify's bounds hold already"
            + ("" if all(one.enough for one in done.signatures) else ", and no few nodes stand out")
        )
    tried = [one.nearest for one in done.signatures if one.nearest and not harm.holds(one.total)]
    if not tried:
        return f"none found: {done.missed[0]}"
    nearest = min(tried, key=lambda one: harm.worst(one.effects).snr_db)
    missed = next(iter(text for effect in nearest.effects for text in effect.missed), done.missed[0])
    return f"none found: with the {terminal.counted(nearest.nodes, 'worst node')} in a higher precision {missed}"


def _row(rank: int, node: Node, measured: bool, engines: bool) -> tuple[object, ...]:
    level = "NaN or Inf" if node.worst.nonfinite else _decibels(node.worst.snr_db)
    engine = (node.engine.removeprefix("TRTEngineOp_"),) if engines else ()
    row = (rank, node.name, node.op, *engine, level, f"{node.share:.1%}", _share(node.worst.top1))
    if not measured:
        return row
    gain = node.measured.gain_db if node.measured else None
    return (*row, None if gain is None else f"{gain:+.1f}")


def _decibels(value: float) -> str:
    return f"{value:.1f}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.2%}"
