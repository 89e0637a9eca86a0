"""The flags that `tftrt inspect` advises, from its result. What it leaves to the user is named."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Sequence

from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.tftrt.conversion.plan import Plan, SignaturePlan
from tftrt_tools.tftrt.conversion.settings import Settings

_DEFAULT = Settings().minimum_segment_size
# An input of this name says whether a model is trained: when it serves, it is false.
_TRAINING = re.compile(r"(?:^|_)(?:is_)?train(?:ing)?(?:_phase)?$|^learning_phase$|_learning_phase$", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Mends:
    """words: flags to take; left: what is left to the user, a sentence each."""

    words: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def of_plan(plan: Plan, given: Collection[str]) -> Mends:
    """The mends of a Plan. Args: given: names of flags that the user gave, which stay as they are."""
    usable = [one for one in plan.signatures if not one.problem]
    frozen, left = ([], []) if "freeze" in given else _frozen(usable)
    words = [f"--freeze={';'.join(frozen)}"] if frozen else []
    if not {"use_dynamic_shape", "shapes"} & set(given) and _with_profiles(usable):
        # What is advised on the size of segments is about the other mode.
        words.append("--use_dynamic_shape")
    elif "minimum_segment_size" not in given:
        # One value serves all signatures; where they disagree, the smallest drops nothing that another one wants.
        size = min((one.advice.minimum_segment_size for one in usable if one.advice and one.segments), default=_DEFAULT)
        words += [f"--minimum_segment_size={size}"] if size != _DEFAULT else []
    left += [
        f"signature {one.name} cannot be converted: {one.problem['cause']}; {one.problem['mend']}"
        for one in plan.signatures
        if one.problem
    ]
    left += [
        f"{problem.name} ({problem.op}) {problem.text}; {problem.mend}"
        for one in usable
        if one.quantization
        for problem in one.quantization.problems
        if problem.mend
    ]
    left += [f"{one.about}: {one.text}; {one.mend}" for signature in usable for one in signature.findings if one.mend]
    return Mends(tuple(words), tuple(dict.fromkeys(left)))


def of_training(spec: InputSpec) -> bool:
    """Whether an input says by its name and type that it tells training from inference."""
    return spec.dtype == "bool" and bool(_TRAINING.search(spec.name))


def _with_profiles(signatures: Sequence[SignaturePlan]) -> bool:
    """Whether each signature would clearly gain by optimization profiles. One mode serves all."""
    return bool(signatures) and all(one.advice and one.advice.use_dynamic_shape for one in signatures)


def _frozen(signatures: Sequence[SignaturePlan]) -> tuple[list[str], list[str]]:
    """([INPUT:VALUE of --freeze], sentences on inputs that are left to the user)."""
    frozen, left = [], []
    for name in dict.fromkeys(name for one in signatures for name in one.preparation.offered):
        having = [one for one in signatures if any(spec.name == name for spec in one.inputs)]
        offering = [one.name for one in having if name in one.preparation.offered]
        places = [name] if len(offering) == len(having) else [f"{signature}/{name}" for signature in offering]
        if all(of_training(spec) for one in having for spec in one.inputs if spec.name == name):
            frozen += [f"{place}:false" for place in places]
        else:
            left.append(
                f"input {name} only decides conditionals: with --freeze={places[0]}:VALUE engines would grow together"
            )
    return frozen, left
