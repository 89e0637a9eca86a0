"""The kinds of models. The first that takes a path has it."""

from __future__ import annotations

from tftrt_tools.models.kinds.model import Kind
from tftrt_tools.models.kinds.onnx.kind import ONNX
from tftrt_tools.models.kinds.plan.kind import PLAN
from tftrt_tools.models.kinds.pytorch.kind import PYTORCH
from tftrt_tools.models.kinds.savedmodel.kind import SAVED_MODEL

# SavedModels come last: a path that no other kind takes is one, or can be exported to one, or gets the message that it is neither.
KINDS: tuple[Kind, ...] = (ONNX, PLAN, PYTORCH, SAVED_MODEL)


def forms(as_it_is: bool = False, to_convert: bool = False) -> str:
    """What can be given as a model, for people: "a SavedModel directory, … or an ONNX file (.onnx)".

    Args: as_it_is: without what would have to be exported first. to_convert: without the kinds that TF-TRT does not convert.
    """
    taken = [candidate for candidate in reversed(KINDS) if not (to_convert and candidate.unconverted)]
    *others, last = (form for candidate in taken for form in candidate.forms[: 1 if as_it_is else None])
    return f"{', '.join(others)} or {last}" if others else last


def kind(path: str) -> Kind:
    """The kind that has a path."""
    return next(one for one in KINDS if one.takes(path))


def noun(path: str) -> str:
    """What a path names, for messages: "a plan directory", "an ONNX file"."""
    return kind(path).forms[0].partition(" (")[0]
