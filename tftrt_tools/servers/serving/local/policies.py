"""Decides which versions of a model are wanted, and the next step towards them that keeps the model available."""

from __future__ import annotations

import dataclasses
import enum
import logging
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from tftrt_tools.servers.serving import version_directories

if TYPE_CHECKING:
    from tftrt_tools.base.wire import config_types


_LOG = logging.getLogger("tftrt.serving")

Kind = Literal["latest", "all", "specific"]


@dataclasses.dataclass(frozen=True)
class Policy:
    """A model's version policy. kind: "latest", "all" or "specific". latest: how many. versions: those of "specific", frozenset of int."""

    kind: Kind = "latest"
    latest: int = 1
    versions: frozenset[int] = frozenset()

    @classmethod
    def of(cls, proto: config_types.ChosenPolicy) -> Policy:
        """Of a ServableVersionPolicy; unset, or latest without a number, is the latest one."""
        return cls(
            proto.WhichOneof("policy_choice") or "latest",
            max(proto.latest.num_versions, 1),
            frozenset(proto.specific.versions),
        )

    def choose(self, model: str, children: Iterable[str]) -> dict[int, str]:
        """The wanted among the children of the base path of `model`. Returns: {version: child's name}, empty where there is none."""
        paths: dict[int, str] = {}
        for child in sorted(children):
            number = version_directories.parse(child)
            if number is None:
                continue
            if number in paths:
                # Two spellings of one number: "all" keeps the first, the others the last.
                if self.kind == "all":
                    continue
                _LOG.warning(
                    "version %d of %s is there twice: %s is taken, %s is not", number, model, child, paths[number]
                )
            paths[number] = child
        if self.kind == "all":
            return paths
        if self.kind == "latest":
            return {number: paths[number] for number in sorted(paths)[-self.latest :]}
        for number in sorted(self.versions - paths.keys()):
            _LOG.warning("version %d of %s, a specific version of its policy, is not in the file system", number, model)
        return {number: child for number, child in paths.items() if number in self.versions}


class Phase(enum.Enum):
    """The phase of a version in the manager. ENDED: unloaded, or its load has failed for good."""

    NEW = "new"
    LOADING = "loading"
    READY = "ready"
    UNLOADING = "unloading"
    ENDED = "ended"


Action = Literal["load", "unload"]
LOAD: Action = "load"
UNLOAD: Action = "unload"


class _Managed(Protocol):
    """A version in the manager."""

    number: int
    phase: Phase
    wanted: bool


_Any = TypeVar("_Any", bound=_Managed)


def next_action(versions: Collection[_Any]) -> tuple[Action, _Any] | None:
    """What to do next with one model, so that a version stays loaded while one is wanted (AvailabilityPreservingPolicy).

    Unwanted versions go, the lowest first, as soon as a wanted one is ready, or none is wanted. Before that, all of them but one may go.
    Otherwise the highest new wanted version is loaded. A wanted version whose load has failed stops nothing and is not tried again.
    Args: versions: of objects with .number (int), .phase (Phase), .wanted (bool). Returns: (LOAD or UNLOAD, one of them), or None.
    """
    ready = [version for version in versions if version.phase is Phase.READY]
    leaving = [version for version in ready if not version.wanted]
    if leaving and (len(leaving) > 1 or len(leaving) < len(ready) or not any(version.wanted for version in versions)):
        return UNLOAD, min(leaving, key=lambda version: version.number)
    new = [version for version in versions if version.wanted and version.phase is Phase.NEW]
    return (LOAD, max(new, key=lambda version: version.number)) if new else None
