"""Which versions of a model are wanted, and what to do next so that the model stays available meanwhile."""

import dataclasses
import enum
import logging

from tftrt_tools.serving import versions

_LOG = logging.getLogger("tftrt.serving")


@dataclasses.dataclass(frozen=True)
class Policy:
    """A model's version policy. kind: "latest", "all" or "specific". latest: how many. versions: those of "specific", frozenset of int."""

    kind: str = "latest"
    latest: int = 1
    versions: frozenset = frozenset()

    @classmethod
    def of(cls, proto):
        """Of a ServableVersionPolicy; unset, or latest without a number, is the latest one."""
        return cls(proto.WhichOneof("policy_choice") or "latest", max(proto.latest.num_versions, 1), frozenset(proto.specific.versions))

    def choose(self, model, children):
        """The wanted among the children of the base path of `model`. Returns: {version: child's name}, empty where there is none."""
        found = {}
        for child in sorted(children):
            number = versions.parse(child)
            if number is None:
                continue
            if number in found:
                # Two spellings of one number: "all" keeps the first, the others the last.
                if self.kind == "all":
                    continue
                _LOG.warning("version %d of %s is there twice: %s is taken, %s is not", number, model, child, found[number])
            found[number] = child
        if self.kind == "all":
            return found
        if self.kind == "latest":
            return {number: found[number] for number in sorted(found)[-self.latest:]}
        for number in sorted(self.versions - found.keys()):
            _LOG.warning("version %d of %s, a specific version of its policy, is not in the file system", number, model)
        return {number: child for number, child in found.items() if number in self.versions}


class Phase(enum.Enum):
    """Where a version is in the manager's hands. ENDED: unloaded, or its load has failed for good."""

    NEW = "new"
    LOADING = "loading"
    READY = "ready"
    UNLOADING = "unloading"
    ENDED = "ended"


LOAD, UNLOAD = "load", "unload"


def next_action(versions):
    """What to do next with one model, so that a version stays loaded while one is wanted (AvailabilityPreservingPolicy).

    Unwanted versions go, the lowest first, as soon as a wanted one is ready, or none is wanted; before that all but one may go. Otherwise
    the highest new wanted version is loaded. A wanted version whose load has failed holds nothing up and is not tried again.
    Args: versions: of objects with .number (int), .phase (Phase), .wanted (bool). Returns: (LOAD or UNLOAD, one of them), or None.
    """
    ready = [one for one in versions if one.phase is Phase.READY]
    leaving = [one for one in ready if not one.wanted]
    if leaving and (len(leaving) > 1 or len(leaving) < len(ready) or not any(one.wanted for one in versions)):
        return UNLOAD, min(leaving, key=lambda one: one.number)
    new = [one for one in versions if one.wanted and one.phase is Phase.NEW]
    return (LOAD, max(new, key=lambda one: one.number)) if new else None
