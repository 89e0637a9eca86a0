"""absl flags for one command at a time, each with a FlagValues of its own, so that `--help` lists that command's flags only."""

import math
import textwrap

from absl import flags

from tftrt_tools import errors, whole_file

# What --signature_keys was called in some commands.
_OLD_SIGNATURE_KEYS = ("signature_name", "signature_key")
# Commands that calibrate and commands that ask a model call their inputs otherwise.
_MEANT = {"data": "calibration_data", "calibration_data": "data"}


def parse(name, command, argv):
    """Parse `argv` with the flags of module `command`. The files that its OUTPUTS (names of flags) and --json name must be such that can be
    made: that is told before the work.

    Returns: (FlagValues, positional arguments), or (None, None) after printing the help.

    Raises: UsageError for unknown flags, values that a flag refuses, and places where no file can be made.
    """
    values = flags.FlagValues()
    values.set_gnu_getopt(True)
    flags.DEFINE_boolean("help", False, "print this help", short_name="h", flag_values=values)
    flags.DEFINE_string("json", None, "write the result as JSON to this file; - for stdout", flag_values=values)
    command.define(values)
    for old in _OLD_SIGNATURE_KEYS if "signature_keys" in values else ():
        values[old] = values["signature_keys"]  # --help and files of flags pass over a name that is not the flag's own
    try:
        positional = values([name, *getattr(command, "older_flags", list)(argv)])[1:]
    except flags.UnrecognizedFlagError as error:
        meant = _MEANT.get(error.flagname)
        hint = f"--{meant} names inputs here; " if meant in values else ""
        raise errors.UsageError(" ".join(str(error).split()), f"{hint}`tftrt {name} --help` lists the flags") from None
    except flags.Error as error:
        raise errors.UsageError(" ".join(str(error).split()), f"`tftrt {name} --help` lists the flags") from None
    for flag in values:
        if isinstance(values[flag].value, float) and math.isnan(values[flag].value):
            raise errors.UsageError(f"--{flag}=nan is no number", f"`tftrt {name} --help` says what it takes")
    if values.help:
        print(help_text(name, command, values))
        return None, None
    outputs = (values[flag].value for flag in ("json", *getattr(command, "OUTPUTS", ())))
    whole_file.check_places(path for path in outputs if path and path != "-")
    return values, positional


def help_text(name, command, values):
    """The command's docstring, then each flag with its default."""
    lines = [command.__doc__.strip(), "", "flags:"]
    for flag_name in sorted(values):
        flag = values[flag_name]
        if flag_name != flag.name:
            continue
        form = f"--[no]{flag_name}" if flag.boolean else f"--{flag_name}"
        default = "" if flag.default in (None, False, []) else f" [{flag.default_as_str}]"
        lines.append(f"  {form}")
        lines += textwrap.wrap(" ".join(flag.help.split()) + default, 96, initial_indent="      ", subsequent_indent="      ")
    return "\n".join(lines)


def one_argument(command, positional, what):
    """The single positional argument, or a UsageError."""
    return arguments(command, positional, [what])[0]


def arguments(command, positional, names):
    """The positional arguments, one for each of `names`, or a UsageError."""
    if len(positional) != len(names):
        got = f"{len(positional)} given" + (": " + " ".join(positional) if positional else "")
        raise errors.UsageError(f"usage: tftrt {command} {' '.join(names)} [--flags]; {got}", f"`tftrt {command} --help` explains them")
    return positional
