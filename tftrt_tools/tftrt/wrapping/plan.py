"""Which signatures are added, decided from the model's own and the flags, before anything is written. No TensorFlow here."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from tftrt_tools.base import errors, records
from tftrt_tools.models.inputs import options as options_module
from tftrt_tools.models.inputs import picture_form
from tftrt_tools.models.savedmodel import signatures
from tftrt_tools.models.savedmodel.describe import Description
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.tftrt.wrapping import added, narrowing
from tftrt_tools.tftrt.wrapping.added import Added, Answers, Form, Pictures
from tftrt_tools.tftrt.wrapping.settings import Settings

# The name of what was serving_default, if an added signature takes that name.
NATIVE = "native"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts(records.Record):
    """What the graph says of the wrapped signature's inputs."""

    # {input: what the model does to it first, in words}: scaling and the like, with constants.
    normalized: Mapping[str, Sequence[str]]
    # {input: rows of the table that it selects from}, of inputs of integers.
    rows: Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is written. added: the signatures; default_was: the new name of serving_default, "" where it stays; notes: lines."""

    added: tuple[Added, ...]
    default_was: str
    notes: tuple[str, ...]


def wrapped(described: Description, settings: Settings) -> str:
    """The signature that is wrapped. Raises: UsageError."""
    names = list(described.inputs)
    if settings.signature:
        return signatures.chosen(names, [settings.signature])[0]
    signatures.chosen(names, ())
    if signatures.DEFAULT not in names and len(names) > 1:
        raise errors.UsageError(
            "the model has several signatures and no serving_default",
            f"name one in --signature_keys: {', '.join(names)}",
        )
    return signatures.DEFAULT if signatures.DEFAULT in names else names[0]


def plan(described: Description, settings: Settings, facts: Facts) -> Plan:
    """The signatures to add. Raises: UsageError, with the flag that would mend it."""
    of = wrapped(described, settings)
    inputs, outputs = described.inputs[of], described.outputs[of]
    pictures = _picture_input(of, inputs, settings)
    forms = _forms(pictures, settings)
    names = _names(forms, described, settings)
    answers = _answers(of, outputs, settings)
    input_types = narrowing.types("input_types", settings.input_types, inputs, facts.rows)
    notes: list[str] = []
    planned = []
    for name, form in zip(names, forms, strict=True):
        taken = _pictures(pictures, form, inputs, settings) if pictures and form != "same" else None
        types = {key: kind for key, kind in input_types.items() if not taken or key != taken.input}
        if form == "same" and not types and answers == Answers(kept=tuple(spec.name for spec in outputs)):
            raise errors.UsageError(
                _nothing_to_add(name, of, pictures),
                "say what gets smaller: --input_types, --output_types, --top_k, --argmax or --keep_outputs",
            )
        planned.append(
            Added(
                name=name,
                form=form,
                of=of,
                inputs=inputs,
                outputs=outputs,
                pictures=taken,
                types=types,
                answers=answers,
            )
        )
        _check_outputs(planned[-1])
    if any(signature.pictures for signature in planned) and pictures:
        notes += _normalized(pictures, settings, facts)
    default_was = NATIVE if settings.as_default and signatures.DEFAULT in described.inputs else ""
    return Plan(
        tuple(
            planned
            if not default_was
            else (
                dataclasses.replace(signature, of=NATIVE if signature.of == signatures.DEFAULT else signature.of)
                for signature in planned
            )
        ),
        default_was,
        tuple(notes),
    )


def _nothing_to_add(name: str, of: str, pictures: InputSpec | None) -> str:
    if pictures:
        return f"signature {name!r} would be {of!r} again"
    return f"no input of {of!r} takes pictures (uint8 or floats of rank 4, with 1 or 3 channels), and no other change is asked for"


def _picture_input(of: str, inputs: Sequence[InputSpec], settings: Settings) -> InputSpec | None:
    """The input of pictures; None if there is none, and none is asked for. Raises: UsageError."""
    takes = f"{of!r} takes " + ", ".join(f"{spec.name} {spec.text()}" for spec in inputs)
    able = [spec for spec in inputs if picture_form.of(spec) and picture_form.takes_numbers(spec)]
    if settings.picture_input:
        able = [spec for spec in able if spec.name == settings.picture_input]
        if not able:
            raise errors.UsageError(f"--picture_input={settings.picture_input} is no input that takes pictures", takes)
    forms = {"uint8", "encoded"}.intersection(settings.forms)
    flags = options_module.image_flags(settings.pictures)
    if not able and (forms or flags):
        what = f"--forms={','.join(sorted(forms))}" if forms else flags[0]
        raise errors.UsageError(
            f"{what} needs an input that takes pictures: uint8 or floats of rank 4, with 1 or 3 channels", takes
        )
    if len(able) > 1 and (forms or not settings.forms):
        raise errors.UsageError(
            f"{len(able)} inputs take pictures: {', '.join(spec.name for spec in able)}",
            "name one of them in --picture_input",
        )
    return able[0] if len(able) == 1 else None


def _forms(pictures: InputSpec | None, settings: Settings) -> tuple[Form, ...]:
    if len(set(settings.forms)) != len(settings.forms):
        raise errors.UsageError(f"--forms={','.join(settings.forms)} names a form twice", "give each form once")
    if settings.forms:
        forms = settings.forms
    elif pictures is None or settings.input_types:
        forms = ("same",)
    elif settings.as_default or pictures.dtype == "uint8":
        forms = ("encoded",)
    else:
        forms = ("uint8", "encoded")
    if "uint8" in forms and pictures and pictures.dtype == "uint8":
        raise errors.UsageError(f"input {pictures.name!r} takes uint8 already", "give --forms=encoded")
    if "same" in forms and options_module.image_flags(settings.pictures):
        raise errors.UsageError(
            f"{options_module.image_flags(settings.pictures)[0]} has no effect on --forms=same", "leave it out"
        )
    if settings.as_default and len(forms) > 1:
        raise errors.UsageError(
            f"--as_default is for one signature, and --forms={','.join(forms)} adds {len(forms)}", "give one form"
        )
    return forms


def _names(forms: Sequence[Form], described: Description, settings: Settings) -> tuple[str, ...]:
    if settings.as_default:
        if settings.names:
            raise errors.UsageError("--names and --as_default exclude each other", "give one of them")
        if NATIVE in described.inputs and signatures.DEFAULT in described.inputs:
            raise errors.UsageError(
                f"--as_default keeps serving_default as {NATIVE!r}, and the model has a signature of that name",
                "leave --as_default out, and name the new signature in --names",
            )
        return (signatures.DEFAULT,)
    names = settings.names or tuple(forms)
    if len(names) != len(forms):
        raise errors.UsageError(
            f"--names has {len(names)} names for {len(forms)} signatures ({', '.join(forms)})", "give one for each"
        )
    for name in names:
        if name in described.inputs or names.count(name) > 1:
            raise errors.UsageError(
                f"signature {name!r} is there already",
                "choose other names with --names; signatures here: " + ", ".join(described.inputs),
            )
        if not name.replace("_", "").replace("-", "").replace(".", "").isalnum() or not name.isascii():
            raise errors.UsageError(f"--names: {name!r} is no name of a signature", "use letters, digits, and _ - .")
        if name.startswith("__saved_model_"):
            raise errors.UsageError(f"--names: {name!r} is a name of TensorFlow's own", "choose another")
    return names


def _pictures(spec: InputSpec, form: Form, inputs: Sequence[InputSpec], settings: Settings) -> Pictures:
    form_of_input = picture_form.of(spec)
    assert form_of_input is not None, "chosen because it has one"
    height, width = picture_form.checked(spec, form_of_input, settings.pictures, f"it takes {spec.text()}")
    size = (height, width) if height is not None and width is not None else None
    if (
        form == "encoded"
        and size is None
        and ((height, width) != (None, None) or settings.pictures.image_resize != "stretch")
    ):
        raise errors.UsageError(
            f"input {spec.name!r} {spec.text()} leaves the size of pictures open", "give --image_size=HEIGHTxWIDTH"
        )
    if form == "encoded" and size is None and settings.broken == "mark":
        raise errors.UsageError(
            "--broken=mark needs one size of pictures, which the model leaves open", "give --image_size=HEIGHTxWIDTH"
        )
    return Pictures(
        input=spec.name,
        dtype=spec.dtype,
        shape=spec.shape,
        size=size,
        channels=form_of_input.channels,
        first=form_of_input.first,
        options=settings.pictures,
        max_pixels=settings.max_pixels,
        broken=settings.broken,
    )


def _normalized(spec: InputSpec, settings: Settings, facts: Facts) -> list[str]:
    """Notes on what the model does to its pictures. Raises: UsageError if the flags would do it twice."""
    steps, options = facts.normalized.get(spec.name, ()), settings.pictures
    given = [
        flag for flag in options_module.image_flags(options) if flag in ("--image_scale", "--image_mean", "--image_std")
    ]
    if steps and given and not settings.normalize_again:
        raise errors.UsageError(
            f"the model normalizes {spec.name!r} itself ({', '.join(steps)}), and {given[0]} would do it twice",
            f"leave {', '.join(given)} out, or insist with --normalize_again",
        )
    if steps and not given:
        return [f"the model normalizes {spec.name!r} itself ({', '.join(steps)}): nothing is added"]
    if not steps and not given and spec.dtype != "uint8":
        return [
            f"pixels go into the model as 0 to 255: it shows no normalization of {spec.name!r}, and neither --image_preset nor "
            "--image_scale, --image_mean and --image_std are given"
        ]
    return []


def _answers(of: str, outputs: Sequence[InputSpec], settings: Settings) -> Answers:
    spec_of = {spec.name: spec for spec in outputs}
    gives = f"{of!r} gives " + ", ".join(f"{spec.name} {spec.text()}" for spec in outputs)
    for name in settings.keep_outputs:
        if name not in spec_of:
            raise errors.UsageError(f"--keep_outputs: no output {name!r}", gives)
    scores = _scores(outputs, gives, settings)
    kept = tuple(name for name in spec_of if name != scores and name in (settings.keep_outputs or spec_of))
    types = narrowing.types(
        "output_types", settings.output_types, [spec for spec in outputs if spec.name in (*kept, scores)]
    )
    return Answers(kept=kept, scores=scores, top_k=settings.top_k, names=settings.classes, types=types)


def _scores(outputs: Sequence[InputSpec], gives: str, settings: Settings) -> str:
    """The output that becomes classes, "" if none does. Raises: UsageError."""
    flag_given = "--top_k" if settings.top_k else "--argmax" if settings.argmax else ""
    if settings.top_k and settings.argmax:
        raise errors.UsageError("--top_k and --argmax exclude each other", "give one of them")
    if not flag_given:
        for flag, given in (("--classes", settings.classes), ("--scores_output", settings.scores_output)):
            if given:
                raise errors.UsageError(
                    f"{flag} has no effect without --top_k or --argmax", "leave it out, or give one of them"
                )
        return ""
    able = [
        spec
        for spec in outputs
        if spec.dtype.startswith(("float", "bfloat")) and (spec.shape is None or len(spec.shape) >= 2)
    ]
    if settings.scores_output:
        able = [spec for spec in able if spec.name == settings.scores_output]
    if len(able) != 1:
        which = (
            f"--scores_output={settings.scores_output} is no output"
            if settings.scores_output
            else f"{len(able)} outputs are"
        )
        raise errors.UsageError(
            f"{flag_given} needs an output with a float for each class, and {which} so",
            gives if not able else f"name one in --scores_output; {gives}",
        )
    (spec,) = able
    count = spec.shape[-1] if spec.shape else None
    if count is not None and settings.top_k > count:
        raise errors.UsageError(
            f"--top_k={settings.top_k}, and output {spec.name!r} has {count} classes", f"give {count} at most"
        )
    if count is not None and settings.classes and len(settings.classes) != count:
        raise errors.UsageError(
            f"--classes={settings.classes_file} has {len(settings.classes)} lines, and output {spec.name!r} {count} "
            "classes",
            "give a name for each class, in the model's order, one a line",
        )
    return spec.name


def _check_outputs(one: Added) -> None:
    """Refuse outputs of one name."""
    names = [spec.name for spec in one.gives()]
    for name in (added.SCORES, added.CLASSES, added.LABELS, added.MARK):
        if names.count(name) > 1:
            others = ",".join(kept for kept in one.answers.kept if kept != name)
            raise errors.UsageError(
                f"the model has an output {name!r} already, which would be added",
                "leave it out with --keep_outputs" + (f"={others}" if others else ""),
            )
