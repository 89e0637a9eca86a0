"""usage: tftrt promote ADDRESS --model_name=NAME --version_label=LABEL --model_version=N --model_config_file=FILE [--flags]

Moves a version label of a running TensorFlow Serving, such as "stable", to another version, without a gap:

  1. the server loads the version beside the others; the command waits until it is loaded
  2. the label moves, and a request with that label shows which version answers
  3. with --unload_previous the version that had the label is unloaded

ADDRESS is HOST:PORT of the server's gRPC port (8500 if PORT is left out). A server cannot report its configuration, and it unloads every
model that a new configuration does not list. So the server's models.config (FILE) has to be the complete configuration: the command edits
it, sends all of it, and keeps the old one as FILE.previous for `tftrt rollback`. Other models, comments and fields in it stay. A version
policy of "latest" or "all" becomes a list of version numbers.

If the version does not load within --wait_seconds, if the server refuses, or on Ctrl-C, the file and the server get their old state back,
the old version goes on serving, and the exit code is 1.

examples:
  tftrt promote localhost:8500 --model_name=digits --version_label=canary --model_version=2 --model_config_file=config/models.config
  tftrt promote localhost:8500 --model_name=digits --version_label=stable --model_version=2 --model_config_file=config/models.config \\
      --unload_previous
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from absl import flags

from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.command_line.commands import _flags, _output, _places, _tls_flags, _topics

if TYPE_CHECKING:
    from tftrt_tools.servers.serving.management.promotion import Change


# Addresses may have a scheme.
URLS = (_places.ARGUMENTS,)
NAMES_WHAT_IS_MISSING = True


def define(values: flags.FlagValues) -> None:
    """Define the command's flags on FlagValues `values`."""
    flags.DEFINE_string("version_label", None, "label to move or to create", flag_values=values)
    flags.DEFINE_integer("model_version", None, "version to move it to", lower_bound=0, flag_values=values)
    flags.DEFINE_boolean(
        "unload_previous",
        False,
        "unload the version that the label left, where no other label is on it; by default it "
        "stays loaded, ready for a rollback",
        flag_values=values,
    )
    define_common(values)


def define_common(values: flags.FlagValues) -> None:
    """The flags that promote and rollback share."""
    text = dict(flag_values=values)
    flags.DEFINE_string("model_name", None, "the model", **text)
    flags.DEFINE_string("model_config_file", None, "the server's configuration file, on this machine", **text)
    flags.DEFINE_boolean(
        "load_new_models",
        False,
        "let the server load models that the file lists and that are new to it; "
        "refused by default, because they are a sign of another server's file",
        **text,
    )
    flags.DEFINE_float(
        "wait_seconds",
        600,
        "seconds that a version may take to load; a server tries a load that fails again five times, a "
        "minute apart, unless its --max_num_load_retries says otherwise",
        lower_bound=0.1,
        **text,
    )
    flags.DEFINE_float("timeout_seconds", 10, "seconds to wait for an answer of the server", lower_bound=0.1, **text)
    _tls_flags.define(values)


def run(values: flags.FlagValues, positional: list[str]) -> int:
    """Promote. Returns: the exit code."""
    address = _flags.one_argument("promote", positional, "ADDRESS")
    from tftrt_tools.servers.serving.management import promotion

    promotion.check_server(address)
    _flags.require("promote", values, _topics.needed("promote"))
    options = promotion.Options(
        wait_seconds=values.wait_seconds,
        deadline_seconds=values.timeout_seconds,
        unload_previous=values.unload_previous,
        load_new_models=values.load_new_models,
        tls=_tls_flags.read(values),
    )
    with progress.on_terminal():
        done = promotion.promote(
            address, values.model_config_file, values.model_name, values.version_label, values.model_version, options
        )
    print_change(done, values.json)
    _output.write_json(done, values.json)
    return errors.EXIT_DONE


def print_change(done: Change, json_path: str | None) -> None:
    """A management.Change as text."""
    console = _output.console(json_path)

    def say(text: str) -> None:
        console.print(text, soft_wrap=True)

    rows = [
        (label, done.before.labels.get(label, ""), done.after.labels.get(label, ""), done.answers.get(label, ""))
        for label in dict.fromkeys([*done.before.labels, *done.after.labels])
    ]
    if rows:
        console.print(
            _output.table(
                f"{done.after.name} at {done.address}", ["label", ">version before", ">version now", ">answers"], rows
            )
        )
    say(f"versions: {', '.join(map(str, done.after.served_text()))}")
    for note in done.notes:
        say(f"  {note}")
    say(
        f"written: {done.file} ({done.seconds:.1f} s)"
        if done.sent
        else "nothing to do: file and server have it already"
    )
