"""What an added signature does before the wrapped one: its inputs as that takes them."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from tftrt_tools.models.inputs.sources_job import picture_ops
from tftrt_tools.tftrt.wrapping.added import Added
from tftrt_tools.tftrt.wrapping.job import encoded

# The name under which the marks of broken pictures go by the wrapped signature; no input has it.
MARK = "broken pictures"


def before(added: Added, inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """{input of the wrapped signature: tensor}, and MARK where broken pictures are marked.

    The cast of bytes to floats stays outside of engines; the ops behind it are such as TensorRT takes.
    """
    tensors = dict(inputs)
    pictures = added.pictures
    if pictures:
        images = inputs[pictures.input]
        if added.form == "encoded":
            images, broken = encoded.pixels(images, pictures)
            images = picture_ops.normalized(images, pictures.options, pictures.dtype)
            if pictures.first:
                images = tf.transpose(images, (0, 3, 1, 2))
            if added.marks:
                tensors[MARK] = broken
        else:
            images = picture_ops.normalized(images, pictures.options, pictures.dtype, pictures.first)
        tensors[pictures.input] = images
    for spec in added.inputs:
        if spec.name in added.types:
            tensors[spec.name] = tf.cast(inputs[spec.name], spec.dtype)
    return tensors
