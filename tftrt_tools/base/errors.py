"""Errors that a user can cause: one line says the cause, one the mend. Any other exception is a bug and keeps its traceback."""

from __future__ import annotations

import contextlib
import difflib
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_CHECK = 3
EXIT_UNSURE = 4

# Lines that TensorFlow puts before its error message: they name the node that failed.
_PREAMBLE = (
    "Graph execution error:",
    "in user code:",
    "Detected at node",
    "<stack traces unavailable>",
    'File "',
    "Node: ",
)
_SEVERAL = re.compile(r"\d+ root error\(s\) found\.")  # the errors follow, numbered
_NUMBER = re.compile(r"^\(\d+\) ")
_NODES = "[[{{"  # names of nodes follow
_LONGEST = 300
# The mend where a file would become larger than it may.
TOO_LARGE = (
    "`ulimit -f` says how large a file may become here: raise that, or choose a file system that holds larger files; the target "
    "was left as it was"
)

# What the extra `tftrt` installs: {name of the package to import: what people call it}.
EXTRA = {
    "tensorflow": "TensorFlow 2.14",
    "keras": "TensorFlow 2.14",
    "h5py": "TensorFlow 2.14",
    "tensorflow_serving": "tensorflow-serving-api 2.14",
    "aiohttp": "aiohttp",
    "rapidjson": "python-rapidjson",
}
# What TensorRT's Python package is imported as.
BINDINGS = "tensorrt"
# What it imports: packages of its own.
_OF_BINDINGS = ("tensorrt_bindings", "tensorrt_libs")


def nearest(name: str, known: Iterable[str], most: int | None = None) -> str:
    """A mend for a name that is not known: the one that it resembles, or those that there are. Args: most: of them that are told."""
    listed = list(known)
    folded = {one.casefold(): one for one in reversed(listed)}
    near = [folded[one] for one in difflib.get_close_matches(name.casefold(), folded, 1)]
    more = ", …" if most is not None and len(listed) > most else ""
    return f"did you mean {near[0]!r}?" if near else "there are: " + ", ".join(listed[:most]) + more


def first_line(text: str) -> str:
    """The first line of TensorFlow's message `text` that says what is wrong; "" for an empty text."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [
        _NUMBER.sub("", line.split(_NODES)[0].strip())
        for line in lines
        if not line.startswith(_PREAMBLE) and not _SEVERAL.fullmatch(line)
    ]
    return next(filter(None, [*told, *lines]), "")[:_LONGEST]


class Ending(BaseException):
    """What ends a command with a line or two and an exit code, and without a traceback."""

    exit_code = EXIT_FAILED
    # Of a program's call: what the command would have printed before it ended so, None where there is nothing.
    result: Any = None

    def __init__(self, cause: str, mend: str = "") -> None:
        """Args: cause: what is wrong, one line. mend: what the user can do about it, one line."""
        super().__init__(cause)
        self.cause = str(cause)
        self.mend = str(mend)


class TftrtError(Ending, Exception):
    """The step could not be done (exit code 1)."""

    def to_dict(self) -> dict[str, str]:
        return {"kind": type(self).__name__, "cause": self.cause, "mend": self.mend}


class UsageError(TftrtError):
    """A flag, a path or a value that can never work (exit code 2)."""

    exit_code = EXIT_USAGE
    # The errors that this one tells together, [] for one alone.
    parts: list[UsageError] = []  # noqa: RUF012


class Wrong:
    """Collects what independent checks refuse, so that all of it can be told at once; what two of them refuse is told once."""

    def __init__(self) -> None:
        self._by_cause: dict[str, UsageError] = {}

    @contextlib.contextmanager
    def collected(self) -> Iterator[None]:
        """Keep the UsageError of this block for `check`."""
        try:
            yield
        except UsageError as error:
            for one in error.parts or [error]:
                self._by_cause.setdefault(one.cause, one)

    def passes(self, check: Callable[[], object]) -> bool:
        """Whether a check refuses nothing."""
        with self.collected():
            check()
            return True
        return False

    def result(self, check: Callable[[], T], otherwise: T) -> T:
        """What a check returns; `otherwise` where it refuses something."""
        with self.collected():
            return check()
        return otherwise

    def check(self) -> None:
        """Raise UsageError where something was refused: one alone as it is, several as one."""
        found = list(self._by_cause.values())
        if len(found) == 1:
            raise found[0]
        if found:
            causes = "; ".join(f"({number}) {one.cause}" for number, one in enumerate(found, 1))
            mends = "; ".join(f"({number}) {one.mend}" for number, one in enumerate(found, 1) if one.mend)
            raised = UsageError(f"{len(found)} things are wrong: {causes}", mends)
            raised.parts = found
            raise raised


class CallFailed(TftrtError):
    """A loaded model does not answer a call (exit code 1)."""


class NotKept(TftrtError):
    """A result could not be written into the model that it is about (exit code 1); the user has seen it."""


class CheckFailed(TftrtError):
    """The work was done, and a check failed (exit code 3)."""

    exit_code = EXIT_CHECK


class Unsure(TftrtError):
    """The work was done, and the measurement is too noisy to decide the check (exit code 4)."""

    exit_code = EXIT_UNSURE


class Interrupted(Ending, KeyboardInterrupt):
    """Ctrl-C, SIGTERM or the end of a limit of time (exit code 1). No Exception: who goes on after an error lets it through."""

    def __init__(self, cause: str = "interrupted", mend: str = "nothing was written; run the command again") -> None:
        super().__init__(cause, mend)


class NeedsExtra(TftrtError):
    """A package of the extra `tftrt` is not installed (exit code 1)."""


_KINDS = {kind.__name__: kind for kind in (TftrtError, UsageError, CallFailed, CheckFailed, Unsure, NeedsExtra)}


def from_dict(data: Mapping[str, str]) -> TftrtError:
    """Rebuild an error that crossed a process boundary as `to_dict` wrote it."""
    return _KINDS.get(data["kind"], TftrtError)(data["cause"], data["mend"])


def install(extra: str) -> str:
    """How this package's packages of an extra are installed: from a checkout. No index has this package, so its name there is anybody's."""
    pins = "-c constraints.txt " if extra == "tftrt" else ""
    return f"in a checkout of tftrt-tools: pip install {pins}'.[{extra}]'"


def install_bindings() -> str:
    """How TensorRT's Python bindings are installed: TensorRT 8 has them for no Python after 3.11, and the extra `tftrt` is for 3.10."""
    import sys

    return install("tftrt") if sys.version_info[:2] == (3, 10) else f"with Python 3.10, {install('tftrt')}"


def no_bindings() -> str:
    """That TensorRT's Python package is missing. Its libraries may be there all the same: TensorFlow loads them by itself."""
    return f"TensorRT's Python package is not installed for {_python()}"


def needs_extra(package: str) -> NeedsExtra:
    """NeedsExtra for one of EXTRA, which says what to install."""
    return NeedsExtra(f"{EXTRA[package]} is not installed for {_python()}", f"with Python 3.10, {install('tftrt')}")


def _python() -> str:
    import sys

    return "this Python " + ".".join(map(str, sys.version_info[:2]))


def from_import_error(error: ImportError) -> TftrtError | None:
    """What an ImportError means to the user.

    Returns: NeedsExtra where the extra `tftrt` is not installed; another TftrtError where the TensorFlow here is not the one needed, or
    TensorRT's Python package is missing or incomplete; None for any other error, which is a bug.
    """
    name = error.name or ""
    if isinstance(error, ModuleNotFoundError) and name in EXTRA:
        return needs_extra(name)
    if name.partition(".")[0] == "tensorflow":
        return TftrtError(f"TensorFlow is not the one needed: {error}", "`tftrt doctor` says what fixes it")
    if isinstance(error, ModuleNotFoundError) and name == BINDINGS:
        return TftrtError(no_bindings(), install_bindings())
    if name.partition(".")[0] in (BINDINGS, *_OF_BINDINGS):
        return TftrtError(f"TensorRT's Python package does not load in {_python()}: {error}", install_bindings())
    return None


def from_os_error(error: OSError) -> TftrtError:
    """A TftrtError that says which file the system refused and why."""
    import errno

    mends = {
        errno.ENOSPC: "free space on that disk; the target was left as it was",
        errno.EDQUOT: "free space under your quota; the target was left as it was",
        errno.EFBIG: TOO_LARGE,
        errno.EACCES: "check the permissions of that path, or choose another",
        errno.EPERM: "check the permissions of that path, or choose another",
        errno.EROFS: "that file system is read-only: choose another",
        errno.ENOENT: "check the path",
        errno.EISDIR: "give the path of a file",
        errno.ENAMETOOLONG: "choose a shorter path",
    }
    names = " -> ".join(str(name) for name in (error.filename, error.filename2) if name)
    reason, mend = error.strerror or str(error), mends.get(error.errno or 0, "")
    if not names:  # stdout, say, which has no target
        return TftrtError(reason, mend.partition("; the target")[0])
    return TftrtError(f"{names}: {reason}", mend)


def from_encode_error(error: UnicodeEncodeError) -> UsageError | None:
    """What it means that a text cannot be written as UTF-8: it is the name of a file, and its bytes are none. None for any other error."""
    return not_utf8(error.object) if error.reason == "surrogates not allowed" else None


def not_utf8(name: str) -> UsageError:
    """Make the UsageError for a file name that is not UTF-8, or for a text that contains one."""
    shown = name.encode("utf-8", "surrogateescape" if _is_of_bytes(name) else "backslashreplace").decode(
        "utf-8", "backslashreplace"
    )
    return UsageError(
        f"{shown} is no UTF-8, and TensorFlow and ONNX take no other names",
        "rename it, or give it another name by `ln -s`",
    )


def _is_of_bytes(name: str) -> bool:
    """Whether each character of a name that UTF-8 cannot encode stands for a byte (PEP 383)."""
    return all(not "\ud800" <= one <= "\udfff" or "\udc80" <= one <= "\udcff" for one in name)


@contextlib.contextmanager
def told_as(known: Mapping[pathlib.Path, pathlib.Path]) -> Iterator[None]:
    """Inside the block, errors name the paths that the user knows. Args: known: {path of ours: the user's}, the longer ones first."""

    def told(text: str) -> str:
        for mine, theirs in known.items():
            text = text.replace(str(mine), str(theirs))
        return text

    try:
        yield
    except OSError as error:
        if isinstance(error.filename, str) and told(error.filename) != error.filename:
            raise OSError(error.errno, error.strerror, told(error.filename)) from None
        raise
    except TftrtError as error:
        error.cause, error.mend = told(error.cause), told(error.mend)
        error.args = (error.cause,)
        raise


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Inside the block, an exception that a user can cause becomes a TftrtError; a closed pipe and a bug stay what they are."""
    try:
        yield
    except BrokenPipeError:
        raise
    except ImportError as error:
        told = from_import_error(error)
        if told is None:
            raise
        raise told from error
    except OSError as error:
        raise from_os_error(error) from error
    except UnicodeEncodeError as error:
        named = from_encode_error(error)
        if named is None:
            raise
        raise named from error
    except MemoryError as error:
        raise TftrtError(f"not enough memory: {error}", "ask for fewer or smaller requests") from error
