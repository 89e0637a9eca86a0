"""The last line of a command that has a natural next step: the next command to run, with its paths filled in, ready to be pasted."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import shlex
from typing import TYPE_CHECKING, Any

from tftrt_tools.command_line.commands import _calibration_flags, _calling, _flags, _output
from tftrt_tools.models.kinds import table
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.tftrt.conversion.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from absl import flags

_OUTPUT = "--output_saved_model_dir="
# Flags that say how a model is read: the next command needs them too.
_SOURCE = ("allow_unsafe_deserialization", "custom_objects", "inputs", "op_library", "outputs")


def show(values: flags.FlagValues, *commands: Sequence[str]) -> None:
    """Print `next: tftrt COMMAND …`, for one or more commands. Print nothing with --json=-, because then a program reads what is printed,
    nor for a step of another command.

    Args: commands: the words of each, without `tftrt`.
    """
    if values.json == "-" or _calling.is_step():
        return
    line = " && ".join(shlex.join(["tftrt", *words]) for words in commands)
    _output.console(values.json).print(f"next: {line}", soft_wrap=True)


def show_on_gpu(values: flags.FlagValues, command: Sequence[str], manifest: Mapping[str, Any] | None = None) -> None:
    """Print `next, on a machine with a GPU: tftrt COMMAND …`, as `show` does. Args: manifest: of the model whose engines are to run; where
    another TensorRT than theirs is, the command is refused."""
    if not values.json:
        line = shlex.join(["tftrt", *command])
        tensorrt = _of_saved_engines(manifest or {})
        needs = f" and TensorRT {tensorrt}" if tensorrt else ""
        _output.console(values.json).print(f"next, on a machine with a GPU{needs}: {line}", soft_wrap=True)


def _of_saved_engines(manifest: Mapping[str, Any]) -> str:
    """The TensorRT that built the engines that a model carries, "" where it carries none, or nobody knows."""
    saved = (manifest.get("settings") or {}).get("save_engines", True)
    if not saved or not manifest.get("gpu") or not any(one.get("built") for one in manifest.get("signatures", ())):
        return ""
    return str((manifest.get("versions") or {}).get("tensorrt") or "")


def given(values: flags.FlagValues, names: Iterable[str]) -> list[str]:
    """The words that repeat these flags, if they differ from their defaults."""
    return [
        word
        for name in names
        if name in values and values[name].value != values[name].default
        for word in _flags.words(values[name])
    ]


def measured(values: flags.FlagValues, names: Iterable[str]) -> list[str]:
    """The words that repeat how a model is read and measured. Args: names: of the flags of the measurement."""
    return given(values, (*names, *_SOURCE))


def convert(
    values: flags.FlagValues,
    model: str,
    precision: str,
    *words: str,
    settings: bool = True,
    without: Iterable[str] = (),
    ending: str = "",
) -> list[str]:
    """A conversion of `model` to a folder beside it.

    Args: settings: repeat the given flags that decide a conversion. without: flags to leave out. ending: of the folder's name, by default
      the precision.
    """
    names = sorted({*_SOURCE, *(_conversion_flags() if settings else ())} - {"precision_mode", *without})
    return [
        "convert",
        f"--input_saved_model_dir={model}",
        f"{_OUTPUT}{sibling(model, ending or precision.lower())}",
        f"--precision_mode={precision}",
        *given(values, names),
        *words,
    ]


def output_of(conversion: Sequence[str]) -> str:
    """The folder that the words of `convert` name."""
    return next(word for word in conversion if word.startswith(_OUTPUT)).removeprefix(_OUTPUT)


def verify(values: flags.FlagValues, original: str, converted: str, *words: str) -> list[str]:
    """The verification of a converted model."""
    return ["verify", original, converted, *words, *given(values, _SOURCE)]


def publish(values: flags.FlagValues, model: str) -> list[str]:
    """The next step of a verified model. Its folder's name becomes the model's name; servers and paths allow few characters in it."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", os.path.basename(os.path.abspath(model)))
    server = [] if table.kind(model).of_tensorflow else ["--server=triton"]
    return ["publish", model, *server, f"--model_name={name}", "--base_path=models", *given(values, ("op_library",))]


def sibling(model: str, ending: str) -> str:
    """A folder beside a model, for a model made from it: "resnet.h5" and "fp16" give "resnet_fp16"."""
    path = pathlib.Path(model)
    if path.name in ("", os.pardir):  # "." has no name of its own
        path = pathlib.Path(os.path.relpath(path.resolve().parent), path.resolve().name or "model")
    if path.name.isdecimal() and path.parent.name:  # a version that a server may watch: beside its base path
        path = path.parent.with_name(f"{path.parent.name}_{path.name}")
    stem = path.stem if path.suffix in (".keras", ".h5", ".pb", ".onnx") else path.name
    return str(path.with_name(f"{stem}_{ending}"))


def original(converted: str) -> str:
    """The model that a converted one was made from, as a relative path if it lies below this folder; "" if it is not known or gone."""
    source = (passport.read(converted, passport.MANIFEST) or {}).get("source", "")
    if not source or not os.path.exists(source):
        return ""
    shorter = os.path.relpath(source)
    result: str = source if shorter.startswith(os.pardir) else shorter
    return result


def _conversion_flags() -> set[str]:
    """Names of the flags that decide the result of a conversion."""
    return {*_calibration_flags.names(), *(field.name for field in dataclasses.fields(Settings))}
