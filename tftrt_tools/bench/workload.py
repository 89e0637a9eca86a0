"""What is sent: several different calls of one signature, from the user's data or drawn from a seed. No TensorFlow here."""

import dataclasses

import numpy as np

from tftrt_tools import errors, scratch
from tftrt_tools.accuracy import data
from tftrt_tools.execution import inputs as random_inputs
from tftrt_tools.execution import run
from tftrt_tools.inputs.read import Rows

DEFAULT_SIGNATURE = "serving_default"


@dataclasses.dataclass(frozen=True)
class Workload:
    """calls: sent in turn. batch_size: as asked for, None where the shapes or the data say it; source: where the values are from, in words.
    files: what was read of files for it (its arrays are gone), None where nothing was."""

    calls: tuple[run.Call, ...]
    batch_size: int | None
    source: str
    files: Rows | None = None

    @property
    def rows(self):
        """Mean rows of a request."""
        return sum(call.rows for call in self.calls) / len(self.calls)


def choose_signature(signatures, wanted):
    """The name of the signature to ask. Args: signatures: names. wanted: a name, or "" for the default. Raises: UsageError."""
    if "," in wanted and wanted not in signatures:
        raise errors.UsageError(f"--signature_keys={wanted} names several signatures, and one is asked", "name one")
    if wanted and wanted not in signatures:
        raise errors.UsageError(f"the model has no signature {wanted!r}", "signatures there: " + ", ".join(signatures))
    if wanted:
        return wanted
    if DEFAULT_SIGNATURE in signatures:
        return DEFAULT_SIGNATURE
    if len(signatures) == 1:
        return next(iter(signatures))
    if not signatures:
        raise errors.UsageError("the server tells no signature of the model", "is that the gRPC port of a TensorFlow Serving?")
    raise errors.UsageError("which signature?", "--signature_keys names one of: " + ", ".join(signatures))


def workloads(signature, specs, batch_sizes, options):
    """One Workload for each batch size.

    Args:
      signature: its name. specs: [shapes.InputSpec] of its inputs.
      batch_sizes: [int], or [] for what the shapes or the data say, else 1.
      options: with `shapes`, `data`, `ranges` (texts of the flags), `seed`, `distinct`, how many different requests, `reading` and
        `data_rows`, how files of the data are read and how many rows.

    Returns: [Workload]. Raises: UsageError.
    """
    for spec in specs:
        if spec.dtype.startswith("DataType"):
            raise errors.UsageError(f"input {spec.name!r} is of {spec.dtype}, which no request can carry",
                                    "choose another --signature_keys")
    return [_workload(signature, list(specs), size, options) for size in batch_sizes or [None]]


def _workload(signature, specs, batch_size, options):
    if options.data and options.shapes:
        raise errors.UsageError("--data and --shapes exclude each other", "the data has its own shapes; --batch_size cuts it")
    if options.data:
        return _from_data(signature, specs, batch_size, options)
    if options.shapes:
        listed = data.declared_shapes(options.shapes, {signature: specs})[signature]
        if batch_size:
            listed = [_with_batch(signature, specs, one, batch_size) for one in listed]
    else:
        listed = [_by_signature(signature, specs, batch_size or 1)]
    ranges = random_inputs.parse_ranges(options.ranges)
    unknown = set(ranges) - {spec.name for spec in specs}
    if unknown:
        raise errors.UsageError(f"--ranges: no input {min(unknown)!r}", "inputs here: " + ", ".join(spec.name for spec in specs))
    count = max(options.distinct, len(listed))
    shapes = [listed[number % len(listed)] for number in range(count)]
    calls = data.random_calls(signature, specs, shapes, options.seed, ranges)
    return Workload(tuple(calls), batch_size, f"drawn from seed {options.seed}")


def _from_data(signature, specs, batch_size, options):
    with scratch.folder("bench") as folder:
        # No more is read of files than will be sent.
        most = options.distinct * (batch_size or 1)
        rows = min(options.data_rows, most) if options.data_rows else most
        given = data.given(options.data, {signature: specs}, folder, options.reading, options.data_rows, files_rows=rows)
        if given.calls and batch_size:
            raise errors.UsageError("--batch_size does not cut what a function yields", "let it yield calls of that size")
        found, dropped = given.cut({signature: specs}, (batch_size or 1,))
        calls = [run.Call(call.signature, {name: np.array(array) for name, array in call.inputs.items()}) for call in
                 found.get(signature, [])[:options.distinct]]
        total = len(found.get(signature, []))
    if not calls:
        raise errors.UsageError(f"the data has fewer rows than a batch of {batch_size or 1}" if batch_size else "the data is empty",
                                "give more rows, or a smaller --batch_size")
    source = options.data
    if len(calls) < total:
        source += f", the first {len(calls)} of {total} requests (--distinct)"
    elif given.rows and given.rows.total > len(given.rows.numbers):
        source += f", {len(given.rows.numbers)} of its {given.rows.total} files"
    if dropped:
        source += f", without the last {'row, which fills' if dropped == 1 else f'{dropped} rows, which fill'} no batch of {batch_size}"
    return Workload(tuple(calls), batch_size, source, dataclasses.replace(given.rows, arrays={}) if given.rows else None)


def _with_batch(signature, specs, shapes, batch_size):
    changed = {}
    for spec in specs:
        shape = shapes[spec.name]
        open_batch = bool(shape) and (spec.shape is None or spec.shape[0] is None)
        changed[spec.name] = (batch_size, *shape[1:]) if open_batch else shape
    _check_batch(signature, specs, batch_size)
    return changed


def _by_signature(signature, specs, batch_size):
    call = data.shapes_of_batch(signature, specs, batch_size)
    if batch_size > 1:
        _check_batch(signature, specs, batch_size)
    return call


def _check_batch(signature, specs, batch_size):
    if any(spec.shape is None or (spec.shape and spec.shape[0] in (None, batch_size)) for spec in specs):
        return
    raise errors.UsageError(f"--batch_size={batch_size} fits no input of {signature!r}", "it takes " + ", ".join(
        f"{spec.name} {spec.text()}" for spec in specs))
