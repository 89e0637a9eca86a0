"""On the machine of the cluster: runs the command among what has travelled, and collects what it wrote.

The folder with what has travelled stands for /. What the command writes about its paths begins with that folder, so it is taken away again.
"""

from __future__ import annotations

import errno
import gzip
import mmap
import os
import pathlib
import shutil
import signal
import subprocess
from collections.abc import Iterator

from tftrt_tools.base import errors
from tftrt_tools.base.process import interpreter, starting
from tftrt_tools.fleet.task import Given
from tftrt_tools.servers.serving.launch import watched_process
from tftrt_tools.studies.elsewhere import bundle, request
from tftrt_tools.studies.elsewhere.request import Request, Response

_MODULE = "tftrt_tools"
_GZIP = b"\x1f\x8b"
# Before the message of a command.
_ERROR = "tftrt: error: "


def job(given: Given) -> Response:
    """Run it. Raises: TftrtError where the command did not come to an end of its own."""
    asked = Request.from_dict(given.request)
    root, output = os.path.realpath(given.content), pathlib.Path(given.output)
    output.mkdir()
    before = bundle.state(root)
    code = _run(asked, root, output)
    made: list[str] = []
    left: list[str] = []
    for path in _changed(root, before):
        (made if asked.may_write(path) else left).append(path)
    # Links first: what they lead to is moved, too.
    made.sort(key=lambda path: not request.below(root, path).is_symlink())
    foreign = [path for path in made if not _taken(path, root, output)]
    return Response(exit_code=code, made=tuple(made), left=tuple(left), foreign=tuple(foreign))


def _run(asked: Request, root: str, output: pathlib.Path) -> int:
    """Returns: the exit code."""
    words = [word.replace(request.ROOT, root) for word in asked.words]
    # Not a module among what has travelled is taken for one of Python's libraries.
    folder, place = starting.start(str(request.below(root, asked.current)))
    with open(output / request.STDOUT, "wb") as out, open(output / request.STDERR, "wb") as err:
        process = subprocess.Popen(
            interpreter.command(None, _MODULE, *words),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env={**os.environ, **place},
            cwd=folder,
            preexec_fn=watched_process.die_with_parent(signal.SIGKILL, os.getpid()),
        )
        code = process.wait()
    for name in (request.STDOUT, request.STDERR):
        _own(output / name, root)
    said = (output / request.STDERR).read_text(errors="backslashreplace").strip()
    if code == -signal.SIGKILL:
        # Whoever killed it did not want the command, but room: the request's own end says so to the fleet, which tries once more.
        os.kill(os.getpid(), signal.SIGKILL)
    if code < 0:
        raise errors.TftrtError(f"the command was ended by {signal.Signals(-code).name}", said[-2000:])
    full = [line for line in said.splitlines() if os.strerror(errno.ENOSPC) in line]
    if code == errors.EXIT_FAILED and full:
        raise errors.TftrtError(full[0].strip().removeprefix(_ERROR), "free space on that machine's disk")
    return code


def _changed(root: str, before: bundle.State) -> Iterator[str]:
    """The absolute paths, as on the machine where the command was typed, of the files that are new or other than before."""
    for name, facts in sorted(bundle.state(root).items()):
        if before.get(name) != facts:
            yield f"/{name}"


def _taken(path: str, root: str, output: pathlib.Path) -> bool:
    """Move a file into what travels back. Returns: False where it still names a path of this machine."""
    source, target = request.below(root, path), request.below(output / request.FILES, path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink():
        shutil.copyfile(source, target)
    else:
        os.replace(source, target)
    return _own(target, root)


def _own(path: pathlib.Path, root: str) -> bool:
    """Take the root away from the paths in a text, also in a compressed one. Returns: False where it is in a file of another kind, which
    stays as it is: its parts may be counted."""
    data = b""
    if not _has(path, _GZIP, at_start=True):
        if not _has(path, os.fsencode(root)):
            return True
        data = path.read_bytes()
        if b"\0" in data:
            return False
        path.write_bytes(_here(data, root))
        return True
    try:
        data = gzip.decompress(path.read_bytes())
    except (OSError, EOFError):
        return not _has(path, os.fsencode(root))
    if os.fsencode(root) not in data:
        return True
    if b"\0" in data:
        return False
    path.write_bytes(gzip.compress(_here(data, root), mtime=0))
    return True


def _here(data: bytes, root: str) -> bytes:
    mine = os.fsencode(root)
    return data.replace(mine + b"/", b"/").replace(mine, b"/")


def _has(path: pathlib.Path, what: bytes, at_start: bool = False) -> bool:
    with open(path, "rb") as file:
        if at_start:
            return file.read(len(what)) == what
        if not os.fstat(file.fileno()).st_size:
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return data.find(what) >= 0
