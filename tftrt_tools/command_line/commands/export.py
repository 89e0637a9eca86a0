"""usage: tftrt export MODEL --output=FILE.onnx [--flags]

Exports every signature of a model to an ONNX file: TensorFlow and Keras models with tf2onnx, PyTorch programs (a .pt2 file, or
module:function that returns a module and its inputs) with PyTorch's own exporter. Run it in the environment that has the library. MODEL
may also be an ONNX file: it is brought to an opset that the target reads. Inputs and outputs keep their names and their order; open
dimensions get names. One signature becomes FILE.onnx. Several become FILE.SIGNATURE.onnx each; --signature_keys chooses among them.

Every file is then checked: by onnx.checker with shape and type inference; by running it in ONNX Runtime on the CPU and comparing its
answers with the model's, on --data or random inputs, by the rules of `tftrt verify`; and, for a TensorRT target, by comparing each node
with the list of ops that its parser accepts. A node that the parser refuses is named with the reason. If the answers differ, the first
tensor that differs is named.

--precision writes a precision into the graph. FP16: casts, and weights in FP16. INT8: QuantizeLinear and DequantizeLinear where TensorRT
computes in INT8, with ranges from the toolkit's calibration. Inputs and outputs keep their types. --fp32_nodes keeps nodes in FP32. The
answers are judged by the bounds of that precision. --json lists every node that stayed in FP32, with the reason.

If a check fails, nothing is written (exit 3). --allow_refused writes a file although the parser refuses it, for those who have a plugin
or cut the graph.

examples:
  tftrt export resnet --output=resnet.onnx --data=images.npz
  tftrt export model.h5 --output=model.onnx --target=10
  tftrt export model.pt2 --output=model.onnx --target=10
  tftrt export detector.onnx --output=detector_8.onnx --target=8.5 --shapes=images:1x3x320x320
  tftrt export resnet --output=resnet_fp16.onnx --precision=FP16 --fp32_nodes='.*/predictions/.*'
  tftrt export resnet --output=resnet_int8.onnx --precision=INT8 --calibration_data=training.npz --data=held_back.npz
  tftrt export ranker --output=ranker.onnx --target=onnxruntime --signature_keys=user_embedding
"""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING

from absl import flags

from tftrt_tools.base import choices, errors, terminal
from tftrt_tools.base.files import whole_file
from tftrt_tools.base.process import progress
from tftrt_tools.command_line.commands import (
    _calibration_flags,
    _calling,
    _data_flags,
    _flags,
    _judging_flags,
    _next,
    _output,
    _source_flags,
    convert,
)
from tftrt_tools.models.kinds import table
from tftrt_tools.tensorrt.exporting import parser
from tftrt_tools.tensorrt.exporting.rewriting import REWRITES
from tftrt_tools.tensorrt.exporting.targets import OPSETS, TARGETS

if TYPE_CHECKING:
    from rich.console import Console

    from tftrt_tools.accuracy.verify import Verification
    from tftrt_tools.models.inputs.options import DataOptions
    from tftrt_tools.tensorrt.exporting.precision import Asked, Written
    from tftrt_tools.tensorrt.exporting.result import Exported, File

OUTPUTS = ("output", "output_table")
# Nodes that are named with a reason.
_MOST_NAMED = 3


def define(values: flags.FlagValues) -> None:
    """Define the command's flags on FlagValues `values`."""
    text = dict(flag_values=values)
    flags.DEFINE_string("output", None, "the file to write, FILE.onnx; a file that is there is replaced", **text)
    flags.DEFINE_enum(
        "target", "8.5", list(TARGETS), "who will read it: TensorRT 8.5, 10 or 11, or ONNX Runtime", **text
    )
    flags.DEFINE_integer(
        "opset",
        0,
        f"the opset, {OPSETS[0]} to {OPSETS[1]}; by default the target's: "
        + ", ".join(f"{name}: {one.opset}" for name, one in TARGETS.items()),
        **text,
    )
    flags.DEFINE_enum("precision", "FP32", choices.PRECISIONS, "the precision that is written into the graph", **text)
    flags.DEFINE_list(
        "fp32_nodes",
        [],
        "FP16, INT8: regular expressions; nodes of the exported graph whose whole name matches one stay in FP32",
        **text,
    )
    flags.DEFINE_boolean(
        "judge_precision",
        True,
        "FP16, INT8: the answers in that precision have to keep its bounds; --nojudge_precision "
        "leaves that to `tftrt verify` or `tftrt tune`, and judges those in FP32 alone",
        **text,
    )
    _calibration_flags.define(values)
    _calibration_flags.define_method(values)
    flags.DEFINE_string(
        "calibration_table",
        "",
        "INT8: a calibration file to take the ranges from (of --output_table, `tftrt calibrate` "
        "or `tftrt table`), TensorRT's own text form, or a converted model; tensors are found by their names",
        **text,
    )
    flags.DEFINE_string(
        "int8_as",
        "",
        "INT8: a plan directory that was built with --calibration_table; only the nodes that TensorRT "
        "computes in INT8 there get it, because elsewhere it is slower",
        **text,
    )
    flags.DEFINE_string(
        "output_table",
        "",
        "INT8: a calibration file to write, with the ranges of all tensors under their names in the graph",
        **text,
    )
    flags.DEFINE_list("signature_keys", [], "signatures to export, by default all", **text)
    flags.DEFINE_list(
        "rewrite",
        [],
        "rewrites of the graph: names, to make only these; -NAME or +NAME each, to leave out or "
        f"to add some; or none. {', '.join(REWRITES)}; by default those that fit the target",
        **text,
    )
    flags.DEFINE_string(
        "freeze",
        "",
        "inputs that become constants, such as training:false; several separated by ';'; SIGNATURE/INPUT:VALUE for one signature",
        **text,
    )
    flags.DEFINE_boolean("fix_shapes", False, "of an ONNX file: fix open dimensions to the sizes of --shapes", **text)
    flags.DEFINE_boolean(
        "external_data",
        False,
        "put the weights into FILE.onnx.data; that is also done without the flag where they are "
        "too many for one file (2 GiB)",
        **text,
    )
    flags.DEFINE_boolean(
        "allow_refused", False, "write the file although the target's parser refuses nodes of it", **text
    )
    flags.DEFINE_boolean("bisect", True, "if the answers differ, find the first tensor that differs", **text)
    flags.DEFINE_string("data", "", f"inputs to compare on: {_data_flags.KINDS}", **text)
    _data_flags.define_reading(values)
    flags.DEFINE_string("shapes", "", "shapes of random inputs, as in `tftrt verify`", **text)
    flags.DEFINE_integer("batch_size", 0, "rows of a call with --data; 32 by default", lower_bound=0, **text)
    flags.DEFINE_string("thresholds", "", "bounds on the difference, as in `tftrt verify`", **text)
    _data_flags.define_labels(values, "reports what the model and the file have against it")
    flags.DEFINE_string(
        "label_output", "", "SIGNATURE/OUTPUT that --labels belong to; needed if several are possible", **text
    )
    _judging_flags.define(values)
    _source_flags.define(values)
    flags.DEFINE_string("log_file", None, "keep what TensorFlow logs in this file", **text)


def result(values: flags.FlagValues, positional: list[str]) -> Exported:
    """Export."""
    model = _flags.one_argument("export", positional, "MODEL")
    if not values.output:
        raise errors.UsageError("--output is missing", "name the file to write, such as --output=model.onnx")
    if values.outputs and not any(values.outputs):
        raise errors.UsageError(
            f"--outputs={','.join(values.outputs)} names no output", "name one, or leave the flag out for all"
        )
    from tftrt_tools.accuracy import verify
    from tftrt_tools.tensorrt.exporting import earlier, export, rewriting

    whole_file.check_places(
        path for path in (values.output + earlier.WEIGHTS, values.output_table, values.json) if path and path != "-"
    )
    reading, precision = _precision(values)
    asked = _data_flags.asked(values, reading)
    comparison = verify.Options(
        asked=asked,
        thresholds=values.thresholds,
        batch_size=values.batch_size,
        labels=values.labels,
        label_output=values.label_output,
        label_column=values.label_column,
        classes=values.classes,
        **_judging_flags.read(values),
    )
    options = export.Options(
        target=values.target,
        opset=values.opset,
        signature_keys=tuple(filter(None, values.signature_keys)),
        external_data=values.external_data,
        allow_refused=values.allow_refused,
        bisect=values.bisect,
        rewrites=rewriting.chosen(values.rewrite, values.target, values.opset, table.kind(model).of_tensorflow),
        freeze=values.freeze,
        fix_shapes=values.fix_shapes,
        precision=precision,
        judge_precision=values.judge_precision,
        comparison=comparison,
        log_file=values.log_file,
    )
    with progress.on_terminal():
        return export.export(_source_flags.read(values, model), values.output, options)


def show(done: Exported, values: flags.FlagValues) -> None:
    """Print what was exported."""
    _print(done, values)


def write(done: Exported, values: flags.FlagValues) -> None:
    """Write --json."""
    _output.write_json(done, values.json)


def failure(done: Exported, values: flags.FlagValues) -> errors.TftrtError | None:
    """CheckFailed where a file does not answer like the model, or the parser refuses it."""
    if done.passed:
        return None
    checks = [one.verification for one in done.files]
    checks += [one.precision.verification for one in done.files if one.precision and one.precision.verification]
    wrong = [problem for one in checks for problem in one.problems]
    wrong += [line for one in done.files for line in parser.lines(one.refused)]
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return errors.CheckFailed(
        f"nothing was written: {wrong[0]}{more}" if wrong else "nothing was written",
        "the result has everything that was found",
    )


def run(values: flags.FlagValues, positional: list[str]) -> int:
    """Export. Returns: the exit code."""
    done = result(values, positional)
    show(done, values)
    write(done, values)
    (model,) = positional
    kind = table.kind(model)
    if (kind.onnx(model) or kind.of_tensorflow) and any(
        one.verification.passed and not one.answers for one in done.files
    ):
        _show_sensitivity(values, model)
    return _calling.exit_code(failure(done, values))


def _show_sensitivity(values: flags.FlagValues, model: str) -> None:
    """The search for the nodes that lose the most of a model's answers in the precision. Drawn inputs say little of that."""
    names = ("data_rows", "batch_size", *_calibration_flags.names(), *_calibration_flags.METHOD, "calibration_table")
    kept = [f"--fp32_nodes={'|'.join(values.fp32_nodes)}"] if values.fp32_nodes else []
    data = [f"--data={values.data}"] if values.data else []
    repeated = (
        _next.given(values, names) if table.kind(model).onnx(model) else _next.measured(values, (*names, "freeze"))
    )
    command = ["sensitivity", model, f"--precision={values.precision}", *data, *repeated, *kept]
    _next.show_with_data(values, command)


def _precision(values: flags.FlagValues) -> tuple[DataOptions, Asked]:
    """(How --data is read, the precision that is asked for.) Raises: UsageError."""
    from tftrt_tools.models.backends.recipe import Recipe, checked
    from tftrt_tools.tensorrt.exporting.precision import Asked

    settings = checked(
        Recipe(
            precision_mode=values.precision,
            calibration_table=values.calibration_table,
            calibration_method=values.calibration_method,
            calibration_percentile=values.calibration_percentile,
        )
    )
    reading, data = _data_flags.reading_beside(values, convert.read_data(values, settings, compares=True))
    if values.output_table and (settings.precision_mode != "INT8" or settings.calibration_table):
        raise errors.UsageError(
            "--output_table is for ranges that are measured here",
            "give --precision=INT8 and --calibration_data, or leave it out",
        )
    asked = Asked.of(settings, data, values.int8_as)
    return reading, dataclasses.replace(
        asked, fp32_nodes=tuple(filter(None, values.fp32_nodes)), output_table=values.output_table
    )


def _print(done: Exported, values: flags.FlagValues) -> None:
    console = _output.console(values.json)
    for one in done.files:
        _print_file(console, one, values.bisect)
    if done.remark:
        console.print(done.remark)
    for one in done.files if done.written else ():
        beside = f", with its weights in {one.weights}" if one.weights else ""
        in_precision = f", {done.precision}" if done.precision != "FP32" else ""
        before = ", in the place of an earlier file" if one.path in done.replaced else ""
        facts = f"{done.exporter}, opset {one.opset}{in_precision}"
        console.print(f"written: {one.path}{beside} ({facts}){before}", soft_wrap=True)
    for path in done.removed:
        console.print(f"removed: {path}, the weights of the file that was there before", soft_wrap=True)
    for line in done.stay:
        console.print(f"note: {line}", soft_wrap=True)
    if done.table:
        console.print(f"ranges of all tensors: {done.table}", soft_wrap=True)
    if not done.written:
        console.print("nothing was written")
        if any(one.refused for one in done.files):
            outputs = sum(len(one.outputs) for one in done.files)
            for line in parser.mends([found for one in done.files for found in one.refused], outputs):
                console.print(f"  {line}", soft_wrap=True)
    console.print("PASSED" if done.passed else "FAILED", style="bold green" if done.passed else "bold red")


def _print_file(console: Console, one: File, bisect: bool) -> None:
    from tftrt_tools.models.savedmodel import signatures

    def say(text: str) -> None:
        console.print(text, soft_wrap=True)

    taken, given = (", ".join(f"{spec.name} {spec.text()}" for spec in specs) for specs in (one.inputs, one.outputs))
    say(f"{signatures.label(one.signature, one.twins)}: {taken} -> {given}")
    if one.dimensions:
        say("open dimensions: " + "; ".join(f"{name} is {', '.join(where)}" for name, where in one.dimensions.items()))
    _print_answers(console, one.verification, "")
    if made := [rewrite for rewrite in one.rewrites if rewrite.nodes and not rewrite.undone]:
        say(
            "rewritten: "
            + ", ".join(f"{terminal.counted(rewrite.nodes, 'node')} by {rewrite.name}" for rewrite in made)
        )
    for rewrite in one.rewrites:
        if rewrite.undone:
            say(f"  without {rewrite.name}: {rewrite.undone}")
        for text in parser.grouped((missed.reason, missed.node) for missed in rewrite.missed):
            say(f"  not by {rewrite.name}: {text}")
    for note in one.notes:
        say(f"  note: {note}")
    for text in parser.lines(one.refused):
        say(f"  refused: {text}")
    for text in parser.lines(one.doubts):
        say(f"  doubtful: {text}")
    if one.departure:
        say(f"  {one.departure.text()}")
    elif bisect and not one.verification.passed:
        say("  no tensor departs that both graphs have")
    if one.precision:
        _print_precision(console, one.precision)


def _print_answers(console: Console, checked: Verification, what: str) -> None:
    """Args: what: the precision, "" for FP32."""
    from tftrt_tools.command_line.commands import _answers
    from tftrt_tools.command_line.commands.verify import print_accuracy

    _answers.show(
        console,
        f"Answers {f'in {what} ' if what else ''}under {checked.runtimes['converted']} against the model",
        checked.comparisons,
        checked.bounds,
        {miss.output for miss in checked.misses},
    )
    for line in checked.drew:
        console.print(f"  random: {line}", soft_wrap=True)
    if checked.accuracy:
        print_accuracy(console, checked.accuracy)
    for warning in checked.warnings:
        console.print(f"  warning: {warning}", soft_wrap=True)
    for problem in checked.problems:
        console.print(f"  failed: {problem}", soft_wrap=True)


def _print_precision(console: Console, written: Written) -> None:
    from tftrt_tools.command_line.commands import _comparison

    def say(text: str) -> None:
        console.print(text, soft_wrap=True)

    if written.samples:
        say(
            f"calibrated ({written.method}) on {terminal.counted(written.samples, 'sample')}: {len(written.ranges)} tensors with a range"
        )
    for warning in written.warnings:
        say(f"  warning: calibration data: {warning}")
    _comparison.show(console, written.comparison, _comparison.FEW)
    kinds = collections.Counter(one.op for one in written.taken)
    say(f"in {written.precision}: " + (", ".join(f"{count} {op}" for op, count in kinds.most_common()) or "nothing"))
    reasons = collections.defaultdict(list)
    for one in written.left:
        reasons[one.reason].append(f"{one.op} {one.name}")
    for reason, nodes in reasons.items():
        more = f" and {len(nodes) - _MOST_NAMED} more" if len(nodes) > _MOST_NAMED else ""
        say(f"  in FP32: {', '.join(nodes[:_MOST_NAMED])}{more}: {reason}")
    for line in written.constants:
        say(f"  in FP32: {line}")
    for line in written.remarks:
        say(f"  warning: {line}")
    if written.verification:
        _print_answers(console, written.verification, written.precision)
    else:
        say(f"its answers in {written.precision} were not judged (--nojudge_precision)")
