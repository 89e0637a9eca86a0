"""The request to a source, and the error if it has nothing for a signature."""

import dataclasses
import math

from tftrt_tools.base import errors
from tftrt_tools.models.inputs import find
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.savedmodel.shapes import InputSpec


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The request to a source."""

    # The source, and how it is read.
    options: DataOptions
    # The signature that the rows are for.
    signature: str
    # Its inputs, in its order.
    specs: tuple[InputSpec, ...]
    # Paths; () where the source has none.
    files: tuple[str, ...]
    # The flag that named the source, for messages.
    said: str = find.FLAG
    # How many rows will be read, 0 for all.
    rows: int = 0
    # The feature of TFRecords that becomes labels.LABEL, or "".
    label_feature: str = ""
    # Other names of the signature's function: data may name its inputs by them.
    twins: tuple[str, ...] = ()
    # Names of arrays that only other signatures of the model take, INPUT and SIGNATURE/INPUT: they are skipped.
    others: tuple[str, ...] = ()
    # Names of signatures and arrays that nobody asked for: a note says that they are skipped.
    unasked: tuple[str, ...] = ()

    def paths(self, name: str) -> tuple[str, ...]:
        """The possible names of an input in data, the shortest last: SIGNATURE/INPUT, the same with other names of the signature, INPUT."""
        return (*(f"{signature}/{name}" for signature in (self.signature, *self.twins)), name)

    @property
    def takes(self) -> str:
        """The signature's inputs, for messages."""
        return f"{self.signature!r} takes " + ", ".join(f"{spec.name} {spec.text()}" for spec in self.specs)


def only_text(request: Request) -> InputSpec | None:
    """The only input, if it takes one string a row; None for other signatures."""
    if len(request.specs) != 1 or request.specs[0].dtype != "string":
        return None
    return request.specs[0] if row_size(request.specs[0]) == 1 else None


def row_size(spec: InputSpec) -> int | None:
    """How many values a row of an input has: 1 for an unknown rank; None for a scalar, which has no rows, and for unknown dimensions."""
    if spec.shape is None:
        return 1
    dims = [dim for dim in spec.shape[1:] if dim is not None]
    return None if not spec.shape or len(dims) < len(spec.shape) - 1 else math.prod(dims)


def row_shape(spec: InputSpec) -> tuple[int, ...]:
    """(1, …): the shape of one row of an input whose row_size is known."""
    return (1, *(dim or 1 for dim in (spec.shape[1:] if spec.shape else ())))


def needs_text(request: Request, what: str, mend: str = "") -> InputSpec:
    """The only input. Args: what: the data, for messages. Raises: UsageError if it does not take a string a row."""
    spec = only_text(request)
    if spec is None:
        raise errors.UsageError(
            f"{what} needs a signature with one input of strings, one a row, and {request.takes}",
            mend or "turn it into what the model takes: arrays in an .npz, or module:function",
        )
    return spec
