"""Chooses the calls to send: from the user's data, at given shapes, at shapes in the passport, or at shapes that the signature allows."""

import dataclasses
import functools
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tftrt_tools.models.execution import run
from tftrt_tools.models.inputs import calls as inputs
from tftrt_tools.models.inputs import drawing
from tftrt_tools.models.savedmodel.shapes import InputSpec

if TYPE_CHECKING:
    from tftrt_tools.servers.serving.smoke.smoke import Options


@dataclasses.dataclass(frozen=True)
class Group:
    """Calls of one signature and one shape, at least one."""

    calls: tuple[run.Call, ...]

    @property
    def signature(self) -> str:
        """The name of the signature."""
        return self.calls[0].signature

    @property
    def text(self) -> str:
        """The group as messages show it: serving_default(x 1x8)."""
        return self.calls[0].text()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What is sent."""

    # Groups of a signature: larger shapes after smaller ones; given shapes keep their order.
    groups: tuple[Group, ...]
    # {signature: where its shapes come from}
    sources: dict[str, str]
    # The signatures whose inputs are the user's.
    own_data: tuple[str, ...]
    # Rows of the data that no batch size fits.
    dropped: int
    # As of calls.Calls.
    drew: tuple[str, ...]
    # {signature: other names of its function, which are not called again}
    twins: dict[str, tuple[str, ...]]


# Where shapes come from that only the signature tells: of fixed sizes, and of others.
OF_SIGNATURE = ("the only ones that the signature allows", "batch 1, as the signature allows")


def plan(
    takes: inputs.Takes, known_from: str, options: "Options", folder: str | pathlib.Path, triton: bool = False
) -> Plan:
    """Choose the calls.

    Args: takes: calls.Takes of what is served. known_from: where its known shapes come from, in words. options: smoke.Options. folder:
      for the read data. triton: whether a Triton is asked, whose models have no files here.
    Returns: Plan. Raises: UsageError.
    """
    request = inputs.Asked(
        data=options.data,
        reading=options.reading,
        data_rows=options.data_rows,
        shapes=options.shapes,
        ranges=options.ranges,
        seed=options.seed,
    )
    declared = inputs.CallMaker(takes, request).declared()
    sizes = (
        (options.batch_size,)
        if options.batch_size
        else inputs.batch_sizes(call for calls in (declared or takes.known).values() for call in calls)
    )
    if declared and not options.data:
        takes = inputs.only(declared, takes)  # the others were not requested
    mend = (
        "give {flag}, or --data" if triton else "give {flag}, --data, or --model_dir with the shapes it was built for"
    )
    chosen = inputs.choose(takes, request, folder, sizes, functools.partial(_batch_one, mend))
    origin_texts = {"data": "--data", "shapes": "--shapes", "known": known_from}
    groups: dict[Any, list[run.Call]] = {}
    for call in chosen.all:
        groups.setdefault((call.signature, tuple(sorted(call.shapes.items()))), []).append(call)
    return Plan(
        groups=tuple(Group(tuple(calls)) for calls in groups.values()),
        sources={
            name: origin_texts.get(origin) or _of_signature(takes.specs[name])
            for name, origin in chosen.origins.items()
        },
        own_data=chosen.own,
        dropped=chosen.dropped,
        drew=chosen.drew,
        twins={name: twins for name, twins in takes.walked.twins.items() if twins},
    )


def _batch_one(mend: str, signature: str, specs: Sequence[InputSpec]) -> list[dict[str, tuple[int, ...]]]:
    drawing.check_sendable(signature, specs)
    return [drawing.shapes_of_batch(signature, specs, 1, mend)]


def _of_signature(specs: Sequence[InputSpec]) -> str:
    """Where shapes come from that only the signature tells."""
    fixed = not any(None in (spec.shape or ()) for spec in specs)
    return OF_SIGNATURE[0] if fixed else OF_SIGNATURE[1]
