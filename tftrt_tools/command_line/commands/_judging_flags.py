"""The flags that say how answers are judged; every command that compares answers has them."""

from __future__ import annotations

from typing import Any

from absl import flags


def define(values: flags.FlagValues) -> None:
    """Define the flags on FlagValues `values`."""
    flags.DEFINE_boolean(
        "allow_constant_outputs",
        False,
        "accept answers that show nothing: all zero, empty, or equal for every input",
        flag_values=values,
    )
    flags.DEFINE_multi_string(
        "output_kind",
        [],
        "what an output is, OUTPUT:KIND or SIGNATURE/OUTPUT:KIND, several divided by ; or given "
        "one by one. Kinds: values, ids, scores, boxes, probabilities, masks, texts; each has its metrics and bounds "
        "(docs/judging.md). By default ids and detectors are recognised, and other floats are values",
        flag_values=values,
    )


def read(values: flags.FlagValues) -> dict[str, Any]:
    """The fields of a command's Options that these flags fill."""
    return {"allow_constant_outputs": values.allow_constant_outputs, "output_kind": tuple(values.output_kind)}
