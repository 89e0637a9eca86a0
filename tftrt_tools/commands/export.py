"""usage: tftrt export MODEL --output=FILE.onnx [--flags]

Exports every signature of a model to an ONNX file, with tf2onnx. Inputs and outputs keep their names and their order; open dimensions get
names. The opset is the one that fits the target. One signature becomes FILE.onnx; several become FILE.SIGNATURE.onnx each, and
--signature_keys chooses among them.

Then, always: onnx.checker and the inference of shapes and types; the file under ONNX Runtime on the CPU against the model, on --data or on
drawn inputs, judged as `tftrt verify` judges; and, for a TensorRT target, each node against the list of ops that its parser takes. A node
that the parser refuses is named with the reason. If the answers differ, the first tensor that departs is named.

If a check fails, nothing is written (exit 3). --allow_refused writes a file that the parser refuses, for those who bring a plugin or cut
the graph.

examples:
  tftrt export resnet --output=resnet.onnx --data=images.npz
  tftrt export model.h5 --output=model.onnx --target=10
  tftrt export ranker --output=ranker.onnx --target=onnxruntime --signature_keys=user_embedding
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from absl import flags

from tftrt_tools import errors, progress
from tftrt_tools.commands import _data_flags, _flags, _judging_flags, _output, _source_flags
from tftrt_tools.exporting import parser
from tftrt_tools.exporting.targets import OPSETS, TARGETS

if TYPE_CHECKING:
    from rich.console import Console

    from tftrt_tools.exporting.result import Exported, File

OUTPUTS = ("output",)


def define(values: flags.FlagValues) -> None:
    """Define the command's flags on FlagValues `values`."""
    text = dict(flag_values=values)
    flags.DEFINE_string("output", None, "the file to write, FILE.onnx; a file that is there is replaced", **text)
    flags.DEFINE_enum("target", "8.5", list(TARGETS), "who will read it: TensorRT 8.5, 10 or 11, or ONNX Runtime", **text)
    flags.DEFINE_integer("opset", 0, f"the opset, {OPSETS[0]} to {OPSETS[1]}; by default the target's: "
                         + ", ".join(f"{name}: {one.opset}" for name, one in TARGETS.items()), **text)
    flags.DEFINE_list("signature_keys", [], "signatures to export, by default all", **text)
    flags.DEFINE_boolean("external_data", False, "put the weights into FILE.onnx.data; that is also done without the flag where they are "
                         "too many for one file (2 GiB)", **text)
    flags.DEFINE_boolean("allow_refused", False, "write the file although the target's parser refuses nodes of it", **text)
    flags.DEFINE_boolean("bisect", True, "where the answers differ, look for the first tensor that departs", **text)
    flags.DEFINE_string("data", "", f"inputs to compare on: {_data_flags.KINDS}", **text)
    _data_flags.define_reading(values)
    flags.DEFINE_string("shapes", "", "shapes of drawn inputs, as in `tftrt verify`", **text)
    flags.DEFINE_string("ranges", "", "ranges of drawn inputs, INPUT:LOW:HIGH;…", **text)
    flags.DEFINE_integer("seed", 0, "seed of drawn inputs", **text)
    flags.DEFINE_integer("batch_size", 0, "rows of a call with --data; 32 by default", lower_bound=0, **text)
    flags.DEFINE_string("thresholds", "", "bounds on the difference, as in `tftrt verify`", **text)
    _judging_flags.define(values)
    _source_flags.define(values)
    flags.DEFINE_string("log_file", None, "keep what TensorFlow logs in this file", **text)


def run(values: flags.FlagValues, positional: list[str]) -> int:
    """Export. Returns: the exit code."""
    model = _flags.one_argument("export", positional, "MODEL")
    if not values.output:
        raise errors.UsageError("--output is missing", "name the file to write, such as --output=model.onnx")
    from tftrt_tools.accuracy import verify
    from tftrt_tools.exporting import export
    from tftrt_tools.inputs import calls

    asked = calls.Asked(data=values.data, reading=_data_flags.reading(values), data_rows=values.data_rows, shapes=values.shapes,
                        ranges=values.ranges, seed=values.seed)
    comparison = verify.Options(asked=asked, thresholds=values.thresholds, batch_size=values.batch_size, **_judging_flags.read(values))
    options = export.Options(target=values.target, opset=values.opset, signature_keys=tuple(filter(None, values.signature_keys)),
                             external_data=values.external_data, allow_refused=values.allow_refused, bisect=values.bisect,
                             comparison=comparison, log_file=values.log_file)
    with progress.on_terminal():
        done = export.export(_source_flags.read(values, model), values.output, options)
    _print(done, values)
    _output.write_json(done, values.json)
    return errors.EXIT_DONE if done.passed else errors.EXIT_CHECK


def _print(done: Exported, values: flags.FlagValues) -> None:
    console = _output.console(values.json)
    for one in done.files:
        _print_file(console, one, values.bisect)
    if done.remark:
        console.print(done.remark, markup=False)
    for one in done.files if done.written else ():
        beside = f", with its weights in {one.weights}" if one.weights else ""
        console.print(f"written: {one.path}{beside} ({done.exporter}, opset {done.opset})", markup=False, soft_wrap=True)
    if not done.written:
        console.print("nothing was written", markup=False)
        if any(one.refused for one in done.files):
            console.print("  leave that part out of the model that is exported (strings and tables before it, suppression behind it), or "
                          "choose another --target; --allow_refused writes the file", markup=False, soft_wrap=True)
    console.print("PASSED" if done.passed else "FAILED", style="bold green" if done.passed else "bold red")


def _print_file(console: Console, one: File, bisect: bool) -> None:
    from tftrt_tools.commands import _answers
    from tftrt_tools.savedmodel import signatures

    def say(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    taken, given = (", ".join(f"{spec.name} {spec.text()}" for spec in specs) for specs in (one.inputs, one.outputs))
    say(f"{signatures.label(one.signature, one.twins)}: {taken} -> {given}")
    if one.dimensions:
        say("open dimensions: " + "; ".join(f"{name} is {', '.join(where)}" for name, where in one.dimensions.items()))
    checked = one.verification
    _answers.show(console, f"Answers under {checked.runtimes['converted']} against the model", checked.comparisons, checked.bounds,
                  {miss.output for miss in checked.misses})
    for note in one.notes:
        say(f"  note: {note}")
    for text in parser.lines(one.refused):
        say(f"  refused: {text}")
    for text in parser.lines(one.doubts):
        say(f"  doubtful: {text}")
    for warning in checked.warnings:
        say(f"  warning: {warning}")
    for problem in checked.problems:
        say(f"  failed: {problem}")
    if one.departure:
        say(f"  {one.departure.text()}")
    elif bisect and not checked.passed:
        say("  no tensor departs that both graphs have")
