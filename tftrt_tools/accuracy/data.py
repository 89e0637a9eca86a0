"""The calls of a verification: from the user's data, or drawn from a seed. No TensorFlow in this process."""

import dataclasses
import pathlib

import numpy as np

from tftrt_tools import child, errors
from tftrt_tools.execution import arrays as array_reader
from tftrt_tools.execution import inputs, npz, run
from tftrt_tools.inputs import find, read
from tftrt_tools.inputs import options as options_module
from tftrt_tools.inputs.options import DataOptions
from tftrt_tools.savedmodel import shapes as shape_grammar
from tftrt_tools.savedmodel.shapes import InputSpec
from tftrt_tools.savedmodel.signatures import Once

DEFAULT_BATCH = 32
_RANDOM_BATCHES = (1, 8)
_NAMED = 5


@dataclasses.dataclass(frozen=True)
class Calls:
    """calls: run.Call in order. sources: {signature: "data" or "random"}; samples: {signature: rows used}; dropped: rows of the data
    that no declared batch size fits."""

    calls: tuple
    sources: dict
    samples: dict
    dropped: int


@dataclasses.dataclass(frozen=True, eq=False)
class Given:
    """The user's data, found and read, before it is cut into calls. arrays: {input, or signature/input: array with the rows in front};
    calls: {signature: [run.Call]} of a function, which gives whole calls, else {}. rows: read.Rows of files that were read for this, None
    for one file of arrays and for a function."""

    arrays: dict[str, np.ndarray]
    calls: dict[str, list[run.Call]]
    rows: read.Rows | None

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know about the data, a line each."""
        failed = self.rows.failed if self.rows else ()
        named = ", ".join(failed[:_NAMED]) + (", …" if len(failed) > _NAMED else "")
        return (f"{len(failed)} pictures could not be decoded: {named}",) if failed else ()

    def cut(self, specs: dict[str, list[InputSpec]], batch_sizes: tuple[int, ...]) -> tuple[dict[str, list[run.Call]], int]:
        """Calls of the signatures that the data fills, as `calls_of_arrays` cuts them. Returns: ({signature: [run.Call]}, rows dropped)."""
        return (self.calls, 0) if self.calls else calls_of_arrays(self.arrays, specs, batch_sizes)


def given(source: str, specs: dict[str, list[InputSpec]], folder: str | pathlib.Path, reading: DataOptions | None = None,
          rows: int = 0, said: str = "--data", files_rows: int = 0, walked: Once | None = None) -> Given:
    """Read the data that a flag names.

    Args:
      source: .npz or .npy, TFRecords, pictures, .csv, .txt, encoded files, a folder or glob of one of these, or module:function.
      specs: {signature: [InputSpec]}.
      folder: for what is read; has to live as long as the arrays.
      reading: how pictures and TFRecords are read; None for the defaults.
      rows: read so many at most, of pictures spread over all files, else the first; 0 for all.
      said: the flag, for messages.
      files_rows: where files have to be read one after the other, read so many at most, in place of `rows`.
      walked: the signatures of `specs`, with names of the same functions that the data may use as well.

    Returns: Given. Raises: UsageError.
    """
    found = find.find(source, said)
    reading = dataclasses.replace(reading or DataOptions(), source=source)
    options_module.check_image_flags(reading, found.kind)
    folder = pathlib.Path(folder)
    if found.kind == "function":
        if rows:
            raise errors.UsageError(f"--data_rows does not cut what a function yields, and {said}={source} is one",
                                    "let it yield fewer rows")
        return Given({}, calls_of_function(source, specs, folder / "user", said, walked), None)
    if found.kind == "arrays" and len(found.files) == 1:
        arrays = array_reader.load(found.files[0])
        arrays = walked.renamed(arrays) if walked else arrays
        return Given({name: array[:rows] if rows and array.ndim else array for name, array in arrays.items()}, {}, None)
    read_rows = read.read(found, specs, reading, folder / "rows", files_rows or rows, said)
    return Given(read_rows.arrays, {}, read_rows)


def calls_of_arrays(arrays, specs, batch_sizes, signature_keys=()):
    """Cut arrays into calls.

    Args:
      arrays: {input, or signature/input: array with the rows in front}; "" for the only input of a signature.
      specs: {signature: [InputSpec]}.
      batch_sizes: rows of a call, largest first; the rest of the data goes to the smaller ones.
      signature_keys: signatures to serve; () for all.

    Returns: ({signature: [run.Call]}, rows dropped). Raises: UsageError.
    """
    array_reader.check_names(arrays, specs)
    found, dropped = {}, 0
    for signature, inputs_of in specs.items():
        if signature_keys and signature not in signature_keys:
            continue
        mine = {spec.name: array_reader.pick(arrays, signature, spec.name, len(inputs_of)) for spec in inputs_of}
        if any(value is None for value in mine.values()):
            continue
        prepared = {spec.name: array_reader.prepared(mine[spec.name], spec) for spec in inputs_of}
        found[signature], lost = _cut(signature, prepared, inputs_of, batch_sizes)
        dropped += lost
    if not found:
        wanted = "; ".join(f"{name}: {', '.join(spec.name for spec in inputs_of)}" for name, inputs_of in specs.items())
        raise errors.UsageError(f"the data names {', '.join(arrays) or 'nothing'}, which fills no signature", f"inputs here: {wanted}")
    return found, dropped


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
    calls = [shapes_of_batch(signature, specs, batch) for batch in _RANDOM_BATCHES]
    return calls if calls[0] != calls[1] else calls[:1]


def shapes_of_batch(signature, specs, batch):
    """{input: shape} of InputSpecs with that batch size. Raises: UsageError where more than the batch is unknown."""
    call = {}
    for spec in specs:
        if spec.shape is None or None in spec.shape[1:]:
            raise errors.UsageError(f"input {spec.name!r} of {signature!r} has unknown dimensions ({spec.text()})",
                                    f"give --data, or --shapes='{signature}/{spec.name}:…'")
        call[spec.name] = tuple(batch if dim is None else dim for dim in spec.shape)
    return call


def from_function(reference, folder, said="--data"):
    """Call the user's module:function in a child and save what it yields. Args: said: the flag that named it, for messages.
    Returns: [(signature or "", path)]."""
    request = {"function": reference, "folder": str(folder), "said": said}
    found = child.run("tftrt_tools.accuracy.user_data:job", request).result
    return [tuple(pair) for pair in found]


def calls_of_function(reference, specs, folder, said="--data", walked=None):
    """The calls that the user's module:function yields, its arrays saved to `folder`.

    Args: specs: {signature: [InputSpec]}; what is yielded without a signature is for serving_default, or else the first. said: the flag
      that named it, for messages. walked: signatures.Once; what is yielded for a twin is for the signature that is walked.
    Returns: {signature: [run.Call]}. Raises: UsageError.
    """
    default = "serving_default" if "serving_default" in specs else next(iter(specs))
    found = {}
    for signature, path in from_function(reference, folder, said):
        name = walked.leader(signature) if walked and signature else signature or default
        if name not in specs:
            raise errors.UsageError(f"{said}={reference} yields for signature {name!r}", "signatures here: " + ", ".join(specs))
        arrays = npz.load(path)
        rows = max((len(array) for array in arrays.values() if array.ndim), default=1)
        one, _ = calls_of_arrays({f"{name}/{key}": value for key, value in arrays.items()}, {name: specs[name]}, (rows,))
        found.setdefault(name, []).extend(one[name])
    return found


def declared_shapes(flag, specs):
    """Calls of --shapes for `specs`."""
    return shape_grammar.calls(shape_grammar.parse(flag), specs)
