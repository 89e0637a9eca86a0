"""usage: tftrt inspect MODEL [--flags]

Before conversion it shows what TF-TRT would do with each signature of a SavedModel. It runs the real graph pass, which needs no GPU. It
prints the share of ops that would run in TensorRT, each segment, each node that stays in TensorFlow with TF-TRT's reason, and what
another --minimum_segment_size or the other batch mode would give. The flags are those of `tftrt convert`.

After conversion, by `tftrt convert` or by TensorFlow's own converter, it shows engine ops, saved engines, ops that stayed in TensorFlow,
the manifest, and contradictions between them. It only reads files, so it can inspect a model whose engines are for another GPU.

Of an ONNX file, which TF-TRT does not convert, it shows inputs and outputs, opset, producer, ops, constants, and files with weights.

"ops" are those that compute something. Constants, Identity and the like are not counted; --minimum_segment_size counts constants, too.

examples:
  tftrt inspect resnet
  tftrt inspect encoder --use_dynamic_shape --all
  tftrt inspect resnet_fp16 --check --json=inspection.json
  tftrt inspect resnet.onnx
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import pathlib
from typing import TYPE_CHECKING, Any, TypeVar

from absl import flags

from tftrt_tools.base import errors, terminal
from tftrt_tools.base.process import progress
from tftrt_tools.command_line.commands import _calling, _flags, _next, _output, _overview, _record_flags, _source_flags
from tftrt_tools.command_line.commands import convert as convert_command
from tftrt_tools.models.kinds import opening, table
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.models.savedmodel import shapes as shape_grammar
from tftrt_tools.models.savedmodel.engine_op import PASSIVE_OPS
from tftrt_tools.models.savedmodel.inspection import Inspection, bytes_text
from tftrt_tools.models.sources.opened import opened
from tftrt_tools.tftrt.calibration.file import Calibration
from tftrt_tools.tftrt.conversion import inspecting, pass_apart, pass_log
from tftrt_tools.tftrt.conversion.inspecting import InspectRequest
from tftrt_tools.tftrt.conversion.plan import Plan, SignaturePlan, grouped
from tftrt_tools.tftrt.conversion.settings import MAX_WORKSPACE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rich.console import Console

    from tftrt_tools.models.kinds.model import Overview
    from tftrt_tools.models.savedmodel.engine_op import EngineOp
    from tftrt_tools.models.savedmodel.inspection import Finding, SignatureGraph

T = TypeVar("T")
# Limits without --all: rows of a table, and characters of node names beneath a reason.
_ROWS = 6
# The mode of a verification in which no engine could run (execution.runner.Mode).
_UNSEEN = "native segments"
_NAMES_WIDTH = 100


def define(values: flags.FlagValues) -> None:
    """Define the command's flags on FlagValues `values`."""
    convert_command.define_settings(values)
    flags.DEFINE_string(
        "shapes",
        "",
        "shapes as for `tftrt convert`, which imply dynamic shapes; nothing is built: they are the sizes for "
        "which FLOPs are counted",
        flag_values=values,
    )
    _source_flags.define(values)
    flags.DEFINE_boolean(
        "all", False, "print every segment, node and engine; --json always has them all", flag_values=values
    )
    flags.DEFINE_boolean(
        "check",
        False,
        "exit with 3 where something disagrees in a converted model; for another, where nothing of it would run in TensorRT, a "
        "signature cannot be converted, an engine would not build, or an input, output or variable cannot be served",
        flag_values=values,
    )
    flags.DEFINE_string("log_file", None, "keep what TensorFlow and TF-TRT log in this file", flag_values=values)


def result(values: flags.FlagValues, positional: list[str]) -> Plan | Inspection | Overview:
    """Inspect."""
    model = _flags.one_argument("inspect", positional, "MODEL")
    kind = table.kind(model)
    if kind.unconverted:
        _overview.check_flags(values, kind, model)
        about = kind.overview(model)
        assert about is not None
        return about
    source, settings = opening.check(_source_flags.read(values, model)), convert_command.read_settings(values)
    with progress.on_terminal(), opened(source, values.log_file) as folder:
        seen = _ask(InspectRequest(model=folder, settings=settings), values.log_file)
    return dataclasses.replace(seen, model=str(pathlib.Path(model).absolute()))


def show(done: Plan | Inspection | Overview, values: flags.FlagValues) -> None:
    """Print what was found."""
    console = _output.console(values.json)
    if isinstance(done, Plan):
        _print_plan(done, console, values.all)
    elif isinstance(done, Inspection):
        _print_inspection(done, console, values.all)
    else:
        _overview.show(done, console, values.all)


def write(done: Plan | Inspection | Overview, values: flags.FlagValues) -> None:
    """Write --json."""
    _output.write_json(done, values.json)


def failure(done: Plan | Inspection | Overview, values: flags.FlagValues) -> errors.TftrtError | None:
    """With --check, CheckFailed for the first thing that is wrong."""
    return _wrong(done) if values.check else None


def _wrong(done: Plan | Inspection | Overview) -> errors.CheckFailed | None:
    """What --check does not let pass."""
    if isinstance(done, Plan):
        if not _converts(done):
            return errors.CheckFailed("nothing of the model would run in TensorRT", "the result says why of each node")
        return next((wrong for one in done.signatures if (wrong := _wrong_of(one))), None)
    if isinstance(done, Inspection) and done.findings:
        first = done.findings[0]
        return errors.CheckFailed(f"{first.about}: {first.text}", first.mend)
    return None


def _wrong_of(one: SignaturePlan) -> errors.CheckFailed | None:
    if one.problem:
        return errors.CheckFailed(
            f"signature {one.name} cannot be converted: {one.problem['cause']}", one.problem["mend"]
        )
    for finding in one.findings:
        return errors.CheckFailed(f"{finding.about}: {finding.text}", finding.mend)
    for problem in one.quantization.unbuildable if one.quantization else ():
        return errors.CheckFailed(f"{problem.name} ({problem.op}): {problem.text}", problem.mend)
    return None


def run(values: flags.FlagValues, positional: list[str]) -> int:
    """Inspect. Returns: the exit code."""
    done = result(values, positional)
    show(done, values)
    write(done, values)
    wrong = failure(done, values)
    if not wrong and (isinstance(done, Plan) and _converts(done) or isinstance(done, Inspection) and not done.findings):
        _show_next(values, positional[0], done)
    return _calling.exit_code(wrong)


def _converts(plan: Plan) -> bool:
    return any(one.segments for one in plan.signatures)


def _show_next(values: flags.FlagValues, model: str, seen: Plan | Inspection) -> None:
    if isinstance(seen, Plan):
        from tftrt_tools.studies.optimizing import mends

        precision = seen.settings.precision_mode if values["precision"].present else "FP16"
        if precision != "INT8":  # that needs data, or ranges of the model's own
            given = _record_flags.given(values)
            _next.show_convert(values, _next.convert(values, model, precision, *mends.of_plan(seen, given).words))
    elif seen.verification and seen.verification.get("passed") and seen.verification.get("mode") != _UNSEEN:
        _next.show(values, _next.publish(values, model))
    elif original := _next.original(model):
        if seen.verification and seen.verification.get("passed"):
            words = _next.verify(values, original, model)
            _next.show_on_gpu(values, [*words, *([] if seen.loads else ["--allow_builds"])], seen.manifest)
        else:
            _next.show_verify(values, original, model)


def _ask(request: InspectRequest, log_file: str | None) -> Plan | Inspection:
    found = pass_apart.run(inspecting.inspect, request, env=pass_log.ENV, log_file=log_file).result
    seen = found.plan or found.inspection
    assert seen, "the model is converted or not"
    return seen


def _print_plan(plan: Plan, console: Console, everything: bool) -> None:
    settings = plan.settings
    mode = f"dynamic shapes ({settings.strategy})" if settings.dynamic else "implicit batch"
    _label(console, plan.model, ": not converted yet")
    if all(one.problem for one in plan.signatures):
        _print_nothing(plan, console)
        return
    _say(
        console,
        f"With {settings.precision_mode}, {mode} and --minimum_segment_size={settings.minimum_segment_size} TF-TRT would take:",
    )
    rows = [
        (
            one.label,
            _specs(one.inputs),
            f"{one.ops_in_tensorrt} of {one.ops}",
            f"{one.coverage:.0%}",
            _output.flops_cell(one.flops),
            len(one.segments),
        )
        for one in plan.signatures
        if not one.problem
    ]
    if rows:
        _table(
            console, None, ["signature", "inputs", ">ops in TensorRT", ">share", ">share of FLOPs", ">engines"], rows
        )
    for one in plan.signatures:
        if note := _output.flops_note(one.flops, plan.settings.shapes):
            _label(console, f"  {one.name}: ", note)
    _print_segments(plan, console, everything)
    _print_left_out(plan, console, everything)
    _print_quantization(plan, console, everything)
    for signature in plan.signatures:
        for reason in _output.prepared(signature.preparation):
            _label(console, f"  {signature.name}: ", reason)
        _each_finding(signature.findings, console)
    _print_sizes(plan, console)
    _say(console, "Advice", "bold")
    for one in plan.signatures:
        label = f"{one.label}: " if len(plan.signatures) > 1 else ""
        if one.problem:
            _label(console, label, f"it cannot be converted: {one.problem['cause']}; {one.problem['mend']}")
        else:
            _label(console, label, " ".join(one.advice.reasons) if one.advice else "")


def _print_nothing(plan: Plan, console: Console) -> None:
    """Print why no signature can be converted."""
    _say(console, "Nothing of it can be converted:", "bold")
    for one in plan.signatures:
        if one.problem:
            _label(console, f"  {one.label}: ", f"{one.problem['cause']}; {one.problem['mend']}")
        _each_finding(one.findings, console)


def _print_segments(plan: Plan, console: Console, everything: bool) -> None:
    found = [(signature.label, segment) for signature in plan.signatures for segment in signature.segments]
    shown = _largest(found, lambda pair: pair[1].engine.compute_ops, everything)
    rows = [
        (
            name,
            segment.number,
            segment.engine.precision,
            segment.engine.compute_ops,
            _ops(segment.engine.ops, everything),
            *_borders(segment.engine),
        )
        for name, segment in shown
    ]
    if rows:
        columns = ["signature", ">segment", "type", ">ops", "of which", "inputs", "outputs"]
        _signature_table(console, plan, "Segments", columns, rows, len(found) - len(shown), "smaller segments")


def _print_left_out(plan: Plan, console: Console, everything: bool) -> None:
    if everything:
        for one in plan.signatures:
            title = "Stays in TensorFlow" + (f", {one.label}" if len(plan.signatures) > 1 else "")
            _reason_table(console, title, grouped(one.left_out), "\n".join)
        return
    groups = grouped([one for signature in plan.signatures for one in signature.left_out])
    _reason_table(console, "Stays in TensorFlow", groups[:_ROWS], _some)
    _more(console, sum(len(nodes) for _, _, nodes in groups[_ROWS:]), "nodes, for other reasons")


def _reason_table(
    console: Console, title: str, groups: Sequence[tuple[str, str, Sequence[str]]], join: Callable[[Sequence[str]], str]
) -> None:
    from rich.text import Text

    if not groups:
        return
    shown = _output.table(title, [">nodes", "op", "TF-TRT's reason, and the nodes' names"], [])
    for op, reason, nodes in groups:
        shown.add_row(str(len(nodes)), op, Text.assemble(reason, "\n", (join(nodes), "dim")))
    console.print(shown)


def _some(nodes: Sequence[str]) -> str:
    """As many node names as fit into a line, and the number of the others. Signatures may share names: each is shown once."""
    shown: list[str] = []
    width = 0
    for name in dict.fromkeys(nodes):
        width += len(name) + 2
        if shown and width > _NAMES_WIDTH:
            return ", ".join(shown) + f", and {len(nodes) - len(shown)} more"
        shown.append(name)
    return ", ".join(shown)


_KINDS = {
    "unbuildable": "engines that are expected not to build",
    "lost": "layers that quantization keeps out of TensorRT",
    "altered": "nodes that TensorRT computes with other numbers",
    "downgraded": "a higher precision than INT8, against --precision",
    "upgraded": "INT8, against --precision",
}


def _print_quantization(plan: Plan, console: Console, everything: bool) -> None:
    """Print what happens to the quantization nodes, and where TF-TRT departs from them."""
    for signature in plan.signatures:
        if signature.quantization is None:
            continue
        found = signature.quantization
        name = f", {signature.label}" if len(plan.signatures) > 1 else ""
        shown = found.nodes if everything else found.nodes[:_ROWS]
        rows = [(one.name, one.op, "weights" if one.weights else "activations", one.kind, one.text) for one in shown]
        columns = ["node", "op", "of", "becomes", "which means"]
        _table(console, f"Quantization-aware{name}", columns, rows, len(found.nodes) - len(shown), "quantization nodes")
        for kind, title in _KINDS.items():
            problems = getattr(found, kind)
            if problems:
                _say(console, f"{title}: {len(problems)}", "bold red")
            for one in problems:
                _label(console, f"  {one.name} ({one.op}) ", one.text)
                if one.mend:
                    _say(console, f"    fix: {one.mend}", "cyan")


def _print_sizes(plan: Plan, console: Console) -> None:
    rows = []
    for signature in plan.signatures:
        for row in signature.sizes:
            given = "  (given)" if row.holds(plan.settings.minimum_segment_size) else ""
            full = " (max_engines)" if row.engines and row.engines == plan.settings.max_engines else ""
            rows.append(
                (signature.label, row.text() + given, f"{row.engines}{full}", f"{row.coverage:.0%}", row.smallest)
            )
    if rows:
        columns = ["signature", "--minimum_segment_size", ">engines", ">share", ">ops of the smallest engine"]
        _signature_table(console, plan, "Other segment sizes", columns, rows)


def _print_inspection(seen: Inspection, console: Console, everything: bool) -> None:
    saved, size = sum(len(file.assets) for file in seen.engine_files), sum(file.bytes for file in seen.engine_files)
    engines = f"{terminal.counted(saved, 'saved engine')} ({bytes_text(size)})" if saved else "no saved engines"
    _label(console, seen.model, ": converted")
    _say(
        console,
        f"{terminal.counted(len(seen.engines), 'engine op')}, {engines}; saved_model.pb {bytes_text(seen.graph_bytes)}, "
        f"written by TensorFlow {seen.tensorflow}",
    )
    for line in _passport(seen):
        _say(console, line)
    rows = [
        (
            label,
            _specs(one.inputs),
            f"{one.inside} of {one.ops}",
            f"{one.coverage:.0%}",
            _output.flops_cell(seen.flops(one.name)),
            len(one.engines),
            _ops(collections.Counter(node.op for node in one.native), everything),
        )
        for label, one in seen.once.items()
    ]
    _table(
        console,
        None,
        ["signature", "inputs", ">ops in TensorRT", ">share", ">share of FLOPs", ">engines", "stays in TensorFlow"],
        rows,
    )
    _print_engines(seen, console, everything)
    _print_files(seen, console, everything)
    _print_calibration(seen, console)
    if everything:
        for label, one in seen.once.items():
            _print_native(label, one, console)
    _print_findings(seen, console)


def _passport(seen: Inspection) -> Iterator[str]:
    manifest, verified = seen.manifest, seen.verification
    if manifest is None:
        yield "no manifest: `tftrt convert` did not make it, so what it was made from, and with what, is not known"
    else:
        precision, gpu = (manifest.get("settings") or {}).get("precision_mode"), manifest.get("gpu")
        tensorrt = (manifest.get("versions") or {}).get("tensorrt")
        yield (
            f"made from {manifest.get('source')} by {manifest.get('tool')} on {manifest.get('created')}: {precision}, "
            f"TensorRT {tensorrt}, {'on ' + gpu['name'] if gpu else 'without a GPU'}"
        )
    if verified is None:
        yield "not verified yet (`tftrt verify`)"
    else:
        verdict = verified.get("verdict") or ("PASSED" if verified.get("passed") else "FAILED")
        yield f"verified on {verified.get('created')}: {verdict}, {verified.get('mode')}"
    yield from passport.in_tensorflow(manifest)


def _print_engines(seen: Inspection, console: Console, everything: bool) -> None:
    shown = _largest(seen.engines, lambda one: one.compute_ops, everything)
    if not shown:
        return
    # The title has the facts that all engine ops share, because the table is wide enough without them.
    every = [_properties(one) for one in seen.engines]
    differing = [name for name in every[0] if len({one[name] for one in every}) > 1]
    shared = ", ".join(text for name, text in every[0].items() if name not in differing)
    rows = [
        (
            ", ".join(label for label, caller in seen.once.items() if one.name in caller.engines),
            one.name,
            *(_properties(one)[name] for name in differing),
            one.compute_ops,
            *_borders(one),
            len(seen.assets(one.name)) or ("on request" if one.allow_build_at_runtime else "never"),
        )
        for one in shown
    ]
    columns = ["signature", "engine op", *differing, ">ops", "inputs", "outputs", ">built"]
    title = f"Engine ops ({shared})" if shared else "Engine ops"
    _signature_table(console, seen, title, columns, rows, len(seen.engines) - len(shown), "engine ops")


def _print_files(seen: Inspection, console: Console, everything: bool) -> None:
    found = [
        (file.engine, bytes_text(asset.bytes), "; ".join(shape_grammar.text(shape) for shape in asset.input_shapes))
        for file in seen.engine_files
        for asset in file.assets
    ]
    found += [
        (file.engine, bytes_text(file.bytes), file.problem or "no engine in it")
        for file in seen.engine_files
        if not file.assets
    ]
    shown = found if everything else found[:_ROWS]
    if shown:
        _table(
            console,
            "Saved engines",
            ["engine op", ">size", "input shapes it was built for"],
            shown,
            len(found) - len(shown),
            "saved engines",
        )


def _print_calibration(seen: Inspection, console: Console) -> None:
    """Print where the INT8 ranges come from."""
    if seen.calibration is None:
        return
    calibration = Calibration.from_dict(seen.calibration)
    convert_command.print_calibration(console, calibration)
    said = calibration.data.get("source")
    _say(
        console,
        f"  data: {said}" if said else "  data: random" if calibration.data.get("random") else "  data: not known",
    )
    rows = [(one.engine, len(one.table.scales), len(one.left_out)) for one in calibration.engines]
    if len(rows) > 1:
        _table(console, None, ["engine op", ">tensors with a range", ">left out"], rows)


def _print_native(label: str, signature: SignatureGraph, console: Console) -> None:
    rows = [(node.op, node.name, node.function) for node in signature.native]
    if rows:
        _table(console, f"Stays in TensorFlow, {label}", ["op", "node", "in function"], rows)


def _print_findings(seen: Inspection, console: Console) -> None:
    if not seen.findings:
        _say(console, "nothing disagrees", "green")
        return
    _say(console, terminal.counted(len(seen.findings), "disagreement"), "bold red")
    _each_finding(seen.findings, console)


def _each_finding(findings: Iterable[Finding], console: Console) -> None:
    for one in findings:
        _label(console, f"  {one.about}: ", one.text)
        _say(console, f"    fix: {one.mend}", "cyan")


def _largest(items: Sequence[T], size: Callable[[T], int], everything: bool) -> list[T]:
    """The largest few, in the original order; all with --all."""
    kept = sorted(range(len(items)), key=lambda index: -size(items[index]))[: None if everything else _ROWS]
    return [items[index] for index in sorted(kept)]


def _properties(engine: EngineOp) -> dict[str, str]:
    limit = engine.workspace_size_bytes
    return {
        "type": _precision(engine),
        "batch": "implicit batch" if engine.implicit_batch else f"profiles {engine.profile_strategy}",
        "workspace": "no workspace limit" if limit >= MAX_WORKSPACE_BYTES else f"workspace {bytes_text(limit)}",
        "native": f"native segment {'kept' if engine.native_segment else 'removed'}",
    }


def _precision(engine: EngineOp) -> str:
    """The precision; for INT8 also the place of its ranges."""
    if engine.precision != "INT8":
        return engine.precision
    if engine.explicit_precision:
        return "INT8 (explicit: the model's quantization nodes)"
    if not engine.use_calibration:
        return "INT8 (the model's quantization nodes give ranges)"
    return "INT8 (calibrated)" if engine.calibrated else "INT8 (not calibrated)"


def _borders(engine: EngineOp) -> tuple[str, str]:
    """Its inputs and outputs, with equal neighbours joined: "4x float32[?,8]"."""

    def cell(border: Iterable[Any]) -> str:
        texts = [f"{one.dtype}[{shape_grammar.text(one.shape)}]" for one in border]
        runs = [(text, len(list(same))) for text, same in itertools.groupby(texts)]
        return "\n".join(text if count == 1 else f"{count}x {text}" for text, count in runs)

    return cell(engine.inputs), cell(engine.outputs)


def _specs(specs: Iterable[Any]) -> str:
    return "\n".join(f"{one.name} {one.text()}" for one in specs)


def _ops(counts: Mapping[str, int], everything: bool) -> str:
    """Such as "3 Relu, 2 Conv2D, …": computing ops, the most frequent first."""
    found = sorted(
        ((count, op) for op, count in counts.items() if op not in PASSIVE_OPS), key=lambda item: (-item[0], item[1])
    )
    shown = found if everything else found[:4]
    return ", ".join(f"{count} {op}" for count, op in shown) + (", …" if len(shown) < len(found) else "")


def _signature_table(
    console: Console,
    seen: Any,
    title: str | None,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    more: int = 0,
    what: str = "",
) -> None:
    """A table whose first column is the signature: left out if there is only one, blank where it repeats."""
    if len(seen.once if isinstance(seen, Inspection) else seen.signatures) == 1:
        columns, rows = columns[1:], [row[1:] for row in rows]
    else:
        before = [None, *(row[0] for row in rows)]
        rows = [("" if row[0] == last else row[0], *row[1:]) for row, last in zip(rows, before, strict=False)]
    _table(console, title, columns, rows, more, what)


def _table(
    console: Console,
    title: str | None,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    more: int = 0,
    what: str = "",
) -> None:
    shown = _output.table(title, columns, rows)
    for column in shown.columns:
        column.no_wrap = column.header == "engine op"  # a name to copy
    console.print(shown)
    _more(console, more, what)


def _more(console: Console, count: int, what: str) -> None:
    if count:
        _say(console, f"  and {count} more {what}: --all lists them", "dim")


def _label(console: Console, label: str, text: str) -> None:
    from rich.text import Text

    console.print(Text.assemble((label, "bold"), text), soft_wrap=text.startswith(":"))


def _say(console: Console, text: str, style: str | None = None) -> None:
    console.print(text, style=style, soft_wrap=True)
