"""The calls of a verification: from the user's data, or drawn from a seed. No TensorFlow in this process."""

import dataclasses
import pathlib
import zipfile

import numpy as np

from tftrt_tools import child, errors
from tftrt_tools.execution import inputs, run
from tftrt_tools.savedmodel import shapes as shape_grammar

DEFAULT_BATCH = 32
_RANDOM_BATCHES = (1, 8)


@dataclasses.dataclass(frozen=True)
class Calls:
    """calls: run.Call in order. sources: {signature: "data" or "random"}; samples: {signature: rows used}; dropped: rows of the data
    that no declared batch size fits."""

    calls: tuple
    sources: dict
    samples: dict
    dropped: int


def load_arrays(path):
    """Arrays of an .npz or .npy file. Returns: {name: array}; an .npy has the name "". Raises: UsageError."""
    path = pathlib.Path(path)
    if not path.is_file():
        raise errors.UsageError(f"no such file: {path}", "give an .npz or .npy file, or module:function")
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"": loaded}
        return {name: loaded[name] for name in loaded.files}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        hint = "save strings as a fixed-width array (np.array(values, 'S')), not as objects" if "pickle" in str(error).lower() else \
            "write it with np.savez(path, input_name=array)"
        raise errors.UsageError(f"{path} is no readable .npz or .npy file", hint) from None


def calls_of_arrays(arrays, specs, batch_sizes, signature_keys=()):
    """Cut arrays into calls.

    Args:
      arrays: {input, or signature/input: array with the rows in front}; "" for the only input of a signature.
      specs: {signature: [InputSpec]}.
      batch_sizes: rows of a call, largest first; the rest of the data goes to the smaller ones.
      signature_keys: signatures to serve; () for all.

    Returns: ({signature: [run.Call]}, rows dropped). Raises: UsageError.
    """
    _check_names(arrays, specs)
    found, dropped = {}, 0
    for signature, inputs_of in specs.items():
        if signature_keys and signature not in signature_keys:
            continue
        mine = {spec.name: _pick(arrays, signature, spec.name, len(inputs_of)) for spec in inputs_of}
        if any(value is None for value in mine.values()):
            continue
        prepared = {spec.name: _prepared(mine[spec.name], spec) for spec in inputs_of}
        found[signature], lost = _cut(signature, prepared, inputs_of, batch_sizes)
        dropped += lost
    if not found:
        wanted = "; ".join(f"{name}: {', '.join(spec.name for spec in inputs_of)}" for name, inputs_of in specs.items())
        raise errors.UsageError(f"the data names {', '.join(arrays) or 'nothing'}, which fills no signature", f"inputs here: {wanted}")
    return found, dropped


def _check_names(arrays, specs):
    known = {spec.name for inputs_of in specs.values() for spec in inputs_of}
    known |= {f"{signature}/{spec.name}" for signature, inputs_of in specs.items() for spec in inputs_of}
    unknown = [name for name in arrays if name and name not in known]
    if unknown:
        raise errors.UsageError(f"the data has an array {unknown[0]!r} that is no input", "inputs here: " + ", ".join(sorted(known)))


def _pick(arrays, signature, name, count):
    if "" in arrays:
        return arrays[""] if count == 1 else None
    return arrays.get(f"{signature}/{name}", arrays.get(name))


def _prepared(array, spec):
    """The array in the input's dtype, where no information is lost. Raises: UsageError."""
    if spec.dtype == "string":
        if array.dtype.kind not in "SUO":
            raise errors.UsageError(f"the data of input {spec.name!r} is {array.dtype}, and the signature takes strings", "give strings")
        return np.char.encode(array, "utf-8").astype(object) if array.dtype.kind == "U" else array.astype(object)
    wanted = np.dtype(spec.dtype)
    if array.dtype.kind in "SUO" or not np.can_cast(array.dtype, wanted, "same_kind") and not _lossless(array, wanted):
        raise errors.UsageError(f"the data of input {spec.name!r} is {array.dtype}, and the signature takes {spec.dtype}",
                                "convert it first")
    if array.dtype.kind == "f" and not np.all(np.isfinite(array)):
        raise errors.UsageError(f"the data of input {spec.name!r} holds NaN or Inf", "clean the data first")
    return array.astype(wanted)


def _lossless(array, wanted):
    with np.errstate(all="ignore"):
        return bool(np.array_equal(array.astype(wanted).astype(array.dtype), array))


def _cut(signature, arrays, specs, batch_sizes):
    rows = {len(array) for array in arrays.values() if array.ndim}
    if len(rows) > 1:
        lengths = ", ".join(f"{name} {len(array)}" for name, array in arrays.items() if array.ndim)
        raise errors.UsageError(f"the data of signature {signature!r} has inputs of different lengths: {lengths}", "give equally many rows")
    total = rows.pop() if rows else 1
    if total == 0:
        raise errors.UsageError(f"the data of signature {signature!r} is empty", "give at least one row")
    calls, start = [], 0
    while start < total:
        size = next((size for size in batch_sizes if size <= total - start), None)
        if size is None:
            break
        part = {name: array[start:start + size] if array.ndim else array for name, array in arrays.items()}
        for spec in specs:
            if not spec.accepts(part[spec.name].shape):
                shape = ",".join(map(str, part[spec.name].shape))
                raise errors.UsageError(f"the data of input {spec.name!r} has shape [{shape}] a call", f"{signature!r} takes {spec.text()}")
        calls.append(run.Call(signature, part))
        start += size
    return calls, total - start


def random_calls(signature, specs, shapes, seed, ranges):
    """One call for each of `shapes` ([{input: shape}]), each from a seed of its own."""
    return [run.Call(signature, inputs.random(specs, one, seed + number, ranges)) for number, one in enumerate(shapes)]


def default_shapes(signature, specs):
    """Shapes to draw where none are declared: two batch sizes. Raises: UsageError where more than the batch is unknown."""
    calls = []
    for batch in _RANDOM_BATCHES:
        call = {}
        for spec in specs:
            if spec.shape is None or None in spec.shape[1:]:
                raise errors.UsageError(f"input {spec.name!r} of {signature!r} has unknown dimensions ({spec.text()})",
                                        f"give --data, or --shapes='{signature}/{spec.name}:…'")
            call[spec.name] = tuple(batch if dim is None else dim for dim in spec.shape)
        calls.append(call)
    return calls if calls[0] != calls[1] else calls[:1]


def parse_ranges(flag):
    """--ranges='ids:0:30522;x:-1:1'. Returns: {input: (low, high)}. Raises: UsageError."""
    ranges = {}
    for item in filter(None, (part.strip() for part in flag.split(";"))):
        try:
            name, low, high = item.rsplit(":", 2)
            ranges[name] = (float(low), float(high))
            assert name and ranges[name][0] < ranges[name][1]
        except (ValueError, AssertionError):
            raise errors.UsageError(f"--ranges: {item!r} is not of the form INPUT:LOW:HIGH", "e.g. --ranges='ids:0:30522'") from None
    return ranges


def from_function(reference, folder):
    """Call the user's module:function in a child and save what it yields. Returns: [(signature or "", path)]."""
    request = {"function": reference, "folder": str(folder)}
    found = child.run("tftrt_tools.accuracy.user_data:job", request).result
    return [tuple(pair) for pair in found]


def declared_shapes(flag, specs):
    """Calls of --shapes for `specs`."""
    return shape_grammar.calls(shape_grammar.parse(flag), specs)
