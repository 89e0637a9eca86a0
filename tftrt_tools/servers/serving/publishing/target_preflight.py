"""Can this server run this model? Answered before publishing, from the model's files and the known facts about the server.

TF-TRT does not check whether TensorRT could read an engine: foreign engines end the server (tensorflow/serving#2205). No TensorFlow here.
"""

import dataclasses
import pathlib
from collections.abc import Iterator

from tftrt_tools.base import records
from tftrt_tools.base.stack import images, releases
from tftrt_tools.models.savedmodel import engine_assets, tensor_kinds
from tftrt_tools.models.savedmodel.engine_op import EngineOp
from tftrt_tools.servers.serving.publishing import model_facts
from tftrt_tools.servers.serving.publishing.model_facts import Facts
from tftrt_tools.servers.serving.publishing.server_target import Target


@dataclasses.dataclass(frozen=True)
class Obstacle(records.Record):
    """Why a model must not be published for a target. mend: what the user can do."""

    text: str
    mend: str


@dataclasses.dataclass(frozen=True)
class Preflight:
    """obstacles: Obstacles, the gravest first; notes: remarks that stop nothing, a line each."""

    obstacles: tuple[Obstacle, ...]
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Options:
    """custom_ops: ops beyond TensorFlow's that the server has. allow_unknown_engines: accept engines of unknown origin."""

    custom_ops: tuple[str, ...] = ()
    allow_unknown_engines: bool = False


def check(facts: Facts, target: Target, model: str | pathlib.Path, options: Options | None = None) -> Preflight:
    """Check a model against a server.

    Args: facts: model_facts.Facts. target: server_target.Target. model: its name in commands. options: Options.
    Returns: Preflight.
    """
    options = options or Options()
    obstacles = [
        *_of_files(facts, model),
        *_of_tensors(facts),
        *_of_ops(facts, target, options),
        *_of_tftrt(facts, target),
    ]
    if target.tftrt:
        obstacles += [
            *_of_batch_mode(facts, target),
            *engine_obstacles(facts, target, model, options),
            *_of_tables(facts, target),
        ]
    return Preflight(tuple(dict.fromkeys(obstacles)), tuple(dict.fromkeys(_notes(facts, target))))


def _of_files(facts: Facts, model: str | pathlib.Path) -> Iterator[Obstacle]:
    for file in facts.seen.engine_files:
        if file.problem:
            yield Obstacle(
                f"the engine file of {file.engine} is {file.problem}; loading it can hang or end the server",
                _build_or_strip(model),
            )


def _of_tensors(facts: Facts) -> Iterator[Obstacle]:
    for signature in facts.seen.signatures:
        for finding in tensor_kinds.findings(signature.name, signature.inputs, signature.outputs):
            yield Obstacle(f"signature {finding.about!r}: {finding.text}", finding.mend)
    if facts.lost:
        lost = tensor_kinds.lost(facts.lost)
        yield Obstacle(f"{lost.about}: {lost.text}", lost.mend)


def _of_ops(facts: Facts, target: Target, options: Options) -> Iterator[Obstacle]:
    # TF-TRT's own ops are the matter of _of_tftrt: the TensorFlow here may lack them, and the target have them.
    had = {*options.custom_ops, *model_facts.TFTRT_OPS, *(facts.library_ops if target.own else ())}
    missing = [name for name in facts.unknown_ops if name not in had]
    if missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        yield Obstacle(
            f"op {missing[0]}{more} is not one of TensorFlow's: a server without it cannot load the model",
            f"where the server has it (stock servers have {images.EXTRA_LIBRARIES} ops too): --custom_ops={','.join(missing)}",
        )


def _of_tftrt(facts: Facts, target: Target) -> Iterator[Obstacle]:
    if target.tftrt or not facts.engine_ops:
        return
    newest, original = releases.text(releases.NEWEST), "or publish the original model"
    if target.own:
        yield Obstacle(
            f"the TensorFlow {target.tensorflow} here has no TF-TRT: the model's engine ops do not load in it",
            f"name the server that will run it with --server_image, use a TensorFlow of {newest} or earlier with CUDA, {original}",
        )
    elif target.gpu:
        yield Obstacle(
            f"{target.name} has no TF-TRT: TensorFlow dropped it after {newest}, and the TensorRT in such an image is used by nothing; the "
            "model's engine ops do not load there",
            f"use an image of {newest} or earlier, {images.OWN}, {original}",
        )
    else:
        yield Obstacle(
            f"{target.name} is built without CUDA: it has no engine ops, so the model does not load there",
            f"use the -gpu image, {images.OWN}, {original}",
        )


def _of_batch_mode(facts: Facts, target: Target) -> Iterator[Obstacle]:
    if target.tensorrt is None or releases.has_implicit_batch(int(target.tensorrt.split(".")[0])):
        return
    if any(engine.implicit_batch for engine in facts.seen.engines):
        yield Obstacle(
            f"the model's engine ops have an implicit batch, which TensorRT {target.tensorrt} of {target.name} does not have: everything "
            "in them would run in TensorFlow",
            "convert the original model with --use_dynamic_shape or --shapes",
        )


def engine_obstacles(
    facts: Facts, target: Target, model: str | pathlib.Path = "MODEL", options: Options | None = None
) -> Iterator[Obstacle]:
    """An Obstacle for each kind of engine in the model that the target cannot load. Arguments as for `check`."""
    options = options or Options()
    for tensorrt, capability in dict.fromkeys(
        engine_assets.origin(asset, facts.seen.manifest) for asset in facts.assets
    ):
        ways = _ways_out(model, tensorrt, target)
        if target.tensorrt is None and target.own:
            yield Obstacle(
                "the model carries engines, and the TensorFlow here finds no TensorRT that it takes",
                f"`tftrt doctor` says what is missing; or name the server that will run it with --server_image; or {ways}",
            )
        elif target.tensorrt is None:
            yield Obstacle(f"the model carries engines, and which TensorRT {target.name} has is not known", ways)
        elif tensorrt is None and not options.allow_unknown_engines:
            yield Obstacle(
                f"nothing says which TensorRT built the model's engines; any other than {target.tensorrt} ends the server",
                f"{_build_or_strip(model)}, or add --allow_unknown_engines",
            )
        elif tensorrt is not None and not engine_assets.same_release(tensorrt, target.tensorrt):
            yield Obstacle(
                f"the model's engines were built by TensorRT {tensorrt}, and {target.name} has {target.tensorrt}: they end the "
                "server",
                ways,
            )
        if capability and target.compute_capabilities and capability not in target.compute_capabilities:
            yield Obstacle(
                f"the model's engines were built for compute capability {capability}, and {target.name} has "
                f"{', '.join(target.compute_capabilities)}: they do not run there",
                f"build them on such a GPU, or take them away and let the server build: `tftrt build {model} --strip`",
            )


def _of_tables(facts: Facts, target: Target) -> Iterator[Obstacle]:
    """Obstacles of INT8 tables without an engine, which the server's TensorRT has to read."""
    if target.tensorrt is None:
        return
    for tensorrt in dict.fromkeys(
        facts.tables[engine.name] for engine in _unbuilt(facts) if engine.name in facts.tables
    ):
        if tensorrt.split(".")[0] != target.tensorrt.split(".")[0]:
            yield Obstacle(
                f"the model's INT8 table was made for TensorRT {tensorrt}, and {target.name}, which would build from it, has "
                f"{target.tensorrt}",
                f"calibrate with that TensorRT, convert with --precision=FP16, or use {images.OWN}",
            )


def _unbuilt(facts: Facts) -> list[EngineOp]:
    """Engine ops without a saved engine."""
    return [one for one in facts.seen.engines if not facts.seen.assets(one.name)]


def _notes(facts: Facts, target: Target) -> Iterator[str]:
    seen = facts.seen
    if target.own and facts.library_ops:
        yield (
            f"op {facts.library_ops[0]} is in a library: `tftrt serve --launch=local` loads it with --op_library, and another server "
            "must have it built in"
        )
    if target.own and facts.engine_ops and not target.compute_capabilities:
        yield "no GPU here: tensorflow_model_server cannot run engine ops on this machine; no GPU was compared with the engines"
    elif facts.assets and not target.compute_capabilities:
        origins = [engine_assets.origin(asset, seen.manifest) for asset in facts.assets]
        needed = sorted({capability for _, capability in origins if capability})
        if needed:
            yield f"the engines need a GPU of compute capability {', '.join(needed)}; --compute_capability compares it with the server's"
    if facts.assets and target.own:
        yield "compared with this machine only: a server with another TensorRT ends when it loads these engines; --server_image compares"
    if "serve" not in seen.tags or len(seen.tags) > 1:
        yield f"the model's tags are {','.join(seen.tags)}: start the server with --saved_model_tags={','.join(seen.tags)}"
    saved, runs = releases.minor(seen.tensorflow), releases.minor(target.tensorflow)
    if saved and runs and saved > runs:
        yield f"written by TensorFlow {seen.tensorflow}, and {target.name} has {target.tensorflow}: it may not know newer ops or attributes"
    yield from _notes_of_building(facts, target)


def _notes_of_building(facts: Facts, target: Target) -> Iterator[str]:
    """Remarks on engines that the server itself will build."""
    unbuilt = _unbuilt(facts) if target.tftrt else []
    for tensorrt in dict.fromkeys(facts.tables[engine.name] for engine in unbuilt if engine.name in facts.tables):
        there = target.tensorrt
        if there and tensorrt.split(".")[0] == there.split(".")[0] and not engine_assets.same_release(tensorrt, there):
            yield (
                f"the INT8 table was made for TensorRT {tensorrt}, and {target.name} has {target.tensorrt}: numbered layers may have "
                "other names there; check the accuracy"
            )
    if any(not engine.implicit_batch for engine in unbuilt):
        yield (
            "dynamic shapes without saved engines: the server makes one profile from its first request, and every other shape runs in "
            "TensorFlow"
        )


def _build_or_strip(model: str | pathlib.Path) -> str:
    return f"build them again (`tftrt build {model} --shapes=…`), or take them away (`tftrt build {model} --strip`)"


def _ways_out(model: str | pathlib.Path, tensorrt: str | None, target: Target) -> str:
    ways = f"take them away and let warm-up build them in the server: `tftrt build {model} --strip`"
    reads = images.with_tensorrt(tensorrt) if tensorrt else None
    if reads:
        return f"{ways}; or serve them with --server_image={reads}"
    # Such as 8.6.0, which no image has.
    return f"{ways}; or build them with TensorRT {target.tensorrt}" if target.tensorrt else ways
