"""The settings of a conversion, in one dataclass. Defaults are TF-TRT's own unless a comment says why not."""

import dataclasses
import re

from tftrt_tools.base import errors, records
from tftrt_tools.base.choices import (
    CALIBRATION_METHODS,
    CALIBRATORS,
    PRECISIONS,
    STRATEGIES,
    CalibrationMethod,
    Calibrator,
    Precision,
    Strategy,
)
from tftrt_tools.models.savedmodel import frozen_inputs
from tftrt_tools.models.savedmodel import shapes as shape_grammar
from tftrt_tools.tftrt.calibration import methods

# The setting that keeps nodes in the next higher precision: for INT8 in the same engines, for FP16 in FP32 engines.
KEEPS_HIGH: dict[Precision, str] = {"INT8": "high_precision_nodes", "FP16": "fp32_nodes"}
# TensorRT 8.4 and later: as much as it wants. TF-TRT subtracts 512 to avoid an overflow in a cast.
MAX_WORKSPACE_BYTES = 2**63 - 1 - 512

# The settings for INT8's ranges; they have no effect in another precision.
CALIBRATION = ("calibration_table", "calibrator", "calibration_method", "calibration_percentile")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(records.Record):
    """Settings of one conversion."""

    # The precision of the engines.
    precision_mode: Precision = "FP32"
    # Signatures to convert; () for all. The others stay as they were.
    signature_keys: tuple[str, ...] = ()
    # Tags of the MetaGraph; () for the only one, or "serve".
    tags: tuple[str, ...] = ()
    # Nodes (Identity not counted, constants counted) that a segment needs to become an engine.
    minimum_segment_size: int = 3
    # Bytes of scratch GPU memory that an engine may use.
    max_workspace_size_bytes: int = MAX_WORKSPACE_BYTES
    # Engines kept for one segment in implicit batch mode.
    maximum_cached_engines: int = 1
    # Explicit batch with optimization profiles; None decides by `shapes`.
    use_dynamic_shape: bool | None = None
    # How profiles are made from shapes. None is "Optimal", one for each declared shape; for ranges (min=…,max=…) "Range" or
    # "Range+Optimal"; "Range" for INT8 without shapes.
    dynamic_shape_profile_strategy: Strategy | None = None
    # Whether a request whose shape has no engine may build one (it blocks all requests meanwhile).
    allow_build_at_runtime: bool = True
    # Keep the N largest segments; 0 for no limit.
    max_engines: int = 20
    # Op types that stay in TensorFlow.
    keep_native_ops: tuple[str, ...] = ()
    # Regular expression on node names of the frozen graph; full matches stay in TensorFlow.
    keep_native_nodes: str = ""
    # Regular expression; matching nodes go to FP32 engines, the rest follows precision_mode.
    fp32_nodes: str = ""
    # The maker of INT8 tables: "toolkit" (here, no GPU needed) or "tensorrt" (TensorRT's entropy calibration, on the GPU).
    calibrator: Calibrator = "toolkit"
    # For the toolkit's calibrator; "auto" takes the method that harms the outputs least in the simulation of INT8. TensorRT's calibrator
    # knows only entropy.
    calibration_method: CalibrationMethod = methods.AUTO
    # The percentile of |x|, for "percentile" and "auto", in (50, 100].
    calibration_percentile: float = methods.PERCENTILE
    # Calibration file to reuse; "" to calibrate.
    calibration_table: str = ""
    # Regular expression; INT8 leaves the inputs of matching nodes unquantized, so that they run in FP16 or FP32.
    high_precision_nodes: str = ""
    # Accept where TF-TRT departs from a quantization-aware model or from the precision.
    allow_quantization_changes: bool = False
    # Text of --freeze: inputs that get one value for good.
    freeze: str = ""
    # Text of --shapes; "" builds no engines.
    shapes: str = ""
    # Whether built engines are saved with the model.
    save_engines: bool = True
    # Accept a model in which no segment is worth an engine.
    allow_no_engines: bool = False

    @property
    def dynamic(self) -> bool:
        """Declared shapes ask for profiles. Without them implicit batch mode is safer: an engine that is built on the target's
        first request serves every smaller batch, where a profile taken from that one request serves nothing else."""
        return bool(self.shapes) if self.use_dynamic_shape is None else self.use_dynamic_shape

    @property
    def table_method(self) -> str:
        """The method's text in a calibration file; "auto" while it is not decided."""
        if self.calibrator == "tensorrt":
            return "entropy2"
        return next((one.text for one in self.candidates if one.name == self.calibration_method), methods.AUTO)

    @property
    def candidates(self) -> tuple[methods.Method, ...]:
        """The toolkit's methods, which "auto" compares."""
        return tuple(
            methods.Method(name, self.calibration_percentile if name == "percentile" else methods.PERCENTILE)
            for name in methods.METHODS
        )

    @property
    def strategy(self) -> Strategy | None:
        """The profile strategy in force, or None in implicit batch mode."""
        if not self.dynamic:
            return None
        if self.dynamic_shape_profile_strategy:
            return self.dynamic_shape_profile_strategy
        # While the shapes are not known, an INT8 table has the names of a network of unknown sizes. "Optimal" would build a network for
        # the first request's shapes, whose layers can have other numbers. A profile of a single shape is the same in both.
        return "Range" if self.precision_mode == "INT8" and not self.shapes else shape_grammar.strategy(self.shapes)


def checked(settings: Settings) -> Settings:
    """Return `settings`, or raise UsageError for a value that can never work."""
    settings = dataclasses.replace(
        settings, precision_mode=_precision(settings), dynamic_shape_profile_strategy=_strategy(settings)
    )
    for name, least in (
        ("minimum_segment_size", 1),
        ("max_workspace_size_bytes", 1),
        ("maximum_cached_engines", 1),
        ("max_engines", 0),
    ):
        if getattr(settings, name) < least:
            raise errors.UsageError(f"--{name}={getattr(settings, name)} is too small", f"use {least} or more")
    if settings.max_workspace_size_bytes > MAX_WORKSPACE_BYTES:
        raise errors.UsageError(
            f"--max_workspace_size_bytes is over {MAX_WORKSPACE_BYTES}", "leave the flag out for no limit"
        )
    if settings.dynamic_shape_profile_strategy and not settings.dynamic:
        raise errors.UsageError(
            "--dynamic_shape_profile_strategy needs dynamic shapes", "add --use_dynamic_shape or --shapes"
        )
    if settings.dynamic_shape_profile_strategy == "Optimal" and shape_grammar.is_range(settings.shapes):
        raise errors.UsageError(
            "--dynamic_shape_profile_strategy=Optimal serves single shapes, and --shapes gives a range",
            "leave the strategy out, or list the shapes",
        )
    if settings.fp32_nodes and settings.precision_mode == "FP32":
        raise errors.UsageError("--fp32_nodes has no effect with --precision_mode=FP32", "leave one of them out")
    for name in ("keep_native_nodes", "fp32_nodes", "high_precision_nodes"):
        _check_regex(name, getattr(settings, name))
    _check_calibration(settings)
    frozen_inputs.parse(settings.freeze)
    return settings


def _check_calibration(settings: Settings) -> None:
    if settings.calibrator not in CALIBRATORS:
        raise errors.UsageError(
            f"--calibrator={settings.calibrator} is unknown", "use one of " + ", ".join(CALIBRATORS)
        )
    if settings.calibration_method not in CALIBRATION_METHODS:
        raise errors.UsageError(
            f"--calibration_method={settings.calibration_method} is unknown",
            "use one of " + ", ".join(CALIBRATION_METHODS),
        )
    if settings.calibrator == "tensorrt" and settings.calibration_method not in (methods.AUTO, "entropy"):
        raise errors.UsageError(
            f"--calibration_method={settings.calibration_method} is the toolkit's: TensorRT calibrates by entropy only",
            "leave it out, or use --calibrator=toolkit",
        )
    if not 50 < settings.calibration_percentile <= 100:
        raise errors.UsageError(
            f"--calibration_percentile={settings.calibration_percentile:g} is not between 50 and 100", "e.g. 99.99"
        )
    default = Settings()
    if settings.calibration_percentile != default.calibration_percentile:
        if settings.calibrator == "tensorrt":
            raise errors.UsageError(
                "--calibration_percentile is the toolkit's: TensorRT calibrates by entropy only",
                "leave it out, or use --calibrator=toolkit",
            )
        if settings.calibration_method not in (methods.AUTO, "percentile"):
            raise errors.UsageError(
                f"--calibration_percentile has no effect with --calibration_method={settings.calibration_method}",
                "add --calibration_method=percentile, or leave it out",
            )
    if settings.precision_mode == "INT8":
        return
    for name in (*CALIBRATION, "high_precision_nodes"):
        if getattr(settings, name) != getattr(default, name):
            raise errors.UsageError(
                f"--{name} has no effect with --precision_mode={settings.precision_mode}",
                "use --precision_mode=INT8, or leave it out",
            )


def _precision(settings: Settings) -> Precision:
    for known in PRECISIONS:
        if known == settings.precision_mode.upper():
            return known
    raise errors.UsageError(
        f"--precision_mode={settings.precision_mode.upper()} is unknown", "use one of " + ", ".join(PRECISIONS)
    )


def _strategy(settings: Settings) -> Strategy | None:
    given = settings.dynamic_shape_profile_strategy
    if given is None:
        return None
    for known in STRATEGIES:
        if known.lower() == given.lower():
            return known
    raise errors.UsageError(
        f"--dynamic_shape_profile_strategy={given} is unknown", "use one of " + ", ".join(STRATEGIES)
    )


def _check_regex(name: str, pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise errors.UsageError(
            f"--{name}={pattern} is no regular expression: {error}", "see Python's `re` syntax"
        ) from None
