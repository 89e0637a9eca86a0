"""The last line of a command that has a natural next step: the next command to run, with its paths filled in, ready to be pasted.

Only `next:` runs as it is printed. A step that needs something that nobody has given yet begins with `next, ` and says what that is."""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
import re
import shlex
from typing import TYPE_CHECKING, Any

from tftrt_tools.base import errors, records
from tftrt_tools.base.stack import fingerprint
from tftrt_tools.command_line.commands import _calibration_flags, _calling, _flags, _output
from tftrt_tools.models.inputs import find
from tftrt_tools.models.kinds import table
from tftrt_tools.models.savedmodel import files, passport
from tftrt_tools.tftrt.conversion.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from absl import flags

_MODEL_FILES = (".keras", ".h5", ".pb", ".onnx")
# Flags that say how a model is read: the next command needs them too.
_SOURCE = ("allow_unsafe_deserialization", "custom_objects", "inputs", "op_library", "outputs")


def show(values: flags.FlagValues, *commands: Sequence[str]) -> None:
    """Print `next: tftrt COMMAND …`, for one or more commands. Print nothing with --json=-, because then a program reads what is printed,
    nor for a step of another command.

    Args: commands: the words of each, without `tftrt`.
    """
    _print(values, "next", *commands)


def _print(values: flags.FlagValues, begins: str, *commands: Sequence[str]) -> None:
    if values.json == "-" or _calling.is_step():
        return
    line = " && ".join(shlex.join(["tftrt", *words]) for words in commands)
    _output.console(values.json).print(f"{begins}: {line}", soft_wrap=True)


def show_on_gpu(values: flags.FlagValues, command: Sequence[str], manifest: Mapping[str, Any] | None = None) -> None:
    """Print `next, on a machine with a GPU: tftrt COMMAND …`, as `show` does. Args: manifest: of the model whose engines are to run; where
    another TensorRT than theirs is, the command is refused."""
    tensorrt = _of_saved_engines(manifest or {})
    needs = f" and TensorRT {tensorrt}" if tensorrt else ""
    _print(values, f"next, on a machine with a GPU{needs}", command)


def show_convert(values: flags.FlagValues, command: Sequence[str]) -> None:
    """Print a conversion as the next step. One with --shapes builds engines."""
    if any(word.startswith("--shapes=") for word in command) and not fingerprint.gpu_here():
        show_on_gpu(values, command)
    else:
        show(values, command)


def show_verify(values: flags.FlagValues, original: str, converted: str, *words: str) -> None:
    """Print the verification of a converted model as the next step. Args: words: flags with inputs, where the command had some."""
    from tftrt_tools.models.inputs import calls

    manifest = document(converted, passport.MANIFEST)
    command = verify(values, original, converted, *words)
    if has_engines(manifest) and not calls.built_for(manifest) and fingerprint.gpu_here():
        command.append("--allow_builds")  # they are built in the calls
    if not words and (manifest or {}).get("settings", {}).get("precision_mode") == "INT8":
        _print(values, "next, with --data of your own", command)  # random inputs show nothing of INT8
        return
    show_with_inputs(values, command, "" if words or calls.built_for(manifest) else open_input(converted))


def show_with_inputs(values: flags.FlagValues, command: Sequence[str], open_sizes: str, flag: str = "--shapes") -> None:
    """Print a next step that sends inputs. Args: open_sizes: the input whose sizes nobody has given, "" for none."""
    needs = f", with --data or {flag} for the open sizes of input {open_sizes!r}" if open_sizes else ""
    _print(values, f"next{needs}", command)


def show_with_data(values: flags.FlagValues, command: Sequence[str]) -> None:
    """Print a next step that needs --data, which the command may have without them."""
    _print(values, "next" if values.data else "next, with --data of your own", command)


def has_engines(manifest: Mapping[str, Any] | None) -> bool:
    """Whether a converted model has engine ops. Args: manifest: its manifest."""
    return any(one.get("engines") for one in (manifest or {}).get("signatures", ()))


def open_input(model: str) -> str:
    """The first input of a SavedModel that is open in more than its batch: no call of it can be drawn without sizes. "" for none."""
    from tftrt_tools.models.savedmodel import describe

    if not files.is_saved_model(model):
        return ""
    try:
        (seen,) = describe.describe(model)
    except errors.TftrtError:
        return ""
    specs = itertools.chain.from_iterable(seen.inputs.values())
    return next((one.name for one in specs if one.shape is None or None in one.shape[1:]), "")


def document(model: str, name: str) -> Mapping[str, Any] | None:
    """A document that the toolkit has kept with a model; None where there is none, or a damaged one."""
    try:
        return table.kind(model).document(model, name)
    except errors.TftrtError:
        return None


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


def scored(values: flags.FlagValues) -> list[str]:
    """The words that repeat the rows to score, their labels, and how they are read."""
    return given(values, ("data", "data_rows", "labels", "label_column", "classes", *of_pictures(values)))


def of_pictures(values: flags.FlagValues) -> list[str]:
    """Names of the flags that say how the pictures of --data are read; none where the data are something else."""
    pictures = bool(values.data) and find.find(values.data, "--data").kind == "images"
    return _calibration_flags.image_names() if pictures else []


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
    names = sorted({*_SOURCE, *(_conversion_flags() if settings else ())} - {"precision", *without})
    return [
        "convert",
        model,
        sibling(model, ending or precision.lower()),
        f"--precision={precision}",
        *given(values, names),
        *words,
    ]


def output_of(conversion: Sequence[str]) -> str:
    """The folder that the words of `convert` name."""
    return conversion[2]


def verify(values: flags.FlagValues, original: str, converted: str, *words: str) -> list[str]:
    """The verification of a converted model."""
    return ["verify", original, converted, *words, *given(values, _SOURCE)]


def publish(values: flags.FlagValues, model: str, *words: str) -> list[str]:
    """The next step of a verified model."""
    server = [] if table.kind(model).of_tensorflow else ["--server=triton"]
    named = [f"--model_name={model_name(model)}", "--base_path=models"]
    return ["publish", model, *server, *named, *words, *given(values, ("op_library",))]


def model_name(model: str) -> str:
    """The name of a published model: that of its folder. Servers and paths allow few characters in it."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", os.path.basename(os.path.abspath(model)))


def serve(values: flags.FlagValues, name: str, base_path: str, *words: str) -> list[str]:
    """The server of a published model. Ops of libraries are for the development server: others have theirs built in."""
    libraries = given(values, ("op_library",))
    launch = ["--launch=local"] if libraries else []
    return ["serve", f"--model_name={name}", f"--model_base_path={base_path}", *words, *launch, *libraries]


def smoke_triton(name: str) -> list[str]:
    """The smoke test of a model that was published for a Triton, which is started by other means."""
    return ["smoke", "triton://localhost:8001", f"--model_name={name}"]


def sibling(model: str, ending: str, suffix: str = "") -> str:
    """A path beside a model, for a model made from it: "resnet.h5" and "fp16" give "resnet_fp16"; where that is taken, "resnet_fp16_2".

    Args: suffix: of a file.
    """
    named = _beside(model, ending)
    numbered = (f"{named}_{number}{suffix}" for number in itertools.count(2))
    return next(path for path in itertools.chain([f"{named}{suffix}"], numbered) if not os.path.lexists(path))


def _beside(model: str, ending: str) -> str:
    path = pathlib.Path(model)
    if path.name in ("", os.pardir):  # "." has no name of its own
        path = pathlib.Path(os.path.relpath(path.resolve().parent), path.resolve().name or "model")
    if path.name.isdecimal() and path.parent.name:  # a version that a server may watch: beside its base path
        path = path.parent.with_name(f"{path.parent.name}_{path.name}")
    stem = path.stem if path.suffix in _MODEL_FILES else path.name
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
    return {*_calibration_flags.names(), *map(records.flag, dataclasses.fields(Settings))}
