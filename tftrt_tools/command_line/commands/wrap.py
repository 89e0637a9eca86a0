"""usage: tftrt wrap MODEL --output=DIRECTORY [--flags]

Adds signatures to a model; its own stay as they are. `uint8` takes pixels as bytes, `encoded` takes JPEG, PNG, GIF and BMP files as
strings. Both scale and normalize as the flags say; the flags for pictures mean the same as in `tftrt data`. --forms=same takes the inputs
of the model, with --input_types in fewer bytes. --top_k, --argmax, --keep_outputs and --output_types make answers smaller.

The model is neither loaded nor run, and nothing in it changes: weights, tables, engines and warm-up requests stay. `tftrt verify MODEL
DIRECTORY --data=PHOTOS` shows that the new signatures answer like the old ones.

A picture that cannot be decoded fails its request, and the error names it. With --broken=mark only its row is marked. The EXIF
orientation is ignored; of an animation the first picture is used; 16 bits per channel become 8; CMYK becomes RGB.

examples:
  tftrt wrap resnet --output=resnet_pictures --image_preset=caffe --top_k=5 --classes=labels.txt
  tftrt wrap resnet --output=resnet_jpeg --forms=encoded --as_default --image_resize=crop --broken=mark
  tftrt wrap encoder --output=encoder_small --input_types=ids:uint16,mask:uint16 --output_types=float16
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from absl import flags

from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.command_line.commands import _calibration_flags, _flags, _next, _output, _source_flags
from tftrt_tools.tftrt.wrapping import added
from tftrt_tools.tftrt.wrapping.settings import Settings

if TYPE_CHECKING:
    from tftrt_tools.tftrt.wrapping.added import Wrapped


def define(values: flags.FlagValues) -> None:
    """Define the command's flags on FlagValues `values`."""
    default, text = Settings(), dict(flag_values=values)
    flags.DEFINE_string("output", None, "directory to write", **text)
    flags.DEFINE_boolean("overwrite", False, "replace a SavedModel that is at the output", **text)
    flags.DEFINE_string(
        "signature_keys", default.signature, "the signature to wrap, by default serving_default or the only one", **text
    )
    flags.DEFINE_list(
        "forms",
        [],
        "signatures to add: uint8, encoded, same; by default those that fit the model and the other flags",
        **text,
    )
    flags.DEFINE_list("names", [], "their names, by default those of the forms", **text)
    flags.DEFINE_boolean(
        "as_default",
        default.as_default,
        "make the added signature serving_default; the old one stays as `native`",
        **text,
    )
    flags.DEFINE_string(
        "picture_input", default.picture_input, "the input that takes pictures, if several are possible", **text
    )
    _calibration_flags.define_images(values)
    flags.DEFINE_boolean(
        "normalize_again", default.normalize_again, "scale and normalize though the model does so itself", **text
    )
    flags.DEFINE_enum(
        "broken",
        default.broken,
        added.BROKEN,
        "what happens to an encoded picture that cannot be decoded: its request "
        "fails, or its row is marked in the output `broken` and answered with NaN, -1 and empty strings",
        **text,
    )
    flags.DEFINE_integer(
        "image_max_pixels",
        default.max_pixels,
        "a larger encoded picture counts as broken, before it is decoded",
        lower_bound=1,
        **text,
    )
    flags.DEFINE_integer(
        "top_k", default.top_k, "answer the best classes and their scores alone: how many", lower_bound=0, **text
    )
    flags.DEFINE_boolean("argmax", default.argmax, "answer the best class alone", **text)
    flags.DEFINE_string(
        "classes",
        "",
        "a text file with a class's name in each line, in the model's order: answer the names too",
        **text,
    )
    flags.DEFINE_string(
        "scores_output", default.scores_output, "the output for --top_k and --argmax, if several are possible", **text
    )
    flags.DEFINE_list("keep_outputs", [], "other outputs to answer, by default all", **text)
    flags.DEFINE_list(
        "input_types",
        [],
        "inputs in fewer bytes, NAME:DTYPE each, or DTYPE for all that can be: float16, bfloat16, int16, uint16",
        **text,
    )
    flags.DEFINE_list("output_types", [], "outputs in fewer bytes, as --input_types", **text)
    _source_flags.define(values)
    flags.DEFINE_string("log_file", None, "keep what TensorFlow logs in this file", **text)


def run(values: flags.FlagValues, positional: list[str]) -> int:
    """Wrap. Returns: the exit code."""
    model = _flags.one_argument("wrap", positional, "MODEL")
    if not values.output:
        raise errors.UsageError("--output is missing", "name the directory to write")
    settings = _settings(values)
    from tftrt_tools.tftrt.wrapping import wrap

    with progress.on_terminal():
        done = wrap.wrap(
            _source_flags.read(values, model),
            values.output,
            settings,
            overwrite=values.overwrite,
            log_file=values.log_file,
        )
    _print(done, values.json)
    _output.write_json(done, values.json)
    _next.show_verify(values, model, values.output)
    return errors.EXIT_DONE


def _settings(values: flags.FlagValues) -> Settings:
    from tftrt_tools.models.inputs import options, text_lines

    if values["image_error_limit"].present:
        raise errors.UsageError(
            "--image_error_limit is about files that a command reads", "--broken says what a server does"
        )
    forms = []
    for form in filter(None, values.forms):
        if form not in added.FORMS:
            raise errors.UsageError(f"--forms: {form!r} is unknown", f"known: {', '.join(added.FORMS)}")
        forms.append(form)
    pictures = options.checked_images(options.DataOptions(**_calibration_flags.images(values)))
    try:
        classes = tuple(line.decode().strip() for line in text_lines.read(values.classes)) if values.classes else ()
    except UnicodeDecodeError:
        raise errors.UsageError(
            f"--classes={values.classes} is not UTF-8", "save it as UTF-8 text, a class's name in each line"
        ) from None
    if values.classes and not classes:
        raise errors.UsageError(f"--classes={values.classes} is empty", "give a class's name in each line")
    return Settings(
        signature=values.signature_keys,
        forms=tuple(forms),
        names=_listed(values.names),
        as_default=values.as_default,
        picture_input=values.picture_input,
        pictures=pictures,
        max_pixels=values.image_max_pixels,
        broken=values.broken,
        normalize_again=values.normalize_again,
        top_k=values.top_k,
        argmax=values.argmax,
        scores_output=values.scores_output,
        classes=classes,
        classes_file=values.classes,
        keep_outputs=_listed(values.keep_outputs),
        input_types=_listed(values.input_types),
        output_types=_listed(values.output_types),
    )


def _listed(words: list[str]) -> tuple[str, ...]:
    return tuple(word.strip() for word in words if word.strip())


def _print(done: Wrapped, json_path: str | None) -> None:
    console = _output.console(json_path)
    for one in done.signatures:
        taken, given = (
            ", ".join(f"{spec.name} {spec.text()}" for spec in specs) for specs in (one.takes(), one.gives())
        )
        console.print(f"{one.name}: {taken} -> {given}", soft_wrap=True)
    if done.default_was:
        console.print(f"what was serving_default is {done.default_was}", soft_wrap=True)
    for note in done.notes:
        console.print(f"  note: {note}", soft_wrap=True)
    console.print(f"written: {done.output}", soft_wrap=True)
