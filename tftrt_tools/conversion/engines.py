"""Building engines on the GPU for declared shapes, in the converting process."""

import dataclasses
import pathlib
import time

import tensorflow as tf

from tftrt_tools import errors, progress, tf_private
from tftrt_tools.conversion.result import BuiltEngine
from tftrt_tools.execution import inputs as random_inputs
from tftrt_tools.savedmodel import engine_assets, graph, loading
from tftrt_tools.savedmodel import shapes as shape_grammar


def build(frozen, graph_def, result, settings, calls, folder):
    """Build the engines of one signature by running it at each declared shape.

    Args:
      frozen: graph_pass.Frozen of the signature; graph_def: its converted graph, with the final engine names.
      result: SignatureResult. calls: [{input: shape}]. folder: where the engine files go.

    Returns: (SignatureResult with what was built, {engine name: trackable resource}; {} where engines are not to be saved).

    Raises: TftrtError where an engine did not build.
    """
    # In implicit batch mode an engine of a larger batch serves a smaller one, which would then get no engine of its own.
    ordered = calls if settings.dynamic else sorted(calls, key=lambda call: [call[name] for name in sorted(call)])
    cached = max(settings.maximum_cached_engines, len(ordered))
    converter = tf_private.GraphPass(
        precision_mode=settings.precision_mode, minimum_segment_size=settings.minimum_segment_size, maximum_cached_engines=cached,
        max_workspace_size_bytes=settings.max_workspace_size_bytes, use_calibration=False, use_dynamic_shape=settings.dynamic,
        dynamic_shape_profile_strategy=settings.strategy)
    _set_cache_size(graph_def, cached)
    converter.adopt(graph_def, tf_private.rebuild(graph_def, frozen))

    def feed():
        for number, call in enumerate(ordered):
            progress.say(f"building engines of {result.name} for " + shape_grammar.call_text(call), number, len(ordered))
            arrays = random_inputs.random(result.inputs, call, seed=0)
            yield {name: tf.constant(value) for name, value in arrays.items()}
        progress.say(f"building engines of {result.name}")

    start = time.monotonic()
    try:
        converter.build(feed)
    except tf.errors.ResourceExhaustedError as error:
        raise errors.TftrtError(f"out of GPU memory while building engines of {result.name!r}: {loading.first_line(error)}",
                                "give fewer or smaller --shapes, or a --max_workspace_size_bytes") from None
    except tf.errors.OpError as error:
        raise errors.TftrtError(f"signature {result.name!r} fails at the declared shapes: {loading.first_line(error)}",
                                "check --shapes") from None
    seconds = time.monotonic() - start
    progress.say(f"saving engines of {result.name}")
    built, resources = _collect(result, cached, folder)
    result = dataclasses.replace(result, calls=tuple(calls), built=built, build_seconds=round(seconds, 2))
    return result, resources if settings.save_engines else {}


def _set_cache_size(graph_def, size):
    for node in graph.engine_nodes(graph_def):
        node.attr["max_cached_engines_count"].i = size


def _collect(result, cached, folder):
    built, resources = [], {}
    for engine in result.engines:
        path = pathlib.Path(folder) / (engine_assets.PREFIX + engine.name)
        assets = engine_assets.read_file(path) if tf_private.serialize_engines(engine.name, path) else []
        if not assets:
            raise errors.TftrtError(f"engine {engine.name} of signature {result.name!r} did not build; TensorRT's reason is in the log",
                                    "run again with --log_file=FILE and read it, or keep its ops native with --keep_native_ops")
        built += [BuiltEngine(asset.engine, asset.input_shapes, asset.bytes) for asset in assets]
        resources[engine.name] = tf_private.engine_resource(engine.name, path, cached)
    return tuple(built), resources
