"""--backend and the flags that belong to one back end alone."""

from __future__ import annotations

from absl import flags

from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import _calibration_flags, _record_flags
from tftrt_tools.models.backends import recipe
from tftrt_tools.models.backends.protocol import AnyBackend, Given
from tftrt_tools.models.backends.recipe import Recipe
from tftrt_tools.models.inputs.options import DataOptions
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
    _check(values, backend, {one.name: _own(one) for one in backends.known()})
    return backend


def _own(backend: AnyBackend) -> frozenset[str]:
    return backend.convert_flags.union(recipe.options(backend.settings))


def _check(values: flags.FlagValues, backend: AnyBackend, own: dict[str, frozenset[str]]) -> None:
    for name in _record_flags.given(values):
        of = [one for one in backends.known() if name in own[one.name]]
        if not of or backend in of:
            continue
        if backend is backends.default():
            typed = f"--{'no' * (values[name].value is False)}{name}"
            raise errors.UsageError(f"{typed} is for {of[0].makes}", f"add --backend={of[0].name}, or leave it out")
        raise errors.UsageError(
            f"--{name} has no effect with --backend={backend.name}: it is for {of[0].makes}", "leave it out"
        )


def check_rebuilt(values: flags.FlagValues, backend: AnyBackend, model: str) -> None:
    """Refuse flags of `tftrt build` that the back end of a model has no use for. Raises: UsageError."""
    for name in _record_flags.given(values):
        of = [one for one in backends.known() if name in one.build_flags]
        if of and backend not in of:
            raise errors.UsageError(
                f"--{name} has no effect: {model} is of {backend.makes}, and it is for {of[0].makes}", "leave it out"
            )


def read(values: flags.FlagValues, backend: AnyBackend) -> Recipe:
    """The back end's settings from the flags, unchecked."""
    settings: Recipe = _record_flags.read(values, backend.settings)
    return settings


def given(values: flags.FlagValues, data: DataOptions | None) -> Given:
    """What the user typed. Args: data: what the flags of the calibration say."""
    return Given(names=_record_flags.given(values), of_data=_calibration_flags.given(values), data=data)
