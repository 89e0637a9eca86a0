"""The flags that say how answers are judged; every command that compares answers has them."""

from absl import flags


def define(values: flags.FlagValues) -> None:
    """Define the flags on FlagValues `values`."""
    flags.DEFINE_boolean("allow_constant_outputs", False, "accept answers that show nothing: all zero, empty, or the same for every input",
                         flag_values=values)


def read(values: flags.FlagValues) -> dict[str, object]:
    """The fields of a command's Options that these flags fill."""
    return {"allow_constant_outputs": values.allow_constant_outputs}
