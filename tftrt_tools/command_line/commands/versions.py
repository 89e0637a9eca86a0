"""usage: tftrt versions ADDRESS [--model_name=NAME,…] [--model_config_file=FILE] [--flags]

Shows the versions of a running TensorFlow Serving with their states, labels and errors. ADDRESS is HOST:PORT of its gRPC port (8500 if
PORT is left out). A server lists neither its models nor its labels. So the command asks for the models of --model_name or of FILE, and
for the labels of FILE, of --version_labels, "stable" and "canary". It names differences between FILE and the server. triton://HOST:PORT
is a Triton, which lists its models and has no labels.

A version in state END was unloaded, or, if it has an error, failed to load. END versions stay listed as long as the server runs.

examples:
  tftrt versions localhost:8500 --model_name=digits
  tftrt versions localhost:8500 --model_config_file=config/models.config
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from absl import flags

from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import _flags, _output, _places, _tls_flags

if TYPE_CHECKING:
    from tftrt_tools.servers.serving.management.served_versions import Versions


# Addresses may have a scheme.
URLS = (_places.ARGUMENTS,)


def define(values: flags.FlagValues) -> None:
    """Define the command's flags on FlagValues `values`."""
    text = dict(flag_values=values)
    flags.DEFINE_list("model_name", [], "models to ask for; by default those of --model_config_file", **text)
    flags.DEFINE_string("model_config_file", None, "the server's configuration file, on this machine", **text)
    flags.DEFINE_list("version_labels", [], "more labels to ask for", **text)
    flags.DEFINE_float("timeout_seconds", 10, "seconds to wait for an answer of the server", lower_bound=0.1, **text)
    _tls_flags.define(values)


def run(values: flags.FlagValues, positional: list[str]) -> int:
    """Ask and print. Returns: the exit code."""
    address = _flags.one_argument("versions", positional, "ADDRESS")
    from tftrt_tools.servers.serving.management import served_versions

    found = served_versions.versions(
        address,
        tuple(filter(None, values.model_name)),
        values.model_config_file,
        tuple(filter(None, values.version_labels)),
        values.timeout_seconds,
        _tls_flags.read(values),
    )
    _print(found, values.json)
    _output.write_json(found, values.json)
    return errors.EXIT_DONE


def _print(found: Versions, json_path: str | None) -> None:
    console = _output.console(json_path)
    rows: list[tuple[str, int | str, str, str, str]] = []
    for model in found.models:
        for one in model.versions:
            labels = [*model.labels_of(one.version), *(["(no version named)"] if one.version == model.default else [])]
            rows.append((model.name, one.version, one.state, ", ".join(labels), one.error_text()))
        if model.error:
            rows.append((model.name, "", "", "", model.error))
    console.print(_output.table(found.address, ["model", ">version", "state", "answers for", "error"], rows))
    for note in found.notes:
        console.print(f"  {note}", soft_wrap=True)
