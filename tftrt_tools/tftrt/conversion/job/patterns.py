"""Patterns of node names. Each has to match in one of the chosen signatures, not in all of them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from tftrt_tools.base import errors
from tftrt_tools.models.savedmodel.job import graph

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2

# The settings that are patterns of node names.
FLAGS = ("keep_native_nodes", "fp32_nodes", "high_precision_nodes")
_NEAR = 3


class Patterns:
    """Which patterns have matched in the signatures of a model so far."""

    def __init__(self) -> None:
        self._pattern: dict[str, str] = {}
        self._names: dict[str, dict[str, None]] = {}
        self._what: dict[str, str] = {}
        self._matched: set[str] = set()

    def note(self, flag: str, pattern: str, names: Iterable[str], found: Collection[str], what: str = "") -> None:
        """Record one signature. Args: flag: without dashes; names: of its nodes; found: those that match; what: as in `no_match`."""
        self._pattern[flag], self._what[flag] = pattern, what
        self._names.setdefault(flag, {}).update(dict.fromkeys(names))
        if found:
            self._matched.add(flag)

    def unmatched(self, flags: Iterable[str]) -> list[str]:
        """The flags whose pattern has not matched yet."""
        return [flag for flag in flags if flag not in self._matched]

    def check(self) -> None:
        """Raise UsageError for a pattern that matched no node in any signature. Call it after the last signature."""
        for flag in self.unmatched(self._pattern):
            raise no_match(flag, self._pattern[flag], self._names[flag], self._what[flag])


def matching(flag: str, pattern: str, names: Iterable[str], gathered: Patterns | None, what: str = "") -> set[str]:
    """Those of `names` that `pattern` matches as a whole; none for "".

    Args: gathered: the record of matches; None if there is no other signature. what: as of `no_match`.
    Raises: UsageError then, where nothing matches.
    """
    if not pattern:
        return set()
    names = list(names)
    matches = {name for name in names if re.fullmatch(pattern, name)}
    if gathered is not None:
        gathered.note(flag, pattern, names, matches, what)
    elif not matches:
        raise no_match(flag, pattern, names, what)
    return matches


def in_int8_engines(graph_def: graph_pb2.GraphDef, pattern: str, gathered: Patterns | None) -> None:
    """Match --high_precision_nodes with the nodes in a converted graph's INT8 engines. Arguments and errors as of `matching`."""
    if not pattern:
        return
    segments = [
        native_segment
        for native_segment in graph.native_segments(graph_def).values()
        if native_segment.engine.precision == "INT8"
    ]
    names = [
        node.name for segment in segments for node in segment.function.node_def if node.op not in graph.PASSIVE_OPS
    ]
    matching("high_precision_nodes", pattern, names, gathered, " of an INT8 engine")


def no_match(flag: str, pattern: str, names: Iterable[str], what: str = "") -> errors.UsageError:
    """The error for a pattern that matches none of `names`, with similar names. Args: what: kind of node, for the text."""
    names = list(names)
    near = [name for name in names if re.search(pattern, name)] or _near(pattern, names)
    text = "near are " + ", ".join(near[:_NEAR]) if near else "names look like " + ", ".join(names[:_NEAR])
    return errors.UsageError(
        f"--{flag}={pattern} matches no node{what} (the whole name must match)",
        (text if names else "there is none") + "; `tftrt inspect --all` lists them",
    )


def _near(pattern: str, names: Sequence[str]) -> list[str]:
    """Names that resemble the pattern, or whose last part resembles the last part of its longest text."""
    similar = difflib.get_close_matches(re.sub(r"\\(.)", r"\1", pattern), names, _NEAR)
    if similar:
        return similar
    text = max(re.split(r"[^\w/-]+", pattern), key=len).rsplit("/", 1)[-1]
    last: dict[str, str] = {}
    for name in names:
        last.setdefault(name.rsplit("/", 1)[-1], name)
    return [last[name] for name in difflib.get_close_matches(text, last, _NEAR)]
