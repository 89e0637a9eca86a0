"""The grammar of --freeze: inputs of signatures that get one value for good. No TensorFlow here.

--freeze='training:false'                     of every signature that has the input
--freeze='score/training:false;steps:4'       of one signature; several inputs
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tftrt_tools.base import errors
from tftrt_tools.models.savedmodel import named_inputs
from tftrt_tools.models.savedmodel.shapes import InputSpec

if TYPE_CHECKING:
    # This module also reads flags, before NumPy is loaded.
    import numpy.typing as npt

_EXAMPLE = "write --freeze='INPUT:VALUE;SIGNATURE/OTHER:VALUE', as in --freeze=training:false"
_BOOLS = {"true": True, "1": True, "false": False, "0": False}


def parse(flag: str) -> dict[str, str]:
    """{"INPUT" or "SIGNATURE/INPUT": value as it was written}. Raises: UsageError."""
    frozen = {}
    for item in filter(None, (part.strip() for part in flag.split(";"))):
        name, colon, value = item.rpartition(":")
        if not (colon and name.strip() and value.strip()):
            raise errors.UsageError(f"--freeze: {item!r} is no input with its value", _EXAMPLE)
        if name.strip() in frozen:
            raise errors.UsageError(f"--freeze: {name.strip()!r} is given twice", _EXAMPLE)
        frozen[name.strip()] = value.strip()
    return frozen


def values(flag: str, signatures: Mapping[str, Sequence[InputSpec]]) -> dict[str, dict[str, npt.NDArray[Any]]]:
    """The values of --freeze.

    Args: signatures: those that are converted, with their inputs.
    Returns: {signature: {input: array of rank 0}}, of signatures that have such an input.
    Raises: UsageError for an input that no signature has, that is not a single number or bool, or that cannot hold the value.
    """
    frozen: dict[str, dict[str, npt.NDArray[Any]]] = {}
    for name, text in parse(flag).items():
        holders = [
            (key, spec)
            for key, specs in signatures.items()
            for spec in specs
            if name in (spec.name, f"{key}/{spec.name}")
        ]
        if not holders:
            raise named_inputs.unknown("--freeze", name, signatures)
        for key, spec in holders:
            frozen.setdefault(key, {})[spec.name] = _value(name, text, spec)
    return frozen


def check(flag: str, signatures: Mapping[str, Sequence[InputSpec]], twins: Mapping[str, Sequence[str]]) -> None:
    """Raise UsageError where `values` does, or where signatures that are one function would get different values. Args: twins: {signature:
    the others that are the same}."""
    frozen = values(flag, signatures)
    named_inputs.check_twins("--freeze", "values", {name: frozen.get(name, {}) for name in signatures}, twins)


def of_signature(flag: str, signature: str, specs: Sequence[InputSpec]) -> dict[str, npt.NDArray[Any]]:
    """{input: array} of one signature; {} where --freeze names none of its inputs. Raises: UsageError as `values`."""
    own = {
        name: text
        for name, text in parse(flag).items()
        if any(name in (spec.name, f"{signature}/{spec.name}") for spec in specs)
    }
    return values(";".join(f"{name}:{text}" for name, text in own.items()), {signature: specs}).get(signature, {})


def of_manifest(
    manifest: Mapping[str, Any], specs: Mapping[str, Sequence[InputSpec]]
) -> dict[str, dict[str, npt.NDArray[Any]]]:
    """{signature: {input: array of rank 0}} that a conversion froze, by its manifest. Args: specs: of the original's signatures."""
    import numpy as np

    by_signature: dict[str, dict[str, npt.NDArray[Any]]] = {}
    for signature in manifest.get("signatures", ()):
        types = {
            spec.name: spec.dtype
            for name in (signature["name"], *signature.get("twins", ()))
            for spec in specs.get(name, ())
        }
        frozen = (signature.get("preparation") or {}).get("frozen") or ()
        values_of_one = {name: np.array(value, types[name]) for name, value in frozen if name in types}
        by_signature.update(dict.fromkeys((signature["name"], *signature.get("twins", ())), values_of_one))
    return by_signature


def _value(name: str, text: str, spec: InputSpec) -> npt.NDArray[Any]:
    import numpy as np

    # Where the shape is unknown, the value says that the input is a single number.
    if spec.shape not in ((), None) or spec.dtype != "bool" and not spec.dtype.startswith(("float", "int", "uint")):
        raise errors.UsageError(
            f"--freeze: input {name!r} is {spec.text()}", "only a single bool or number can be frozen"
        )
    try:
        value = (
            _BOOLS[text.lower()]
            if spec.dtype == "bool"
            else float(text)
            if spec.dtype.startswith("float")
            else int(text)
        )
        # A number that does not fit the type would become another one.
        array = np.array(value).astype(spec.dtype)
        if spec.dtype != "bool" and not spec.dtype.startswith("float") and int(array) != value:
            raise OverflowError
        return array
    except (KeyError, ValueError, OverflowError):
        raise errors.UsageError(
            f"--freeze: {text!r} is no value of input {name!r}, which is {spec.dtype}", _EXAMPLE
        ) from None
