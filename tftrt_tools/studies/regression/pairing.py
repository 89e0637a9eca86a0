"""The requests of both models: the same for both, or the same rows for two signatures that take them in different forms.

A picture can go to one signature as float32 that is decoded and normalized here, and to the other as uint8 or as the file's bytes. Each
side then reads the same data in its own form, row for row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from tftrt_tools.base import errors
from tftrt_tools.models.execution.run import Call
from tftrt_tools.models.inputs import calls as inputs
from tftrt_tools.models.inputs import options as data_options
from tftrt_tools.studies.bench import workload
from tftrt_tools.studies.bench.subject import Signatures
from tftrt_tools.studies.regression import rounds

if TYPE_CHECKING:
    from tftrt_tools.studies.regression.regress import Options

# {side: its calls}, as many for both, with the same rows.
Calls: TypeAlias = Mapping[rounds.Side, Sequence[Call]]
# All of the user's data is compared, and its first requests are timed.
_ALL = 1 << 30
# Flags of values that a picture of uint8 has not had yet.
_OF_FLOATS = ("image_scale", "image_mean", "image_std")
_STRICTER = ("rewrite", "FP32")


def calls(
    options: Options, sides: Mapping[rounds.Side, Signatures], takes: Callable[[str, Signatures], inputs.Takes]
) -> tuple[dict[rounds.Side, workload.Workload], bool]:
    """The requests.

    Args: sides: {side: {signature: (inputs, outputs)}}. takes: function of a signature and a side's signatures.
    Returns: ({side: Workload}, whether the values are the user's). Raises: UsageError where the signatures do not go together.
    """
    chosen = {side: _chosen(side, sides[side], options) for side in (rounds.NATIVE, rounds.CANDIDATE)}
    _check(options, sides, chosen)
    native = _workload(
        options, takes(chosen[rounds.NATIVE], sides[rounds.NATIVE]), chosen[rounds.NATIVE], sides[rounds.NATIVE]
    )
    if not options.paired:
        return {rounds.NATIVE: native, rounds.CANDIDATE: native}, bool(options.data)
    there = sides[rounds.CANDIDATE]
    candidate = _workload(options, takes(chosen[rounds.CANDIDATE], there), chosen[rounds.CANDIDATE], there)
    _check_rows(options, native, candidate)
    return {rounds.NATIVE: native, rounds.CANDIDATE: candidate}, bool(options.data)


def arithmetic(kind: tuple[str, str], both: Calls) -> tuple[str, str]:
    """The bounds of the answers: looser where the two signatures take their values in different types, because these are rounded on the
    way. Args: kind: of models.arithmetic. Returns: as there."""
    native, candidate = (both[side][0].inputs for side in (rounds.NATIVE, rounds.CANDIDATE))
    types = [
        " and ".join(str(array.dtype) if array.dtype != object else "string" for array in one.values())
        for one in (native, candidate)
    ]
    if types[0] == types[1] or kind[0] not in _STRICTER:
        return kind
    return "FP16", f"the inputs are {types[0]} and {types[1]}, and values are rounded on the way"


def _chosen(side: rounds.Side, signatures: Signatures, options: Options) -> str:
    wanted = options.signatures[side]
    if side == rounds.CANDIDATE and not options.paired:
        wanted = workload.choose_signature(list(signatures), wanted) if wanted in signatures else wanted
    flag = getattr(options, f"{side}_signature")
    if flag and flag not in signatures:
        raise errors.UsageError(
            f"--{side}_signature: the {side} model has no signature {flag!r}",
            "signatures there: " + ", ".join(signatures),
        )
    return workload.choose_signature(list(signatures), wanted)


def _check(options: Options, sides: Mapping[rounds.Side, Signatures], chosen: Mapping[rounds.Side, str]) -> None:
    name = chosen[rounds.NATIVE]
    if not options.paired and name not in sides[rounds.CANDIDATE]:
        raise errors.UsageError(
            f"the candidate has no signature {name!r}", "signatures there: " + ", ".join(sides[rounds.CANDIDATE])
        )
    before, after = (sides[side][chosen[side]] for side in (rounds.NATIVE, rounds.CANDIDATE))
    for place, kind in enumerate(("input", "output")):
        mine, theirs = ({spec.name: spec.dtype for spec in one[place]} for one in (before, after))
        if mine == theirs:
            continue
        if not options.paired:
            raise errors.UsageError(
                f"signature {name!r} has other {kind}s in the candidate: {_text(theirs)}, native {_text(mine)}",
                "compare a model with what was made of it, or two signatures (--native_signature, "
                "--candidate_signature)",
            )
        if kind == "output" and options.compare:
            raise errors.UsageError(
                f"the outputs of {chosen[rounds.NATIVE]!r} are {_text(mine)}, and those of "
                f"{chosen[rounds.CANDIDATE]!r} {_text(theirs)}: they cannot be compared",
                "--nocompare compares the speed alone",
            )
        if kind == "input" and not options.data:
            raise errors.UsageError(
                f"{chosen[rounds.NATIVE]!r} takes {_text(mine)}, and {chosen[rounds.CANDIDATE]!r} {_text(theirs)}: "
                "random values would not be the same",
                "give the rows of both by --data, such as a folder of pictures",
            )


def _workload(options: Options, takes: inputs.Takes, signature: str, signatures: Signatures) -> workload.Workload:
    reading = options.reading
    if options.paired:
        reading = _reading(reading, {spec.dtype for spec in signatures[signature][0]})
    asked = inputs.Asked(
        data=options.data,
        reading=reading,
        data_rows=options.data_rows,
        shapes=options.shapes,
        ranges=options.ranges,
        seed=options.seed,
    )
    sizes = [options.batch_size] if options.batch_size else []
    (found,) = workload.workloads(takes, sizes, asked, _ALL if options.data else options.distinct)
    return found


def _reading(reading: data_options.DataOptions, dtypes: set[str]) -> data_options.DataOptions:
    """How a side reads pictures: the flags that its form of a picture leaves to the model are not applied."""
    if dtypes == {"string"}:
        return data_options.without_images(reading)
    if dtypes == {"uint8"}:
        plain = data_options.DataOptions()
        return dataclasses.replace(reading, **{name: getattr(plain, name) for name in _OF_FLOATS})
    return reading


def _check_rows(options: Options, native: workload.Workload, candidate: workload.Workload) -> None:
    rows = [[call.rows for call in one.calls] for one in (native, candidate)]
    files = [one.files.names if one.files else () for one in (native, candidate)]
    if rows[0] != rows[1] or files[0] != files[1]:
        names = [call.signature for call in (native.calls[0], candidate.calls[0])]
        raise errors.UsageError(
            f"the data gives {names[0]!r} {sum(rows[0])} rows and {names[1]!r} {sum(rows[1])}, and not the same ones",
            "both need the same rows: take out files that cannot be decoded",
        )


def _text(types: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {dtype}" for name, dtype in types.items())
