"""The user's flags on the comparison, as far as they are about one of several signatures."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from tftrt_tools.accuracy import verify
from tftrt_tools.inputs import calls as inputs
from tftrt_tools.inputs import drawing
from tftrt_tools.savedmodel import shapes as shape_grammar
from tftrt_tools.savedmodel.shapes import Call, InputSpec


def declared(takes: inputs.Takes, asked: inputs.Asked) -> dict[str, list[Call]]:
    """{signature: shapes of its calls} of --shapes. Raises: UsageError for flags from which no inputs can be drawn."""
    maker = inputs.CallMaker(takes, asked)
    found, _ = maker.declared(), maker.ranges
    for name, specs in takes.specs.items() if not asked.data else ():
        if name not in found:
            drawing.default_shapes(name, specs)
    return found


def of(options: verify.Options, name: str, specs: Sequence[InputSpec], names: Collection[str],
       calls: Mapping[str, Sequence[Call]]) -> verify.Options:
    """The Options of the comparison of one signature, which `verify` makes alone: what is about another one would be an error there.

    Args: name, specs: the signature and its inputs; names: all signatures that are exported; calls: of `declared`.
    """
    own, asked = {spec.name for spec in specs}, options.asked
    shapes = shape_grammar.flag_text(name, calls[name]) if name in calls else ""
    ranges = ";".join(item for item in asked.ranges.split(";") if item.rsplit(":", 2)[0].strip() in own)
    asked = dataclasses.replace(asked, shapes=shapes, ranges=ranges, reading=dataclasses.replace(asked.reading, shapes=shapes))
    others = tuple(f"{other}/" for other in names if other != name)
    thresholds = ";".join(item for item in options.thresholds.split(";") if not item.strip().startswith(others))
    return dataclasses.replace(options, asked=asked, thresholds=thresholds, signature_keys=(name,))
