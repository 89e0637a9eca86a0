"""Which requests a version warms up with: one for each signature and shape that it will serve. No TensorFlow here.

The server sends the records to itself while it loads, one after the other, and answers nobody before they are done. Larger requests come
first: the first one decides what the engine of an implicit batch model serves (its batch and all smaller ones), and makes the only
profile of a model with dynamic shapes and without engines.
"""

import dataclasses
import math
import pathlib

from tftrt_tools import errors
from tftrt_tools.serving import warmup_values

FILE = "assets.extra/tf_serving_warmup_requests"
# TensorFlow Serving fails the load of a version with more (kNumMaxWarmupRecords, saved_model_warmup_util.h).
MOST_RECORDS = 1000
# Rows of a request where nothing says which batches will come.
_BATCHES = (8, 1)
_EXAMPLE_METHODS = ("tensorflow/serving/classify", "tensorflow/serving/regress")


@dataclasses.dataclass(frozen=True)
class Options:
    """shapes: text of --warmup_shapes; data: path, module:function or ""; batching: warmup_batching.BatchSizes or None; signature_keys:
    signatures to warm, () for all."""

    shapes: str = ""
    data: str = ""
    batching: object = None
    signature_keys: tuple = ()


@dataclasses.dataclass(frozen=True)
class Plan:
    """requests: warmup_values.Requests in the order in which they will run; notes: what is worth knowing, a line each."""

    requests: tuple
    notes: tuple


def plan(facts, options, folder):
    """Choose the requests.

    Args: facts: model_facts.Facts. options: Options. folder: an empty directory for what a function of --warmup_data yields.
    Returns: Plan. Raises: UsageError, also where more than the batch is unknown and nothing says it.
    """
    from tftrt_tools.accuracy import data
    from tftrt_tools.savedmodel import signatures

    names = signatures.chosen([one.name for one in facts.seen.signatures], options.signature_keys)
    specs = {one.name: one.inputs for one in facts.seen.signatures if one.name in names}
    declared = data.declared_shapes(_renamed(options.shapes), specs) if options.shapes else {}
    values = warmup_values.read(options.data, specs, folder)
    if values.requests and options.shapes:
        raise errors.UsageError("--warmup_shapes and --warmup_data=module:function exclude each other: the function gives whole requests",
                                "give one of them")
    notes, requests = [], []
    for name in names:
        if name in values.requests:
            found = [warmup_values.Request(call, "data") for call in values.requests[name]]
        elif facts.methods.get(name) in _EXAMPLE_METHODS and name not in values.arrays and _only_strings(specs[name]):
            notes.append(f"{name} has no warm-up: its input is serialized tf.Examples, and no --warmup_data gives some")
            continue
        else:
            shapes = declared.get(name) or _shapes(name, specs[name], facts, options.batching, values, notes)
            found = warmup_values.filled(name, specs[name], shapes, values)
        requests += _batchable(found, options.batching, notes) if options.batching else found
    requests = sorted(_distinct(requests), key=lambda one: -_elements(one.call))
    if len(requests) > MOST_RECORDS:
        raise errors.UsageError(f"{len(requests)} warm-up records, and a server takes {MOST_RECORDS}",
                                "give fewer shapes, or choose signatures with --signature_keys")
    return Plan(tuple(requests), (*dict.fromkeys(notes), *_notes(facts, requests, options.batching)))


def _renamed(flag):
    """Checked here, so that an error names the flag that was given."""
    from tftrt_tools.savedmodel import shapes

    try:
        shapes.parse(flag)
    except errors.UsageError as error:
        cause, mend = (text.replace("--shapes", "--warmup_shapes") for text in (error.cause, error.mend))
        raise errors.UsageError(cause, mend) from None
    return flag


def _only_strings(specs):
    return all(spec.dtype == "string" for spec in specs)


def _elements(call):
    return sum(math.prod(shape) for shape in call.shapes.values())


def _distinct(requests):
    """Of several generated requests of one shape the first; what the user gave stays as it is."""
    seen, kept = set(), []
    for one in requests:
        key = (one.call.signature, tuple(sorted(one.call.shapes.items())))
        if one.source == "data" or key not in seen:
            kept.append(one)
        seen.add(key)
    return kept


def _shapes(name, specs, facts, batching, values, notes):
    """[{input: shape}] of a signature for which --warmup_shapes says nothing."""
    known = _manifest_calls(name, specs, facts)
    sizes = () if batching is None else batching.allowed or ((batching.largest,) if batching.stated else ())
    if known and not sizes:
        return known
    if known:
        return known + [_with_batch(call, size, specs) for call in known for size in sizes]
    if not sizes:
        notes.append(f"nothing says which batches {name} will get: warmed up with {_BATCHES[0]} and {_BATCHES[1]}; say it with "
                     "--warmup_shapes or --batching_parameters_file")
    rows = {spec.name: values.row_shape(name, spec) for spec in specs}
    return [{spec.name: _shape(name, spec, size, rows[spec.name]) for spec in specs} for size in sizes or _BATCHES]


def _manifest_calls(name, specs, facts):
    """The calls that engines were built for, as far as they still fit the signature."""
    from tftrt_tools.savedmodel import passport

    listed = passport.signatures(facts.seen.manifest).get(name, {}).get("calls") or ()
    calls = [{key: tuple(shape) for key, shape in call.items()} for call in listed]
    return [call for call in calls if all(spec.name in call and spec.accepts(call[spec.name]) for spec in specs)]


def _with_batch(call, size, specs):
    """The call with `size` rows, where the signature leaves the first dimension open."""
    free = {spec.name for spec in specs if spec.shape is None or (spec.shape and spec.shape[0] is None)}
    return {name: (size, *shape[1:]) if name in free and shape else shape for name, shape in call.items()}


def _shape(name, spec, batch, row):
    """A shape for an input. Args: row: the shape of a row of the data, or None."""
    if spec.shape == ():
        return ()
    if spec.shape is not None and spec.shape[0] is not None and None not in spec.shape:
        return spec.shape
    rest = row if row is not None else (None if spec.shape is None else spec.shape[1:])
    if rest is None or None in rest:
        raise errors.UsageError(f"warm-up: input {spec.name!r} of {name!r} has unknown dimensions ({spec.text()})",
                                f"give --warmup_shapes='{name}/{spec.name}:…' or --warmup_data, or leave warm-up out with --nowarmup")
    first = spec.shape[0] if spec.shape is not None else None
    return (batch if first is None else first, *rest)


def _batchable(requests, batching, notes):
    """Without those that a batching server would refuse, which fails the load."""
    kept = []
    for one in requests:
        rows = {shape[0] if shape else None for shape in one.call.shapes.values()}
        if None in rows or len(rows) != 1:
            notes.append(f"{one.call.text()} is left out: with batching on, inputs have equally many rows and no scalars are taken")
        elif max(rows) > batching.largest:
            notes.append(f"{one.call.text()} is left out: max_batch_size is {batching.largest}")
        else:
            kept.append(one)
    return kept


def _notes(facts, requests, batching):
    engines = facts.seen.engines
    unbuilt = [one for one in engines if not facts.seen.assets(one.name)]
    if batching and engines and not batching.allowed:
        yield ("batching without allowed_batch_sizes: every size of a batch is a shape of its own to the engines; list the sizes they were "
               "built or warmed for")
    others = {}
    for one in requests:
        others.setdefault(one.call.signature, set()).add(tuple(shape[1:] for _, shape in sorted(one.call.shapes.items())))
    kept = min((one.maximum_cached_engines for one in unbuilt if one.implicit_batch), default=None)
    most = max(map(len, others.values()), default=0)
    if kept is not None and most > kept:
        yield (f"{most} different row shapes, and the engine ops keep {kept} engine(s) each: they push each other out; convert with "
               f"--maximum_cached_engines={most}")


def uncovered(batching, sizes, reason):
    """A note about allowed batch sizes that the model does not serve from engines, "" where there are none.

    Args: sizes: those it does serve, None for all; reason: where that is from.
    """
    missing = [size for size in batching.allowed if sizes is not None and size not in sizes]
    many = "s" if len(missing) > 1 else ""
    return f"no engine serves the allowed batch size{many} {', '.join(map(str, missing))} ({reason})" if missing else ""


def path(model):
    """Where the warm-up file of a SavedModel lies."""
    return pathlib.Path(model) / FILE
