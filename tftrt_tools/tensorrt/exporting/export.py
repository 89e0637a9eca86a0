"""The whole of `tftrt export`: export in a child, check, run against the source, put the files in place. No runtime is imported here."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence

from tftrt_tools.accuracy import verify
from tftrt_tools.base import errors
from tftrt_tools.base.files import scratch, whole_file
from tftrt_tools.base.process import child, jobs, progress
from tftrt_tools.models.execution import run
from tftrt_tools.models.inputs import calls as inputs
from tftrt_tools.models.kinds import opening, table
from tftrt_tools.models.kinds.onnx import file as onnx_file
from tftrt_tools.models.kinds.onnx.kind import TOOL
from tftrt_tools.models.savedmodel import frozen_inputs, passport, signatures
from tftrt_tools.models.savedmodel.shapes import Call, InputSpec
from tftrt_tools.models.sources import kinds
from tftrt_tools.models.sources.source import Source, of
from tftrt_tools.tensorrt.exporting import (
    bisecting,
    comparing,
    converting,
    earlier,
    exporters,
    parser,
    precise,
    precision,
    rewriting,
)
from tftrt_tools.tensorrt.exporting.exporters import Exporter
from tftrt_tools.tensorrt.exporting.onnx_graph import INPUT, OUTPUT, Node
from tftrt_tools.tensorrt.exporting.result import Departure, Exported, File
from tftrt_tools.tensorrt.exporting.rewriting import Rewritten
from tftrt_tools.tensorrt.exporting.targets import OPSETS, TARGETS, Target

SUFFIX = ".onnx"
# Calls on which FP16's range is looked at.
_MOST_CALLS = 8
# With a fixed seed of hashes tf2onnx writes the same file each time.
_ENV = {"TF_CPP_MIN_LOG_LEVEL": "1", "CUDA_VISIBLE_DEVICES": "-1", "PYTHONHASHSEED": "0"}
# A message of protobuf holds less than 2 GiB; a graph is more than its variables.
_MOST_INSIDE = 1_900_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What to export, and how."""

    # A key of TARGETS.
    target: str
    # 0 for the target's.
    opset: int = 0
    # () for all.
    signature_keys: tuple[str, ...] = ()
    # Weights in a file beside; also without it, if they do not fit into one.
    external_data: bool = False
    # Write the files although the parser refuses nodes.
    allow_refused: bool = False
    # Look for the first tensor that departs, if the answers differ.
    bisect: bool = True
    # Keys of rewriting.REWRITES, in their order; None for those of the target.
    rewrites: tuple[str, ...] | None = None
    # Text of --freeze.
    freeze: str = ""
    # Open dimensions of an ONNX file's inputs get the sizes of --shapes for good.
    fix_shapes: bool = False
    # Of --outputs: NAME or SIGNATURE/NAME, () for all.
    outputs: tuple[str, ...] = ()
    # The precision that is written into the graphs, and whether its answers have to keep its bounds, as those in FP32 always do.
    precision: precision.Asked = precision.Asked()
    judge_precision: bool = True
    # How the answers are compared; its signature_keys and log_file are set here.
    comparison: verify.Options = verify.Options()
    # Where to keep what TensorFlow logs.
    log_file: str | None = None


def export(model: str | os.PathLike[str] | Source, output: str | os.PathLike[str], options: Options) -> Exported:
    """Export a model's signatures, each to a file.

    Args: model: a SavedModel, a file that is exported to one first, a PyTorch program, or an ONNX file. output: the file; for several
      signatures the pattern of their names.
    Returns: Exported, also if a check failed; then nothing was written. Raises: UsageError, TftrtError; nothing was written.
    """
    source, options = _cut(of(model), options)
    source, exporter = _check(source, output, options)
    target = TARGETS[options.target]
    progress.say("looking at the model")
    with opening.opened(source, log_file=options.log_file) as (described,), scratch.folder("onnx") as folder:
        if described.engines:
            raise errors.UsageError(
                f"{source} is a converted model: its engine ops mean nothing outside TF-TRT",
                f"export the model that it was made from{_original(described.path)}",
            )
        walked = signatures.Once.of(
            signatures.chosen(list(described.inputs), options.signature_keys), described.contents.same
        )
        described.check_dense(walked.names)
        chosen = {name: described.inputs[name] for name in walked.names}
        frozen_inputs.check(options.freeze, described.freezable(walked.with_twins(chosen)), walked.twins)
        outputs = comparing.outputs(options.outputs, {name: described.outputs[name] for name in walked.names})
        places = _places(pathlib.Path(output), walked.names, options.precision.output_table)
        calls = comparing.declared(
            inputs.Takes.walking(walked, described.inputs).with_frozen(options.freeze), options.comparison.asked
        )
        digest = described.digest()
        fixed = _fixed(next(iter(calls.values()), []), options)
        work = _Work(
            source=source,
            saved=described.path,
            exporter=exporter,
            folder=pathlib.Path(folder),
            digest=digest,
            options=options,
            target=target,
            specs=described.inputs,
            given=described.outputs,
            outputs=outputs,
            fixed=fixed,
        )
        asked = dataclasses.replace(options.comparison, log_file=options.log_file, freeze=options.freeze)
        if asked.labels and len(walked.names) > 1:
            raise errors.UsageError(
                "--labels is about one signature, and several are exported", "choose it with --signature_keys"
            )
        compared = {
            name: comparing.of(asked, name, described.inputs[name], walked.names, calls, outputs[name])
            for name in walked.names
        }
        made = [_one(work, name, walked.twins[name], places[name], compared[name]) for name in walked.names]
        done = Exported(
            source=str(pathlib.Path(source.path).absolute()),
            source_digest=digest,
            target=options.target,
            remark=target.remark,
            opset=work.opset,
            exporter=made[0].exporter,
            files=tuple(one.file for one in made),
            written=False,
            refused_allowed=options.allow_refused,
            precision=options.precision.precision,
        )
        if done.passed:
            progress.say("writing")
            table = options.precision.output_table
            tables = (
                precise.calibration(
                    {one.file.signature: one.precise for one in made if one.precise}, done.source, digest
                ).text()
                if table
                else ""
            )
            before = [found for one in done.files if not one.weights and (found := earlier.weights(one.path))]
            replaced = tuple(one.path for one in done.files if os.path.lexists(one.path))
            _write(done.files, pathlib.Path(folder), {table: tables} if table else {})
            removed, stay = earlier.cleared(before)
            done = dataclasses.replace(
                done,
                written=True,
                table=str(pathlib.Path(table).absolute()) if table else "",
                replaced=replaced,
                removed=removed,
                stay=stay,
            )
    return done


def _cut(source: Source, options: Options) -> tuple[Source, Options]:
    """--outputs is about the signatures' outputs, if the model has signatures. Of a graph without any it says what is fetched."""
    if (
        not source.outputs
        or table.kind(source.path).of_tensorflow
        and kinds.kind(source.path) not in (kinds.SAVED_MODEL, kinds.KERAS)
    ):
        return source, options
    return dataclasses.replace(source, outputs=()), dataclasses.replace(options, outputs=source.outputs)


def _check(source: Source, output: str | os.PathLike[str], options: Options) -> tuple[Source, Exporter]:
    """Refuse what cannot work, before the work. Raises: UsageError, TftrtError."""
    exporter, foreign = exporters.of(source), table.kind(source.path).onnx(source.path) == source.path
    if not str(output).lower().endswith(SUFFIX):
        raise errors.UsageError(f"--output={output} does not end in {SUFFIX}", f"such as --output=model{SUFFIX}")
    most = TARGETS["onnxruntime"].newest if foreign else OPSETS[1]
    if options.opset and not OPSETS[0] <= options.opset <= most:
        raise errors.UsageError(
            f"--opset={options.opset} is none that an export writes", f"give one from {OPSETS[0]} to {most}"
        )
    whole_file.check_place(output)
    whole_file.check_named(output)
    if options.freeze and exporter.unfrozen:
        raise errors.UsageError(exporter.unfrozen, "give the module without that input")
    if options.fix_shapes and not foreign:
        raise errors.UsageError(
            f"--fix_shapes has no effect: {source} is no ONNX file",
            "export it, and fix the sizes of the file that comes out",
        )
    if foreign:
        _check_onnx(source, pathlib.Path(output), options)
    precise.check(options.precision, options.opset or TARGETS[options.target].opset)
    if not options.judge_precision and (options.precision.precision == "FP32" or options.comparison.labels):
        what = (
            "--labels are about the answers in the written precision"
            if options.comparison.labels
            else "FP32 is always judged"
        )
        raise errors.UsageError(f"--nojudge_precision: {what}", "leave it out")
    if options.precision.output_table:
        whole_file.check_place(options.precision.output_table)
    return opening.check(source), exporter


def _check_onnx(source: Source, output: pathlib.Path, options: Options) -> None:
    """Refuse what means nothing for an ONNX file, or would write over it. Raises: UsageError, TftrtError."""
    given = {
        "signature_keys": options.signature_keys,
        "inputs": source.inputs,
        "custom_objects": source.custom_objects,
        "allow_unsafe_deserialization": source.unsafe,
    }
    for flag, value in given.items():
        if value:
            raise errors.UsageError(
                f"--{flag} has no effect: {source} is an ONNX file, which has no signatures", "leave it out"
            )
    opening.check(source)
    own = {os.path.realpath(path) for path in (source.path, *onnx_file.outside(source.path))}
    for path in (output, output.with_name(output.name + earlier.WEIGHTS)):
        if os.path.realpath(path) in own:
            raise errors.UsageError(f"--output={output} would write over {source}", "give the new file another name")


def _fixed(calls: Sequence[Call], options: Options) -> Call:
    """{input: the shape that it gets for good}. Raises: UsageError."""
    if not options.fix_shapes:
        return {}
    if len(calls) != 1:
        raise errors.UsageError(
            "--fix_shapes gives inputs the sizes of --shapes for good, and "
            + ("there is no --shapes" if not calls else f"--shapes has {len(calls)} of them"),
            "give one shape for each input",
        )
    return calls[0]


def _original(saved: str) -> str:
    source = (passport.read(saved, passport.MANIFEST) or {}).get("source", "")
    return f": {source}" if source else ""


def _places(output: pathlib.Path, names: Sequence[str], ranges: str) -> dict[str, pathlib.Path]:
    """{signature: its file}: `output` for the only one, else model.SIGNATURE.onnx for model.onnx. Args: ranges: the file of --output_table,
    or "". Raises: UsageError."""
    if len(names) == 1:
        return {names[0]: output.absolute()}
    found = {
        name: output.absolute().with_name(f"{output.stem}.{re.sub(r'[^A-Za-z0-9_-]+', '_', name)}{output.suffix}")
        for name in names
    }
    weights = (place.with_name(place.name + earlier.WEIGHTS) for place in found.values())
    whole_file.check_places((*found.values(), *weights, *filter(None, [ranges])))
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Work:
    """What the exports of all signatures have in common."""

    source: Source
    # Its SavedModel, or program.
    saved: str
    exporter: Exporter
    # Where files grow.
    folder: pathlib.Path
    # Of the source.
    digest: str
    options: Options
    target: Target
    # {signature: its inputs} and {signature: its outputs} of all signatures.
    specs: Mapping[str, Sequence[InputSpec]]
    given: Mapping[str, Sequence[InputSpec]]
    # {signature: its outputs that are kept, () for all}.
    outputs: Mapping[str, tuple[str, ...]]
    # {input: the shape that it gets for good}.
    fixed: Call

    @property
    def opset(self) -> int:
        """The opset that is written."""
        return self.options.opset or self.target.opset

    def run(self, called: jobs.Job[jobs.Request, jobs.Answer], request: jobs.Request) -> jobs.Answer:
        """The answer of a job."""
        return called.run(request, env=_ENV, log_file=self.options.log_file).result


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Made:
    """A signature's file. exporter: its name; precise: with another precision, if it was written."""

    file: File
    exporter: str
    precise: precise.Precise | None = None


def _one(work: _Work, name: str, twins: tuple[str, ...], place: pathlib.Path, comparison: verify.Options) -> _Made:
    """Export a signature into the folder, and check it there."""
    path, frozen, beside = work.folder / place.name, work.folder / f"{place.name}.pb", _beside(work, place)
    # Labels are for the file that is written.
    in_fp32 = dataclasses.replace(comparison, labels="") if work.options.precision.precision != "FP32" else comparison
    asked = (
        rewriting.chosen((), work.options.target, work.options.opset)
        if work.options.rewrites is None
        else work.options.rewrites
    )
    tried, rewrites = rewriting.settle(
        asked, lambda names: _tried(work, name, path, frozen, beside.name if beside else "", names, in_fp32)
    )
    answer, nodes, checked = tried.answer, tried.nodes, tried.checked
    assert checked, "an export without rewrites that cannot be compared has raised"
    taken, given = answer.inputs, answer.outputs
    departure = None
    if not checked.passed and work.options.bisect and (work.exporter.bisects_source or frozen.is_file()):
        progress.say(f"looking for the first tensor of {name} that departs")
        departure = _departure(
            work,
            name,
            taken,
            comparison,
            bisecting.Request(onnx=str(path), frozen=str(frozen), source=work.saved, renamed=answer.renamed, inputs=""),
        )
    made, written = None, None
    if checked.passed and work.options.precision.precision != "FP32":
        exported = precise.Exported(
            path=path,
            weights=beside.name if beside else "",
            signature=name,
            twins=twins,
            inputs=work.specs,
            asked=tuple(dict.fromkeys((name, *twins, *work.outputs))),
        )
        made = _precise(work, exported, taken, comparison)
        nodes, written = (
            made.nodes,
            _verified(work, made, place, comparison) if work.options.judge_precision else made.written,
        )
        _put(made.path, path, beside.name if beside else "")
    progress.say(f"checking {name} against {work.target.title}")
    files = (path, path.with_name(beside.name)) if beside else (path,)
    return _Made(
        file=File(
            signature=name,
            twins=twins,
            path=str(place),
            weights=str(beside or ""),
            bytes=sum(one.stat().st_size for one in files),
            inputs=taken,
            outputs=given,
            dimensions=dict(answer.dimensions),
            nodes=sum(one.op not in (INPUT, OUTPUT) for one in nodes),
            notes=(*answer.notes, *_narrowed(taken, work.target)),
            findings=parser.findings(nodes, work.target),
            opset=tried.opset,
            rewrites=rewrites,
            verification=dataclasses.replace(checked, converted=str(place)),
            departure=departure,
            precision=written,
        ),
        exporter=answer.exporter,
        precise=made,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Tried:
    """A signature's file with some rewrites, as rewriting.Attempt. answer: of the exporter's job; nodes, opset: of the file."""

    answer: converting.Answer
    nodes: tuple[Node, ...]
    opset: int
    rewrites: tuple[Rewritten, ...]
    # The comparison, None if it could not be made; then why.
    checked: verify.Verification | None
    failed: str = ""

    @property
    def problem(self) -> str:
        return self.failed if self.checked is None else next(iter(self.checked.problems), "")


def _tried(
    work: _Work,
    name: str,
    path: pathlib.Path,
    frozen: pathlib.Path,
    weights: str,
    names: tuple[str, ...],
    comparison: verify.Options,
) -> _Tried:
    """Export a signature with these rewrites, and compare its answers."""
    converting = tuple(one for one in names if rewriting.REWRITES[one].converting)
    answer = _converted(work, name, path, frozen, weights, converting, comparison)
    rewrites = [Rewritten(name=one, nodes=count) for one, count in answer.rewritten.items()]
    nodes, opset = answer.nodes, answer.opset
    if later := [one for one in names if one not in converting]:
        folder = work.folder / "rewritten"
        folder.mkdir(exist_ok=True)
        made = work.run(
            rewriting.rewrite,
            rewriting.Request(
                onnx=str(path),
                output=str(folder / path.name),
                weights=weights,
                rewrites=tuple(later),
                target=work.options.target,
                raised=not work.options.opset,
            ),
        )
        rewrites += made.rewrites
        if made.changed:
            nodes, opset = made.changed.nodes, made.changed.opset
            _put(folder / path.name, path, weights)
    progress.say(f"running {name} under ONNX Runtime")
    tried = _Tried(answer=answer, nodes=nodes, opset=opset, rewrites=tuple(rewrites), checked=None)
    try:
        return dataclasses.replace(tried, checked=verify.verify(work.source, path, comparison))
    except errors.UsageError:
        raise
    except errors.TftrtError as error:
        if not any(one.nodes and not one.undone for one in rewrites):
            raise type(error)(error.cause.replace(str(path), f"the exported {path.name}"), error.mend) from None
        return dataclasses.replace(tried, failed=error.cause)


def _precise(
    work: _Work, exported: precise.Exported, specs: Sequence[InputSpec], comparison: verify.Options
) -> precise.Precise:
    """The graph with the precision that is asked for. Raises: UsageError, TftrtError."""
    asked = work.options.precision
    calls = (
        [path for _, path in _calls(work, exported.signature, specs, comparison)] if asked.precision == "FP16" else []
    )
    with _told_by_name(work.source, exported.signature):
        return precise.make(asked, exported, work.folder / f"precise-{exported.path.name}", work.run, tuple(calls))


def _verified(work: _Work, made: precise.Precise, place: pathlib.Path, comparison: verify.Options) -> precision.Written:
    """What was written, with the comparison of its answers."""
    progress.say(f"running {made.written.precision} under ONNX Runtime")
    checked = verify.verify(
        work.source, made.judged, dataclasses.replace(comparison, arithmetic=made.written.precision)
    )
    return dataclasses.replace(made.written, verification=dataclasses.replace(checked, converted=str(place)))


def _put(made: pathlib.Path, path: pathlib.Path, weights: str) -> None:
    """Put a file, and the one with its weights, in the place of the one that it was made from."""
    for name in filter(None, (path.name, weights)):
        os.replace(made.with_name(name), path.with_name(name))


def _beside(work: _Work, place: pathlib.Path) -> pathlib.Path | None:
    """The file for the weights, if they do not go into the ONNX file."""
    saved = pathlib.Path(work.saved)
    beside = table.kind(work.saved).weights(work.saved)
    size = sum(
        one.stat().st_size
        for one in (saved.glob("variables/*") if saved.is_dir() else (saved, *map(pathlib.Path, beside)))
    )
    return place.with_name(place.name + earlier.WEIGHTS) if work.options.external_data or size > _MOST_INSIDE else None


def _telling(work: _Work, name: str, comparison: verify.Options) -> list[str]:
    """Calls from which the exporter learns ranks and sizes that the model does not say; [] where it needs none."""
    unknown = any(one.shape is None for one in (*work.specs[name], *work.given[name]))
    several = sum(bool(one.shape) and None in (one.shape or ()) for one in work.specs[name]) > 1
    if not unknown and not (several and (comparison.asked.data or comparison.asked.shapes)):
        return []
    return [path for _, path in _calls(work, name, work.specs[name], comparison, "told")]


def _converted(
    work: _Work,
    name: str,
    path: pathlib.Path,
    frozen: pathlib.Path,
    weights: str,
    rewrites: tuple[str, ...],
    comparison: verify.Options,
) -> converting.Answer:
    """What the exporter's job answers."""
    freeze = comparison.freeze
    progress.say(f"exporting {name}")
    said = {verify.OUTPUTS: ",".join(work.outputs[name]), verify.FREEZE: freeze}
    properties = {
        TOOL: passport.Stamped().tool,
        "tftrt.source": pathlib.Path(work.source.path).name,
        "tftrt.source_digest": work.digest,
        "tftrt.signature": name,
        "tftrt.target": work.target.title,
        "tftrt.opset": str(work.opset),
        **{key: text for key, text in said.items() if text},
    }
    request = converting.Request(
        calls=tuple(_telling(work, name, comparison)),
        model=work.saved,
        signature=name,
        output=str(path),
        opset=work.opset,
        properties=properties,
        weights=weights,
        frozen=str(frozen),
        freeze=work.options.freeze,
        fixed=work.fixed,
        outputs=work.outputs[name],
        rewrites=rewrites,
        precision=work.options.precision.precision,
        newest=0 if work.options.opset else work.target.newest,
        least=precise.least_opset(work.options.precision),
    )
    with _told_by_name(work.source, name):
        return work.run(work.exporter.job, request)


@contextlib.contextmanager
def _told_by_name(source: Source, name: str) -> Iterator[None]:
    """Name the signature in the errors of an export."""
    try:
        yield
    except child.ChildDied:
        raise
    except errors.TftrtError as error:
        raise type(error)(f"signature {name!r} of {source}: {error.cause}", error.mend) from None


def _narrowed(specs: Sequence[InputSpec], target: Target) -> tuple[str, ...]:
    wide = [one.name for one in specs if one.dtype == "int64"]
    if not wide or not target.narrow:
        return ()
    return (f"{target.title} has no INT64: {', '.join(wide)} becomes INT32 there, and larger values are cut",)


def _departure(
    work: _Work, name: str, specs: Sequence[InputSpec], comparison: verify.Options, request: bisecting.Request
) -> Departure | None:
    """The first tensor that departs, on the first of the calls that were compared; None if none does that both graphs have."""
    (_, path), *_ = _calls(work, name, specs, comparison)
    return work.run(work.exporter.bisect, dataclasses.replace(request, inputs=path))


def _calls(
    work: _Work, name: str, specs: Sequence[InputSpec], comparison: verify.Options, folder: str = "rows"
) -> list[tuple[str, str]]:
    """run.save_calls of the first calls that are compared. Args: folder: the beginning of its folder's name."""
    size = comparison.batch_size
    sizes = inputs.up_to(size) if size else inputs.batch_sizes(())
    rows = work.folder / f"{folder}-{name.replace('/', '_')}"
    rows.mkdir(exist_ok=True)
    takes = inputs.Takes.one(name, {**work.specs, name: specs}).with_frozen(comparison.freeze)
    chosen = inputs.choose(takes, comparison.asked, rows, sizes)
    return run.save_calls(chosen.all[:_MOST_CALLS], rows / "searched")


def _write(made: Sequence[File], folder: pathlib.Path, texts: Mapping[str, str] | None = None) -> None:
    """Put all files in place: their contents first, then their names; after an interrupt nothing is left of any, or each is whole.
    Args: texts: {path: content} of further files."""
    with contextlib.ExitStack() as stack:
        # The names are given in the reverse order, so that weights are there before the file that names them.
        for path in [path for one in made for path in (one.path, one.weights) if path]:
            target = stack.enter_context(whole_file.replacing(path))
            with open(folder / pathlib.Path(path).name, "rb") as content:
                shutil.copyfileobj(content, target)
        for path, text in (texts or {}).items():
            stack.enter_context(whole_file.replacing(path)).write(text.encode())
