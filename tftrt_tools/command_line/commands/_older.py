"""Names that flags had before. They go on working, on a command line and in a file of flags: helps leave them out, and a note names the new
ones."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import _help

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from absl import flags

# {name: its name before} of the commands that have the flag.
_OF_ALL = {
    "accuracy": ("goal",),
    "backend": ("backends",),
    "batch_size": ("batch_sizes",),
    "calibration_method": ("calibration_methods",),
    "candidate_address": ("candidate_server",),
    "native_address": ("native_server",),
    "output": ("output_saved_model_dir",),
    "precision": ("precision_mode", "precisions"),
    "ranges": ("calibration_ranges",),
    "seed": ("calibration_seed",),
    "server_image": ("image",),
    "signature_keys": ("signature_name", "signature_key"),
    "timeout_seconds": ("timeout", "deadline_seconds"),
}
# {command: {name: its name before}}, where it was another one in other commands.
_OF_ONE: Mapping[str, Mapping[str, str]] = {
    "bench": {"launch": "backend"},
    "build": {"layer_precisions": "layers", "wait_seconds": "place_seconds"},
    "calibrate": {"compare_methods": "compare", "output": "output_table"},
    "configure": {"check_files": "check", "output": "output_dir"},
    "convert": {"layer_precisions": "layers", "model": "input_saved_model_dir"},
    "data": {"data_rows": "rows"},
    "diagnose": {"address": "server", "work_dir": "trials_dir"},
    "history": {"history_name": "name"},
    "profile": {"top": "rows"},
    "promote": {"model_version": "version", "version_label": "label"},
    "publish": {"model_version": "version", "server_image": "target"},
    "regress": {"address": "server", "launch": "backend"},
    "serve": {"launch": "backend"},
    "smoke": {"requests": "repeats", "server_log": "log_file"},
    "versions": {"version_labels": "labels"},
}
# Old names of what was a flag beside the new one: a file of flags of before may have both, with two values.
_TWO = {"export": ("calibration_ranges", "calibration_seed")}
_MAY_BE = "Did you mean: "


def names(command: str, defined: flags.FlagValues) -> dict[str, str]:
    """{name before: name} of the flags of a command."""
    known = {old: new for new in _help.own(defined) for old in _OF_ALL.get(new, ())}
    known |= {old: new for new, old in _OF_ONE.get(command, {}).items()}
    return {old: new for old, new in known.items() if old not in defined or defined[old] is defined[new]}


def note(command: str, values: flags.FlagValues, argv: Sequence[str]) -> str:
    """Which names of `argv`, a command line without files of flags, are old; "" where none is."""
    known = names(command, values)
    said = {}
    for name in _named(argv):
        old = name if name in known else name.removeprefix("no")
        if old in known and (old == name or values[old].boolean):
            said[old] = known[old]
    return "; ".join(f"--{old} is --{new} now" for old, new in said.items())


def check(command: str, values: flags.FlagValues, argv: Sequence[str]) -> None:
    """Refuse both names in `argv` where they were two flags, of which one would be lost. Raises: UsageError."""
    there = set(_named(argv))
    for old in _TWO.get(command, ()):
        new = values[old].name
        if {old, new} <= there:
            raise errors.UsageError(
                f"--{old} and --{new} are one flag now, and both are given", f"give --{new} alone: both take the same"
            )


def _named(argv: Sequence[str]) -> list[str]:
    """The names of the flags of a command line."""
    words = itertools.takewhile(lambda word: word != "--", argv)
    return [word.lstrip("-").partition("=")[0] for word in words if word.startswith("-")]


def renamed(said: str, values: flags.FlagValues) -> str:
    """absl's message of a flag that is not known, with new names in place of old ones among those that it may be."""
    cause, asks, near = said.partition(_MAY_BE)
    found = [values[one].name if one in values else one for one in near.removesuffix(" ?").split(", ")]
    return f"{cause}{asks}{', '.join(dict.fromkeys(found))} ?" if asks else said
