"""The flags for reading a model that is not a SavedModel; every command that takes such a model has them."""

import dataclasses
import pathlib
from typing import Any

from absl import flags

from tftrt_tools.models.savedmodel import files
from tftrt_tools.models.sources import kinds
from tftrt_tools.models.sources.source import Source


def define(values: flags.FlagValues) -> None:
    """Define them on FlagValues `values`."""
    text = dict(flag_values=values)
    flags.DEFINE_boolean(
        "allow_unsafe_deserialization",
        False,
        "load a Keras file or a PyTorch program that runs code of its own, or "
        "reads other files; only for files you trust",
        **text,
    )
    flags.DEFINE_string("custom_objects", "", "module:dict of the Keras file's own classes", **text)
    define_op_library(values)
    flags.DEFINE_list(
        "inputs",
        [],
        "of a frozen graph or a checkpoint: what is fed, NODE[:PORT][=SHAPE] such as image=?x224x224x3; by "
        "default the placeholders that the outputs need",
        **text,
    )
    flags.DEFINE_list(
        "outputs",
        [],
        "of a frozen graph or a checkpoint: what is fetched, NODE[:PORT]; by default what nothing reads",
        **text,
    )


def define_op_library(values: flags.FlagValues) -> None:
    """The flag of every command that loads models; `cli` reads it."""
    flags.DEFINE_multi_string(
        "op_library", [], "a library (.so) of custom ops that the model needs", flag_values=values
    )


def read(values: flags.FlagValues, path: str) -> Source:
    """The Source that the flags make of a path."""
    return Source(
        path=path,
        unsafe=values.allow_unsafe_deserialization,
        custom_objects=values.custom_objects,
        inputs=tuple(filter(None, values.inputs)),
        outputs=tuple(filter(None, values.outputs)),
    )


def read_each(values: flags.FlagValues, *paths: str) -> list[Source]:
    """The Source of each model of a command. The flags are about the files among them; a SavedModel beside a file has none of them, and
    no other file than a Keras file or a PyTorch program beside one has those of code in files."""
    plain = [files.is_saved_model(kinds.resolved(path)) for path in paths]
    found = [
        Source(path=path) if alone and not all(plain) else read(values, path)
        for path, alone in zip(paths, plain, strict=True)
    ]
    keras = [pathlib.Path(path).suffix.lower() in (*kinds.KERAS_SUFFIXES, ".pt2") for path in paths]
    return [
        dataclasses.replace(one, unsafe=False, custom_objects="") if any(keras) and not own else one
        for one, own in zip(found, keras, strict=True)
    ]


def read_given(values: flags.FlagValues, *names: str) -> dict[str, Any]:
    """{name: Source} of flags that name a model, as `read_each`; "" for a flag that the user left out."""
    given = [name for name in names if values[name].value]
    return dict.fromkeys(names, "") | dict(
        zip(given, read_each(values, *(values[name].value for name in given)), strict=True)
    )
