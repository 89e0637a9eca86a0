"""The shapes of single rows, from the signature and, where it leaves them open, from --shapes. No TensorFlow here."""

from tftrt_tools import errors
from tftrt_tools.savedmodel import shapes as shape_grammar


def row_shapes(request, mend):
    """{input: shape of a row, or None for an input of rank 0}.

    Args: request: data.Request. mend: what else the user can do where a dimension is unknown.
    Raises: UsageError for unknown dimensions that --shapes does not give.
    """
    declared = _declared(request)
    found = {}
    for spec in request.specs:
        shape = declared.get(spec.name, spec.shape)
        if shape is None or None in shape[1:]:
            raise errors.UsageError(f"input {spec.name!r} of {request.signature!r} has unknown dimensions ({spec.text()})", mend)
        found[spec.name] = tuple(shape[1:]) if shape else None
    return found


def _declared(request):
    """The first shape that --shapes declares for each input of the signature; it may speak of other signatures too."""
    if not request.options.shapes:
        return {}
    # An input's name may hold a slash itself.
    known = {path for spec in request.specs for path in (spec.name, f"{request.signature}/{spec.name}")}
    mine = {(signature, name): shapes for (signature, name), shapes in shape_grammar.parse(request.options.shapes).items()
            if "/".join(filter(None, (signature, name))) in known}
    return shape_grammar.calls(mine, {request.signature: request.specs})[request.signature][0] if mine else {}
