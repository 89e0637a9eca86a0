"""What tests of commands share: how an error has to look, and what a command loads or leaves running."""

import os
import re
import subprocess
import sys

import saved_models
from tests.conftest import ROOT

# In implicit batch mode TF-TRT takes nothing of the tagger's loops.
DYNAMIC_ONLY = ("lstm_tagger",)
FLAGS = {name: ("--use_dynamic_shape",) if name in DYNAMIC_ONLY else () for name in saved_models.NAMES}


def assert_clear(done, code, says):
    """One line of cause, one of mend, no traceback, nothing on stdout."""
    assert done.returncode == code, done.stderr
    assert says in done.stderr and "Traceback" not in done.stderr and done.stdout == ""
    assert re.match(r"tftrt: error: [^\n]+\n  [^\n]+\n$", done.stderr), done.stderr


def processes_marked(mark):
    """Numbers of the processes that have TFTRT_TEST_MARK=`mark` in their environment."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            environment = open(f"/proc/{entry}/environ", "rb").read()
        except OSError:
            continue
        if f"TFTRT_TEST_MARK={mark}".encode() in environment:
            found.append(entry)
    return found


def loaded_modules(*arguments):
    """Modules that one run of the command imports in its own process."""
    code = f"import sys\nfrom tftrt_tools.command_line import cli\ncode = cli.main({list(map(str, arguments))!r})\nprint('\\n@' + ' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    return set(done.stdout.rsplit("@", 1)[1].split())
