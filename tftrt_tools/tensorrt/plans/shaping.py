"""Optimization profiles from --shapes. No runtime is imported here.

--shapes='image:1x224x224x3,8x224x224x3'                          a profile for each shape
--shapes='image:min=1x224x224x3,opt=8x224x224x3,max=32x224x224x3' one profile
--shapes='image:1x224x224x3|image:min=2x224x224x3,max=64x224x224x3'
                                                                  groups, each as above: here two profiles
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tftrt_tools.base import errors
from tftrt_tools.models.kinds.plan.profiles import Profile, Range
from tftrt_tools.models.savedmodel import shapes as grammar
from tftrt_tools.models.savedmodel.shapes import Call, InputSpec
from tftrt_tools.models.savedmodel.signatures import DEFAULT

_BETWEEN = "|"


def groups(flag: str) -> list[str]:
    """The groups of the flag; each is a text of --shapes. Raises: UsageError."""
    found = [part.strip() for part in flag.split(_BETWEEN)] if flag.strip() else []
    for part in found:
        grammar.parse(part)
    return found


def profiles(flag: str, inputs: Sequence[InputSpec], signature: str = DEFAULT) -> tuple[Profile, ...]:
    """The profiles of a model's inputs; of a model without open dimensions the one that it has. Args: signature: its name in the flag.
    Raises: UsageError."""
    opened = [one for one in inputs if one.shape is None or None in one.shape]
    found = tuple(profile for part in groups(flag) for profile in _of_group(part, inputs, signature))
    if found:
        return found
    if opened:
        example = ";".join(f"{one.name}:{'x'.join(str(dim or 8) for dim in one.shape or ())}" for one in opened)
        raise errors.UsageError(
            "a plan needs the shapes that it will serve, and these inputs have open dimensions: "
            + ", ".join(f"{one.name} {one.text()}" for one in opened),
            f"give --shapes, such as --shapes='{example}'",
        )
    return (Profile({one.name: Range(*3 * (tuple(dim or 0 for dim in one.shape or ()),)) for one in inputs}),)


def first_call(flag: str) -> str:
    """The smallest declared call, as text of --shapes: "" without shapes. A model is compared on it while it becomes ONNX."""
    listed = groups(flag)
    if not listed:
        return ""
    return ";".join(
        f"{signature}/{name}:".removeprefix("/") + ("x".join(map(str, shapes[0])) or "scalar")
        for (signature, name), shapes in grammar.parse(listed[0]).items()
    )


def without_signature(flag: str, names: Iterable[str]) -> str:
    """The text of --shapes for an ONNX file of a signature, which knows no signatures. Args: names: of the signature."""
    for name in filter(None, names):
        flag = re.sub(rf"(^|[;|])\s*{re.escape(name)}/", r"\1", flag)
    return flag


def _of_group(part: str, inputs: Sequence[InputSpec], signature: str) -> list[Profile]:
    calls = grammar.calls(grammar.parse(part), {signature: inputs}).get(signature, [])
    if grammar.is_range(part):
        least, *between, most = calls if len(calls) > 1 else (*calls, *calls)
        return [_profile(least, between[0] if between else most, most)]
    return [_profile(one, one, one) for one in calls]


def _profile(least: Call, opt: Call, most: Call) -> Profile:
    return Profile({name: Range(least[name], opt[name], most[name]) for name in opt})
