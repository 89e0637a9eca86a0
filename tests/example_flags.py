"""The flags of an example on a page, read as the command reads them."""

import importlib
import re

from tests.zoo_signatures import SIGNATURES
from tftrt_tools.command_line.commands import _flags
from tftrt_tools.command_line.commands import convert as convert_command
from tftrt_tools.models.savedmodel import shapes
from tftrt_tools.tensorrt.plans import shaping


def module(command):
    return importlib.import_module(f"tftrt_tools.command_line.commands.{command}")


def parsed(command, argv):
    return _flags.parse(command, module(command), argv)


def check_flags(argv):
    """A tftrt command that cannot be run here: its flags, and its shapes against the sample model's signatures."""
    # A flag file that an earlier GPU step writes is not there to be read.
    values, _ = parsed(argv[1], [word for word in argv[2:] if not word.startswith("--flagfile=")])
    if argv[1] == "convert":
        chosen = convert_command.read_settings(values)
        if chosen.shapes and values.input_saved_model_dir in SIGNATURES:
            for group in shaping.groups(chosen.shapes) if values.backend == "tensorrt" else [chosen.shapes]:
                shapes.calls(shapes.parse(group), input_specs(values.input_saved_model_dir))


def check_flags_elsewhere(argv):
    """The same of a command that another machine runs: its folders are not here."""
    check_flags([re.sub(r"^(--(?:json|junit|html)=)/.*/", r"\1", word) for word in argv])


def input_specs(model):
    return {
        signature: [shapes.InputSpec(name, dtype, tuple(shape)) for name, (dtype, shape) in inputs.items()]
        for signature, (inputs, _) in SIGNATURES[model].items()
    }
