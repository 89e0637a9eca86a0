"""The grammar of --fix_sizes: inputs of signatures that take one size for good, but for the batch. No TensorFlow here.

--fix_sizes='image:512x512x3'                 of every signature that has the input
--fix_sizes='detect/image:512x512x3;mask:64'  of one signature; several inputs
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.models.savedmodel import named_inputs, passport
from tftrt_tools.models.savedmodel import shapes as shape_grammar
from tftrt_tools.models.savedmodel.shapes import InputSpec

FLAG = "--fix_sizes"
_EXAMPLE = f"write {FLAG}='INPUT:512x512x3', the sizes of one row, without the batch"


def parse(flag: str) -> dict[tuple[str, str], tuple[int, ...]]:
    """{(signature or "", input): the sizes of a row}. Raises: UsageError."""
    parsed = {}
    try:
        declared = shape_grammar.parse(flag, FLAG)
    except errors.UsageError as error:
        raise errors.UsageError(error.cause, _EXAMPLE) from None
    for key, listed in declared.items():
        if len(listed) > 1 or not listed[0]:
            raise errors.UsageError(f"{FLAG}: {key[1]} has to have one size", _EXAMPLE)
        parsed[key] = listed[0]
    return parsed


def of_signature(flag: str, signature: str, specs: Sequence[InputSpec]) -> dict[str, tuple[int | None, ...]]:
    """{input: its shape from then on} of one signature: (None, 512, 512, 3) with an open batch. Raises: UsageError for sizes that do not
    fit."""
    fixed: dict[str, tuple[int | None, ...]] = {}
    for (of, name), row in (parse(flag) if flag else {}).items():
        for spec in specs:
            if of in ("", signature) and spec.name == name:
                fixed[name] = _shape(row, spec)
    return fixed


def of_manifest(
    manifest: Mapping[str, Any], specs: Mapping[str, Sequence[InputSpec]]
) -> dict[str, tuple[InputSpec, ...]]:
    """`specs` with the sizes that a conversion fixed, by its manifest. Args: specs: {signature: its inputs}."""
    fixed = {
        name: {key: tuple(shape) for key, shape in (signature.get("preparation") or {}).get("sizes") or ()}
        for name, signature in passport.signatures(manifest).items()
    }
    return {
        name: tuple(dataclasses.replace(spec, shape=fixed.get(name, {}).get(spec.name, spec.shape)) for spec in listed)
        for name, listed in specs.items()
    }


def _shape(row: tuple[int, ...], spec: InputSpec) -> tuple[int | None, ...]:
    shape = (None if spec.shape is None else spec.shape[0] if spec.shape else None, *row)
    if spec.shape is not None and (
        len(shape) != len(spec.shape)
        or any(size not in (None, fixed) for size, fixed in zip(spec.shape[1:], row, strict=True))
    ):
        raise errors.UsageError(f"{FLAG}: {'x'.join(map(str, row))} is no row of {spec.name} {spec.text()}", _EXAMPLE)
    return shape


def check(flag: str, signatures: Mapping[str, Sequence[InputSpec]], twins: Mapping[str, Sequence[str]]) -> None:
    """Raise UsageError for an input that no signature has, for sizes that do not fit, and where signatures that are one function would get
    different ones. Args: twins: {signature: the others that are the same}."""
    fixed = {name: of_signature(flag, name, specs) for name, specs in signatures.items()}
    for of, name in parse(flag) if flag else {}:
        if not any(name in fixed[signature] for signature in signatures if of in ("", signature)):
            raise named_inputs.unknown(FLAG, f"{of}/{name}" if of else name, signatures)
    named_inputs.check_twins(FLAG, "sizes", fixed, twins)
