"""How Triton may batch a model: which batch sizes it takes, by its shapes and its profiles. Pure functions."""

import dataclasses
from collections.abc import Sequence

from tftrt_tools.base import errors
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.servers.serving.triton.servable import Range, Servable


@dataclasses.dataclass(frozen=True)
class Batching:
    """largest: config.pbtxt's max_batch_size, 0 where Triton knows no batch and shapes are whole; joined: whether Triton joins requests
    (dynamic batching); preferred: batch sizes at which it stops waiting, ascending; why: a remark where requests are not joined, or ""."""

    largest: int
    joined: bool
    preferred: tuple[int, ...]
    why: str


def choose(model: Servable, wanted: int | None, preferred: Sequence[int]) -> Batching:
    """The Batching of a model.

    Args: wanted: --triton_max_batch_size, None for the largest that the profiles allow, 0 for none. preferred: sizes, () for those of the
      profiles.
    Raises: UsageError where the model does not take them.
    """
    whole = _unbatched(model)
    if whole and (wanted or preferred):
        raise errors.UsageError(
            f"--triton_max_batch_size: Triton cannot batch this model: {whole}", "leave it out: shapes are then whole"
        )
    sizes = _sizes(model.profiles)
    most = max((high for _, high in sizes), default=None)
    if most is not None and wanted is not None and wanted > most:
        raise errors.UsageError(
            f"--triton_max_batch_size={wanted}: the largest profile of the plan has {most}",
            f"give at most {most}, or build the plan with larger --shapes",
        )
    largest = 0 if whole else (most or 0) if wanted is None else wanted
    for size in preferred:
        if not 1 <= size <= largest:
            raise errors.UsageError(
                f"--triton_preferred_batch_sizes: {size} is not from 1 to {largest}, the largest batch",
                "--triton_max_batch_size raises that" if most is None else "leave it out",
            )
    if not largest:
        why = (
            whole or "" if model.profiles or whole else "--triton_max_batch_size=N lets Triton join requests to batches"
        )
        return Batching(0, False, (), why or "--triton_max_batch_size=0")
    hole = _hole(sizes, largest)
    if hole:
        return Batching(
            largest,
            False,
            (),
            f"no profile of the plan takes a batch of {hole}, so that requests cannot be joined: build it "
            "with a range, --shapes='INPUT:min=…,opt=…,max=…'",
        )
    chosen = tuple(sorted(set(preferred))) or tuple(size for size in _favoured(model.profiles) if 1 < size <= largest)
    return Batching(largest, largest > 1, chosen if largest > 1 else (), "")


def batch(shapes: dict[str, Range], place: int) -> int:
    """The batch size of a profile at min (0), opt (1) or max (2)."""
    return next(iter(shapes.values()))[place][0]


def _unbatched(model: Servable) -> str:
    """Why the first dimension of all inputs and outputs is no batch, or ""."""
    for kind, specs in (("input", model.inputs), ("output", model.outputs)):
        for spec in specs:
            if reason := _not_batched(spec):
                return f"{kind} {spec.name!r} is {spec.text()}, and {reason}"
    for profile in model.profiles:
        for place in range(3):
            if len({bounds[place][0] for bounds in profile.values()}) > 1:
                return "the inputs of a profile have several batch sizes"
    return ""


def _not_batched(spec: InputSpec) -> str:
    if spec.shape is None:
        return "its rank is not known"
    return "its first dimension is not open" if not spec.shape or spec.shape[0] is not None else ""


def _sizes(profiles: Sequence[dict[str, Range]]) -> list[tuple[int, int]]:
    """(smallest, largest) batch of each profile, ascending."""
    return sorted(
        (batch(one, 0), batch(one, 2)) for one in profiles if one and all(shapes[0] for shapes in one.values())
    )


def _hole(sizes: Sequence[tuple[int, int]], largest: int) -> int:
    """The smallest batch from 1 to `largest` that no profile takes, or 0."""
    if not sizes:
        return 0
    following = 1
    for low, high in sizes:
        if low > following:
            return following
        following = max(following, high + 1)
    return following if following <= largest else 0


def _favoured(profiles: Sequence[dict[str, Range]]) -> list[int]:
    """The batch sizes that the profiles were tuned for, and their largest."""
    return sorted({batch(one, place) for one in profiles if one for place in (1, 2)})
