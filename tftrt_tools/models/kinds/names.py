"""Matches signatures, inputs and outputs of two models, where an exporter has renamed them.

If the signatures of a kind have names of their own, equal names mean the same thing. A model of another kind (an ONNX file) has one
signature, and exporters rename: "x" may become "x:0", "input.1" may become "input_1", and an only output "Identity". A certain match is
made and reported; otherwise the user has to give it, ORIGINAL=CONVERTED.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from tftrt_tools.base import errors
from tftrt_tools.models.execution.run import Names
from tftrt_tools.models.kinds.model import Contents, Model, Signature
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.models.savedmodel.signatures import DEFAULT, Once, chosen


@dataclasses.dataclass(frozen=True, kw_only=True)
class Matched:
    """Two models, the second by the names of the first."""

    # The first model's signatures that are compared.
    signatures: tuple[str, ...]
    # The second model's contents, by the first model's names; by its own names where the first has no such part.
    second: Contents
    # {signature of the first model: its names in the second}, for execution.run.
    names: dict[str, Names]
    # The matches between different names, a line each.
    notes: tuple[str, ...] = ()


def parse(texts: Sequence[str], flag: str = "rename") -> dict[str, str]:
    """{name in the first model: name in the second} of a flag. Args: texts: ORIGINAL=CONVERTED each. Raises: UsageError."""
    pairs: dict[str, str] = {}
    for text in filter(None, texts):
        here, _, there = (part.strip() for part in text.partition("="))
        if not here or not there:
            raise errors.UsageError(
                f"--{flag}: {text!r} is not of the form ORIGINAL=CONVERTED", f"such as --{flag}=image=input.1"
            )
        if here in pairs or there in pairs.values():
            raise errors.UsageError(
                f"--{flag} names {here if here in pairs else there!r} twice", "name each input and output once"
            )
        pairs[here] = there
    return pairs


def match(
    first: Model, second: Model, keys: Sequence[str] = (), said: Mapping[str, str] | None = None, flag: str = "rename"
) -> Matched:
    """Match the signatures that are to be compared.

    Args: keys: names of signatures, () for all. said: of `parse`. flag: its flag, for messages. Returns: Matched. Parts that one model
    lacks stay unmatched. Raises: UsageError where names are not known or not certain.
    """
    said = said or {}
    _check_said(said, first, second, flag)
    both_named = first.kind.named_signatures and second.kind.named_signatures
    names = chosen(list(first.signatures), keys) if both_named else []
    if both_named and not said:
        return Matched(signatures=tuple(names), second=second.contents, names={})
    pairs = (
        {name: name for name in names if name in second.signatures}
        if both_named
        else {_only(first, keys): _only(second, keys)}
    )
    unpaired = {name: signature for name, signature in second.signatures.items() if name not in pairs.values()}
    renamed, notes = {}, []
    for here, there in pairs.items():
        ours, theirs = first.signatures[here], second.signatures[there]
        inputs = _side("input", (first, ours.inputs), (second, theirs.inputs), said, flag)
        outputs = _side("output", (first, ours.outputs), (second, theirs.outputs), said, flag)
        renamed[here] = Names(there, inputs, outputs)
        unpaired[here] = _by_first_names(theirs, inputs, outputs)
        sides = (("input", inputs), ("output", outputs))
        notes += [
            f"{kind} {name!r} of {first.title} is {other!r} in {second.title}"
            for kind, side in sides
            for name, other in side.items()
        ]
    return Matched(
        signatures=tuple(names or pairs),
        second=dataclasses.replace(second.contents, signatures=unpaired),
        names=renamed,
        notes=tuple(notes),
    )


def beside(first: Model, second: Model) -> Matched:
    """Match two models without renaming: each keeps its own names. Raises: UsageError where a kind of model has no signatures to name."""
    for model in (first, second):
        if not model.kind.named_signatures:
            raise errors.UsageError(
                f"{model.title} has no signatures to choose from",
                "leave --native_signature and --candidate_signature out",
            )
    return Matched(signatures=tuple(first.signatures), second=second.contents, names={})


def _check_said(said: Mapping[str, str], first: Model, second: Model, flag: str) -> None:
    for model, names in ((first, said), (second, said.values())):
        known_names = dict.fromkeys(
            spec.name for signature in model.signatures.values() for spec in (*signature.inputs, *signature.outputs)
        )
        for name in names:
            if name not in known_names:
                raise errors.UsageError(
                    f"--{flag}: {model.source} has no input or output {name!r}", "there are: " + ", ".join(known_names)
                )


def _only(model: Model, keys: Sequence[str]) -> str:
    """The signature to compare with a model that has only one."""
    if not model.kind.named_signatures:
        return next(iter(model.signatures))
    walked = Once.of(chosen(list(model.signatures), keys), model.contents.same).names
    if len(walked) == 1:
        return str(walked[0])
    if not keys and DEFAULT in walked:
        return DEFAULT
    raise errors.UsageError(
        f"which signature of {model.source}? The other model has one, and here are {', '.join(walked)}",
        f"--signature_keys={walked[0]} names one",
    )


def _side(
    kind: str,
    here: tuple[Model, Sequence[InputSpec]],
    there: tuple[Model, Sequence[InputSpec]],
    said: Mapping[str, str],
    flag: str,
) -> dict[str, str]:
    """{name in the first model: in the second} of those inputs or outputs of a signature that have another name there.

    Args: kind: "input" or "output". here, there: each model with its inputs or outputs. Raises: UsageError where that is not certain.
    """
    ours, theirs = here[1], there[1]
    renamed = {spec.name: said[spec.name] for spec in ours if said.get(spec.name) in [other.name for other in theirs]}
    for name_of in (_itself, _plain):
        for unmatched in _left(ours, renamed):
            near = [
                other for other in _left(theirs, renamed.values()) if name_of(unmatched.name) == name_of(other.name)
            ]
            if len(near) == 1:
                renamed[unmatched.name] = near[0].name
    left, right = _left(ours, renamed), _left(theirs, renamed.values())
    likely = [
        (spec.name, other.name) for spec in left for other in right if spec.dtype == other.dtype and fits(spec, other)
    ]
    if len(left) == len(right) == 1:
        renamed[left[0].name] = right[0].name
    elif likely:
        example = ",".join(
            "=".join(pair) for pair in zip(dict(likely), dict.fromkeys(there for _, there in likely), strict=False)
        )
        raise errors.UsageError(
            f"which {kind} is which? {here[0].title} has {_text(left)}; {there[0].title} has {_text(right)}",
            f"say it, such as {shlex.quote(f'--{flag}={example}')}",
        )
    return {name: other for name, other in renamed.items() if name != other}


def _left(specs: Sequence[InputSpec], taken: Iterable[str]) -> list[InputSpec]:
    names = set(taken)
    return [one for one in specs if one.name not in names]


def _itself(name: str) -> str:
    return name


def _plain(name: str) -> str:
    """A name without the parts that exporters add or change."""
    name = re.sub(r":\d+$", "", name).removeprefix("serving_default_")
    return re.sub(r"\W+", "_", name).strip("_").lower()


def fits(one: InputSpec, other: InputSpec) -> bool:
    """Whether some shape fits both inputs."""
    return (
        one.shape is None
        or other.shape is None
        or len(one.shape) == len(other.shape)
        and all(None in (ours, theirs) or ours == theirs for ours, theirs in zip(one.shape, other.shape, strict=True))
    )


def narrowed(one: InputSpec, other: InputSpec) -> InputSpec:
    """An input with the shapes and values that both accept. Args: other: the other model's input, which `fits`."""
    limits = [limit for limit in (one.limit, other.limit) if limit]
    one = one.knowing(limits[0].both(limits[-1]) if limits else None, one.place)
    if one.shape is None or other.shape is None:
        return one if other.shape is None else dataclasses.replace(one, shape=other.shape)
    shape = tuple(theirs if ours is None else ours for ours, theirs in zip(one.shape, other.shape, strict=True))
    return dataclasses.replace(one, shape=shape)


def _text(specs: Sequence[InputSpec]) -> str:
    return ", ".join(f"{one.name} {one.text()}" for one in specs)


def _by_first_names(signature: Signature, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> Signature:
    def named(specs: Sequence[InputSpec], names: Mapping[str, str]) -> tuple[InputSpec, ...]:
        here = {other: one for one, other in names.items()}
        return tuple(dataclasses.replace(one, name=here.get(one.name, one.name)) for one in specs)

    return Signature(named(signature.inputs, inputs), named(signature.outputs, outputs))
