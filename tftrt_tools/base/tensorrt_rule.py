"""Which TensorRT a TensorFlow may load."""

import os
from collections.abc import Sequence

# Names an older TensorRT that may stand in for the one that TensorFlow is linked with, such as "8.6.0": the user's own word.
ALLOW = "TFTRT_ALLOW_TENSORRT"


def goes_with(loaded: Sequence[int], linked: Sequence[int]) -> bool:
    """Whether a TensorFlow that is linked with one TensorRT runs with another one: TensorFlow's own rule (the same major version, and not
    older), or an older patch of the same minor version that ALLOW names."""
    return (loaded[0] == linked[0] and tuple(loaded) >= tuple(linked)) or stands_in(loaded, linked)


def stands_in(loaded: Sequence[int], linked: Sequence[int]) -> bool:
    """Whether an older TensorRT is used because ALLOW names it."""
    older_patch = tuple(loaded[:2]) == tuple(linked[:2]) and tuple(loaded) < tuple(linked)
    return older_patch and os.environ.get(ALLOW) == ".".join(map(str, loaded))
