"""Chooses the warm-up requests of a version: one for each signature and shape that it will serve. No TensorFlow here.

The server sends the records to itself while it loads, one after the other, and answers nobody before they are done. Larger requests come
first: the engine of an implicit batch model serves the first request's batch and all smaller ones; and in a model with dynamic shapes
and without engines the first request makes the only profile.
"""

import dataclasses
import math
import pathlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.models.execution import run
from tftrt_tools.models.inputs.drawing import Shapes
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.savedmodel import files
from tftrt_tools.models.savedmodel import shapes as shape_grammar
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.servers.serving.publishing.model_facts import Facts
from tftrt_tools.servers.serving.warmup import request_values
from tftrt_tools.servers.serving.warmup.allowed_batch_sizes import BatchSizes
from tftrt_tools.servers.serving.warmup.request_values import Request
from tftrt_tools.tftrt.wrapping import added

FILE = files.WARMUP
# With more requests TensorFlow Serving's load of a version fails (kNumMaxWarmupRecords, saved_model_warmup_util.h).
MOST_RECORDS = 1000
# Rows of a request if the batches are not known.
_BATCHES = (8, 1)
_SHAPES = "--warmup_shapes"
_EXAMPLE_METHODS = ("tensorflow/serving/classify", "tensorflow/serving/regress")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What to warm up with."""

    # Text of --warmup_shapes.
    shapes: str = ""
    # Path, glob, module:function or "".
    data: str = ""
    # The server's batching parameters; None if it joins no requests.
    batching: BatchSizes | None = None
    # Signatures to warm; () for all.
    signature_keys: tuple[str, ...] = ()
    # How files of the data are read.
    reading: DataOptions = DataOptions()


@dataclasses.dataclass(frozen=True)
class Plan:
    """requests: request_values.Requests in the order in which they will run; notes: remarks, a line each."""

    requests: tuple[Request, ...]
    notes: tuple[str, ...]


def plan(facts: Facts, options: Options, folder: pathlib.Path) -> Plan:
    """Choose the requests.

    Args: facts: model_facts.Facts. options: Options. folder: an empty directory for what a function of --warmup_data yields.
    Returns: Plan. Raises: UsageError, also where more than the batch is unknown and nothing says it.
    """
    from tftrt_tools.models.inputs import calls
    from tftrt_tools.models.savedmodel import signatures

    listed = facts.seen.signatures
    names = signatures.chosen([signature.name for signature in listed], options.signature_keys)
    specs = {signature.name: signature.inputs for signature in listed if signature.name in names}
    takes = calls.Takes.of(
        {signature.name: signature.inputs for signature in listed},
        {signature.name: signature.same_as or signature.name for signature in listed},
        keys=options.signature_keys,
        manifest=facts.seen.manifest,
    ).with_pictures(added.pictures(facts.seen.model))
    declared = (
        shape_grammar.calls(shape_grammar.parse(options.shapes, _SHAPES), specs, _SHAPES) if options.shapes else {}
    )
    values = request_values.read(takes, options.data, options.reading, folder)
    if values.requests and options.shapes:
        raise errors.UsageError(
            "--warmup_shapes and --warmup_data=module:function exclude each other: the function gives whole requests",
            "give one of them",
        )
    notes: list[str] = []
    requests: list[Request] = []
    for name in names:
        if name in values.requests:
            requests_of = [request_values.Request(call, "data") for call in values.requests[name]]
        elif facts.methods.get(name) in _EXAMPLE_METHODS and name not in values.arrays and _only_strings(specs[name]):
            notes.append(f"{name} has no warm-up: its input is serialized tf.Examples, and --warmup_data gives none")
            continue
        else:
            shapes = declared.get(name) or _shapes(name, specs[name], facts, options.batching, values)
            requests_of = request_values.filled(name, takes, shapes, values)
            notes += [f"random for {name}: {line}" for line in request_values.drew(name, takes, requests_of)]
            if name not in declared and not _said(name, specs[name], facts, options.batching):
                notes += _guessed(name, specs[name], requests_of)
        requests += _batchable(requests_of, options.batching, notes) if options.batching else requests_of
    requests = sorted(_distinct(requests), key=lambda request: -_elements(request.call))
    if len(requests) > MOST_RECORDS:
        raise errors.UsageError(
            f"{len(requests)} warm-up records, and a server takes {MOST_RECORDS}",
            "give fewer shapes, or choose signatures with --signature_keys",
        )
    return Plan(tuple(requests), (*dict.fromkeys(notes), *_notes(facts, requests, options.batching)))


def _only_strings(specs: Sequence[InputSpec]) -> bool:
    return all(spec.dtype == "string" for spec in specs)


def _elements(call: run.Call) -> int:
    return sum(math.prod(shape) for shape in call.shapes.values())


def _distinct(requests: Iterable[Request]) -> list[Request]:
    """The first of several generated requests with the same shape; the user's requests all stay."""
    seen: set[Any] = set()
    kept: list[Request] = []
    for request in requests:
        key = (request.call.signature, tuple(sorted(request.call.shapes.items())))
        if request.source == "data" or key not in seen:
            kept.append(request)
        seen.add(key)
    return kept


def _sizes(batching: BatchSizes | None) -> tuple[int, ...]:
    """The batches that the server's parameters name."""
    return () if batching is None else batching.allowed or ((batching.largest,) if batching.stated else ())


def _said(name: str, specs: Sequence[InputSpec], facts: Facts, batching: BatchSizes | None) -> bool:
    """Whether the engines of a signature or the server's parameters say which batches come."""
    return bool(_sizes(batching) or _manifest_calls(name, specs, facts))


def _guessed(name: str, specs: Sequence[InputSpec], requests: Sequence[Request]) -> Iterator[str]:
    """A note where the batches that are sent are a guess."""
    sizes = dict.fromkeys(
        rows for request in requests if (rows := shape_grammar.rows(specs, request.call.shapes)) is not None
    )
    if len(sizes) > 1:
        yield (
            f"nothing says which batches {name} will get: warmed up with {' and '.join(map(str, sizes))}; say it with "
            "--warmup_shapes or --batching_parameters_file"
        )


def _shapes(
    name: str, specs: Sequence[InputSpec], facts: Facts, batching: BatchSizes | None, values: request_values.Values
) -> list[Shapes]:
    """[{input: shape}] of a signature that --warmup_shapes does not name."""
    declared, sizes = _manifest_calls(name, specs, facts), _sizes(batching)
    if declared and not sizes:
        return declared
    if declared:
        return declared + [_with_batch(call, size, specs) for call in declared for size in sizes]
    rows = {spec.name: values.row_shape(name, spec) for spec in specs}
    return [{spec.name: _shape(name, spec, size, rows[spec.name]) for spec in specs} for size in sizes or _BATCHES]


def _manifest_calls(name: str, specs: Sequence[InputSpec], facts: Facts) -> list[Shapes]:
    """The calls that engines were built for, as far as they still fit the signature."""
    from tftrt_tools.models.savedmodel import passport

    listed = passport.signatures(facts.seen.manifest).get(name, {}).get("calls") or ()
    calls = [{key: tuple(shape) for key, shape in call.items()} for call in listed]
    return [call for call in calls if all(spec.name in call and spec.accepts(call[spec.name]) for spec in specs)]


def _with_batch(call: Shapes, size: int, specs: Sequence[InputSpec]) -> Shapes:
    """The call with `size` rows, if the signature leaves the first dimension open."""
    free = {spec.name for spec in specs if spec.shape is None or (spec.shape and spec.shape[0] is None)}
    return {name: (size, *shape[1:]) if name in free and shape else shape for name, shape in call.items()}


def _shape(name: str, spec: InputSpec, batch: int, row: tuple[int | None, ...] | None) -> tuple[int, ...]:
    """A shape for an input. Args: row: the shape of a row of the data, or None."""
    if spec.shape == ():
        return ()
    if spec.shape is not None and (static := _static(spec.shape)) is not None:
        return static
    open_rest = row if row is not None else (None if spec.shape is None else spec.shape[1:])
    rest = None if open_rest is None else _static(open_rest)
    if rest is None:
        raise errors.UsageError(
            f"warm-up: input {spec.name!r} of {name!r} has unknown dimensions ({spec.text()})",
            f"give --warmup_shapes='{name}/{spec.name}:…' or --warmup_data, or leave warm-up out with --nowarmup",
        )
    first = spec.shape[0] if spec.shape is not None else None
    return (batch if first is None else first, *rest)


def _static(shape: tuple[int | None, ...]) -> tuple[int, ...] | None:
    """The shape itself, None if one of its dimensions is unknown."""
    known = tuple(size for size in shape if size is not None)
    return known if len(known) == len(shape) else None


def _batchable(requests: Iterable[Request], batching: BatchSizes, notes: list[str]) -> list[Request]:
    """The requests without those that a batching server would refuse: one of them would make the load fail."""
    kept: list[Request] = []
    for request in requests:
        shapes = request.call.shapes.values()
        rows = {shape[0] for shape in shapes if shape}
        if len(rows) != 1 or not all(shapes):
            notes.append(
                f"{request.call.text()} is left out: with batching on, inputs have equally many rows and no scalars are taken"
            )
        elif max(rows) > batching.largest:
            notes.append(f"{request.call.text()} is left out: max_batch_size is {batching.largest}")
        else:
            kept.append(request)
    return kept


def _notes(facts: Facts, requests: Sequence[Request], batching: BatchSizes | None) -> Iterator[str]:
    engines = facts.seen.engines
    unbuilt = [engine for engine in engines if not facts.seen.assets(engine.name)]
    if batching and engines and not batching.allowed:
        yield (
            "batching without allowed_batch_sizes: every size of a batch is a shape of its own to the engines; list the sizes they were "
            "built or warmed for"
        )
    others: dict[str, set[Any]] = {}
    for request in requests:
        others.setdefault(request.call.signature, set()).add(
            tuple(shape[1:] for _, shape in sorted(request.call.shapes.items()))
        )
    kept = min((engine.maximum_cached_engines for engine in unbuilt if engine.implicit_batch), default=None)
    most = max(map(len, others.values()), default=0)
    if kept is not None and most > kept:
        yield (
            f"{most} different row shapes, and the engine ops keep {kept} engine(s) each: they push each other out; convert with "
            f"--maximum_cached_engines={most}"
        )


def uncovered(batching: BatchSizes, sizes: Collection[int] | None, reason: str) -> str:
    """A note about allowed batch sizes that the model does not serve from engines, "" where there are none.

    Args: sizes: those that it serves from engines, None for all; reason: the source of this.
    """
    missing = [size for size in batching.allowed if sizes is not None and size not in sizes]
    many = "s" if len(missing) > 1 else ""
    return f"no engine serves the allowed batch size{many} {', '.join(map(str, missing))} ({reason})" if missing else ""


def path(model: str | pathlib.Path) -> pathlib.Path:
    """The place of a SavedModel's warm-up file."""
    return pathlib.Path(model) / FILE
