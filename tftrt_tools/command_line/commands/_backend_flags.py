"""--backend and the flags that belong to one back end alone."""

from __future__ import annotations

from absl import flags

from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import _calibration_flags, _record_flags
from tftrt_tools.models.backends import recipe
from tftrt_tools.models.backends.protocol import AnyBackend, Given
from tftrt_tools.models.backends.recipe import Recipe
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.kinds import table
from tftrt_tools.studies import backends


def define(values: flags.FlagValues) -> None:
    """Define --backend, and every field of every back end's settings, on FlagValues `values`."""
    known = backends.known()
    flags.DEFINE_enum(
        "backend",
        backends.default().name,
        list(backends.names()),
        "; ".join(one.about for one in known),
        flag_values=values,
    )
    for one in known:
        _record_flags.define(values, one.settings)


def chosen(values: flags.FlagValues) -> AnyBackend:
    """The back end that --backend names. Raises: UsageError for flags of another one."""
    backend = backends.named(values.backend)
    own = {one.name: one.convert_flags.union(recipe.options(one.settings)) for one in backends.known()}
    for name in _record_flags.given(values):
        owners = [one for one in backends.known() if name in own[one.name]]
        if not owners or backend in owners:
            continue
        if backend is backends.default():
            typed = f"--{'no' * (values[name].value is False)}{name}"
            raise errors.UsageError(
                f"{typed} is for {owners[0].makes}", f"add --backend={owners[0].name}, or leave it out"
            )
        raise errors.UsageError(
            f"--{name} has no effect with --backend={backend.name}: it is for {owners[0].makes}", "leave it out"
        )
    return backend


def check_rebuilt(values: flags.FlagValues, backend: AnyBackend, model: str) -> None:
    """Refuse flags of `tftrt build` that the back end of a model has no use for. Raises: UsageError."""
    for name in _record_flags.given(values):
        owners = [one for one in backends.known() if name in one.build_flags]
        if owners and backend not in owners:
            raise errors.UsageError(
                f"--{name} has no effect: {model} is {table.noun(model)}, and it is for {owners[0].makes}",
                "leave it out",
            )


def read(values: flags.FlagValues, backend: AnyBackend) -> Recipe:
    """The back end's settings from the flags, unchecked."""
    settings: Recipe = _record_flags.read(values, backend.settings)
    return settings


def given(values: flags.FlagValues, data: DataOptions | None) -> Given:
    """What the user typed. Args: data: what the flags of the calibration say."""
    return Given(names=_record_flags.given(values), of_data=_calibration_flags.given(values), data=data)
