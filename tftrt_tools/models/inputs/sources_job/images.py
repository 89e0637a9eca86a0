"""Picture files for the only input of rank 4; imports TensorFlow while reading."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.models.inputs import find, picture_form
from tftrt_tools.models.inputs import options as options_module
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.inputs.sources_job import files as whole_files
from tftrt_tools.models.inputs.sources_job import picture_ops
from tftrt_tools.models.inputs.sources_job import request as requests
from tftrt_tools.models.inputs.sources_job.batching import Tally
from tftrt_tools.models.inputs.sources_job.request import Request

_NAMED = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Target:
    """The form of a decoded picture."""

    # Name and dtype of the input.
    name: str
    dtype: str
    # In pixels.
    height: int
    width: int
    # 1 or 3.
    channels: int
    # The channels come before height and width (NCHW).
    first: bool


def source(request: Request) -> Callable[[Tally], Iterator[tuple[str, dict[str, npt.NDArray[Any]]]]]:
    """Decodes one file after the other, each a row: resized, scaled, normalized, in the input's dtype and layout.

    If only some files are wanted, they are spread over the sorted files: often each class has its folder, and the first pictures would
    all be of the first class. Of an animation the first picture is taken; the orientation in EXIF data is not applied; resizing is
    bilinear without antialiasing (tf.image.resize's default). A model whose only input takes strings gets the files' bytes as they are.
    """
    options = request.options
    if requests.only_text(request):
        flags = options_module.image_flags(options)
        if flags:
            raise errors.UsageError(
                f"{flags[0]} is about pictures that are decoded here, and {request.takes}: files as they are",
                "leave it out",
            )
        return whole_files.source(request)
    target = _target(request)
    files = spread(request.files, request.rows or len(request.files))
    return lambda tally: _chunks(files, target, options, tally.failed)


def spread(files: Sequence[str], count: int) -> list[str]:
    """`count` files at even distances, in their order; then the others, to replace files that do not decode."""
    chosen = find.spread(len(files), count)
    others = set(range(len(files))).difference(chosen)
    return [files[number] for number in (*chosen, *sorted(others))]


def _target(request: Request) -> _Target:
    takes = request.takes
    if len(request.specs) != 1 or request.specs[0].shape is None or len(request.specs[0].shape) != 4:
        raise errors.UsageError(
            "pictures need a signature with one input of rank 4, or of strings",
            f"{takes}: give the data as .npz or by module:function",
        )
    (spec,) = request.specs
    if not picture_form.takes_numbers(spec):
        raise errors.UsageError(
            f"pictures are uint8 or floats, and input {spec.name!r} takes {spec.dtype}", "give the data as .npz"
        )
    form = picture_form.of(spec)
    if form is None:
        raise errors.UsageError(
            f"which dimension of input {spec.name!r} {spec.text()} is the channels is not clear: neither the last nor "
            "the second is 1 or 3",
            "give the data as .npz or by module:function",
        )
    height, width = picture_form.checked(spec, form, request.options, takes)
    if height is None or width is None:
        raise errors.UsageError(
            f"input {spec.name!r} {spec.text()} leaves the size of pictures open", "give --image_size=HEIGHTxWIDTH"
        )
    return _Target(
        name=spec.name, dtype=spec.dtype, height=height, width=width, channels=form.channels, first=form.first
    )


def _chunks(
    files: Sequence[str], target: _Target, options: DataOptions, failed: list[str]
) -> Iterator[tuple[str, dict[str, npt.NDArray[Any]]]]:
    import tensorflow as tf

    with tf.device("CPU:0"):
        pictures = iter(
            tf.data.Dataset.from_tensor_slices(list(files)).map(
                lambda path: _picture(path, target, options), num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
            )
        )
    # After an error the iterator goes on with the next file.
    bad = (
        tf.errors.InvalidArgumentError,
        tf.errors.NotFoundError,
        tf.errors.PermissionDeniedError,
        tf.errors.UnimplementedError,
    )
    for number, path in enumerate(files, 1):
        try:
            row = next(pictures).numpy()
        except bad:
            failed.append(path)
            if len(failed) > options.image_error_limit:
                raise _too_many(failed, number, options.image_error_limit) from None
            continue
        yield path, {target.name: row[None]}


def _too_many(failed: list[str], number: int, limit: int) -> errors.UsageError:
    names = ", ".join(pathlib.Path(path).name for path in failed[:_NAMED]) + (", …" if len(failed) > _NAMED else "")
    count = (
        f"{len(failed)} of the first {number} pictures cannot be decoded"
        if number > 1
        else "the first picture cannot be decoded"
    )
    return errors.UsageError(
        f"{count}: {names}", f"repair or remove them, or accept more than {limit} by --image_error_limit"
    )


def _picture(path: str, target: _Target, options: DataOptions) -> npt.NDArray[Any]:
    """A picture in the input's layout and dtype, as a graph."""
    import tensorflow as tf

    image = picture_ops.decoded(tf.io.read_file(path), target.channels)
    image = picture_ops.resized(image, (target.height, target.width), options.image_resize)
    image.set_shape((target.height, target.width, target.channels))
    image = picture_ops.normalized(image, options, target.dtype)
    result: npt.NDArray[Any] = tf.transpose(image, (2, 0, 1)) if target.first else image
    return result
