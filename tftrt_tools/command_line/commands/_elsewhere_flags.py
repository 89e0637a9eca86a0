"""--on=ray://HEAD:10001 of the commands that can run as a whole on a machine of a cluster (`_travel.COMMANDS`)."""

from __future__ import annotations

from absl import flags

from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import _travel
from tftrt_tools.fleet import place

# Attribute of the flag --on of a command that does nothing else with it.
_ALONE = "tftrt_elsewhere_alone"
_CLUSTER = "ray://"
_HELP = "ray://HEAD:10001: run the whole command on a machine of a Ray cluster, which gets what it reads and sends back what it writes"


def define(command: str, values: flags.FlagValues) -> None:
    """Define --on, --gpu_types and --wait_seconds on `values`, if the command can run elsewhere. One that has --on for this machine's GPUs
    keeps it, and its help says the other thing, too."""
    if command not in _travel.COMMANDS:
        return
    text = dict(flag_values=values)
    if "on" in values:
        values["on"].help = f"{values['on'].help}. {_HELP}"
    else:
        flags.DEFINE_string("on", "", _HELP, **text)
        setattr(values["on"], _ALONE, True)
    flags.DEFINE_list(
        "gpu_types",
        [],
        "with --on=ray://…: kinds of GPU to run on, side by side, by Ray's names (T4, L4, A100, H100) or those of custom resources; "
        "by default on one machine with any GPU. Of several, each has files of its own: out.json becomes out-T4.json, and a folder "
        "gets one for each",
        **text,
    )
    define_wait(values)


def define_wait(values: flags.FlagValues) -> None:
    """Define --wait_seconds on `values`."""
    flags.DEFINE_float(
        "wait_seconds",
        place.SECONDS,
        "with --on=ray://…: how long to wait for a kind of GPU that the cluster does not have yet",
        lower_bound=0.0,
        flag_values=values,
    )


def urls(command: str) -> tuple[str, ...]:
    """The flags that take a scheme, as URLS of a command."""
    return ("on",) if command in _travel.COMMANDS else ()


def asked(command: str, values: flags.FlagValues) -> place.Place | None:
    """The cluster on which the whole command has to run; None where it runs here. Raises: UsageError."""
    if command not in _travel.COMMANDS:
        return None
    alone = getattr(values["on"], _ALONE, False)
    if values.on.startswith(_CLUSTER) or alone:
        found = place.parse(values.on, place.OF_A_CLUSTER if alone else place.FORMS)
        if found and not found.address:
            raise errors.UsageError(
                f"--on={values.on}: {command} has nothing to do side by side on one machine",
                f"leave it out, or give --on={place.OF_A_CLUSTER}",
            )
        if found:
            return found
    if values.gpu_types:
        raise errors.UsageError("--gpu_types names machines of a cluster", "add --on=ray://HEAD:10001")
    return None


def check_here(command: str, values: flags.FlagValues) -> None:
    """Refuse a cluster where the result itself is wanted, and not the files of a command. Raises: UsageError."""
    if asked(command, values):
        raise errors.UsageError(
            f"--on={values.on}: {command} runs on a cluster from the command line alone",
            "run `tftrt` with --json=FILE, or leave `on` out",
        )
