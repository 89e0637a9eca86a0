"""What the user wants of `tftrt wrap`. No TensorFlow here."""

from __future__ import annotations

import dataclasses

from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.tftrt.wrapping.added import Broken, Form

# A photo of today's largest cameras has more, and few models gain from it: as pixels it takes 150 MB.
MAX_PIXELS = 50_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """The values of the flags."""

    # The signature to wrap, "" for serving_default or the only one.
    signature: str = ""
    # What added signatures take; () for what fits the model.
    forms: tuple[Form, ...] = ()
    # Their names; () for those of the forms.
    names: tuple[str, ...] = ()
    # The only added signature becomes serving_default.
    as_default: bool = False
    # The input that takes pictures, "" for the only one that can.
    picture_input: str = ""
    # How pictures come to what the model takes.
    pictures: DataOptions = DataOptions()
    # A larger picture is not decoded.
    max_pixels: int = MAX_PIXELS
    # What happens to a broken picture.
    broken: Broken = "fail"
    # Normalize, though the model does so itself.
    normalize_again: bool = False
    # The best classes with their scores, 0 for none.
    top_k: int = 0
    # The best class alone.
    argmax: bool = False
    # The output with the scores, "" for the only one that can be.
    scores_output: str = ""
    # Names of the classes, a line each.
    classes: tuple[str, ...] = ()
    # The file that had them, or "".
    classes_file: str = ""
    # Outputs that are answered, () for all.
    keep_outputs: tuple[str, ...] = ()
    # NAME:DTYPE, or DTYPE for all that can be.
    input_types: tuple[str, ...] = ()
    output_types: tuple[str, ...] = ()
