"""`python -m tftrt_tools` is the `tftrt` command."""

import sys

from tftrt_tools.cli import main

if __name__ == "__main__":
    sys.exit(main())
