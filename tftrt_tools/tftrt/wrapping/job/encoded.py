"""Encoded pictures to pixels, as ops of a signature: in parallel over the request, on the CPU, and a picture that cannot be decoded fails
by itself alone.

A graph has no `try`. But a dataset leaves out elements that fail, and runs as one op: the pictures of the request are mapped, in parallel,
together with their numbers; the numbers of what is left say which were broken.
"""

from __future__ import annotations

import tensorflow as tf

from tftrt_tools.models.inputs.sources_job import picture_ops
from tftrt_tools.tftrt.wrapping.added import Pictures

# What is known of a picture: it is whole, or why not. A picture that is left out is _DAMAGED.
_WHOLE, _EMPTY, _NO_PICTURE, _TOO_LARGE, _DAMAGED = range(5)
_REASONS = ("", "it is empty", "it is no JPEG, PNG, GIF or BMP", "it has more pixels than {}", "it is damaged")
_MAGIC = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF8", b"BM")


def pixels(files: tf.Tensor, pictures: Pictures) -> tuple[tf.Tensor, tf.Tensor]:
    """(float32[N, height, width, channels] from 0 to 255, zeros for a broken picture; bool[N]: which are broken).

    Args: files: string[N]. Where `pictures` says that a broken picture fails the request, none is broken afterwards.
    """
    count = tf.shape(files)[0]
    with tf.device("CPU:0"):
        numbers, states, decoded = _mapped(files, count, pictures)
        state = tf.tensor_scatter_nd_update(tf.fill([count], _DAMAGED), numbers[:, None], states)
        broken = state != _WHOLE
        if pictures.broken == "fail":
            with tf.control_dependencies([_asserted(state, count, pictures)]):
                images = tf.identity(decoded)
        else:
            images = tf.scatter_nd(numbers[:, None], decoded, tf.concat([[count], tf.shape(decoded)[1:]], 0))
    height, width = pictures.size or (None, None)
    return tf.ensure_shape(images, (None, height, width, pictures.channels)), broken


def _mapped(files: tf.Tensor, count: tf.Tensor, pictures: Pictures) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """(int32[M] numbers of pictures that did not fail, int32[M] what is known of them, float32[M, height, width, channels])."""
    together = tf.cast(tf.maximum(count, 1), tf.int64)
    rows = tf.data.Dataset.from_tensor_slices((tf.range(count), files))
    rows = rows.map(
        lambda number, data: (number, *_picture(data, pictures)), num_parallel_calls=together, deterministic=True
    )
    rows = rows.ignore_errors()
    height, width = pictures.size or (0, 0)
    if pictures.size is None:
        rows = _of_one_size(rows)
    nothing = tf.data.Dataset.from_tensors(
        (tf.zeros([0], tf.int32), tf.zeros([0], tf.int32), tf.zeros([0, height, width, pictures.channels]))
    )
    rows = rows.batch(together).concatenate(nothing).take(1)
    options = tf.data.Options()
    # As many threads from the first picture on; a search for their best number would outlast the request.
    options.autotune.enabled = False
    numbers, states, decoded = rows.with_options(options).get_single_element()
    return numbers, states, decoded


def _of_one_size(rows: tf.data.Dataset) -> tf.data.Dataset:
    """Pictures that keep their size have to be of one: those of another size than the first count as damaged."""

    def step(first: tf.Tensor, row: tuple[tf.Tensor, tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
        here = tf.shape(row[2])
        first = tf.where(tf.reduce_all(first < 0), here, first)
        return first, (tf.reduce_all(first == here), *row)

    same = rows.scan(tf.constant([-1, -1, -1]), step)
    return same.filter(lambda is_same, *row: is_same).map(lambda is_same, *row: row)


def _picture(data: tf.Tensor, pictures: Pictures) -> tuple[tf.Tensor, tf.Tensor]:
    """(what is known of a picture, float32[height, width, channels]). Fails for a damaged one."""

    def decoded() -> tf.Tensor:
        image = picture_ops.decoded(data, pictures.channels)
        if pictures.size is None:
            return tf.cast(image, tf.float32)
        return picture_ops.resized(image, pictures.size, pictures.options.image_resize)

    height, width = pictures.size or (1, 1)
    kinds = tf.stack([tf.strings.substr(data, 0, len(magic)) == magic for magic in _MAGIC])

    def area() -> tf.Tensor:
        return tf.switch_case(
            tf.argmax(tf.cast(kinds, tf.int32), output_type=tf.int32),
            [
                lambda: _jpeg_area(data),
                lambda: _area(data, 16, 4, big=True),
                lambda: _area(data, 6, 2),
                lambda: _area(data, 18, 4),
            ],
        )

    recognized = tf.reduce_any(kinds)
    large = tf.cond(recognized, area, lambda: tf.constant(0, tf.int64)) > pictures.max_pixels
    state = tf.where(
        tf.strings.length(data) == 0, _EMPTY, tf.where(recognized, tf.where(large, _TOO_LARGE, _WHOLE), _NO_PICTURE)
    )
    image = tf.cond(state == _WHOLE, decoded, lambda: tf.zeros([height, width, pictures.channels]))
    image.set_shape((*(pictures.size or (None, None)), pictures.channels))
    return state, image


def _jpeg_area(data: tf.Tensor) -> tf.Tensor:
    """Height times width, int64. Fails where the head is damaged."""
    shape = tf.cast(tf.io.extract_jpeg_shape(data), tf.int64)
    return shape[0] * shape[1]


def _area(data: tf.Tensor, offset: int, size: int, big: bool = False) -> tf.Tensor:
    """The product of two whole numbers of `size` bytes in the head of a file, int64. Fails where the head is short."""
    values = tf.reshape(
        tf.cast(tf.io.decode_raw(tf.strings.substr(data, offset, 2 * size), tf.uint8), tf.int64), [2, size]
    )
    places = [256 ** (size - 1 - place if big else place) for place in range(size)]
    sides = tf.reduce_sum(values * tf.constant(places, tf.int64), 1)
    if size == 4 and not big:  # BMP: the height may be negative, and then the lines go from top to bottom
        sides = tf.where(sides >= 2**31, 2**32 - sides, sides)
    return sides[0] * sides[1]


def _asserted(state: tf.Tensor, count: tf.Tensor, pictures: Pictures) -> tf.Operation:
    """The op that fails if a picture is broken; the message has its place and the reason."""
    states = tf.concat([state, [_WHOLE]], 0)  # an empty request has no first picture
    broken = states != _WHOLE
    first = tf.argmax(tf.cast(broken, tf.int32), output_type=tf.int32)
    reasons = [reason.format(pictures.max_pixels) for reason in _REASONS]
    if pictures.size is None:
        reasons[_DAMAGED] += ", or of another size than the first"
    text = tf.strings.join(
        [
            f"{pictures.input}: picture ",
            tf.strings.as_string(first),
            " of ",
            tf.strings.as_string(count),
            " (counted from 0) cannot be decoded: ",
            tf.gather(tf.constant(reasons), states[first]),
        ]
    )
    return tf.debugging.Assert(tf.logical_not(tf.reduce_any(broken)), [text])
