"""An added signature as data: what it takes, what it does around the wrapped signature, what it answers. No TensorFlow here.

The record lies in assets.extra and not in the passport, because a conversion of the wrapped model keeps the signatures, and with them this.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import typing
from typing import Literal

from tftrt_tools.base import records
from tftrt_tools.base.files import documents, whole_file
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.savedmodel import files, passport
from tftrt_tools.models.savedmodel.engine_op import Shape
from tftrt_tools.models.savedmodel.shapes import InputSpec

FILE = "tftrt_wrapped.json"
# What an added signature takes in place of the model's pictures: bytes of pixels, encoded files, or what the model takes.
Form = Literal["uint8", "encoded", "same"]
FORMS: tuple[Form, ...] = typing.get_args(Form)
# What happens to a picture that cannot be decoded: the request fails, or its row is marked.
Broken = Literal["fail", "mark"]
BROKEN: tuple[Broken, ...] = typing.get_args(Broken)
# Names of added outputs.
SCORES, CLASSES, LABELS, MARK = "scores", "classes", "labels", "broken"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pictures(records.Record):
    """The input of pictures, and how they come to what the model takes."""

    # Name, dtype and shape of the model's input.
    input: str
    dtype: str
    shape: Shape
    # In pixels; None where the model and the user leave it open: then pictures of one request have one size.
    size: tuple[int, int] | None
    # 1 or 3.
    channels: int
    # The channels come before height and width (NCHW).
    first: bool
    # The flags of pictures.
    options: DataOptions
    # A larger picture is not decoded.
    max_pixels: int
    # What happens to a broken picture.
    broken: Broken


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answers(records.Record):
    """The outputs."""

    # Outputs of the model that are answered, in order.
    kept: tuple[str, ...]
    # The output that becomes classes, "" for none.
    scores: str = ""
    # The number of best classes; 0 for the best one alone, without its score.
    top_k: int = 0
    # The names of the classes; () without.
    names: tuple[str, ...] = ()
    # {output: dtype} of those that are cast.
    types: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Added(records.Record):
    """One added signature."""

    # The signature's name.
    name: str
    # The inputs that it takes.
    form: Form
    # The signature that it wraps.
    of: str
    # The inputs of that signature.
    inputs: tuple[InputSpec, ...]
    # The outputs of that signature.
    outputs: tuple[InputSpec, ...]
    # The input of pictures; None for the form "same".
    pictures: Pictures | None
    # {input: dtype} of inputs that are sent in another dtype.
    types: dict[str, str]
    # The answers that it gives.
    answers: Answers

    def takes(self) -> tuple[InputSpec, ...]:
        """Its inputs."""
        return tuple(map(self._taken, self.inputs))

    def _taken(self, spec: InputSpec) -> InputSpec:
        if self.pictures and spec.name == self.pictures.input:
            if self.form == "encoded":
                return InputSpec(spec.name, "string", (None,))
            return InputSpec(spec.name, "uint8", spec.shape)
        return InputSpec(spec.name, self.types.get(spec.name, spec.dtype), spec.shape)

    def gives(self) -> tuple[InputSpec, ...]:
        """Its outputs."""
        names = []
        spec_of = {spec.name: spec for spec in self.outputs}
        answers = self.answers
        for name in answers.kept:
            names.append(InputSpec(name, answers.types.get(name, spec_of[name].dtype), spec_of[name].shape))
        if answers.scores:
            spec = spec_of[answers.scores]
            shape = None if spec.shape is None else (*spec.shape[:-1], *((answers.top_k,) if answers.top_k else ()))
            if answers.top_k:
                names.append(InputSpec(SCORES, answers.types.get(answers.scores, spec.dtype), shape))
            names.append(InputSpec(CLASSES, "int32", shape))
            if answers.names:
                names.append(InputSpec(LABELS, "string", shape))
        if self.marks:
            names.append(InputSpec(MARK, "bool", (None,)))
        return tuple(names)

    @property
    def marks(self) -> bool:
        """Whether broken pictures are marked."""
        return self.form == "encoded" and self.pictures is not None and self.pictures.broken == "mark"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wrapped(passport.Stamped):
    """A wrapped model."""

    # Absolute paths of the model as given, and of the result.
    source: str
    output: str
    # Of the model as given, "sha256:…".
    source_digest: str
    # The added signatures.
    signatures: tuple[Added, ...]
    # The name of what was serving_default before; "" where it still is.
    default_was: str = ""
    # What to know, a line each.
    notes: tuple[str, ...] = ()

    document: typing.ClassVar[str] = "wrapped"


def write(model: str | os.PathLike[str], document: Wrapped) -> None:
    """Put the record into SavedModel `model`."""
    path = pathlib.Path(model) / files.EXTRAS / FILE
    path.parent.mkdir(exist_ok=True)
    whole_file.write_text(
        path, json.dumps({"schema_version": passport.SCHEMA_VERSION, **document.to_dict()}, indent=2) + "\n"
    )


def read(model: str | os.PathLike[str]) -> Wrapped | None:
    """The record of a SavedModel, None for one that is not wrapped. Raises: TftrtError where it is damaged."""
    path = pathlib.Path(model) / files.EXTRAS / FILE
    if not path.is_file():
        return None
    with documents.reading(path, "wrap the model again"):
        return Wrapped.from_dict(documents.read(path))


def pictures(model: str | os.PathLike[str]) -> dict[str, str]:
    """{signature: its input of encoded pictures} of the model at a path; {} for one that is not wrapped. Raises: TftrtError."""
    record = read(model)
    return {
        signature.name: signature.pictures.input
        for signature in (record.signatures if record else ())
        if signature.pictures and signature.form == "encoded"
    }
