"""usage: tftrt verify ORIGINAL CONVERTED [--flags]

Sends the same inputs through both models and compares every output of every signature. On a GPU it also watches which engines ran: an
engine that fell back to TensorFlow, or that was built inside a call, is named with its shape and fails the check (exit 3). Without a
GPU the engine ops run as TensorFlow ops, which shows the effect of the graph rewrite. The rounding of INT8 and FP16 engines is then
simulated on --data, INT8 with the ranges in the model, and judged by the bounds of that precision. The verdict says what no engine has
shown: "PASSED (INT8 simulated; no engine ran)", "PASSED (the graph; no engine ran)".

Inputs come from --data, else from a seed: at --shapes, at the shapes that engines were built for, or at batch 1 and 8. Ids in float
outputs and the outputs of a detector are recognised; --output_kind says what an output is. --labels may be classes, regression targets,
masks, texts, or boxes with classes; both models are scored against them. If no output of a signature shows anything (all zero, empty,
or the same for every input), the check fails (exit 3): give --data that gets a real answer, or accept it with --allow_constant_outputs.

Data that calibrated an INT8 model proves nothing. --data is refused if more than half of its rows were used for calibration; a smaller
share is a warning. The result is kept in CONVERTED/assets.extra/tftrt/verify.json with the digests of both models. Either model may be
an ONNX file, which runs in ONNX Runtime on the CPU; no result is kept with it. CONVERTED may be a plan directory.

If two models differ, --tensors=all compares their inner tensors instead of their answers, and names the first one that differs (exit 3).
It takes two SavedModels, an ONNX file and a plan, or two ONNX files. --plot draws the tensors in the order in which they are computed. A
plan, or a TF-TRT engine for the tensors inside it, is built again for each group of tensors; TensorRT may then fuse other layers.

examples:
  tftrt verify resnet resnet_fp16 --data=images.npz --labels=labels.npy
  tftrt verify encoder encoder_fp16 --shapes='ids:1x128,8x128;mask:1x128,8x128' --ranges='ids:0:30522;mask:0:2'
  tftrt verify detector detector_fp16 --data=images.npz --labels=boxes.npz --thresholds='labels:map>=0.4'
  tftrt verify resnet resnet_fp16 --tensors=all --data=images.npz --plot=tensors.png
  tftrt verify resnet_plan/model.onnx resnet_plan --tensors=all --plot=tensors.png
  tftrt verify ranker ranker_fp16 --thresholds='snr_db>=40;serving_default/score:max_abs<=0.01'
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
from typing import TYPE_CHECKING, Any

from absl import flags

from tftrt_tools.base import errors, terminal
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
    _tensors,
)
from tftrt_tools.models.execution import kernels
from tftrt_tools.models.inputs import find
from tftrt_tools.models.savedmodel import signatures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console
    from typing_extensions import TypeIs

    from tftrt_tools.accuracy.verify import Options, Verification
    from tftrt_tools.models.inputs.calls import Asked
    from tftrt_tools.tensorrt.plans.tensors import Tensors

OUTPUTS = ("html", "plot")


def define(values: flags.FlagValues) -> None:
    """Define the command's flags on FlagValues `values`."""
    text = dict(flag_values=values)
    flags.DEFINE_string("data", "", f"inputs: {_data_flags.KINDS}", **text)
    _data_flags.define_reading(values)
    flags.DEFINE_string("shapes", "", "shapes of random inputs, as in `tftrt convert`", **text)
    flags.DEFINE_string(
        "ranges",
        "",
        "ranges of random inputs, INPUT:LOW:HIGH;…; by default what the "
        "graph tells, else floats are standard normal and integers 0 or 1",
        **text,
    )
    flags.DEFINE_integer("seed", 0, "seed of random inputs", lower_bound=0, **text)
    flags.DEFINE_integer(
        "batch_size",
        0,
        "rows of a call with --data; by default the batch sizes that engines were built for, else 32",
        lower_bound=0,
        **text,
    )
    _data_flags.define_labels(values, "reports what both models have against it")
    flags.DEFINE_string(
        "label_output", "", "SIGNATURE/OUTPUT that --labels belong to; needed if several are possible", **text
    )
    flags.DEFINE_string(
        "thresholds",
        "",
        "bounds, e.g. 'snr_db>=40,max_abs<=0.01;SIGNATURE/OUTPUT:top1>=0.99'; they replace the "
        "defaults of the same metric (docs/judging.md lists them)",
        **text,
    )
    flags.DEFINE_float("epsilon", 1e-3, "floor of the divisor of max_rel", lower_bound=0, **text)
    flags.DEFINE_list("signature_keys", [], "signatures to verify, by default all", **text)
    flags.DEFINE_list(
        "rename",
        [],
        "inputs and outputs that have another name in CONVERTED, ORIGINAL=CONVERTED each; needed where an "
        "exporter has renamed several",
        **text,
    )
    flags.DEFINE_boolean(
        "allow_builds", False, "accept engines that are built inside a call (a model without saved engines)", **text
    )
    flags.DEFINE_boolean(
        "allow_calibration_data",
        False,
        "accept --data of which more than half of the rows calibrated the model",
        **text,
    )
    flags.DEFINE_boolean(
        "allow_matching_nonfinite", False, "accept NaN and Inf where the original answers the same", **text
    )
    flags.DEFINE_list(
        "tensors",
        [],
        "compare these inner tensors in place of answers, or all: of two SavedModels, of an ONNX file and a "
        "plan, or of two ONNX files",
        **text,
    )
    _judging_flags.define(values)
    _source_flags.define(values)
    flags.DEFINE_boolean("write", True, "keep the result in the converted model", **text)
    flags.DEFINE_string("html", None, "write a report with a plot to this file", **text)
    flags.DEFINE_string("plot", None, "with --tensors: write its plot to this file, .svg or .png", **text)
    flags.DEFINE_string("log_file", None, "keep what TensorFlow and TensorRT log in this file", **text)


def result(values: flags.FlagValues, positional: list[str]) -> Verification | Tensors:
    """Verify; with --tensors compare inner tensors."""
    original, converted = _flags.arguments("verify", positional, ["ORIGINAL", "CONVERTED"])
    from tftrt_tools.accuracy import verify

    _check_order(original, converted)
    asked = _data_flags.asked(values)
    if tensors := [name for name in values.tensors if name]:
        return _tensors.result(values, original, converted, tensors, asked)
    if values.plot:
        raise errors.UsageError(
            "--plot draws inner tensors, and --tensors names none", "add --tensors=all, or write a report with --html"
        )
    options = _options(values, asked)
    with progress.on_terminal():
        return verify.verify(_source_flags.read(values, original), converted, options)


def _check_order(original: str, converted: str) -> None:
    """Refuse a converted model before a source, which is no converted model at all. Raises: UsageError."""
    from tftrt_tools.studies import backends

    if converted.endswith((".keras", ".h5", ".pb")) and backends.of_made(original):
        raise errors.UsageError(
            f"{original} is the converted model, and {converted} is none",
            f"the original comes first: `{shlex.join(['tftrt', 'verify', converted, original])}`",
        )


def show(done: Verification | Tensors, values: flags.FlagValues) -> None:
    """Print what was found."""
    if _of_tensors(done):
        _tensors.show(done, values)
    else:
        _print(done, values.json)


def write(done: Verification | Tensors, values: flags.FlagValues) -> bool:
    """Write the files, and keep the result in the converted model. Returns: whether it is kept there. Raises: NotKept, OSError."""
    _output.write_json(done, values.json)
    if _of_tensors(done):
        _tensors.write(done, values)
        return False
    from tftrt_tools.models.kinds import opening
    from tftrt_tools.models.savedmodel import passport

    if values.html:
        from tftrt_tools.command_line.report import html

        html.write_verification(done, values.html)
    return bool(values.write) and opening.keep(done.converted, passport.VERIFY, done.to_dict())


def failure(done: Verification | Tensors, values: flags.FlagValues) -> errors.TftrtError | None:
    """CheckFailed where the answers, the engines or the tensors are not as they should be."""
    if done.passed:
        return None
    said = (done.text(),) if _of_tensors(done) else done.problems
    more = f" (and {len(said) - 1} more)" if len(said) > 1 else ""
    return errors.CheckFailed(f"{done.verdict}: {said[0]}{more}", "the result has everything that was found")


def _of_tensors(done: Verification | Tensors) -> TypeIs[Tensors]:
    return done.document == "tensors"


def run(values: flags.FlagValues, positional: list[str]) -> int:
    """Verify. Returns: the exit code."""
    done = result(values, positional)
    show(done, values)
    wrong = failure(done, values)
    try:
        kept = write(done, values)
    except errors.NotKept as error:
        if wrong is None:
            raise
        # That the answers are wrong matters more, and gives the exit code.
        _output.console(values.json).print(error.cause, soft_wrap=True)
        return wrong.exit_code
    if not _of_tensors(done):
        if wrong is None:
            _show_next(done, values, *positional, kept=kept)
        elif values.data and _by_rounding(done):
            _next.show(values, _study(done, values, *positional))
    return _calling.exit_code(wrong)


def _show_next(done: Verification, values: flags.FlagValues, original: str, converted: str, *, kept: bool) -> None:
    if done.unseen:
        from tftrt_tools.models.savedmodel import passport

        manifest = _next.document(converted, passport.MANIFEST)
        _next.show_on_gpu(values, _on_gpu(values, original, converted, manifest), manifest)
    elif kept and not _left_out(done, converted):
        _next.show(values, _next.publish(values, converted, *_warm_up(values, converted)))


def _left_out(done: Verification, converted: str) -> bool:
    """Whether --signature_keys left out a signature, without which nothing is published."""
    from tftrt_tools.models.savedmodel import describe, files

    if not files.is_saved_model(converted):
        return False
    (seen,) = describe.describe(converted)
    return not set(seen.inputs) <= {*done.sources, *(twin for twins in done.twins.values() for twin in twins)}


def _warm_up(values: flags.FlagValues, converted: str) -> list[str]:
    """Flags of `publish` for a model of open sizes, whose warm-up nobody can draw without the inputs that were given here."""
    if values.shapes:
        return [f"--warmup_shapes={values.shapes}"]
    if values.data and _next.open_input(converted):
        return [f"--warmup_data={values.data}", *_next.given(values, _next.of_pictures(values))]
    return []


def _by_rounding(done: Verification) -> bool:
    """Whether nothing is wrong but that a TF-TRT model in a lower precision misses bounds."""
    others = (*done.structure_problems, *done.engine_problems, *done.graph_problems)
    return bool(done.misses) and not others and done.precision in ("FP16", "INT8")


def _study(done: Verification, values: flags.FlagValues, original: str, converted: str) -> list[str]:
    """Which nodes lose what the answers miss."""
    from tftrt_tools.models.savedmodel import passport

    settings = (_next.document(converted, passport.MANIFEST) or {}).get("settings") or {}
    profiles = settings.get("use_dynamic_shape") or settings.get("shapes")
    image = [name for name in values if name.startswith("image_") and name == values[name].name]
    return [
        "sensitivity",
        original,
        *_next.measured(values, ("data", "data_rows", *sorted(image))),
        f"--precision={done.precision}",
        *(_ranges(converted) if done.precision == "INT8" else []),
        *(["--use_dynamic_shape"] if profiles else []),
    ]


def _ranges(converted: str) -> list[str]:
    """Where a model's INT8 ranges came from. By default the rows that are scored would give them.

    With its data, `sensitivity` tries every calibration method; with its table, none. The flags of its conversion say how the data are
    read; but for pictures, whose flags are those of the scored rows here.
    """
    from tftrt_tools.models.savedmodel import passport

    if _next.document(converted, passport.CALIBRATION) is None:
        return []
    kept = passport.folder(converted) / passport.FLAGS
    lines = kept.read_text(errors="replace").splitlines() if kept.is_file() else []
    said = dict(line.removeprefix("--").partition("=")[::2] for line in lines if line.startswith("--"))
    if _kind_of(said.get("calibration_data", "")) in ("", "images"):
        return [f"--calibration_table={converted}"]
    taken = {*_calibration_flags.names(), *_calibration_flags.METHOD}
    return [f"--{name}={value}" for name, value in said.items() if name in taken]


def _kind_of(data: str) -> str:
    """The kind of data of --calibration_data, "" where they are gone or have changed."""
    with contextlib.suppress(errors.UsageError):
        return find.find(data, "--calibration_data").kind if os.path.exists(data) else ""
    return ""


def _on_gpu(values: flags.FlagValues, original: str, converted: str, manifest: Mapping[str, Any] | None) -> list[str]:
    """The same verification on a machine with a GPU, which builds the engines that the model does not carry. Args: manifest: of the
    converted model."""
    from tftrt_tools.models.inputs import calls

    builds = [] if calls.built_for(manifest) else ["--allow_builds"]
    given = [
        name
        for name in sorted(values)
        if values[name].present
        and name == values[name].name
        and name not in ("help", "json", "log_file", "allow_builds", *OUTPUTS)
    ]
    return ["verify", original, converted, *_next.given(values, given), *builds]


def _options(values: flags.FlagValues, asked: Asked) -> Options:
    from tftrt_tools.accuracy import verify

    return verify.Options(
        asked=asked,
        thresholds=values.thresholds,
        batch_size=values.batch_size,
        labels=values.labels,
        label_output=values.label_output,
        label_column=values.label_column,
        classes=values.classes,
        allow_builds=values.allow_builds,
        allow_matching_nonfinite=values.allow_matching_nonfinite,
        allow_calibration_data=values.allow_calibration_data,
        signature_keys=tuple(filter(None, values.signature_keys)),
        rename=tuple(values.rename),
        epsilon=values.epsilon,
        log_file=values.log_file,
        **_judging_flags.read(values),
    )


def check_labels(values: flags.FlagValues, original: str, freeze: str, sizes: Sequence[int], metric: str = "") -> None:
    """Refuse labels that a run with these flags would refuse. Args: freeze, sizes: what the converted model will have frozen, and the rows
    of a call that its engines will take, largest first, () without engines. metric: of a goal that they have to have. Raises: UsageError,
    TftrtError."""
    from tftrt_tools.accuracy import verify

    options = dataclasses.replace(_options(values, _data_flags.asked(values)), freeze=freeze)
    with progress.on_terminal():
        verify.check_labels(_source_flags.read(values, original), options, sizes, metric)


def _print(done: Verification, json_path: str | None) -> None:
    from tftrt_tools.command_line.commands import _answers

    console = _output.console(json_path)
    _answers.show(
        console,
        "Answers of the converted model against the original",
        done.comparisons,
        done.bounds,
        {miss.output for miss in done.misses},
    )
    inputs = ", ".join(
        f"{signatures.label(name, done.twins.get(name, ()))}: {_samples(done, name)}" for name in done.sources
    )
    console.print(f"{terminal.counted(done.calls, 'call')} ({inputs}); evidence: {done.evidence}")
    for line in done.drew:
        console.print(f"  random: {line}", soft_wrap=True)
    if done.simulation.simulated:
        console.print(done.simulation.text(), soft_wrap=True)
    if done.dropped:
        console.print(
            f"{done.dropped} rows of the data were left out: no batch size that engines were built for fits them"
        )
    for accuracy in done.accuracies or filter(None, [done.accuracy]):
        print_accuracy(console, accuracy)
    for name, value in done.functions.items():
        console.print(f"{name}: {value:.6g}")
    if done.mode == "gpu" and done.engine_runs:
        built = f", {sum(done.builds.values())} built inside calls" if done.builds else ""
        runs, engines = sum(done.engine_runs.values()), len(done.engine_runs)
        console.print(f"{terminal.counted(runs, 'engine run')} of {terminal.counted(engines, 'engine')}{built}")
    if done.kernels:
        console.print(f"asked for {done.precision}; time of the GPU's kernels: {kernels.text(done.kernels)}")
    for line in done.matched:
        console.print(f"  matched: {line}", soft_wrap=True)
    for warning in done.warnings:
        console.print(f"  warning: {warning}", soft_wrap=True)
    for problem in done.problems:
        console.print(f"  failed: {problem}", soft_wrap=True)
    console.print(done.verdict, style="bold green" if done.passed else "bold red")


def _samples(done: Verification, name: str) -> str:
    """How many rows of a signature were compared, and where they come from."""
    what = "item" if name in done.items else "row"
    return f"{terminal.counted(done.samples[name], what)} of {done.sources[name]}"


def print_accuracy(console: Console, accuracy: Mapping[str, Any]) -> None:
    """Print what both models have against labels, as a Verification says."""
    from tftrt_tools.command_line.report import answers

    first, *others = answers.against_labels(accuracy)
    name, original, converted = first
    what = "accuracy" if name == "top1" else name
    console.print(
        f"{what} on {accuracy['labels']} labels ({accuracy['output']}): original {original}, converted {converted}"
    )
    for name, original, converted in others:
        console.print(f"  {name}: original {original}, converted {converted}")
