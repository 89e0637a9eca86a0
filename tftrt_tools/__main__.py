"""`python -m tftrt_tools` is the `tftrt` command."""

import sys

from tftrt_tools.base.process import starting

if __name__ == "__main__":
    # Before anything is imported that a file in the current folder could stand for.
    starting.settle()

from tftrt_tools.command_line.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
