"""An ONNX file in ONNX Runtime, on the CPU; the child's side."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime

from tftrt_tools.base import errors
from tftrt_tools.models.execution import load_job, run_job, runner
from tftrt_tools.models.execution.run import Indexed, LoadRequest
from tftrt_tools.models.kinds.model import Contents, Signature
from tftrt_tools.models.kinds.onnx import file, index_limits, opening_job, refusals_job
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.models.savedmodel.signatures import DEFAULT

if TYPE_CHECKING:
    import numpy.typing as npt

    from tftrt_tools.models.execution.run import Answer, Request
    from tftrt_tools.models.execution.runner import Arrays, Ready, Wanted
    from tftrt_tools.models.execution.trace import CallTrace

_TENSOR = re.compile(r"tensor\((\w+)\)")
# ONNX's names of types that are not NumPy's.
_DTYPES = {"float": "float32", "double": "float64"}
# What comes before the message: "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : ", and the place in ONNX Runtime's own source.
_PREFIX = re.compile(
    r"^\[ONNXRuntimeError\] : \d+ : \w+ : (?:Load model from .*? failed:)?(?:/\S*onnxruntime\S*:\d+ .*?\) )?"
)


def job(request: Request) -> Answer:
    """The job run_job.answer, for ONNX files."""
    return run_job.answer(request, load)


def make(request: LoadRequest) -> Indexed:
    """The job load_job.made, for ONNX files."""
    return load_job.made(request, load)


def read(paths: Sequence[str]) -> list[Contents]:
    """The job kind.read."""
    return [_contents(path) for path in paths]


@contextlib.contextmanager
def load(path: str, wanted: Wanted) -> Iterator[Loaded]:
    """Load an ONNX file, as runner.Load."""
    yield Loaded(opened(path))


class Loaded:
    """The runner.Runner of an ONNX file. Several threads may make its calls at a time."""

    def __init__(self, found: opening_job.Opened) -> None:
        self._session = found.session
        self._outputs = [output.name for output in found.session.get_outputs()]
        self.where = runner.Where(
            mode="cpu",
            runtime="ONNX Runtime",
            version=onnxruntime.__version__,
            provider=found.session.get_providers()[0],
            remark=found.remark,
        )

    def ready(self, signature: str, inputs: Arrays) -> Ready:
        """As Runner.ready."""

        def call() -> Arrays:
            try:
                arrays = self._session.run(self._outputs, feed)
            except Exception as error:  # ONNX Runtime's own errors have no base of their own
                raise runner.failed(signature, inputs, _line(error)) from None
            return {name: _bytes(array) for name, array in zip(self._outputs, arrays, strict=True)}

        try:
            feed = {name: _texts(array) for name, array in inputs.items()}
        except UnicodeDecodeError:
            raise runner.failed(
                signature,
                inputs,
                "an input holds bytes that are no UTF-8, and ONNX Runtime takes texts",
                "compare such a model without its part that reads bytes",
            ) from None
        return call

    def watched(self, ready: Ready) -> tuple[Arrays, CallTrace | None]:
        """As Runner.watched: there are no engines."""
        return ready(), None

    def kernels(self, calls: Iterable[Ready]) -> dict[str, float]:
        """As Runner.kernels: no GPU computes."""
        return {}


def session(model: str | bytes, said: str = "", optimized: bool = True) -> Any:
    """The session of `opened`."""
    return opened(model, said, optimized).session


def opened(model: str | bytes, said: str = "", optimized: bool = True) -> opening_job.Opened:
    """A file, or a file's content, in ONNX Runtime. Args: said: its name in errors, by default its path. Raises: TftrtError."""
    name = said or str(model)
    try:
        return opening_job.opened(model, name, optimized)
    except errors.TftrtError:
        raise
    except Exception as error:  # ONNX Runtime's own errors have no base of their own
        raise refusals_job.refused(
            model, f"ONNX Runtime {onnxruntime.__version__}", name, _line(error), str(error)
        ) from None


def _contents(path: str) -> Contents:
    loaded = session(path, optimized=False)
    about, own = loaded.get_modelmeta(), file.overview(path).signatures[DEFAULT]
    scalars = {spec.name for spec in (*own.inputs, *own.outputs) if spec.shape == ()}
    inputs, outputs = (
        tuple(_spec(path, kind, argument, argument.name in scalars) for argument in listed)
        for kind, listed in (("input", loaded.get_inputs()), ("output", loaded.get_outputs()))
    )
    if not outputs:
        raise errors.TftrtError(f"{path} has no output", "a model answers with something: export it again")
    if doubled := [
        output.name
        for number, output in enumerate(outputs)
        if output.name in [other.name for other in outputs[:number]]
    ]:
        raise errors.TftrtError(
            f"{path} has the output {doubled[0]!r} twice", "give each output a name of its own: export it again"
        )
    facts = {
        "producer": about.producer_name,
        "graph": about.graph_name,
        "description": about.description,
        **about.custom_metadata_map,
    }
    signature = Signature(index_limits.limited(path, inputs), outputs)
    return Contents(signatures={DEFAULT: signature}, facts={name: text for name, text in facts.items() if text})


def _spec(path: str, kind: str, argument: onnxruntime.NodeArg, scalar: bool) -> InputSpec:
    """The InputSpec of an input or output. Args: scalar: the file says that its rank is 0. Raises: TftrtError for one that is no tensor."""
    tensor = _TENSOR.fullmatch(argument.type)
    if not tensor:
        raise errors.TftrtError(
            f"{kind} {argument.name!r} of {path} is {argument.type}, and arrays are compared",
            "export it with tensors alone (of scikit-learn's models with the option zipmap=False)",
        )
    # Of an unknown rank ONNX Runtime says the same as of rank 0.
    shape = tuple(dim if isinstance(dim, int) and dim >= 0 else None for dim in argument.shape) or (
        () if scalar else None
    )
    return InputSpec(argument.name, _DTYPES.get(tensor[1], tensor[1]), shape)


def _line(error: Exception) -> str:
    return errors.first_line(_PREFIX.sub("", str(error))) or type(error).__name__


def _texts(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Strings in the form that ONNX Runtime takes. Raises: UnicodeDecodeError."""
    if array.dtype != object:
        return array
    return np.array(
        [element.decode() if isinstance(element, bytes) else str(element) for element in array.reshape(-1)], object
    ).reshape(array.shape)


def _bytes(values: npt.ArrayLike) -> np.ndarray[Any, Any]:
    """Strings in the form that TensorFlow gives."""
    array = np.asarray(values)
    if array.dtype.kind not in "OU":
        result: np.ndarray[Any, Any] = array
        return result
    return np.array([str(element).encode() for element in array.reshape(-1)], object).reshape(array.shape)
