"""Refuses engines of another TensorRT or another kind of GPU before TensorFlow loads them: TF-TRT crashes on those. Where nothing loads
them, for there is no GPU, it says so."""

from __future__ import annotations

import os

from tftrt_tools.base import errors
from tftrt_tools.models.savedmodel import engine_assets, passport


def refuse_foreign_engines(model: str | os.PathLike[str]) -> None:
    """Compare the engines of SavedModel `model` with this process: by each engine's header, else by the manifest.

    Raises: TftrtError. A model without engines passes, and so does one with engines of unknown origin.
    """
    origins = _origins(model)
    if not origins:
        return
    from tftrt_tools.base import tf_private
    from tftrt_tools.models.execution.job import gpu

    here = gpu.seen()
    if here is None:
        return  # nothing loads engines without a GPU
    loaded = tf_private.tensorrt_versions()[1]
    for tensorrt, capability in origins:
        if tensorrt and not engine_assets.same_release(tensorrt, loaded):
            raise _foreign(model, "TensorRT", tensorrt, loaded)
        if capability and capability != here["compute_capability"]:
            raise _foreign(model, "compute capability", capability, here["compute_capability"])


def other_tensorrt(model: str | os.PathLike[str]) -> tuple[str, str] | None:
    """(the TensorRT that built engines of SavedModel `model`, the one that is here) where no GPU here would load them; else None, and
    where no TensorRT is here. For a process without a GPU, which loads none."""
    origins = _origins(model)
    if not origins:
        return None
    from tftrt_tools.base import tf_private

    here = tf_private.tensorrt_loaded()
    return next(
        ((built, here) for built, _ in origins if built and here and not engine_assets.same_release(built, here)), None
    )


def unloadable(model: str | os.PathLike[str]) -> str:
    """What other_tensorrt found, in a line; "" for nothing."""
    found = other_tensorrt(model)
    if not found:
        return ""
    built, here = found
    return (
        f"the engines of {model} were built for TensorRT {built}, and {here} is here, which loads none of them on any GPU; "
        f"`tftrt build {model} --shapes=…`, on a GPU, builds them again"
    )


def _origins(model: str | os.PathLike[str]) -> list[tuple[str | None, str | None]]:
    """(TensorRT, compute capability) of each of a model's engines, as engine_assets.origin."""
    assets = engine_assets.read(model)
    manifest = passport.read(model, passport.MANIFEST) if assets else None
    return [engine_assets.origin(asset, manifest) for asset in assets]


def _foreign(model: str | os.PathLike[str], what: str, built: str, here: str) -> errors.TftrtError:
    return errors.TftrtError(
        f"the engines of {model} were built for {what} {built}, and here it is {here}",
        f"build them here: `tftrt build {model} --shapes=…`; or take them away: `tftrt build {model} --strip`",
    )
