"""Refuses engines of another TensorRT or another kind of GPU before TensorFlow loads them: TF-TRT crashes on those."""

from tftrt_tools import errors
from tftrt_tools.savedmodel import engine_assets, passport


def refuse_foreign_engines(model):
    """Compare the manifest of SavedModel `model` with this process. Raises: TftrtError. A model without engines or manifest passes."""
    manifest = passport.read(model, passport.MANIFEST)
    if not manifest or not manifest.get("gpu") or not engine_assets.read(model):
        return
    from tftrt_tools import tf_private
    from tftrt_tools.execution import gpu

    here = gpu.seen()
    loaded = tf_private.tensorrt_versions()[1]
    for what, built, now in (("TensorRT", manifest["versions"]["tensorrt"], loaded),
                             ("compute capability", manifest["gpu"]["compute_capability"], here and here["compute_capability"])):
        if now is not None and built != now:
            raise errors.TftrtError(f"the engines of {model} were built for {what} {built}, and here it is {now}",
                                    f"build them here: `tftrt build {model} --shapes=…`; or take them away: `tftrt build {model} --strip`")
