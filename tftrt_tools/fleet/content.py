"""What travels: a file or a folder as a tar, known by its digest. It is read in pieces, so that nobody holds more of it than a chunk."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import os
import pathlib
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import BinaryIO

from tftrt_tools.base import errors
from tftrt_tools.base.files import linked

CHUNK_BYTES = 32 << 20
_PIECE_BYTES = 1 << 20


class Broken(errors.TftrtError):
    """What came is not what was sent."""


@dataclasses.dataclass(frozen=True)
class Packed:
    """A handle on what travels. digest: "sha256:<hex>" of the tar. name: of the file or folder. pieces: the bytes of the tar, from its
    beginning at each call, in pieces of any size."""

    digest: str
    name: str
    pieces: Callable[[], Iterable[bytes | bytearray]]


def pack(path: str | os.PathLike[str]) -> Packed:
    """A file or folder, which is read now for its digest and again when it is sent. Equal names and bytes give an equal digest. Links are
    followed, so they arrive as what they lead to; the caller has refused those that lead out of a model. Raises: OSError."""
    top = pathlib.Path(os.path.abspath(path))
    whole = hashlib.sha256()
    for piece in _tar(top):
        whole.update(piece)
    return Packed(_text(whole), top.name, lambda: _tar(top))


def digest(data: bytes) -> str:
    """As Packed.digest."""
    return _text(hashlib.sha256(data))


def chunks(packed: Packed, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytearray]:
    """What is packed, in chunks of that size; the last one may be smaller. Raises: TftrtError at the end where it has changed since it was
    packed; OSError."""
    whole, chunk = hashlib.sha256(), bytearray()
    for piece in packed.pieces():
        whole.update(piece)
        view = memoryview(piece)
        while view:
            room = chunk_bytes - len(chunk)
            chunk += view[:room]
            view = view[room:]
            if len(chunk) == chunk_bytes:
                yield chunk
                chunk = bytearray()
    if chunk:
        yield chunk
    if _text(whole) != packed.digest:
        raise errors.TftrtError(
            f"{packed.name} changed while it was sent", "run the command again when nobody writes to it"
        )


def kept(packed: Packed, folder: str | os.PathLike[str] | None = None) -> Packed:
    """Fetch what is packed to this machine's disk, into a file without a name: it goes with the handle, and with the process however that
    ends. Args: folder: a folder on the file system to keep it on; by default that of temporary files. Returns: a handle on it. Raises:
    Broken; OSError; what its pieces raise."""
    file: BinaryIO = tempfile.TemporaryFile(dir=folder, prefix=".tftrt-", buffering=0)  # noqa: SIM115 - the handle holds it
    try:
        for piece in _checked(packed):
            _append(file, piece, folder or tempfile.gettempdir())
    except BaseException:
        file.close()
        raise
    return Packed(packed.digest, packed.name, lambda: _read(file))


def unpack(packed: Packed, target: str | os.PathLike[str]) -> pathlib.Path:
    """Write it at `target`, where nothing is, or an empty folder. After an exception nothing is left of it there. Returns: its path.
    Raises: Broken; OSError; what its pieces raise."""
    target = pathlib.Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    was_there = target.is_dir()
    try:
        with contextlib.closing(_checked(packed)) as pieces:
            _untar(pieces, target, packed.name)
            # What follows the last file belongs to the digest.
            for _ in pieces:
                pass
    except BaseException:
        _cleared(target, was_there)
        raise
    return target


def _checked(packed: Packed) -> Generator[bytes | bytearray, None, None]:
    """The pieces. Raises: Broken at their end where they are not what was packed."""
    whole = hashlib.sha256()
    for piece in packed.pieces():
        whole.update(piece)
        yield piece
    if _text(whole) != packed.digest:
        raise _broken(packed.name)


def _broken(name: str) -> Broken:
    return Broken(f"{name} did not arrive whole", "run the command again")


def _text(whole: hashlib._Hash) -> str:
    return f"sha256:{whole.hexdigest()}"


def _tar(top: pathlib.Path) -> Iterator[bytes]:
    """A tar of files and folders alone, without what differs from copy to copy; pipes and devices are left out."""
    size = 0
    below = (folder / name for folder, folders, found in linked.walk(top) for name in (*folders, *found))
    for one in [top, *sorted(below)]:
        member, facts = tarfile.TarInfo(str(one.relative_to(top))), one.stat()
        if stat.S_ISDIR(facts.st_mode):
            member.type, member.mode = tarfile.DIRTYPE, 0o755
        elif stat.S_ISREG(facts.st_mode):
            member.size = facts.st_size
        else:
            continue
        for piece in _member(member, one):
            size += len(piece)
            yield piece
    yield bytes(2 * tarfile.BLOCKSIZE + -(size + 2 * tarfile.BLOCKSIZE) % tarfile.RECORDSIZE)


def _member(member: tarfile.TarInfo, path: pathlib.Path) -> Iterator[bytes]:
    yield member.tobuf(tarfile.PAX_FORMAT, errors="surrogateescape")
    if not member.isreg():
        return
    left = member.size
    with open(path, "rb") as file:
        while left:
            piece = file.read(min(left, _PIECE_BYTES))
            if not piece:
                raise OSError(f"{path} became shorter while it was read")
            left -= len(piece)
            yield piece
    yield bytes(-member.size % tarfile.BLOCKSIZE)


def _untar(pieces: Iterator[bytes | bytearray], target: pathlib.Path, name: str) -> None:
    try:
        with tarfile.open(fileobj=_Reader(pieces), mode="r|", bufsize=_PIECE_BYTES) as archive:  # type: ignore[call-overload]
            for member in archive:
                path = target / member.name
                if member.name.startswith("/") or ".." in path.parts or not (member.isdir() or member.isreg()):
                    raise Broken(f"{name} holds {member.name!r}, which is no plain file", "run the command again")
                if member.isdir():
                    path.mkdir(exist_ok=True)
                else:
                    _write(archive, member, path)
    except (tarfile.TarError, EOFError) as error:
        raise _broken(name) from error


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, path: pathlib.Path) -> None:
    source = archive.extractfile(member)
    assert source is not None
    with source, open(path, "wb", buffering=0) as file:
        while piece := source.read(_PIECE_BYTES):
            _append(file, piece, path)


class _Reader:
    """A file to read from, made of pieces."""

    def __init__(self, pieces: Iterator[bytes | bytearray]) -> None:
        self._pieces, self._view = pieces, memoryview(b"")

    def read(self, size: int) -> bytes:
        """At most `size` bytes; b"" at the end."""
        while not self._view:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._view = memoryview(piece)
        found, self._view = bytes(self._view[:size]), self._view[size:]
        return found


def _append(file: BinaryIO | io.FileIO, piece: bytes | bytearray, place: str | os.PathLike[str]) -> None:
    """Write all of a piece. Raises: OSError that names `place`: the system names no file that is open, which may have no name."""
    left = memoryview(piece)
    try:
        while left:
            left = left[file.write(left) :]
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(place)) from None


def _read(file: BinaryIO) -> Iterator[bytes]:
    """The bytes of an open file, whoever else reads it."""
    place = 0
    while piece := os.pread(file.fileno(), _PIECE_BYTES, place):
        place += len(piece)
        yield piece


def _cleared(target: pathlib.Path, was_there: bool) -> None:
    """Remove what was written at `target`, which was an empty folder or nothing."""
    if target.is_dir():
        for one in target.iterdir():
            shutil.rmtree(one) if one.is_dir() else one.unlink()
        if not was_there:
            target.rmdir()
    else:
        target.unlink(missing_ok=True)
