"""The `tftrt` command: finds the command, imports its module, runs it."""

from __future__ import annotations

import contextlib
import difflib
import io
import os
import sys
from collections.abc import Iterator, Sequence

from tftrt_tools.base import errors, terminal
from tftrt_tools.base.process import signals, starting

COMMANDS = {
    "doctor": "what this machine can do (convert, build, run), and what to fix",
    "optimize": "the whole way in one command: model, data and a goal in, the fastest model that keeps it and its report out",
    "inspect": "what TF-TRT would do with a SavedModel, or what it did",
    "convert": "a SavedModel or a Keras file to a TF-TRT SavedModel",
    "export": "ONNX files of a model, checked, run against it, and held against what TensorRT's parser takes",
    "wrap": "signatures that take encoded pictures or bytes, and answer less, around those of a model",
    "data": "pictures, records or a function as the rows that the other commands score and calibrate on",
    "calibrate": "the INT8 table of a model, in a file: needs no GPU",
    "build": "the engines of a converted model, on the GPU that will serve it; or take them away",
    "verify": "does the converted model answer like the original, and did its engines run",
    "sensitivity": "which nodes hurt when a model goes to INT8 or FP16",
    "profile": "where the milliseconds of a call go: in TensorFlow, in each engine, in each layer",
    "diagnose": "why a converted model is not faster: what costs it its milliseconds, and what fixes that",
    "tune": "the fastest conversion that keeps an accuracy goal, found on this machine's GPU",
    "table": "show, compare, merge and edit INT8 calibration tables",
    "cache": "the engine cache: list, remove, clear",
    "publish": "a model as the next version of a TensorFlow Serving base path, checked and with its warm-up",
    "configure": "TensorFlow Serving's configuration files: written from the models, or checked",
    "serve": "TensorFlow Serving: the binary, the image or the development server",
    "smoke": "does a running server answer like the original model, and did its engines run",
    "versions": "versions, states and labels on a running server",
    "promote": "a label of a running server to another version, once that is available",
    "rollback": "undo the last promotion",
    "bench": "how fast a running server answers, and the highest rate that keeps an SLO",
    "log": "what a log of TF-TRT, TensorRT, TensorFlow Serving or trtexec says: fallbacks, failed builds, and what to do",
    "regress": "is the candidate slower, faster or the same, as right, and within its goals: a verdict with its certainty",
    "history": "the comparisons that were kept, and the steps in them",
}
_VERSION = ("-v", "-V", "-version", "--version", "version")
_HELP = ("-h", "-help", "--help", "help", "--helpfull", "--helpshort")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Args: argv: without the program's name. Returns: the exit code."""
    if argv is None:
        _use_utf8()
    _open_streams()
    with terminal.guarded():
        return _main(list(sys.argv[1:] if argv is None else argv))


def _main(argv: list[str]) -> int:
    try:
        with errors.translated(), _threads_heard():
            code = _told(argv)
            # What fails behind this has a traceback of Python's own.
            sys.stdout.flush()
            return code
    except errors.Ending as error:
        code = _report(error)
    except KeyboardInterrupt:
        code = _report(errors.Interrupted())
    except BrokenPipeError:
        code = errors.EXIT_FAILED
    _drop_what_cannot_be_printed()
    return code


def _drop_what_cannot_be_printed() -> None:
    """What a full disk or a closed pipe did not take would fail once more when Python ends, with other words and another exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextlib.contextmanager
def _threads_heard() -> Iterator[None]:
    """What was lost in a thread ends the command, in place of what follows from it."""
    try:
        yield
    finally:
        signals.LOST.raise_first()


def _told(argv: list[str]) -> int:
    """Say what the tool itself is, or run a command. Returns: the exit code."""
    if argv[:1] == ["help"] and len(argv) > 1:
        return _run(argv[1], ["--help"])
    if not argv or argv[0] in _HELP:
        print(_overview())
        return errors.EXIT_DONE if argv else errors.EXIT_USAGE
    if argv[0] in _VERSION:
        from tftrt_tools.base.version import __version__

        print(f"tftrt-tools {__version__}")
        return errors.EXIT_DONE
    if argv[0] == "completion":
        from tftrt_tools.command_line.commands import _completion

        print(_completion.script(" ".join(argv[1:]), COMMANDS), end="")
        return errors.EXIT_DONE
    signals.install()
    starting.leave_out_the_current_folder()
    return _run(argv[0], argv[1:])


def _use_utf8() -> None:
    """Start this process anew where the locale (such as LC_ALL=C with PYTHONUTF8=0) is not UTF-8: TensorFlow takes names of files as UTF-8,
    and Python would read them otherwise. What is printed keeps the locale's encoding."""
    if sys.getfilesystemencoding() == "utf-8" or sys.flags.utf8_mode or not sys.executable:
        return
    encoding = sys.stdout.encoding if sys.stdout else "ascii"
    env = {"PYTHONIOENCODING": f"{encoding}:backslashreplace", **os.environ, "PYTHONUTF8": "1"}
    os.execve(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]], env)


def _open_streams() -> None:
    """A stream that is closed (`<&-`) becomes an empty one; characters that stdout's encoding has not are written as escapes."""
    # The lowest number is free then, so it gets that of the stream: no other file can.
    sys.stdin = sys.stdin or open(os.open(os.devnull, os.O_RDONLY), closefd=False)
    sys.stdout = sys.stdout or open(os.open(os.devnull, os.O_WRONLY), "w", closefd=False)
    sys.stderr = sys.stderr or open(os.open(os.devnull, os.O_WRONLY), "w", closefd=False)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
        sys.stdout.reconfigure(errors="backslashreplace")


def _run(name: str, argv: list[str]) -> int:
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f"did you mean `tftrt {near[0]}`?" if near else "`tftrt --help` lists the commands"
        raise errors.UsageError(f"no command {name!r}", hint)
    from tftrt_tools.command_line.commands import _calling

    return _calling.call(name, argv)


def _report(error: errors.Ending) -> int:
    with contextlib.suppress(OSError):  # the exit code says it where stderr takes nothing
        print(f"tftrt: error: {error.cause}", file=sys.stderr)
        if error.mend:
            print(f"  {error.mend}", file=sys.stderr)
    return error.exit_code


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = ["usage: tftrt COMMAND [--flags]", "", "TF-TRT models that are right, fast and proven so.", "", "commands:"]
    lines += [f"  {name:<{width}}  {text}" for name, text in COMMANDS.items()]
    lines += [
        "",
        "`tftrt COMMAND --help`, or `tftrt help COMMAND`, lists a command's flags; `--flagfile=FILE` reads flags from a file.",
        "`source <(tftrt completion bash)`, or zsh, completes commands and flags.",
        "exit codes: 0 done, 1 it could not be done, 2 wrong usage, 3 a check failed, 4 too noisy to tell",
    ]
    return "\n".join(lines)
