"""Refuses a TensorRT with which TensorFlow cannot convert, before any work.

TensorFlow's own words for it are "has not been built with TensorRT support" and "Incompatible TensorRT major version", or it aborts.
"""

from tftrt_tools.base import errors, stack, tf_private


def check() -> None:
    """Raises: TftrtError, with what `tftrt doctor` says."""
    if tf_private.tensorrt_is_usable():
        return
    stack.check_thoroughly()
    raise errors.TftrtError("TensorFlow cannot use the TensorRT here", "`tftrt doctor` says what is there")
