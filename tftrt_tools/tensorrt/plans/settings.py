"""The settings of a plan's build, in one dataclass."""

from __future__ import annotations

import dataclasses

from tftrt_tools.base import errors, records
from tftrt_tools.base.choices import PRECISIONS, Precision

# TensorRT's names, release 8.5 to 11. A release lacks some of them.
TACTIC_SOURCES = ("CUBLAS", "CUBLAS_LT", "CUDNN", "EDGE_MASK_CONVOLUTIONS", "JIT_CONVOLUTIONS")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(records.Record):
    """Settings of one build."""

    # What layers may compute in: FP32 (TF32 on Ampere and later), FP16 as well, or INT8 as well.
    precision_mode: Precision = "FP32"
    # Text of --shapes; "" for a model without open dimensions.
    shapes: str = ""
    # The signature that becomes the plan; "" for the only one, or serving_default.
    signature: str = ""
    # Bytes of scratch GPU memory; 0 for as much as there is.
    max_workspace_size_bytes: int = 0
    # File with the ranges of tensors, for INT8 without QuantizeLinear nodes; "" for none.
    calibration_table: str = ""
    # The types of the ONNX file decide, and no layer computes in another (TensorRT 9 and later).
    strongly_typed: bool = False
    # Whether float32 may be computed in TF32.
    tf32: bool = True
    # Of TACTIC_SOURCES; () for TensorRT's own choice.
    tactic_sources: tuple[str, ...] = ()
    # Use kernels for weights of which two of four are zero.
    sparse_weights: bool = False
    # Let later releases run the plan (TensorRT 8.6 and later).
    version_compatible: bool = False
    # Let the weights be replaced later.
    refit: bool = False
    # Paths of libraries of plugins.
    plugins: tuple[str, ...] = ()
    # Text of --freeze: inputs that have one value for good; written into the ONNX file.
    freeze: str = ""


def checked(settings: Settings) -> Settings:
    """Return `settings`, or raise UsageError for a value that can never work."""
    precision = settings.precision_mode.upper()
    if precision not in PRECISIONS:
        raise errors.UsageError(
            f"--precision_mode={settings.precision_mode} is unknown", "use one of " + ", ".join(PRECISIONS)
        )
    settings = dataclasses.replace(
        settings, precision_mode=precision, tactic_sources=tuple(one.upper() for one in settings.tactic_sources)
    )
    unknown = [one for one in settings.tactic_sources if one not in TACTIC_SOURCES]
    if unknown:
        raise errors.UsageError(f"--tactic_sources={unknown[0]} is unknown", "use some of " + ", ".join(TACTIC_SOURCES))
    if settings.max_workspace_size_bytes < 0:
        raise errors.UsageError(
            f"--max_workspace_size_bytes={settings.max_workspace_size_bytes} is too small", "leave it out for no limit"
        )
    if settings.calibration_table and precision != "INT8":
        raise errors.UsageError(
            f"--calibration_table has no effect with --precision_mode={precision}",
            "use --precision_mode=INT8, or leave it out",
        )
    return settings
