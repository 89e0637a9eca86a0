"""The settings of a plan's build, in one dataclass."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

from tftrt_tools.base import errors, records
from tftrt_tools.models.backends import recipe

# TensorRT's names, release 8.5 to 11. A release lacks some of them.
TACTIC_SOURCES = ("CUBLAS", "CUBLAS_LT", "CUDNN", "EDGE_MASK_CONVOLUTIONS", "JIT_CONVOLUTIONS")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(recipe.Recipe):
    """Settings of one build: the recipe, and TensorRT's options. A plan has one signature. `shapes` is needed unless the model has no
    open dimensions. `precision_mode` is what layers may compute in: FP16 as well as FP32, or INT8 as well as both."""

    # As in the files of before, which have the name of the signature for itself.
    written_too: typing.ClassVar[tuple[str, ...]] = ("signature",)
    written_first: typing.ClassVar[tuple[str, ...]] = (
        "precision_mode",
        "shapes",
        "signature",
        "max_workspace_size_bytes",
        "calibration_table",
    )

    # TensorRT 9 and later.
    strongly_typed: bool = records.field(
        default=False, help="plan: no layer computes in another type than the ONNX file says (TensorRT 9 and later)"
    )
    tf32: bool = records.field(default=True, help="plan: let float32 be computed in TF32")
    # () for TensorRT's own choice.
    tactic_sources: tuple[str, ...] = records.field(
        default=(),
        help="plan: libraries that TensorRT may take kernels from, by default its own choice: "
        + ",".join(TACTIC_SOURCES),
    )
    sparse_weights: bool = records.field(
        default=False, help="plan: use kernels for weights of which two of four are zero"
    )
    version_compatible: bool = records.field(
        default=False, help="plan: let later releases run it (TensorRT 8.6 and later)"
    )
    refit: bool = records.field(default=False, help="plan: let its weights be replaced")
    # Paths.
    plugins: tuple[str, ...] = records.field(
        default=(),
        repeated=True,
        help="plan: a library of TensorRT plugins that the ONNX file needs (.so); once for each. It is kept with the plan",
    )
    int8_as: str = records.field(
        default="",
        help="plan: of the INT8 that --calibration_data writes into the file: another plan directory, which was built with "
        "--calibration_table; only the nodes that TensorRT computes in INT8 there get it. auto builds one first",
    )

    @property
    def signature(self) -> str:
        """The signature that becomes the plan; "" for the only one, or serving_default."""
        return self.signature_keys[0] if self.signature_keys else ""

    @classmethod
    def from_dict(cls, data: typing.Mapping[str, Any]) -> Settings:
        """Also from files that have the signature's name alone."""
        keys = [data["signature"]] if data.get("signature") else []
        return super().from_dict({"signature_keys": keys, **data})


def checked(settings: Settings) -> Settings:
    """Return `settings`, or raise UsageError for a value that can never work."""
    settings = recipe.checked(settings)
    if len(settings.signature_keys) > 1:
        raise errors.UsageError(
            f"--signature_keys={','.join(settings.signature_keys)}: a plan has one signature",
            "name one, and build a plan for each",
        )
    settings = dataclasses.replace(settings, tactic_sources=tuple(one.upper() for one in settings.tactic_sources))
    unknown = [one for one in settings.tactic_sources if one not in TACTIC_SOURCES]
    if unknown:
        raise errors.UsageError(f"--tactic_sources={unknown[0]} is unknown", "use some of " + ", ".join(TACTIC_SOURCES))
    if settings.max_workspace_size_bytes < 0:
        raise errors.UsageError(
            f"--max_workspace_size_bytes={settings.max_workspace_size_bytes} is too small", "leave it out for no limit"
        )
    return settings
