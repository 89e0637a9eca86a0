"""Which batch sizes the engines of a model serve, read from its files in a child process, which loads TensorFlow."""

import dataclasses
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from tftrt_tools.models.savedmodel import files
from tftrt_tools.models.savedmodel.describe import Description
from tftrt_tools.models.savedmodel.engine_assets import EngineAsset
from tftrt_tools.models.savedmodel.engine_op import EngineOp
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.servers.serving.configuration import unbatched
from tftrt_tools.servers.serving.configuration.engine_batch_sizes import Covered

_ONE_PROFILE = ("Range", "Range+Optimal")


def read(models: Sequence[str]) -> list[Covered]:
    """Covered for each SavedModel directory. Raises: TftrtError, UsageError."""
    from tftrt_tools.models.savedmodel import describe_job

    return [
        dataclasses.replace(_covered(path, description), unbatched=_unbatched(description))
        for path, description in zip(models, describe_job.job(models), strict=True)
    ]


def _unbatched(model: Description) -> tuple[str, ...]:
    return tuple(
        line
        for name, inputs in model.inputs.items()
        for line in unbatched.of_signature(name, inputs, model.outputs[name])
    )


def _covered(path: str, model: Description) -> Covered:
    from tftrt_tools.models.savedmodel import engine_assets, passport

    manifest = passport.read(path, passport.MANIFEST) or {}
    engines = {engine.name: engine for engine in model.engines}
    assets = [asset for asset in engine_assets.read(path) if asset.engine in engines]
    listed = passport.signatures(manifest)
    sizes: set[int] | None = None
    reasons: list[str] = []
    for name, inputs in model.inputs.items():
        own: set[int] | Literal[False] | None
        own, reason = _fixed(inputs)
        called = [engine["name"] for engine in listed[name]["engines"]] if name in listed else list(engines)
        if called and own is None:
            own, reason = _of_engines(
                path,
                name,
                manifest,
                listed.get(name),
                [engines[engine] for engine in called if engine in engines],
                assets,
            )
        if own is False:
            return Covered(path=path, sizes=(), known=False, reason=f"{name}: {reason}")
        if reason:
            reasons.append(f"{name}: {reason}")
        if own is not None:
            sizes = own if sizes is None else sizes & own
    return Covered(
        path=path,
        sizes=None if sizes is None else tuple(sorted(sizes)),
        known=True,
        reason="; ".join(dict.fromkeys(reasons)) or "no engines",
    )


def _fixed(inputs: Iterable[InputSpec]) -> tuple[set[int] | None, str]:
    """A signature that takes one batch size only. Returns: ({size} or None, why)."""
    fixed = {spec.shape[0] for spec in inputs if spec.shape and spec.shape[0] is not None}
    return (fixed, f"its input's batch size is {', '.join(map(str, sorted(fixed)))}") if len(fixed) == 1 else (None, "")


def _of_engines(
    path: str,
    name: str,
    manifest: Mapping[str, Any],
    listed: Mapping[str, Any] | None,
    engines: Sequence[EngineOp],
    assets: Sequence[EngineAsset],
) -> tuple[set[int] | Literal[False], str]:
    """Returns: (set of sizes, or False if not known, why)."""
    saved = bool({engine.name for engine in engines} & {asset.engine for asset in assets})
    implicit = all(engine.implicit_batch for engine in engines)
    calls = (
        [{input_name: tuple(shape) for input_name, shape in call.items()} for call in (listed or {}).get("calls", ())]
        if saved
        else []
    )
    if calls:
        strategy = (
            "ImplicitBatchModeCompatible" if implicit else manifest.get("dynamic_shape_profile_strategy") or "Optimal"
        )
        return _of_calls(calls, strategy), "the shapes that its engines were built for"
    if not implicit:
        return False, (
            "its engines have profiles that no manifest tells"
            if saved
            else "its engines are built by the first request, for its shape"
        )
    if saved:
        own = {engine.name for engine in engines}
        built = [_call(asset) for asset in assets if asset.engine in own]
        return _of_calls(built, "ImplicitBatchModeCompatible"), "its saved engines"
    calls = _warmup_calls(pathlib.Path(path) / files.WARMUP, name)
    if not calls:
        return False, "it has neither engines nor warm-up requests: the largest batch so far decides"
    return _of_calls(calls, "ImplicitBatchModeCompatible"), "its warm-up requests"


def _call(asset: EngineAsset) -> dict[int, tuple[int, ...]]:
    """{number of the input: shape} that an engine was built for. An engine is built for known sizes; what else a damaged file says is left
    out."""
    shapes = [tuple(size for size in shape or () if size is not None) for shape in asset.input_shapes]
    return {
        number: expected
        for number, (expected, shape) in enumerate(zip(shapes, asset.input_shapes, strict=True))
        if expected == shape
    }


def _of_calls(calls: Iterable[Mapping[Any, tuple[int, ...]]], strategy: str) -> set[int]:
    """The batch sizes that engines built for `calls` serve at every declared shape of one row.

    Args: calls: [{input: shape}]. strategy: of the profiles; a profile of "Range" and "Range+Optimal" spans all calls, each of
      "ImplicitBatchModeCompatible" (and an engine of implicit batch mode) goes from 1 to its call, each of "Optimal" is one call.
    """
    by_row: dict[tuple[tuple[Any, tuple[int, ...]], ...], set[int]] = {}
    for call in calls:
        batches = {shape[0] for shape in call.values() if shape}
        if len(batches) == 1:  # the server joins requests only if all inputs have equally many rows
            by_row.setdefault(tuple((name, shape[1:]) for name, shape in sorted(call.items())), set()).update(batches)
    if not by_row:
        return set()
    if strategy in _ONE_PROFILE:
        every = set.union(*by_row.values())
        return set(range(min(every), max(every) + 1))
    if strategy == "ImplicitBatchModeCompatible":
        by_row = {row: set(range(1, max(sizes) + 1)) for row, sizes in by_row.items()}
    return set.intersection(*by_row.values())


def _warmup_calls(path: pathlib.Path, signature: str) -> list[dict[str, tuple[int, ...]]]:
    """[{input: shape}] of the Predict requests to `signature` in a warm-up file."""
    if not path.is_file():
        return []
    import tensorflow as tf
    from tensorflow_serving.apis import prediction_log_pb2

    calls = []
    for record in tf.data.TFRecordDataset([str(path)]).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        request = log.predict_log.request
        if log.HasField("predict_log") and (request.model_spec.signature_name or "serving_default") == signature:
            calls.append(
                {name: tuple(dim.size for dim in value.tensor_shape.dim) for name, value in request.inputs.items()}
            )
    return calls
