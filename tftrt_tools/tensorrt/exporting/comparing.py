"""The user's flags on the comparison, as far as they are about one of several signatures."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from tftrt_tools.accuracy import verify
from tftrt_tools.base import errors
from tftrt_tools.models.inputs import calls as inputs
from tftrt_tools.models.inputs import drawing
from tftrt_tools.models.savedmodel import frozen_inputs
from tftrt_tools.models.savedmodel import shapes as shape_grammar
from tftrt_tools.models.savedmodel.shapes import Call, InputSpec


def declared(takes: inputs.Takes, asked: inputs.Asked) -> dict[str, list[Call]]:
    """{signature: shapes of its calls} of --shapes. Raises: UsageError for flags from which no inputs can be drawn."""
    maker = inputs.CallMaker(takes, asked)
    found, _ = maker.declared(), maker.ranges
    for name, specs in takes.specs.items() if not asked.data else ():
        if name not in found:
            drawing.default_shapes(name, specs)
    return found


def of(
    options: verify.Options,
    name: str,
    specs: Sequence[InputSpec],
    names: Collection[str],
    calls: Mapping[str, Sequence[Call]],
    kept: tuple[str, ...] = (),
) -> verify.Options:
    """The Options of the comparison of one signature, which `verify` makes alone: what is about another one would be an error there.

    Args: name, specs: the signature and its inputs; names: all signatures that are exported; calls: of `declared`; kept: those of the
      signature's outputs that are compared, () for all.
    """
    own, asked = {spec.name for spec in specs}, options.asked
    shapes = shape_grammar.flag_text(name, calls[name]) if name in calls else ""
    ranges = ";".join(item for item in asked.ranges.split(";") if item.rsplit(":", 2)[0].strip() in own)
    asked = dataclasses.replace(
        asked, shapes=shapes, ranges=ranges, reading=dataclasses.replace(asked.reading, shapes=shapes)
    )
    others = tuple(f"{other}/" for other in names if other != name)
    thresholds = ";".join(item for item in options.thresholds.split(";") if not item.strip().startswith(others))
    return dataclasses.replace(
        options,
        asked=asked,
        thresholds=thresholds,
        signature_keys=(name,),
        outputs=kept,
        freeze=frozen(options.freeze, name, specs),
    )


def frozen(flag: str, name: str, specs: Sequence[InputSpec]) -> str:
    """The part of --freeze that is about one signature."""
    values = frozen_inputs.of_signature(flag, name, specs)
    return ";".join(f"{key}:{value.item()}" for key, value in values.items())


def outputs(asked: Sequence[str], given: Mapping[str, Sequence[InputSpec]]) -> dict[str, tuple[str, ...]]:
    """{signature: its outputs that are kept, () for all}. Args: asked: of --outputs, NAME or SIGNATURE/NAME; given: {signature that is
    exported: its outputs}. Raises: UsageError for one that no signature has, and for a signature that would keep none."""
    if not asked:
        return dict.fromkeys(given, ())
    known = {
        name: [
            (key, spec.name)
            for key, specs in given.items()
            for spec in specs
            if name in (spec.name, f"{key}/{spec.name}")
        ]
        for name in asked
    }
    for name, places in known.items():
        if not places:
            listed = dict.fromkeys(spec.name for specs in given.values() for spec in specs)
            raise errors.UsageError(f"--outputs: no output {name!r}", errors.nearest(name, listed))
    kept = {
        key: tuple(spec.name for spec in specs if any((key, spec.name) in places for places in known.values()))
        for key, specs in given.items()
    }
    empty = next((key for key, names in kept.items() if not names), None)
    if empty is not None:
        raise errors.UsageError(
            f"--outputs={','.join(asked)} leaves signature {empty!r} without an output",
            "name one of " + ", ".join(spec.name for spec in given[empty]) + ", or choose signatures with "
            "--signature_keys",
        )
    return kept
