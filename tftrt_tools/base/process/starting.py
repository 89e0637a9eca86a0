"""Where a process of Python starts, and where it looks for modules. It imports nothing that Python has not loaded already.

Python puts the current folder before all libraries (`-m`, `-c`, an empty entry of PYTHONPATH), so a numpy.py that came with a model would
run. So a process of this package starts in a folder where no modules of others lie, and goes to the user's folder when it has taken that
place off the search path (`settle`). Only what asks for a module of the user's own (`interpreter.own_module`) adds the current folder,
behind the libraries.
"""

import os
import sys

# The console script `tftrt` lies there, too: Python looks there first for it.
START = os.path.dirname(sys.executable) or "/"
# The variable that names the folder to which the process changes then.
_FOLDER = "TFTRT_START_FOLDER"


def search_path(*, first: str = "", last: str = "") -> str:
    """PYTHONPATH with this package's folder in it, without empty entries, which mean the current folder, and with whole paths."""
    given = [os.path.abspath(one) for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    return os.pathsep.join(filter(None, [first, *given, last]))


def start(here: str = "") -> tuple[str | None, dict[str, str]]:
    """(folder, environment variables) for a process of `command`, which calls `settle`. Args: here: the user's folder; by default the
    current one."""
    here = here or current_folder()
    return (START, {_FOLDER: here}) if here else (None, {})


def settle() -> None:
    """Take the folder where this process started off the search path, and go to the user's. The first thing that a process does."""
    given = os.environ.pop(_FOLDER, None)
    if (
        sys.path
        and sys.path[0] in ("", START if given is not None else current_folder())
        and not getattr(sys.flags, "safe_path", False)
    ):
        del sys.path[0]
    if given is not None:
        os.chdir(given)
    leave_out_the_current_folder()


def leave_out_the_current_folder() -> None:
    """Take the current folder off the search path where only an empty entry of PYTHONPATH has put it there."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    here = current_folder()
    if (
        len(entries) > 1
        and "" in entries
        and here in sys.path
        and here not in map(os.path.abspath, filter(None, entries))
    ):
        sys.path.remove(here)


def current_folder() -> str:
    """The absolute path of the current folder; "" if it was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""
