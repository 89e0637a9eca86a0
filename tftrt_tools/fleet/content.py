"""What travels: a file or a folder as bytes, known by their digest."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
import pathlib
import shutil
import tarfile

from tftrt_tools.base import errors


@dataclasses.dataclass(frozen=True)
class Packed:
    """digest: "sha256:<hex>" of data. name: of the file or folder."""

    digest: str
    name: str
    data: bytes


def pack(path: str | os.PathLike[str]) -> Packed:
    """A file or folder. Equal names and bytes give an equal digest. Links are followed, so they arrive as what they lead to; the caller
    has refused those that lead out of a model. Raises: OSError."""
    top = pathlib.Path(os.path.abspath(path))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT, dereference=True) as archive:
        for one in [top, *sorted(top.rglob("*"))]:
            archive.add(one, str(one.relative_to(top)), recursive=False, filter=_plain)
    data = buffer.getvalue()
    return Packed(digest(data), top.name, data)


def digest(data: bytes) -> str:
    """As Packed.digest."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def unpack(packed: Packed, target: str | os.PathLike[str]) -> pathlib.Path:
    """Write it at `target`, where nothing is, or an empty folder. Returns: its path. Raises: TftrtError where what came is not what was
    sent; OSError."""
    target = pathlib.Path(target)
    if digest(packed.data) != packed.digest:
        raise errors.TftrtError(f"{packed.name} did not arrive whole", "run the command again")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(packed.data)) as archive:
        for member in archive:
            path = target / member.name
            if member.name.startswith("/") or ".." in path.parts or not (member.isdir() or member.isreg()):
                raise errors.TftrtError(
                    f"{packed.name} holds {member.name!r}, which is no plain file", "run the command again"
                )
            if member.isdir():
                path.mkdir(exist_ok=True)
            else:
                _write(archive, member, path)
    return target


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, path: pathlib.Path) -> None:
    source = archive.extractfile(member)
    assert source is not None
    with source, open(path, "wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Without what differs from copy to copy; pipes and devices are left out."""
    if not (member.isdir() or member.isreg()):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime, member.mode = 0, 0o755 if member.isdir() else 0o644
    return member
