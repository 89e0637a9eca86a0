"""What calibration asks of a signature with its variables as constants. conversion.job.graph_pass.Frozen is one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from tftrt_tools.base import tf_private


class Frozen(tf_private.FrozenSignature, Protocol):
    """A signature that can be run again over a changed graph."""

    def input_map(self, values: Iterable[Any]) -> dict[str, Any]:
        """The input_map with which its graph is imported. Args: values: tensors, one for each of `inputs`."""

    def input_specs(self) -> list[Any]:
        """[tf.TensorSpec] of `inputs`."""
