"""What a user can cause: one line of cause, one of mend. Anything else that is raised is a bug and keeps its traceback."""

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_CHECK = 3
EXIT_UNSURE = 4

# Where TensorFlow says in which node of a function an error arose, before it says which error.
_PREAMBLE = ("Graph execution error:", "Detected at node", "<stack traces unavailable>", "File \"", "Node: ")
_NODES = "[[{{"  # what follows names nodes
_LONGEST = 300


def first_line(text):
    """The first line of TensorFlow's words that says what is wrong; "" where there are none."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line.split(_NODES)[0].strip() for line in lines if not line.startswith(_PREAMBLE)]
    return next(filter(None, [*told, *lines]), "")[:_LONGEST]


class TftrtError(Exception):
    """The step could not be done (exit code 1)."""

    exit_code = EXIT_FAILED

    def __init__(self, cause, mend=""):
        """Args: cause: what is wrong, one line. mend: what the user can do about it, one line."""
        super().__init__(cause)
        self.cause = str(cause)
        self.mend = str(mend)

    def to_dict(self):
        return {"kind": type(self).__name__, "cause": self.cause, "mend": self.mend}


class UsageError(TftrtError):
    """A flag, a path or a value that can never work (exit code 2)."""

    exit_code = EXIT_USAGE


class CallFailed(TftrtError):
    """A model that was loaded does not answer a call (exit code 1)."""


class CheckFailed(TftrtError):
    """The work was done and what was checked does not hold (exit code 3)."""

    exit_code = EXIT_CHECK


class Unsure(TftrtError):
    """The work was done and what was measured is too noisy to say whether it holds (exit code 4)."""

    exit_code = EXIT_UNSURE


class Interrupted(TftrtError):
    """Ctrl-C or SIGTERM (exit code 1)."""

    def __init__(self, cause="interrupted", mend="nothing was written; run the command again"):
        super().__init__(cause, mend)


_KINDS = {kind.__name__: kind for kind in (TftrtError, UsageError, CallFailed, CheckFailed, Unsure, Interrupted)}


def from_dict(data):
    """Rebuild an error that crossed a process boundary as `to_dict` wrote it."""
    return _KINDS.get(data["kind"], TftrtError)(data["cause"], data["mend"])


def from_os_error(error):
    """A TftrtError that says which file the system refused and why."""
    import errno

    mends = {
        errno.ENOSPC: "free space on that disk; the target was left as it was",
        errno.EDQUOT: "free space under your quota; the target was left as it was",
        errno.EACCES: "check the permissions of that path, or choose another",
        errno.EPERM: "check the permissions of that path, or choose another",
        errno.EROFS: "that file system is read-only: choose another",
        errno.ENOENT: "check the path",
        errno.EISDIR: "give the path of a file",
        errno.ENAMETOOLONG: "choose a shorter path",
    }
    names = " -> ".join(str(name) for name in (error.filename, error.filename2) if name)
    reason = error.strerror or str(error)
    return TftrtError(f"{names}: {reason}" if names else reason, mends.get(error.errno, ""))
