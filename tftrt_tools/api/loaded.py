"""A model of any kind, loaded in a process of its own and called with arrays."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tftrt_tools.api import calling
from tftrt_tools.api.given import Path
from tftrt_tools.base import errors, op_libraries

if TYPE_CHECKING:
    from types import TracebackType

    import numpy as np
    import numpy.typing as npt

    from tftrt_tools.models.execution.held import Held
    from tftrt_tools.models.execution.runner import Where
    from tftrt_tools.models.kinds.model import Model as Opened
    from tftrt_tools.models.kinds.model import Signature as Specs
    from tftrt_tools.models.savedmodel.shapes import InputSpec

    Arrays = dict[str, npt.NDArray[Any]]

_CLOSED = "load it again: tftrt_tools.load(path)"


def load(
    path: Path,
    *,
    inputs: Iterable[str] = (),
    outputs: Iterable[str] = (),
    allow_unsafe_deserialization: bool = False,
    custom_objects: str = "",
    op_library: str | Iterable[str] = (),
    log_file: Path | None = None,
) -> Model:
    """Load a model of any kind in a process of its own: a SavedModel, converted or not, a Keras or ONNX file, a plan, a PyTorch program.

        with tftrt.load("resnet_fp16") as model:
            answers = model(image=batch)

    Args:
      path: of the model. inputs, outputs: of a frozen graph or a checkpoint, as the flags of that name. allow_unsafe_deserialization: load
      a file that runs code of its own; only one that you trust. custom_objects: module:dict of a Keras file's own classes. op_library:
      libraries of custom ops. log_file: where to keep what the runtime logs.

    Returns: Model. Its process, with the GPU's memory that it has, ends with the `with`, with `close`, or when nothing refers to it.
    Raises: UsageError, TftrtError where it cannot be loaded here.
    """
    from tftrt_tools.models.execution import held
    from tftrt_tools.models.kinds import opening
    from tftrt_tools.models.sources.source import Source

    libraries = [op_library] if isinstance(op_library, (str, os.PathLike)) else list(op_library)
    source = Source(
        path=calling.place("load", path),
        unsafe=allow_unsafe_deserialization,
        custom_objects=custom_objects,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
    )
    log = os.fspath(log_file) if log_file else None
    with calling.told(), contextlib.ExitStack() as stack:
        (opened,) = stack.enter_context(opening.opened(source, log_file=log))
        env = op_libraries.variables([os.fspath(one) for one in libraries])
        process = stack.enter_context(held.loaded(opened, f"model {opened.title}", env, log))
        return Model(opened, process, stack.pop_all())


class Model:
    """A loaded model; made by `load`. It is called like a function: with its inputs by name, with a mapping of them, or with one array
    where it has one input. `model["score"]` is another signature of it. Several threads may call it, one after the other.

    Attributes: path: as it was given. signatures: {name: its `inputs` and `outputs`, each with name, dtype and shape}. signature: the one
    that is called. inputs: {name: InputSpec} of that. where: what runs it, and on which GPU.
    """

    def __init__(self, opened: Opened, process: Held, stack: contextlib.ExitStack) -> None:
        from tftrt_tools.models.savedmodel.signatures import DEFAULT

        self.path = opened.source.path
        self.signatures: dict[str, Specs] = dict(opened.signatures)
        self.where: Where = process.where
        known = list(self.signatures)
        self.signature = DEFAULT if DEFAULT in known else known[0] if len(known) == 1 else ""
        self._process, self._lock = process, threading.Lock()
        self._end = weakref.finalize(self, _close, os.getpid(), stack)

    @property
    def inputs(self) -> dict[str, InputSpec]:
        """{name: InputSpec} of the signature that is called."""
        return {spec.name: spec for spec in self._specs(self.signature).inputs}

    @property
    def outputs(self) -> dict[str, InputSpec]:
        """{name: InputSpec} of its answers."""
        return {spec.name: spec for spec in self._specs(self.signature).outputs}

    @property
    def closed(self) -> bool:
        """Whether it can be called no more."""
        return not self._end.alive or not self._process.alive

    def __call__(self, inputs: Mapping[str, Any] | Any = None, /, **named: object) -> Arrays:
        """{output: array} of a call. Args: inputs: {name: array}, or the array of an only input; named: arrays by name.

        Raises: UsageError for inputs that the model does not take; CallFailed where it does not answer, after which it can be called again;
        TftrtError where its process has ended.
        """
        return self._call(self.signature, inputs, named)

    def __getitem__(self, signature: str) -> Function:
        """The signature of that name, as a function. Raises: UsageError."""
        with calling.told():
            self._specs(signature)
        return Function(self, signature)

    def close(self) -> None:
        """End its process. It may be closed already."""
        self._end()

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.closed:
            return f"<Model {self.path!r}, closed>"
        takes = ", ".join(f"{spec.name} {spec.text()}" for spec in self.inputs.values()) if self.signature else ""
        engines = ", its engines as native segments" if self.where.mode == "native segments" else ""
        return f"<Model {self.path!r} in {self.where.text()}{engines}: {takes or ', '.join(self.signatures)}>"

    def _specs(self, signature: str) -> Specs:
        if signature in self.signatures:
            return self.signatures[signature]
        if not signature:
            raise errors.UsageError(
                f"which signature of {self.path}?", "model[NAME] is one of them: " + ", ".join(self.signatures)
            )
        raise errors.UsageError(
            f"{self.path} has no signature {signature!r}", errors.nearest(signature, self.signatures)
        )

    def _call(self, signature: str, inputs: object, named: Mapping[str, Any]) -> Arrays:
        with calling.told():
            specs = self._specs(signature).inputs
            arrays = _checked(signature, specs, _by_name(specs, inputs, named))
            with self._lock:
                if not self._end.alive:
                    raise errors.TftrtError(f"{self.path} was closed", _CLOSED)
                if not self._process.alive:
                    raise errors.TftrtError(f"the process of {self.path} has ended", _CLOSED)
                return self._process.call(signature, arrays)


class Function:
    """A signature of a Model; made by `model[name]`."""

    def __init__(self, model: Model, name: str) -> None:
        self._model, self.name = model, name

    @property
    def inputs(self) -> dict[str, InputSpec]:
        """{name: InputSpec}."""
        return {spec.name: spec for spec in self._model.signatures[self.name].inputs}

    @property
    def outputs(self) -> dict[str, InputSpec]:
        """{name: InputSpec}."""
        return {spec.name: spec for spec in self._model.signatures[self.name].outputs}

    def __call__(self, inputs: Mapping[str, Any] | Any = None, /, **named: object) -> Arrays:
        """As Model.__call__."""
        return self._model._call(self.name, inputs, named)


def _close(owner: int, stack: contextlib.ExitStack) -> None:
    # A fork of the program has the model's object, and not its process.
    if os.getpid() == owner:
        stack.close()


def _by_name(specs: Iterable[InputSpec], inputs: object, named: Mapping[str, Any]) -> dict[str, Any]:
    """{input: value}. Raises: UsageError."""
    names = [spec.name for spec in specs]
    if inputs is None:
        return dict(named)
    if isinstance(inputs, Mapping):
        twice = next((name for name in inputs if name in named), None)
        if twice is not None:
            raise errors.UsageError(f"input {twice!r} is given twice", "give it once")
        return {**inputs, **named}
    if named or len(names) != 1:
        raise errors.UsageError(
            f"an array without a name, and the model takes {len(names)} inputs", "name them: " + ", ".join(names)
        )
    return {names[0]: inputs}


def _checked(signature: str, specs: tuple[InputSpec, ...], given: Mapping[str, Any]) -> Arrays:
    """The arrays as the model takes them. Raises: UsageError, which names what it expects."""
    takes = ", ".join(f"{spec.name} {spec.text()}" for spec in specs) or "nothing"
    names = [spec.name for spec in specs]
    for name in given:
        if name not in names:
            raise errors.UsageError(
                f"{signature!r} has no input {name!r}", f"{errors.nearest(str(name), names)}; it takes {takes}"
            )
    for name in names:
        if name not in given:
            raise errors.UsageError(f"input {name!r} of {signature!r} is missing", f"it takes {takes}")
    found = {spec.name: _cast(spec, given[spec.name]) for spec in specs}
    for spec in specs:
        shape = found[spec.name].shape
        if not spec.accepts(shape):
            came = f"{found[spec.name].dtype if spec.dtype != 'string' else 'string'}[{','.join(map(str, shape))}]"
            raise errors.UsageError(f"input {spec.name!r} takes {spec.text()}, and {came} came", "? is any size")
    return found


def _cast(spec: InputSpec, value: object) -> npt.NDArray[Any]:
    """An array in the input's dtype, where no information but a float's precision is lost. Raises: UsageError."""
    import ml_dtypes  # noqa: F401 (from then on NumPy knows "bfloat16")
    import numpy as np

    def wrong(came: str) -> errors.UsageError:
        return errors.UsageError(
            f"input {spec.name!r} takes {spec.text()}, and {came} came", f"convert it to {spec.dtype} first"
        )

    try:
        array = np.asarray(value)
    except ValueError:
        raise wrong(f"a {type(value).__name__} that is no array") from None
    if spec.dtype == "string":
        if array.dtype.kind not in "SUO" or not all(isinstance(one, (str, bytes)) for one in array.flat):
            raise wrong(str(array.dtype))
        return array.astype(object)
    wanted = np.dtype(spec.dtype)
    if array.dtype == wanted:
        return array
    # A list of numbers has no dtype of its own.
    plain = not hasattr(value, "dtype")
    whole = array.dtype.kind in "iu" and wanted.kind in "iu"
    if array.dtype.kind in "SUOV" or not (whole or _fits(array, wanted)):
        raise wrong(
            str(array.dtype) if not plain or array.dtype.kind == "O" else f"a {type(value).__name__} of {array.dtype}"
        )
    if (
        whole
        and array.size
        and not (np.iinfo(wanted).min <= int(array.min()) and int(array.max()) <= np.iinfo(wanted).max)
    ):
        raise wrong(f"{array.dtype} with values from {array.min()} to {array.max()}")
    with np.errstate(over="ignore"):
        return array.astype(wanted)


def _fits(array: npt.NDArray[Any], wanted: np.dtype[Any]) -> bool:
    import numpy as np

    if wanted.name == "bfloat16":
        return array.dtype.kind in "fiu"
    if array.dtype.name == "bfloat16":
        return wanted.kind == "f"
    return bool(np.can_cast(array.dtype, wanted, "same_kind"))
