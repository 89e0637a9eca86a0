"""Runs a command in this process, on a model that is a file."""

from tftrt_tools.command_line import cli


def run(*argv):
    """The command in this process, where the file is open already. Returns: its exit code."""
    return cli.main([str(one) for one in argv])
