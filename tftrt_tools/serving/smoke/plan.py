"""Which calls are sent: from the user's data, at the shapes that were given, that the passport names, or that the signature allows."""

import dataclasses

from tftrt_tools import errors
from tftrt_tools.accuracy import data
from tftrt_tools.execution import inputs as random_inputs
from tftrt_tools.savedmodel import signatures


@dataclasses.dataclass(frozen=True)
class Group:
    """Calls of one signature and one shape. calls: (run.Call, …), at least one."""

    calls: tuple

    @property
    def signature(self):
        """Its name."""
        return self.calls[0].signature

    @property
    def text(self):
        """For people: serving_default(x 1x8)."""
        return self.calls[0].text()


@dataclasses.dataclass(frozen=True)
class Plan:
    """groups: (Group, …), larger shapes of a signature after smaller ones as given; sources: {signature: where its shapes are from};
    own_data: names of the signatures whose inputs are the user's; dropped: rows of the data that no batch size fits."""

    groups: tuple
    sources: dict
    own_data: tuple
    dropped: int


def plan(served, known, options, folder):
    """Choose the calls.

    Args: served: client.Served. known: what model.declared_shapes returned, or None. options: smoke.Options. folder: for what a function
      of --data yields.
    Returns: Plan. Raises: UsageError.
    """
    specs = {name: served.signatures[name].inputs for name in signatures.chosen(list(served.signatures), options.signature_keys)}
    declared = data.declared_shapes(options.shapes, specs) if options.shapes else {}
    passport = {name: calls for name, calls in (known[0] if known else {}).items() if name in specs and _fit(calls, specs[name])}
    found, dropped = _from_data(specs, declared or passport, options, folder)
    own = tuple(found)
    if options.shapes and not options.data:
        specs = {name: specs[name] for name in declared}  # the others were not asked for
    ranges = _ranges(options, specs)
    sources = {name: "--data" for name in found}
    for name, inputs in specs.items():
        if name in found:
            continue
        if name in declared:
            shapes, sources[name] = declared[name], "--shapes"
        elif name in passport:
            shapes, sources[name] = passport[name], known[1]
        else:
            shapes, sources[name] = [_batch_one(name, inputs)], "batch 1, as the signature allows"
        found[name] = data.random_calls(name, inputs, shapes, options.seed, ranges)
    groups = {}
    for name in specs:
        for call in found[name]:
            groups.setdefault((name, tuple(sorted(call.shapes.items()))), []).append(call)
    if not groups:
        raise errors.UsageError("there is nothing to send", "give more rows with --data, or --shapes")
    return Plan(tuple(Group(tuple(calls)) for calls in groups.values()), sources, own, dropped)


def _fit(calls, inputs):
    return all(set(call) == {spec.name for spec in inputs} and all(spec.accepts(call[spec.name]) for spec in inputs) for call in calls)


def _from_data(specs, declared, options, folder):
    if not options.data:
        return {}, 0
    given = data.given(options.data, specs, folder, options.reading, options.data_rows)
    wanted = {shape[0] for calls in declared.values() for call in calls for shape in call.values() if shape}
    sizes = (options.batch_size,) if options.batch_size else tuple(sorted(wanted, reverse=True)) or tuple(range(data.DEFAULT_BATCH, 0, -1))
    found, dropped = given.cut(specs, sizes)
    empty = [name for name, calls in found.items() if not calls]
    if empty:
        raise errors.UsageError(f"the data has fewer rows than the smallest batch of signature {empty[0]!r} ({min(sizes)})",
                                "give more rows, or --batch_size")
    return found, dropped


def _ranges(options, specs):
    ranges = random_inputs.parse_ranges(options.ranges)
    known = {spec.name for inputs in specs.values() for spec in inputs}
    for name in ranges:
        if name not in known:
            raise errors.UsageError(f"--ranges: no input {name!r}", "inputs here: " + ", ".join(sorted(known)))
    return ranges


def _batch_one(signature, inputs):
    call = {}
    for spec in inputs:
        if spec.dtype.startswith("DataType"):
            raise errors.UsageError(f"input {spec.name!r} of {signature!r} is of {spec.dtype}, which no request can carry",
                                    "choose other signatures with --signature_keys")
        if spec.shape is None or None in spec.shape[1:]:
            raise errors.UsageError(f"input {spec.name!r} of {signature!r} has unknown dimensions ({spec.text()})",
                                    f"give --shapes='{signature}/{spec.name}:…', --data, or --model_dir with the shapes it was built for")
        call[spec.name] = tuple(1 if dim is None else dim for dim in spec.shape)
    return call
