"""--input_types and --output_types: numbers that are sent in fewer bytes. No TensorFlow here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tftrt_tools.base import errors
from tftrt_tools.models.savedmodel.shapes import InputSpec

FLOATS = ("float16", "bfloat16")
# {dtype: the largest number in it}.
INTEGERS = {"int16": 2**15 - 1, "uint16": 2**16 - 1}
_WIDER = {"float32": FLOATS, "float64": (*FLOATS, "float32"), "int32": tuple(INTEGERS), "int64": (*INTEGERS, "int32")}
_LARGEST = {**INTEGERS, "int32": 2**31 - 1}


def types(
    flag: str, given: Sequence[str], specs: Sequence[InputSpec], rows: Mapping[str, int] | None = None
) -> dict[str, str]:
    """{name: dtype} of what is sent in another dtype.

    Args: given: NAME:DTYPE each; a DTYPE alone is for all that can take it. specs: of the inputs or outputs. rows: {input: rows of the
    table that it selects from}. Raises: UsageError.
    """
    narrowed: dict[str, str] = {}
    dtypes = {spec.name: spec for spec in specs}
    listed = ", ".join(f"{spec.name} {spec.text()}" for spec in specs)
    for text in given:
        name, _, kind = text.rpartition(":")
        if kind not in (*FLOATS, *_LARGEST, "float32"):
            raise errors.UsageError(
                f"--{flag}: {kind!r} is no dtype that numbers are narrowed to",
                f"known: {', '.join((*FLOATS, *INTEGERS))}; write NAME:DTYPE, or DTYPE for all",
            )
        if name and name not in dtypes:
            raise errors.UsageError(f"--{flag}: no {flag.partition('_')[0]} {name!r}", f"here: {listed}")
        able = [
            input_name
            for input_name in ([name] if name else dtypes)
            if kind in _WIDER.get(dtypes[input_name].dtype, ())
        ]
        if not able:
            raise errors.UsageError(f"--{flag}: {kind} is no narrower form of {name or 'any'}", f"here: {listed}")
        for name_of_input in able:
            _check_range(flag, name_of_input, kind, (rows or {}).get(name_of_input))
            narrowed[name_of_input] = kind
    return narrowed


def _check_range(flag: str, name: str, kind: str, rows: int | None) -> None:
    largest = _LARGEST.get(kind)
    if rows is not None and largest is not None and rows - 1 > largest:
        mend = "uint16 goes to 65535" if kind == "int16" and rows - 1 <= INTEGERS["uint16"] else "leave it as it is"
        raise errors.UsageError(
            f"--{flag}: {name!r} selects from a table of {rows} rows, and {kind} ends at {largest}", mend
        )
