"""What TF-TRT left in TensorFlow when it converted a graph (2.14.1; Python and C++)."""

from tftrt_tools.base.logs.message import known

REPORT = known(
    "ops_left",
    "conversion",
    "note",
    "TensorRT unsupported/non-converted OP Report:",
    "ops of {number} different types in the graph that are not converted",
    meaning="TF-TRT lists the ops that stay in TensorFlow.",
    mend="`tftrt inspect MODEL` says why each stays, and what helps",
)
KEPT = known(
    "segment_kept",
    "conversion",
    "warning",
    "Cannot replace {segment} reason: {reason} (keeping original segment).",
    "Cannot replace {segment}",
    "Failed to get engine info for segment {segment}",
    meaning="A segment did not become an engine, and TensorFlow computes it.",
    mend="fix what the reason names; `tftrt inspect MODEL`",
)
LIMITED = known(
    "engines_limited",
    "conversion",
    "warning",
    "TF-TRT will only convert the {number} largest segments",
    meaning="There are more segments than TF_TRT_MAX_ALLOWED_ENGINES (20): the smaller ones stay in TensorFlow.",
    mend="a larger --minimum_segment_size: many small engines cost more than they gain; or that variable",
)
LIMIT_UNUSED = known(
    "engine_limit_unused",
    "conversion",
    "note",
    "has no effect since there are only {number} TRT Engines with",
    "TF-TRT did not limit the number of TensorRT engines",
    meaning="The limit on engines is not reached.",
)
NOT_BUILT = known(
    "not_built_at_conversion",
    "conversion",
    "warning",
    "TRT will not be used since allow_build_at_runtime is disabled and no inputs are provided to build during conversion",
    "TRT Engines are not serialized for op: {engine}",
    meaning="The converted model has no engines and may not build any: everything runs in TensorFlow.",
    mend="convert with --shapes",
)
DEPRECATED = known(
    "strategy_deprecated",
    "conversion",
    "note",
    "ImplicitBatchModeCompatible strategy is deprecated",
    "The implicit batch dimension mode has been deprecated",
    "The getMaxBatchSize() function should not be used with an engine built",
    "Also, the batchSize argument passed into this function has no effect",
    meaning="TensorRT 8 still has what is used here; TensorRT 10 does not.",
    mend="--use_dynamic_shape, where a later TensorRT is planned",
)
FREEZING = known(
    "graph_frozen",
    "conversion",
    "note",
    "Disabling graph freezing is only possible in dynamic shape mode",
    meaning="The graph is frozen.",
)
VISUAL = known(
    "picture_not_written",
    "conversion",
    "note",
    "An Exception occured during the export of the graph visualization",
    meaning="A picture of the graph was not written.",
)

ALL = (REPORT, KEPT, LIMITED, LIMIT_UNUSED, NOT_BUILT, DEPRECATED, FREEZING, VISUAL)
