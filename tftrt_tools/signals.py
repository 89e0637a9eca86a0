"""Ctrl-C and SIGTERM end a command through its clean-up, and never in the middle of an import or of the start of a process.

An exception that a signal handler raises while numpy or TensorFlow is being imported meets C code, which turns it into an
ImportError with two tracebacks. One that is raised inside subprocess.Popen leaves a process that nobody knows, and so nobody ends. A
signal that comes then therefore waits until that is done, at most PATIENCE.
"""

import os
import signal
import subprocess
import threading
import time

from tftrt_tools import errors

# TensorFlow's import takes seconds on a slow disk; a module of the user's that hangs in its import still has to end.
PATIENCE_SECONDS = 10
_AGAIN_SECONDS = 0.02
_IMPORT_FILE = "<frozen importlib._bootstrap>"
_START = subprocess.Popen.__init__.__code__


def install():
    """Set both handlers. A SIGINT that whoever started us has set to be ignored stays ignored."""
    signal.signal(signal.SIGTERM, _Handler(errors.Interrupted, "ended by SIGTERM"))
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _Handler(KeyboardInterrupt))


class _Handler:
    def __init__(self, kind, *arguments):
        self._kind, self._arguments = kind, arguments
        self._since = None

    def __call__(self, number, frame):
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if _busy(frame) and now - self._since < PATIENCE_SECONDS:
            again = threading.Timer(_AGAIN_SECONDS, os.kill, (os.getpid(), number))
            again.daemon = True
            again.start()
            return
        self._since = None
        if number == signal.SIGTERM:
            # The clean-up that follows is not to be cut by a second one.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise self._kind(*self._arguments)


def _busy(frame):
    """Whether an import or the start of a process is under way."""
    while frame is not None:
        if frame.f_code.co_filename == _IMPORT_FILE or frame.f_code is _START:
            return True
        frame = frame.f_back
    return False
