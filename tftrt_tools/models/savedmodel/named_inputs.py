"""What flags share that name inputs of signatures: --freeze, --fix_sizes. No TensorFlow here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tftrt_tools.base import errors
from tftrt_tools.models.savedmodel.shapes import InputSpec


def unknown(flag: str, name: str, signatures: Mapping[str, Sequence[InputSpec]]) -> errors.UsageError:
    """The error for a name that is no input. Args: flag: "--freeze". signatures: with their inputs."""
    names = "; ".join(
        f"{key}: " + ", ".join(f"{spec.name} {spec.text()}" for spec in specs) for key, specs in signatures.items()
    )
    return errors.UsageError(f"{flag}: no input {name!r}", f"inputs here: {names}")


def check_twins(
    flag: str, what: str, given: Mapping[str, Mapping[str, object]], twins: Mapping[str, Sequence[str]]
) -> None:
    """Raise UsageError where signatures that are one function would get different things. Args: what: these are, in the plural. given:
    {signature: its own}. twins: {signature: the others that are the same}."""
    for name, others in twins.items():
        for other in others:
            if other in given and given.get(name, {}) != given[other]:
                raise errors.UsageError(
                    f"{flag}: signatures {name!r} and {other!r} are one function, and would get different {what}",
                    "name the input without its signature",
                )
