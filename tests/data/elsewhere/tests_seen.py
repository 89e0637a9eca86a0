"""For a child in another environment: what it sees."""

import sys


def path(_):
    import tftrt_tools

    return {"package": tftrt_tools.__path__[0], "path": sys.path, "executable": sys.executable}
