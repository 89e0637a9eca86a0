"""usage: tftrt rollback ADDRESS --model_name=NAME --model_config_file=FILE [--flags]

Undoes the last `tftrt promote` of a model. The model gets back the versions and labels that FILE.previous has for it. Versions that are
no longer loaded are loaded first; then the labels move. Other models stay as they are. A second rollback undoes the first.

If a version does not load within --wait_seconds, the file and the server stay as they are, and the exit code is 1.

example:
  tftrt rollback localhost:8500 --model_name=digits --model_config_file=config/models.config
"""

from __future__ import annotations

from absl import flags

from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.command_line.commands import _flags, _output, _places, _tls_flags, _topics, promote

# Addresses may have a scheme.
URLS = (_places.ARGUMENTS,)
NAMES_WHAT_IS_MISSING = True


def define(values: flags.FlagValues) -> None:
    """Define the command's flags on FlagValues `values`."""
    promote.define_common(values)


def run(values: flags.FlagValues, positional: list[str]) -> int:
    """Roll back. Returns: the exit code."""
    address = _flags.one_argument("rollback", positional, "ADDRESS")
    from tftrt_tools.servers.serving.management import promotion

    promotion.check_server(address)
    _flags.require("rollback", values, _topics.needed("rollback"))
    options = promotion.Options(
        wait_seconds=values.wait_seconds,
        deadline_seconds=values.timeout_seconds,
        load_new_models=values.load_new_models,
        tls=_tls_flags.read(values),
    )
    with progress.on_terminal():
        done = promotion.rollback(address, values.model_config_file, values.model_name, options)
    promote.print_change(done, values.json)
    _output.write_json(done, values.json)
    return errors.EXIT_DONE
