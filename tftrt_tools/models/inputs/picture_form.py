"""Which inputs can take pictures, and which of their dimensions is which. No TensorFlow here."""

from __future__ import annotations

import dataclasses

from tftrt_tools.base import errors
from tftrt_tools.models.inputs import options as options_module
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.savedmodel.shapes import InputSpec

CHANNELS = (1, 3)


@dataclasses.dataclass(frozen=True)
class PictureForm:
    """The dimensions of an input of pictures. channels: 1 or 3; first: they come before height and width (NCHW); size: (height, width) in
    pixels, None each where the signature leaves it open."""

    channels: int
    first: bool
    size: tuple[int | None, int | None]


def of(spec: InputSpec) -> PictureForm | None:
    """The form of an input of rank 4 with one or three channels, None for other inputs. Its dtype is not looked at."""
    if spec.shape is None or len(spec.shape) != 4:
        return None
    for place, first, (height, width) in ((3, False, spec.shape[1:3]), (1, True, spec.shape[2:4])):
        channels = spec.shape[place]
        if channels in CHANNELS:
            return PictureForm(channels or 0, first, (height, width))
    return None


def takes_numbers(spec: InputSpec) -> bool:
    """Whether the dtype of an input is one of pictures: uint8 or floats."""
    return spec.dtype == "uint8" or spec.dtype.startswith(("float", "bfloat"))


def checked(spec: InputSpec, form: PictureForm, options: DataOptions, takes: str) -> tuple[int | None, int | None]:
    """(height, width) of pictures, by --image_size, else by the signature, None each where both leave it open; the other flags of pictures
    are checked as well. Args: takes: the signature's inputs, for messages. Raises: UsageError."""
    if spec.dtype == "uint8" and (options.image_scale != 1 or options.image_mean or options.image_std):
        raise errors.UsageError(
            f"input {spec.name!r} takes uint8, which --image_scale, --image_mean and --image_std would destroy",
            "leave them out: the model scales itself",
        )
    for flag, value in (("image_mean", options.image_mean), ("image_std", options.image_std)):
        if len(value) not in (0, 1, form.channels):
            raise errors.UsageError(
                f"--{flag} has {len(value)} values, and input {spec.name!r} {form.channels} channels",
                "give one, or one for each channel",
            )
    given = options_module.size(options)
    if given and not all(want in (None, got) for want, got in zip(form.size, given, strict=True)):
        raise errors.UsageError(f"--image_size={options.image_size} does not fit input {spec.name!r}", takes)
    return given or form.size
