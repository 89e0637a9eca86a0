"""What an added signature does behind the wrapped one: fewer and smaller answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tftrt_tools.tftrt.wrapping import added as names
from tftrt_tools.tftrt.wrapping.added import Added


def behind(added: Added, outputs: Mapping[str, tf.Tensor], broken: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
    """{output: tensor}. Args: outputs: of the wrapped signature. broken: bool[N], or None where broken pictures are not marked."""
    answers = added.answers
    kept = {name: outputs[name] for name in answers.kept}
    if answers.scores:
        scores = outputs[answers.scores]
        if answers.top_k:
            kept[names.SCORES], kept[names.CLASSES] = tf.math.top_k(scores, answers.top_k)
        else:
            kept[names.CLASSES] = tf.argmax(scores, -1, output_type=tf.int32)
        if answers.names:
            with tf.device("CPU:0"):
                kept[names.LABELS] = tf.gather(
                    tf.constant([name.encode() for name in answers.names]), kept[names.CLASSES]
                )
    for name, kind in answers.types.items():
        key = names.SCORES if name == answers.scores else name
        if key in kept:
            kept[key] = tf.cast(kept[key], kind)
    if broken is not None:
        kept = {name: _marked(tensor, broken) for name, tensor in kept.items()}
        kept[names.MARK] = broken
    return kept


def _marked(tensor: tf.Tensor, broken: tf.Tensor) -> tf.Tensor:
    """The answers, with NaN, -1, False or "" in the rows of broken pictures."""
    if tensor.dtype.is_floating:
        nothing: Any = float("nan")
    else:
        nothing = (
            ""
            if tensor.dtype == tf.string
            else False
            if tensor.dtype == tf.bool
            else tensor.dtype.max
            if (tensor.dtype.is_unsigned)
            else -1
        )
    # A row without a number for each picture (of a rank that is not known, or 0) cannot be told apart.
    mask = tf.reshape(broken, tf.concat([[-1], tf.ones([tf.rank(tensor) - 1], tf.int32)], 0))
    return tf.where(mask, tf.constant(nothing, tensor.dtype), tensor)
