"""Measures a profile on this machine: the whole calls, and then the engines alone. No TensorFlow in this process."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.base.files import scratch
from tftrt_tools.base.process import child, progress
from tftrt_tools.fleet import beside
from tftrt_tools.models.execution import run
from tftrt_tools.models.inputs import calls as inputs
from tftrt_tools.models.kinds import opening, table
from tftrt_tools.models.kinds.model import Model
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.models.sources.source import Source, of
from tftrt_tools.studies import backends
from tftrt_tools.studies.profiling import call_graph, calls, engines, plan, recording, spread
from tftrt_tools.studies.profiling.call_profile import CallProfile
from tftrt_tools.studies.profiling.engine_graph import Graph
from tftrt_tools.studies.profiling.profile import Machine, Profile, Side
from tftrt_tools.studies.profiling.recording import Recorded, Request
from tftrt_tools.tftrt.conversion.signature_result import SignatureResult
from tftrt_tools.tftrt.wrapping import added

MODEL, ORIGINAL = "model", "original"
_FACTS = "facts.json"
_MEND = "a converted model is a SavedModel or plan directory; `tftrt bench MODEL …` times models of any kind"
_PASSING = ("Const", "_Arg", "_Retval")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """The flags of a measurement."""

    model: str | os.PathLike[str] | Source
    # The model before conversion, None to leave it out.
    original: str | os.PathLike[str] | Source | None = None
    # Signatures, () for all; shapes, ranges and seed of drawn inputs, as inputs.calls.Asked has them.
    signature_keys: tuple[str, ...] = ()
    asked: inputs.Asked = inputs.Asked()
    # The number of calls to trace at each shape.
    traced: int = 20
    # Numbers of callers at once.
    callers: tuple[int, ...] = (1, 2, 4)
    # Seconds for which each number of callers is timed.
    seconds: float = 0.7
    # Whether the engines are taken apart, too.
    engines: bool = True
    # The parts to measure of each engine, of plan.PARTS.
    parts: tuple[str, ...] = tuple(plan.PARTS)
    # Whether a machine without a GPU may measure; engines do not run there.
    without_gpu: bool = False
    # Where to keep the log of the measuring process; None to throw it away.
    log_file: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """A profile, and the traces of its calls. traces: {(model or original, number of its call): path}, as long as the folder is there."""

    profile: Profile
    traces: Mapping[tuple[str, int], pathlib.Path]


def measure(options: Options, folder: str | os.PathLike[str], where: beside.Where | None = None) -> Measured:
    """Profile a model.

    Args: folder: for traces; has to live as long as the result's traces are used. where: a fleet of this machine, for several shapes;
      None for one after the other, here.
    Raises: UsageError; TftrtError where nothing could be measured.
    """
    folder = pathlib.Path(folder)
    named = [options.model, *([options.original] if options.original else [])]
    with opening.opened(*named, log_file=options.log_file) as models, scratch.folder("profile") as inputs_folder:
        _check_kinds(models, options)
        manifest = models[0].document(passport.MANIFEST)
        facts = _recorded(options, models, manifest, folder, inputs_folder, where)
        sides = [Named(model.title, model.digest()) for model in models]
        measured = of_recording(facts, folder, sides, manifest, bool(models[0].engines))
        return (
            _with_engines(measured, models[0], options.parts)
            if options.engines and measured.profile.on_gpu
            else measured
        )


def _check_kinds(models: Sequence[Model], options: Options) -> None:
    """Raise UsageError for what cannot be profiled, or not together."""
    plans = [model for model in models if model.kind.alone]
    if plans and len(models) > 1:
        raise errors.UsageError(
            f"{plans[0].title} is a plan, and --original calls two SavedModels in turns, in one TensorFlow",
            "profile each by itself, and compare the two: `tftrt profile A B`",
        )
    if plans and options.without_gpu:
        raise errors.UsageError(
            f"{plans[0].title} is a plan, which runs on a GPU alone",
            "leave --without_gpu out, on a machine with its GPU; a kept profile is shown anywhere",
        )
    for model in models:
        check_kind(model.source)


def check_kind(model: str | os.PathLike[str] | Source) -> None:
    """Raise UsageError for a model of a kind that cannot be profiled."""
    source = of(model)
    kind = table.kind(source.path)
    if kind.unconverted and not kind.alone:
        raise errors.UsageError(
            f"{source} is {backends.described(source.path)}, and this profiles TensorFlow and plans", _MEND
        )


def _with_engines(measured: Measured, model: Model, parts: Sequence[str]) -> Measured:
    """The same with the engines that the model carries, each alone. What fails is a remark: the calls were measured."""
    if not model.engines:
        return measured
    try:
        if model.kind.alone:
            return _with_plan(measured, model, parts)
        profiles, remarks = plan.measure(model.path, parts=parts, rows=_rows(measured.profile.model))
    except (errors.TftrtError, child.ChildBug, ArithmeticError, LookupError, TypeError, ValueError) as error:
        profiles, remarks = (
            (),
            (f"the engines could not be taken apart: {errors.first_line(str(error)) or type(error).__name__}",),
        )
    profile = dataclasses.replace(measured.profile, engines=profiles, notes=(*measured.profile.notes, *remarks))
    return dataclasses.replace(measured, profile=profile)


def _with_plan(measured: Measured, model: Model, parts: Sequence[str]) -> Measured:
    """The profile with the plan alone, and its graph, added."""
    side = measured.profile.model
    recorded_plan = plan.recording_of_plan(model.path, [call.shapes for call in side.calls], parts)
    profiles, remarks = engines.profiles(recorded_plan)
    nodes = _nodes(recorded_plan.graphs[0]) if recorded_plan.graphs else ()
    profile = dataclasses.replace(
        measured.profile,
        engines=profiles,
        notes=(*measured.profile.notes, *remarks),
        model=dataclasses.replace(side, graph={call.signature: nodes for call in side.calls} if nodes else {}),
    )
    return dataclasses.replace(measured, profile=profile)


def _nodes(graph: Graph) -> tuple[call_graph.GraphNode, ...]:
    """The nodes of a plan's ONNX file that compute something."""
    kept = {node.name for node in graph.nodes if node.op not in _PASSING}
    return tuple(
        call_graph.GraphNode(node.name, node.op, graph.engine, tuple(name for name in node.inputs if name in kept))
        for node in graph.nodes
        if node.name in kept
    )


def _rows(side: Side) -> dict[str, list[int]]:
    """{engine: batches of the calls that it ran in}."""
    sizes: dict[str, set[int]] = {}
    for call in side.calls:
        for run_ in call.engines:
            sizes.setdefault(run_.name, set()).add(call.rows)
    return {name: sorted(batches) for name, batches in sizes.items()}


@dataclasses.dataclass(frozen=True)
class Named:
    """A model that was recorded. title: for people; digest: of its files."""

    title: str
    digest: str


def of_recording(
    facts: Mapping[str, Any],
    folder: pathlib.Path,
    models: Sequence[Named],
    manifest: Mapping[str, Any] | None,
    engine_ops: bool,
) -> Measured:
    """The profile of what the recorder left.

    Args: facts: the recorder's. folder: where its traces are. models: the model, and the original if there is one. manifest: of the
      model, None without one. engine_ops: whether it has any.
    """
    sides, notes, files = {}, list[str](), dict[tuple[str, int], pathlib.Path]()
    for name, model in zip((MODEL, ORIGINAL), models, strict=False):
        sides[name], failed, traced = _side(name, model, facts, folder)
        notes += failed
        files |= {(name, place): path for place, path in enumerate(traced)}
    machine = _machine(facts)
    profile = Profile(
        model=sides[MODEL],
        original=sides.get(ORIGINAL),
        machine=machine,
        on_gpu=machine.gpu is not None,
        signatures=_signatures(manifest),
        settings=dict((manifest or {}).get("settings") or {}),
        notes=(
            *(f"{step}: {error['cause']}" for step, error in facts["failed"].items()),
            *notes,
            *(f"random: {line}" for line in facts.get("drew", ())),
            *_model_notes(models[0].title, engine_ops, machine),
        ),
    )
    return Measured(profile=profile, traces=files)


def _signatures(manifest: Mapping[str, Any] | None) -> tuple[SignatureResult, ...]:
    """What a conversion says of its graph, op by op; () of another back end, which leaves no ops to TensorFlow."""
    if backends.of_manifest(manifest) != backends.default().name:
        return ()
    return tuple(SignatureResult.from_dict(signature) for signature in (manifest or {}).get("signatures", ()))


def _recorded(
    options: Options,
    models: Sequence[Model],
    manifest: Mapping[str, Any] | None,
    folder: pathlib.Path,
    inputs_folder: str,
    where: beside.Where | None,
) -> dict[str, Any]:
    """The recorder's facts. Raises: UsageError, TftrtError where it did not get as far as a call of the model."""
    model = models[0]
    takes = inputs.Takes.of(model.inputs, model.contents.same, keys=options.signature_keys, manifest=manifest)
    model.check_dense(takes.specs)
    takes = takes.with_pictures(added.pictures(model.source.path))
    if options.asked.shapes:
        # Then the shapes that engines were built for do not apply to other signatures, which are not called.
        named = inputs.CallMaker(takes, options.asked).declared()
        takes = inputs.only(named, takes)
    chosen = inputs.choose(takes, options.asked, inputs_folder, sizes=(1,))
    saved = run.named(run.save_calls(chosen.all, f"{inputs_folder}/in"))
    sides = tuple(
        Recorded(
            name=name,
            path=opened.path,
            calls=tuple(call if call.signature in opened.inputs else None for call in saved),
        )
        for name, opened in zip((MODEL, ORIGINAL), models, strict=False)
    )
    request = Request(
        models=sides,
        folder=str(folder),
        traced=options.traced,
        callers=options.callers,
        seconds=options.seconds,
        gpu=not options.without_gpu,
    )
    if where and len(saved) < 2:
        progress.note("--on=local changes nothing: there is one shape; --shapes names several")
        where = None
    load = os.getloadavg()[0]
    with beside.opened(where) as fleet:
        if fleet and fleet.width > 1:
            facts = spread.record(fleet, request, model.kind.alone, options.log_file, load)
        else:
            facts = recorded(request, model.kind.alone, options.log_file)
    with inputs.explained(chosen.origins, "--shapes or --ranges"):
        _check(facts, options)
    return {**facts, "drew": list(chosen.drew)}


def recorded(request: Request, plan: bool, log_file: str | None) -> dict[str, Any]:
    """Record in a process of its own. Args: plan: whether the model is a plan directory. Returns: the recorder's facts, also where its
    process died after the first trace. Raises: UsageError, TftrtError."""
    try:
        return (recording.plan if plan else recording.saved_models).run(request, log_file=log_file).result
    except child.ChildDied as error:
        return _left(pathlib.Path(request.folder), error)


def _left(folder: pathlib.Path, error: child.ChildDied) -> dict[str, Any]:
    """The facts that the recorder had written before its process died. Raises: the error where they are of no use."""
    path = folder / _FACTS
    facts: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    if not any(call.get("trace") for call in facts.get("calls", ())):
        raise error
    facts["failed"]["the measuring process"] = error.to_dict()
    return facts


def _check(facts: Mapping[str, Any], options: Options) -> None:
    """Raise the first failure if there is no call of the model."""
    if any(call["model"] == MODEL and call.get("trace") for call in facts["calls"]):
        return
    failed = [errors.from_dict(error) for step, error in facts["failed"].items() if f"the {MODEL}" in step]
    raise (
        failed[0]
        if failed
        else errors.TftrtError(f"no call of {options.model} could be measured", "look at --log_file=FILE")
    )


def _side(
    name: str, model: Named, facts: Mapping[str, Any], folder: pathlib.Path
) -> tuple[Side, list[str], list[pathlib.Path]]:
    """(A model with its calls, remarks on what failed, the trace of each call)."""
    facts_of_model, notes, done, traced = (
        facts["models"].get(name, {}),
        list[str](),
        list[CallProfile](),
        list[pathlib.Path](),
    )
    on_gpu = bool((facts_of_model.get("where") or {}).get("gpu"))
    for call in facts["calls"]:
        if call["model"] == name:
            try:
                done.append(calls.of(call, folder, on_gpu))
                traced.append(folder / call["trace"])
            except (errors.TftrtError, ValueError, OSError) as error:
                notes.append(f"a call of the {name}: {error}")
    side = Side(
        model=model.title,
        digest=model.digest,
        load_seconds=facts_of_model.get("load_seconds", 0.0),
        xla_count=facts_of_model.get("xla_count", 0),
        xla_functions=tuple(facts_of_model.get("xla_functions", ())),
        calls=tuple(done),
        graph={signature: call_graph.of(rows) for signature, rows in facts_of_model.get("graph", {}).items()},
    )
    return side, notes, traced


def _machine(facts: Mapping[str, Any]) -> Machine:
    where = facts["models"].get(MODEL, {}).get("where") or {}
    merged: dict[str, Any] = {
        "cpu": "",
        "cpus": 0,
        "load": 0.0,
        "gpus": (),
        "versions": {},
        "tf32": False,
        "inter_op": 0,
        "intra_op": 0,
        "jit": "",
        "environment": {},
    }
    return Machine.from_dict({**merged, **facts["machine"], "gpu": where.get("gpu")})


def _model_notes(title: str, engine_ops: bool, machine: Machine) -> list[str]:
    if not engine_ops:
        return [f"{title} has no engine op: TensorFlow runs all of it; `tftrt convert` makes engines"]
    if machine.gpu is None:
        return [
            "measured without a GPU: engine ops ran as TensorFlow ops on the CPU, so this says nothing about engines"
        ]
    return []
