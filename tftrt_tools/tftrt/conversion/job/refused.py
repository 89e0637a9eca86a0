"""Goes on after TensorRT has refused nodes by name: they stay in TensorFlow, and the rest of the signature is built."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from tftrt_tools.base.process import progress
from tftrt_tools.tftrt.conversion import pass_log
from tftrt_tools.tftrt.conversion.signature_result import NOT_BUILT

if TYPE_CHECKING:
    from tftrt_tools.tftrt.conversion.job.finishing import Made, Work
    from tftrt_tools.tftrt.conversion.pass_log import LeftOut
    from tftrt_tools.tftrt.conversion.signature_result import Unbuilt

# How often a signature is converted again at most.
MOST_REPEATS = 8
# Makes a signature again. Args: the Made so far, {node: why it stays in TensorFlow} of those refused since, and the number of the repeat.
# Raises: NotLeft.
Again = Callable[["Made", Mapping[str, str], int], "Made"]


class NotLeft(Exception):
    """Refused nodes cannot be left to TensorFlow. Its text: why."""


def left(made: Made, again: Again, work: Work) -> Made:
    """Make a signature again as long as TensorRT refuses nodes of it by name, and --leave_refused_nodes is set.

    Args: made: with its engines built, or left unbuilt. Returns: Made; where a node cannot be left to TensorFlow, or the time is over
      before there is an engine again, the last one, whose engines say why.
    """
    known: set[str] = set()
    for number in range(1, MOST_REPEATS + 1):
        refused = {
            node: f"{pass_log.REFUSED} ({one.reason.removeprefix(NOT_BUILT)})"
            for one in made.result.unbuilt
            for node in one.nodes
            if node not in known
        }
        if not refused or work.budget.over or not work.settings.leave_refused_nodes:
            break
        known.update(refused)
        progress.say(f"converting signature {made.result.name} without the nodes that TensorRT refuses")
        try:
            repeated = again(made, refused, number)
        except NotLeft as error:
            return _told(made, known, str(error))
        if work.budget.over and made.result.built and not repeated.result.built:
            return _told(made, known, "no other part of the signature was built in time")
        made = repeated
    return made


def _told(made: Made, nodes: set[str], why: str) -> Made:
    """`made`, with unbuilt engines that say why their nodes are not left to TensorFlow."""

    def told(one: Unbuilt) -> Unbuilt:
        if not nodes.intersection(one.nodes):
            return one
        return dataclasses.replace(one, reason=f"{one.reason}; {one.node} is not left to TensorFlow: {why}")

    result = dataclasses.replace(made.result, unbuilt=tuple(map(told, made.result.unbuilt)))
    return dataclasses.replace(made, result=result)


def noted(before: Iterable[LeftOut], left_out: Iterable[LeftOut], nodes: Collection[str]) -> tuple[LeftOut, ...]:
    """SignatureResult.refused_nodes after one more repeat. Args: before: the field until then. left_out: of the signature now. nodes: those
    that were refused since."""
    old = {one.node: one for one in before}
    return (*old.values(), *(one for one in left_out if one.node in nodes and one.node not in old))
