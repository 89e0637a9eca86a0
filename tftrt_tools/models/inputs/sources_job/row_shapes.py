"""The shapes of single rows, from the signature and, if it leaves them open, from --shapes. No TensorFlow here."""

from __future__ import annotations

from tftrt_tools.base import errors
from tftrt_tools.models.inputs.sources_job.request import Request
from tftrt_tools.models.savedmodel import shapes as shape_grammar


def row_shapes(request: Request, mend: str) -> dict[str, tuple[int, ...] | None]:
    """{input: shape of a row, or None for an input of rank 0}.

    Args: request: data.Request. mend: what else the user can do if a dimension is unknown.
    Raises: UsageError for unknown dimensions that --shapes does not give.
    """
    given = declared(request)
    shapes: dict[str, tuple[int, ...] | None] = {}
    for spec in request.specs:
        shape = given.get(spec.name, spec.shape)
        if shape is None or None in shape[1:]:
            raise errors.UsageError(
                f"input {spec.name!r} of {request.signature!r} has unknown dimensions ({spec.text()})", mend
            )
        shapes[spec.name] = tuple(dim for dim in shape[1:] if dim is not None) if shape else None
    return shapes


def declared(request: Request) -> dict[str, tuple[int, ...]]:
    """The first shape that --shapes declares for each input of the signature, {} for none; --shapes may also name other signatures."""
    if not request.options.shapes:
        return {}
    # An input's name may contain a slash itself.
    input_of = {path: spec.name for spec in request.specs for path in request.paths(spec.name)}
    given = {"/".join(filter(None, key)): shapes for key, shapes in shape_grammar.parse(request.options.shapes).items()}
    of_signature = {(request.signature, input_of[path]): shapes for path, shapes in given.items() if path in input_of}
    return (
        shape_grammar.calls(of_signature, {request.signature: request.specs})[request.signature][0]
        if of_signature
        else {}
    )
