"""The signatures of a SavedModel that a caller may name, the choice among them, and those that are one function under several names."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from tftrt_tools.base import errors

if TYPE_CHECKING:
    from tensorflow.core.protobuf import meta_graph_pb2

    from tftrt_tools.models.savedmodel.shapes import Call

T = TypeVar("T")
DEFAULT = "serving_default"


def definitions(meta_graph: meta_graph_pb2.MetaGraphDef) -> dict[str, meta_graph_pb2.SignatureDef]:
    """The signatures of a MetaGraphDef that a caller may name: {name: SignatureDef}, without those of initialization and training."""
    return {
        name: one for name, one in sorted(meta_graph.signature_def.items()) if not name.startswith("__saved_model_")
    }


def chosen(names: Sequence[str], keys: Collection[str]) -> list[str]:
    """Those of `names` that `keys` lists, in the order of `names`; all without keys. Raises: UsageError."""
    if not names:
        raise errors.UsageError(
            "the model has no signatures", "export it with signatures, e.g. Keras's model.export(path)"
        )
    for key in keys:
        if key not in names:
            raise errors.UsageError(f"no signature {key!r}", "signatures here: " + ", ".join(names))
    return [name for name in names if not keys or name in keys]


def leader(names: Collection[str]) -> str:
    """Which of the names of one function stands for all."""
    return DEFAULT if DEFAULT in names else min(names)


def label(name: str, twins: Iterable[str] = ()) -> str:
    """For tables: "serve, serving_default (the same)"."""
    return f"{', '.join(sorted((name, *twins)))} (the same)" if twins else name


def split(text: str, names: Iterable[str]) -> tuple[str, str]:
    """ "SIGNATURE/NAME" as (signature, name); ("", text) where it begins with none of the signatures `names`. Both may have slashes."""
    found = max((name for name in names if text.startswith(f"{name}/")), key=len, default="")
    return found, text.removeprefix(f"{found}/") if found else text


@dataclasses.dataclass(frozen=True)
class Once:
    """Signatures to walk, each function once. twins: {signature that is walked: the other names of its function}."""

    twins: dict[str, tuple[str, ...]]

    @classmethod
    def of(cls, names: Iterable[str], *same: Mapping[str, str]) -> Once:
        """Args: names: signatures, in order. same: of twins.find, for one or more models. Twins have to be the same in each model;
        without `same`, each signature is a function of its own."""
        groups: dict[tuple[str, ...] | str, list[str]] = {}
        for name in names:
            groups.setdefault(tuple(pairs.get(name, name) for pairs in same) or name, []).append(name)
        leaders = {leader(group): group for group in groups.values()}
        return cls({first: tuple(name for name in group if name != first) for first, group in leaders.items()})

    @classmethod
    def only(cls, name: str, names: Iterable[str], *same: Mapping[str, str]) -> Once:
        """A single signature under the name that the user gave. Args: names, same: as of `of`."""
        key = [pairs.get(name, name) for pairs in same]
        return cls(
            {
                name: tuple(
                    other
                    for other in names
                    if other != name and same and [pairs.get(other, other) for pairs in same] == key
                )
            }
        )

    @property
    def names(self) -> list[str]:
        """The signatures that are walked."""
        return list(self.twins)

    def leader(self, name: str) -> str:
        """The signature that is walked for `name`; `name` itself if it is not a signature."""
        return next((first for first, others in self.twins.items() if name in others), name)

    def label(self, name: str) -> str:
        """The names in one text, as the function `label` gives it."""
        return label(name, self.twins.get(name, ()))

    def path(self, text: str) -> str:
        """ "SIGNATURE/NAME" of the signature that is walked; other texts as they are."""
        signature, name = split(text, [one for first, others in self.twins.items() for one in (first, *others)])
        return f"{self.leader(signature)}/{name}" if signature else text

    def renamed(self, by_path: Mapping[str, T]) -> dict[str, T]:
        """A dict with its keys as `path` gives them; an entry of the signature that is walked wins over one of its twin."""
        own = {path: value for path, value in by_path.items() if self.path(path) == path}
        return {self.path(path): value for path, value in by_path.items()} | own

    def with_twins(self, by_name: Mapping[str, T]) -> dict[str, T]:
        """{signature: anything} of those that are walked, and the same under the names of their twins."""
        return {name: value for first, value in by_name.items() for name in (first, *self.twins[first])}

    def merged(self, calls: Mapping[str, Sequence[Call]]) -> dict[str, list[Call]]:
        """{signature: [{input: shape}]} of --shapes, with the shapes of twins given to the one that is walked."""
        by_leader: dict[str, list[Call]] = {}
        for name, listed in calls.items():
            leader_calls = by_leader.setdefault(self.leader(name), [])
            leader_calls += [call for call in listed if call not in leader_calls]
        return by_leader
