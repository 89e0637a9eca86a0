"""Refuses engines of another TensorRT or another kind of GPU before TensorFlow loads them: TF-TRT crashes on those."""

from __future__ import annotations

import os

from tftrt_tools.base import errors
from tftrt_tools.models.savedmodel import engine_assets, passport


def refuse_foreign_engines(model: str | os.PathLike[str]) -> None:
    """Compare the engines of SavedModel `model` with this process: by each engine's header, else by the manifest.

    Raises: TftrtError. A model without engines passes, and so does one with engines of unknown origin.
    """
    assets = engine_assets.read(model)
    if not assets:
        return
    from tftrt_tools.base import tf_private
    from tftrt_tools.models.execution.job import gpu

    here = gpu.seen()
    if here is None:
        return  # nothing loads engines without a GPU
    loaded = tf_private.tensorrt_versions()[1]
    manifest = passport.read(model, passport.MANIFEST)
    for asset in assets:
        tensorrt, capability = engine_assets.origin(asset, manifest)
        if tensorrt and not engine_assets.same_release(tensorrt, loaded):
            raise _foreign(model, "TensorRT", tensorrt, loaded)
        if capability and capability != here["compute_capability"]:
            raise _foreign(model, "compute capability", capability, here["compute_capability"])


def _foreign(model: str | os.PathLike[str], what: str, built: str, here: str) -> errors.TftrtError:
    return errors.TftrtError(
        f"the engines of {model} were built for {what} {built}, and here it is {here}",
        f"build them here: `tftrt build {model} --shapes=…`; or take them away: `tftrt build {model} --strip`",
    )
