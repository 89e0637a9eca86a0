"""Which calls warm an instance of a model up, before Triton sends it requests."""

from collections.abc import Mapping

from tftrt_tools.base import errors
from tftrt_tools.models.inputs import drawing
from tftrt_tools.models.savedmodel import shapes
from tftrt_tools.servers.serving.triton.batching import Batching
from tftrt_tools.servers.serving.triton.config import Shapes
from tftrt_tools.servers.serving.triton.servable import Range, Servable

# Of a dimension: no array is larger, and config.pbtxt has no room for every number.
_LARGEST = 2**31 - 1


def plan(model: Servable, batching: Batching, wanted: str) -> tuple[list[Shapes], str]:
    """(shapes of the calls, a remark or "").

    Args: wanted: text of --warmup_shapes, "" for opt and max of each profile, or without profiles for the smallest and the largest batch.
    Raises: UsageError for shapes that the model does not take.
    """
    if not model.inputs:
        return [], "no warm-up: the model takes no input"
    if wanted:
        return _given(model, batching, wanted), ""
    if model.profiles:
        listed = [_within(profile, place, batching.largest) for profile in model.profiles for place in (1, 2)]
        return [call for number, call in enumerate(listed) if call and call not in listed[:number]], ""
    try:
        sizes = sorted({1, batching.largest or 1})
        drawn = [drawing.shapes_of_batch(model.signature, model.inputs, size) for size in sizes]
    except errors.UsageError as error:
        return [], f"no warm-up: {error.cause}; --warmup_shapes names some"
    return [call for number, call in enumerate(drawn) if call not in drawn[:number]], ""


def _within(profile: Mapping[str, Range], place: int, largest: int) -> Shapes:
    """Shapes of a profile at opt (1) or max (2), with no larger batch than Triton's; {} for a profile of larger batches alone. Triton does
    not load a model whose warm-up is larger. Args: largest: batch of Triton's, 0 where it knows none."""
    call = {name: bounds[place] for name, bounds in profile.items()}
    if not largest or all(shape[0] <= largest for shape in call.values()):
        return call
    if any(bounds[0][0] > largest for bounds in profile.values()):
        return {}
    return {name: (largest, *shape[1:]) for name, shape in call.items()}


def _given(model: Servable, batching: Batching, wanted: str) -> list[Shapes]:
    listed: dict[str, list[tuple[int, ...]]] = {}
    parsed = shapes.parse(wanted, "--warmup_shapes")
    for (signature, name), given in parsed.items():
        if signature not in ("", model.signature) or name not in {spec.name for spec in model.inputs}:
            raise errors.UsageError(
                f"--warmup_shapes: no input {name!r}", "inputs: " + ", ".join(spec.name for spec in model.inputs)
            )
        listed[name] = given
    count = max(map(len, listed.values()))
    calls: list[Shapes] = []
    for number in range(count):
        call: dict[str, tuple[int, ...]] = {}
        for spec in model.inputs:
            given = listed.get(spec.name, [])
            if len(given) not in (1, count):
                raise errors.UsageError(
                    f"--warmup_shapes: {spec.name!r} has {len(given)} shapes, and another input has {count}",
                    "give each input as many",
                )
            call[spec.name] = given[number % len(given)]
            if not spec.accepts(call[spec.name]) or max(call[spec.name], default=0) > _LARGEST:
                raise errors.UsageError(
                    f"--warmup_shapes: {spec.name!r} is {spec.text()}, and does not take "
                    f"{'x'.join(map(str, call[spec.name]))}",
                    "fix the shape",
                )
        rows = {shape[0] for shape in call.values() if shape}
        if batching.largest and (len(rows) > 1 or max(rows) > batching.largest):
            raise errors.UsageError(
                f"--warmup_shapes: a batch of {max(rows)} is larger than Triton's, {batching.largest}"
                if len(rows) == 1
                else "--warmup_shapes: the inputs of a call have several batch sizes",
                "fix the shapes",
            )
        calls.append(call)
    return calls
