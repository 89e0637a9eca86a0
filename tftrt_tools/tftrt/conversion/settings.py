"""The settings of a conversion, in one dataclass. Defaults are TF-TRT's own unless a comment says why not."""

import dataclasses
import functools
import typing

from tftrt_tools.base import errors, records, stack
from tftrt_tools.base.choices import CALIBRATORS, STRATEGIES, Calibrator, Precision, Strategy
from tftrt_tools.base.process import progress
from tftrt_tools.base.stack import releases
from tftrt_tools.models.backends import recipe
from tftrt_tools.models.savedmodel import fixed_sizes, frozen_inputs
from tftrt_tools.models.savedmodel import shapes as shape_grammar
from tftrt_tools.tftrt.calibration import methods

# The setting that keeps nodes in the next higher precision: for INT8 in the same engines, for FP16 in FP32 engines.
KEEPS_HIGH: dict[Precision, str] = {"INT8": "high_precision_nodes", "FP16": "fp32_nodes"}
# TensorRT 8.4 and later: as much as it wants. TF-TRT subtracts 512 to avoid an overflow in a cast.
MAX_WORKSPACE_BYTES = 2**63 - 1 - 512

# The settings for INT8's ranges; they have no effect in another precision.
CALIBRATION = (*recipe.RANGES, "calibrator")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(recipe.Recipe):
    """Settings of one conversion: the recipe, and TF-TRT's options."""

    # In the order of the files of before.
    written_first: typing.ClassVar[tuple[str, ...]] = (
        "precision_mode",
        "signature_keys",
        "tags",
        "minimum_segment_size",
        "max_workspace_size_bytes",
        "maximum_cached_engines",
        "use_dynamic_shape",
        "dynamic_shape_profile_strategy",
        "allow_build_at_runtime",
        "max_engines",
        "keep_native_ops",
        "keep_native_nodes",
        "fp32_nodes",
        "calibrator",
    )

    max_workspace_size_bytes: int = records.field(
        default=MAX_WORKSPACE_BYTES, help="scratch GPU memory of an engine; by default no limit"
    )
    # () for the only one, or "serve".
    tags: tuple[str, ...] = records.field(default=(), help="tags of the MetaGraph, by default the only one or 'serve'")
    # Identity is not counted, constants are.
    minimum_segment_size: int = records.field(default=3, help="nodes that a segment needs to become an engine")
    maximum_cached_engines: int = records.field(
        default=1, help="engines kept for one segment in implicit batch mode; raised to the number of --shapes"
    )
    # Explicit batch with optimization profiles; None decides by `shapes`.
    use_dynamic_shape: bool | None = records.field(
        default=None, help="explicit batch mode with optimization profiles; by default only with --shapes"
    )
    # Of inputs; "" leaves all as they are.
    fix_sizes: str = records.field(
        default="",
        help="fix the sizes of inputs, with any batch, so that more of a model with open sizes goes into engines: "
        "'image:512x512x3'; several separated by ';'. A request of another size is then an error",
    )
    # How profiles are made from shapes. None is "Optimal", one for each declared shape; for ranges (min=…,max=…) "Range" or
    # "Range+Optimal"; "Range" for INT8 without shapes.
    dynamic_shape_profile_strategy: Strategy | None = records.field(
        default=None,
        help="Range, Optimal, Range+Optimal or ImplicitBatchModeCompatible; by default Optimal: one profile for each declared shape",
    )
    allow_build_at_runtime: bool = records.field(
        default=True,
        help="let a request whose shape has no engine build one, which blocks all requests meanwhile; --noallow_build_at_runtime runs "
        "it in TensorFlow",
    )
    max_engines: int = records.field(default=20, help="keep the largest segments only; 0 for no limit")
    keep_native_ops: tuple[str, ...] = records.field(
        default=(), help="op types that stay in TensorFlow, e.g. Cumsum,Softmax"
    )
    # Of the nodes of the frozen graph.
    keep_native_nodes: str = records.field(
        default="", help="regular expression: nodes whose whole name matches stay in TensorFlow"
    )
    # The maker of INT8 tables: "toolkit" (here, no GPU needed) or "tensorrt" (TensorRT's entropy calibration, on the GPU; it knows only
    # entropy).
    calibrator: Calibrator = records.field(
        default="toolkit", help="toolkit (needs no GPU) or tensorrt (TensorRT's own, on the GPU)"
    )
    high_precision_nodes: str = records.field(
        default="",
        help="INT8: regular expression; nodes whose whole name matches get unquantized inputs, and so run in FP16 or FP32 inside the same "
        "engine",
    )
    allow_quantization_changes: bool = records.field(
        default=False,
        help="accept that TF-TRT quantizes otherwise than the quantization-aware model or --precision says",
    )
    save_engines: bool = records.field(default=True, help="save the engines that --shapes built with the model")
    leave_refused_nodes: bool = records.field(
        default=True,
        help="leave a node that TensorRT refuses by name while --shapes builds engines to TensorFlow, and build the rest; "
        "--noleave_refused_nodes leaves its whole engine op without an engine",
    )
    # Whether a model is taken in which no segment is worth an engine.
    allow_no_engines: bool = records.field(default=False, help="accept a model that gets no engine")

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
    """Return `settings` in a batch mode that the TensorRT here has, or raise UsageError for a value that can never work."""
    able, tensorrt = in_a_batch_mode(settings), stack.tensorrt_major()
    if able is not settings:
        _say_once(
            f"TensorRT {tensorrt} has no implicit batch mode: engines get dynamic shapes (--use_dynamic_shape); --shapes names those that "
            "will be served"
        )
    able = valid(able)
    if able.precision_mode == "INT8" and not releases.has_implicit_batch(tensorrt):
        _say_once(
            f"INT8 with TensorRT {tensorrt} was not run with this project: the ranges of a calibration reach it through calibrators, "
            f"which it deprecates since {releases.CALIBRATORS_DEPRECATED}; `tftrt verify` says what the engines answer"
        )
    return able


@functools.cache
def _say_once(text: str) -> None:
    """A note, once in a process: a search checks its settings many times."""
    progress.note(text)


def in_a_batch_mode(settings: Settings) -> Settings:
    """`settings`, with dynamic shapes where the TensorRT here has no implicit batch mode. Raises: UsageError where they ask for that."""
    if settings.dynamic or stack.has_implicit_batch():
        return settings
    if settings.use_dynamic_shape is False:
        raise errors.UsageError(
            f"--nouse_dynamic_shape asks for an implicit batch, which TensorRT {stack.tensorrt_major()} does not have",
            "leave it out: engines then get dynamic shapes",
        )
    return dataclasses.replace(settings, use_dynamic_shape=True)


def valid(settings: Settings) -> Settings:
    """Return `settings`, or raise UsageError for a value that can work nowhere."""
    _check_calibrator(settings)
    settings = recipe.checked(settings)
    settings = dataclasses.replace(settings, dynamic_shape_profile_strategy=_strategy(settings))
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
        raise errors.UsageError("--fp32_nodes has no effect with --precision=FP32", "leave one of them out")
    for name in ("keep_native_nodes", "high_precision_nodes"):
        recipe.check_expression(name, getattr(settings, name))
    if settings.precision_mode != "INT8":
        recipe.check_unused(
            settings,
            ("calibrator", "high_precision_nodes"),
            f"--precision={settings.precision_mode}",
            "use --precision=INT8, or leave it out",
        )
    frozen_inputs.parse(settings.freeze)
    if settings.fix_sizes:
        fixed_sizes.parse(settings.fix_sizes)
    return settings


def _check_calibrator(settings: Settings) -> None:
    if settings.calibrator not in CALIBRATORS:
        raise errors.UsageError(
            f"--calibrator={settings.calibrator} is unknown", "use one of " + ", ".join(CALIBRATORS)
        )
    if settings.calibrator != "tensorrt":
        return
    if settings.calibration_method not in (recipe.AUTO, "entropy"):
        raise errors.UsageError(
            f"--calibration_method={settings.calibration_method} is the toolkit's: TensorRT calibrates by entropy only",
            "leave it out, or use --calibrator=toolkit",
        )
    if settings.calibration_percentile != recipe.PERCENTILE:
        raise errors.UsageError(
            "--calibration_percentile is the toolkit's: TensorRT calibrates by entropy only",
            "leave it out, or use --calibrator=toolkit",
        )


def _strategy(settings: Settings) -> Strategy | None:
    given = settings.dynamic_shape_profile_strategy
    if given is None:
        return None
    for strategy in STRATEGIES:
        if strategy.lower() == given.lower():
            return strategy
    raise errors.UsageError(
        f"--dynamic_shape_profile_strategy={given} is unknown", "use one of " + ", ".join(STRATEGIES)
    )
