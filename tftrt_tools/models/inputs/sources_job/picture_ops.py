"""Pictures as ops of TensorFlow: decoded, brought to a size, normalized. They run while data is read, and inside of signatures that take
encoded pictures; so both mean the same."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tftrt_tools.models.inputs.options import DataOptions

# ITU-R BT.601 luma, as libjpeg and libpng turn colours to grey.
_LUMA = (0.299, 0.587, 0.114)


def decoded(data: tf.Tensor, channels: int) -> tf.Tensor:
    """uint8[height, width, channels] of an encoded picture (a string tensor of rank 0). BMP and GIF have no grey, so it is computed for
    them. Of an animation it is the first picture; the orientation in EXIF data is not applied. channels: 1 or 3."""

    def decode(as_channels: int) -> tf.Tensor:
        image = tf.io.decode_image(data, channels=as_channels, expand_animations=False)
        image.set_shape((None, None, as_channels))
        return image

    def grey() -> tf.Tensor:
        return tf.saturate_cast(
            tf.round(tf.reduce_sum(tf.cast(decode(3), tf.float32) * _LUMA, -1, keepdims=True)), tf.uint8
        )

    if channels == 3:
        return decode(3)
    start = tf.strings.substr(data, 0, 2)
    return tf.cond(tf.reduce_any(start == [b"BM", b"GI"]), grey, lambda: decode(1))


def resized(image: tf.Tensor, size: tuple[int, int], how: str) -> tf.Tensor:
    """float32[height, width, channels] of a picture, bilinear without antialiasing. Args: image: uint8[…]. size: (height, width). how: of
    options.IMAGE_RESIZE."""

    def bilinear(to: tf.Tensor | tuple[int, int]) -> tf.Tensor:
        return tf.cast(tf.image.resize(image, to), tf.float32)  # of bytes it makes floats, unless the size is the same

    if how == "stretch":
        return bilinear(size)
    shape = tf.cast(tf.shape(image)[:2], tf.float32)
    factors = tf.constant(size, tf.float32) / shape
    if how == "crop":
        covering = tf.maximum(tf.cast(tf.round(shape * tf.reduce_max(factors)), tf.int32), size)
        offset = (covering - size) // 2
        return tf.image.crop_to_bounding_box(bilinear(covering), offset[0], offset[1], *size)
    # At least one pixel: a line of 1 x 1000 would round to zero.
    fitting = tf.clip_by_value(tf.cast(tf.round(shape * tf.reduce_min(factors)), tf.int32), 1, size)
    offset = (size - fitting) // 2
    return tf.image.pad_to_bounding_box(bilinear(fitting), offset[0], offset[1], *size)


def normalized(images: tf.Tensor, options: DataOptions, dtype: str, first: bool = False) -> tf.Tensor:
    """Pictures as a model takes them: their channels in its order, scaled, without the mean, divided by std.

    Args: images: numbers from 0 to 255, the channels last, or before height and width (`first`), any rank. dtype: the model's, by its
    name; of uint8 they are rounded alone. Steps that change nothing are left out.
    """
    axis = -3 if first else -1
    images = tf.cast(images, tf.float32)
    channels = images.shape[axis]
    if options.image_channels == "BGR" and channels == 3:
        images = tf.gather(images, [2, 1, 0], axis=axis)
    if dtype == "uint8":
        return tf.saturate_cast(tf.round(images), tf.uint8)
    if options.image_scale != 1:
        images = images * np.float32(options.image_scale)
    for values, apply in ((options.image_mean, tf.subtract), (options.image_std, tf.divide)):
        if values:
            images = apply(images, np.asarray(values, np.float32).reshape((-1, 1, 1) if first else (-1,)))
    return tf.cast(images, dtype)
