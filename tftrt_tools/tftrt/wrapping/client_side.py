"""What a client would do without the added signatures, by NumPy and Pillow: an independent way to what they compute. No TensorFlow here."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.tftrt.wrapping import added as names
from tftrt_tools.tftrt.wrapping.added import Added, Pictures

_GREY = "L"
# Files of these forms give the same pixels in every decoder.
_LOSSLESS = ("PNG", "GIF", "BMP")


@dataclasses.dataclass(frozen=True, eq=False)
class Decoded:
    """A decoded picture. pixels: uint8[height, width, channels]; exact: whether every decoder gives these."""

    pixels: npt.NDArray[np.uint8]
    exact: bool


def decoded(data: bytes, channels: int) -> Decoded:
    """Decode a file with Pillow; the orientation in EXIF data is not applied, of an animation it is the first picture. Args: channels: 1 or
    3. Raises: OSError, ValueError or another exception of Pillow for what is no picture."""
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        image.load()
        mode = _GREY if channels == 1 else "RGB"
        own = image.mode if image.mode != "P" else "RGB"
        exact = image.format in _LOSSLESS and (
            own in (mode, mode + "A", "RGBA" if mode == "RGB" else "LA") or own == _GREY
        )
        if image.mode.startswith("I"):  # 16 bits a channel; Pillow would cut off at 255
            pixels: Any = (np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8)
            exact = image.format in _LOSSLESS
            pixels = np.repeat(pixels[..., None], channels, axis=2)
        else:
            pixels = np.asarray(image.convert(mode)).reshape(image.height, image.width, channels)
    return Decoded(pixels, exact)


def as_png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """The same pixels in a file without loss. Args: pixels: uint8[height, width, 1 or 3]."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(file, "PNG")
    return file.getvalue()


def resized(pixels: npt.NDArray[np.uint8], size: tuple[int, int] | None, how: str) -> npt.NDArray[np.float32]:
    """float32[height, width, channels] of a picture. Args: size: (height, width), None to leave it. how: of options.IMAGE_RESIZE."""
    if size is None or how == "stretch":
        return _bilinear(pixels, size or pixels.shape[:2])
    shape, target = np.asarray(pixels.shape[:2], np.float32), np.asarray(size, np.float32)
    factors = target / shape
    if how == "crop":
        covering = np.maximum(np.round(shape * factors.max()).astype(int), size)
        top, left = (covering - size) // 2
        return _bilinear(pixels, covering)[top : top + size[0], left : left + size[1]]
    fitting = np.clip(np.round(shape * factors.min()).astype(int), 1, size)
    top, left = (np.asarray(size) - fitting) // 2
    padded = np.zeros((*size, pixels.shape[2]), np.float32)
    padded[top : top + fitting[0], left : left + fitting[1]] = _bilinear(pixels, fitting)
    return padded


def _bilinear(pixels: npt.NDArray[np.uint8], size: Sequence[int] | npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """Each new pixel from the four around its centre, in float32: first along the width."""
    image = pixels.astype(np.float32)
    if tuple(size) == image.shape[:2]:
        return image
    (above, below, down), (left, right, along) = (
        _places(old, new) for old, new in zip(image.shape[:2], size, strict=True)
    )
    along, down = along[None, :, None], down[:, None, None]
    upper, lower = (
        image[rows][:, left] + (image[rows][:, right] - image[rows][:, left]) * along for rows in (above, below)
    )
    pixels_out: npt.NDArray[np.float32] = upper + (lower - upper) * down
    return pixels_out


def _places(old: int, new: int) -> tuple[Any, Any, Any]:
    """(pixel before, pixel after, how far between them) for each of `new` pixels out of `old`."""
    centres = (np.arange(new, dtype=np.float32) + np.float32(0.5)) * (np.float32(old) / np.float32(new)) - np.float32(
        0.5
    )
    before = np.floor(centres)
    return np.clip(before, 0, old - 1).astype(int), np.clip(np.ceil(centres), 0, old - 1).astype(int), centres - before


def normalized(images: npt.NDArray[Any], pictures: Pictures) -> npt.NDArray[Any]:
    """Pictures normalized as the model takes them. Args: images: [N, height, width, channels], 0 to 255."""
    options = pictures.options
    if options.image_channels == "BGR" and pictures.channels == 3:
        images = images[..., ::-1]
    if pictures.dtype == "uint8":
        values = np.clip(np.round(images), 0, 255)
    else:
        values = images.astype(np.float32) * np.float32(options.image_scale)
        values = (values - np.asarray(options.image_mean or (0,), np.float32)) / np.asarray(
            options.image_std or (1,), np.float32
        )
    return laid_out(values.astype(pictures.dtype), pictures)


def laid_out(images: npt.NDArray[Any], pictures: Pictures) -> npt.NDArray[Any]:
    """The channels where the model has them. Args: images: [N, height, width, channels]."""
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2) if pictures.first else images)


def rounded(images: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Pixels as bytes."""
    return np.clip(np.round(images), 0, 255).astype(np.uint8)


def smaller(added: Added, outputs: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """The answers of the added signature, made from those of the wrapped one; without names of classes."""
    answers = added.answers
    kept = {name: outputs[name] for name in answers.kept}
    if answers.scores:
        scores = outputs[answers.scores]
        order = np.argsort(-scores.astype(np.float64), axis=-1, kind="stable")[..., : max(answers.top_k, 1)]
        if answers.top_k:
            kept[names.SCORES] = np.take_along_axis(scores, order, -1)
        kept[names.CLASSES] = (order if answers.top_k else order[..., 0]).astype(np.int32)
    for name, kind in answers.types.items():
        key = names.SCORES if name == answers.scores else name
        if key in kept:
            kept[key] = kept[key].astype(kind)
    return kept
