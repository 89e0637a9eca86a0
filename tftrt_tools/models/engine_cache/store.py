"""Keeps engines on disk, by key; several processes may find, put and evict at once. No build fails because of the disk.

    FOLDER/<key name>/engine         the engine file as TF-TRT writes it, or a plan of TensorRT itself
    FOLDER/<key name>/record.json    its record; the file's time is that of the last use
    FOLDER/.locks/<key name>         while someone builds or removes that engine
    FOLDER/.stage-*, .trash-*        entries that are being written or deleted

One rename adds an entry and one removes it, so that nobody sees half an entry. Symbolic links inside the folder are never
followed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import pathlib
import re
import typing
from collections.abc import Callable, Iterator

from tftrt_tools.base import errors, records
from tftrt_tools.base.files import locks
from tftrt_tools.base.process import progress
from tftrt_tools.models.engine_cache import disk, folders
from tftrt_tools.models.engine_cache.entry import EngineRecord, Entry, Hit, Key, Miss, Stored
from tftrt_tools.models.savedmodel import passport

DEFAULT_MAX_BYTES = 10 << 30
NOT_THERE = "not in the cache"
WAITS = "waiting for another process that builds this engine"
_NAME = re.compile(r"[0-9a-f]{64}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place(records.Record):
    """Which Store a child process uses: the arguments of Store."""

    folder: str | None
    max_bytes: int

    def store(self) -> Store:
        """The Store."""
        return Store(self.folder, self.max_bytes)


class _Found(typing.NamedTuple):
    """What lies in the cache's folder under an entry's name."""

    name: str
    bytes: int
    used_ns: int  # when it was used last, since 1970


class Store:
    """The cache in one folder.

    folder: where it lies, None where there is no place for it. problem: the first reason why the cache did not work, one line, or "";
    the caller shows it. No method raises OSError for the cache's own files.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        """Args: folder: the default one where None; made at the first writing. max_bytes: of all entries; 0 keeps nothing."""
        self.max_bytes = max_bytes
        self.problem = ""
        self.folder: pathlib.Path | None
        try:
            self.folder = folders.check(folders.default() if folder is None else folder)
        except errors.TftrtError as error:
            self.folder = None
            self.problem = error.cause

    def get(self, key: Key, target: str | os.PathLike[str]) -> Hit | Miss:
        """Copy the engine of `key` to the file `target`, which is written only on a hit. The copy's digest is checked.

        Returns: Hit or Miss. An entry that is damaged is removed and counts as a miss.
        """
        if self.folder is None:
            return Miss(self.problem)
        path = self._path(key.name)
        try:
            folder = os.open(path, disk.OPEN | os.O_DIRECTORY)
        except FileNotFoundError:
            return Miss(NOT_THERE)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                return self._damaged(path, "it is no folder")
            return Miss(self._trouble(error))
        try:
            with disk.closing(folder):
                try:
                    return self._read(folder, key, pathlib.Path(target))
                except (disk.DamagedError, FileNotFoundError) as error:
                    # Another process may have removed the entry during the read.
                    if not disk.is_same(folder, path):
                        return Miss(NOT_THERE)
                    return self._damaged(
                        path, str(error) if isinstance(error, disk.DamagedError) else "a file is missing"
                    )
        except OSError as error:
            return Miss(self._trouble(error))

    def _read(self, folder: int, key: Key, target: pathlib.Path) -> Hit | Miss:
        with disk.opened(disk.RECORD, folder) as file:
            with contextlib.suppress(OSError):
                os.utime(file)
            record = disk.read_record(file)
        if record.key.name != key.name:
            raise disk.DamagedError("its record is about another engine")
        with disk.opened(disk.ENGINE, folder) as file:
            if os.fstat(file).st_size != record.bytes:
                raise disk.DamagedError(f"its engine file has {os.fstat(file).st_size} bytes, not {record.bytes}")
            try:
                with disk.new_file(target) as copy:
                    copied = disk.copy(file, copy)
            except OSError as error:
                # The target's disk is at fault, not the entry.
                return Miss(f"it cannot be copied: {errors.from_os_error(error).cause}")
        if copied != (record.sha256, record.bytes):
            target.unlink(missing_ok=True)
            raise disk.DamagedError("its engine file has changed")
        return Hit(target, record)

    def _damaged(self, path: pathlib.Path, reason: str) -> Miss:
        try:
            self._discard(path)
            return Miss(f"the entry was damaged and is removed: {reason}", damaged=True)
        except OSError as error:
            return Miss(
                f"the entry is damaged ({reason}) and cannot be removed: {errors.from_os_error(error).cause}",
                damaged=True,
            )

    def put(
        self,
        key: Key,
        file: str | os.PathLike[str],
        build_seconds: float | None = None,
        origin: str = "",
        driver: str = "",
    ) -> Stored:
        """Keep a copy of the engine file `file` under `key`, in place of what is there, then evict.

        Args: build_seconds, origin, driver: for the record. Returns: Stored.
        """
        if self.folder is None:
            return Stored(False, self.problem)
        try:
            size = os.stat(file).st_size
            too_large = Stored(False, f"an engine file of {size} bytes does not go into a cache of {self.max_bytes}")
            if not 0 < size <= self.max_bytes:
                return too_large
            folders.make(self._path())
            with self._stage() as stage:
                self._write(stage, key, file, build_seconds, origin, driver)
                if disk.size(stage) > self.max_bytes:
                    return too_large
                self._publish(stage, self._path(key.name))
        except OSError as error:
            return Stored(False, self._trouble(error))
        return Stored(True, evicted=self._evict(self.max_bytes, keep=key.name))

    @contextlib.contextmanager
    def _stage(self) -> Iterator[pathlib.Path]:
        """A new folder; its lock distinguishes it from one that a killed process left."""
        self._sweep()
        stage = self._unused("stage")
        stage.mkdir(mode=0o700)
        try:
            with disk.closing(os.open(stage, disk.OPEN | os.O_DIRECTORY)) as fd:
                with contextlib.suppress(OSError):
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield stage
                os.fsync(fd)
        finally:
            disk.delete(stage)

    def _write(
        self,
        stage: pathlib.Path,
        key: Key,
        file: str | os.PathLike[str],
        build_seconds: float | None,
        origin: str,
        driver: str,
    ) -> None:
        with open(file, "rb") as source, disk.new_file(stage / disk.ENGINE) as copy:
            digest, size = disk.copy(source.fileno(), copy)
            os.fsync(copy)
        record = EngineRecord(
            key=key,
            sha256=digest,
            bytes=size,
            build_seconds=build_seconds,
            origin=origin,
            driver=driver,
            **passport.stamp(),
        )
        with disk.new_file(stage / disk.RECORD) as fd:
            disk.write_all(fd, (json.dumps(record.to_dict(), indent=2) + "\n").encode())
            os.fsync(fd)

    def _publish(self, stage: pathlib.Path, path: pathlib.Path) -> None:
        for _ in range(10):
            try:
                os.rename(stage, path)
                return
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise
                with contextlib.suppress(FileNotFoundError):
                    self._discard(path)
        raise OSError(errno.EBUSY, "other processes write the same entry", str(path))

    @contextlib.contextmanager
    def lock(self, key: Key, on_wait: Callable[[str], object] | None = None) -> Iterator[bool]:
        """Hold the lock of `key` while you look for an engine, build it and put it: then one process builds it, and the others find it.

        Args: on_wait: called with a text before this waits for another process; without it the text is shown as progress.
        Yields: False if this file system has no locks. The block runs all the same.
        """
        fd, path = None, None
        if self.folder is not None:
            try:
                path = self._lock_path(key.name)
                fd = locks.acquire(path, wait=True, on_wait=lambda: (on_wait or progress.say)(WAITS))
            except OSError:
                # Two processes may then build the same engine. Each entry is whole all the same.
                fd = None
        try:
            yield fd is not None
        finally:
            if fd is not None and path is not None:
                locks.release(fd, path)

    def _lock_path(self, name: str) -> pathlib.Path:
        folder = self._path(".locks")
        folders.make(folder)
        if folder.is_symlink():
            raise OSError(errno.ELOOP, "is a symbolic link", str(folder))
        return folder / name

    def evict(self, max_bytes: int | None = None) -> tuple[str, ...]:
        """Remove entries, the least recently used first, until the rest has at most `max_bytes` (the store's own by default).

        An entry stays if its lock is held, or if it was used since this began. Returns: names of the removed.
        """
        return self._evict(self.max_bytes if max_bytes is None else max_bytes)

    def _evict(self, limit: int, keep: str | None = None) -> tuple[str, ...]:
        self._sweep()
        scanned = sorted(self._scan(), key=lambda entry: entry.used_ns)
        total = sum(entry.bytes for entry in scanned)
        removed = []
        for oldest in scanned:
            if total <= limit:
                break
            if oldest.name == keep:
                continue
            if not self._remove_idle(oldest.name, oldest.used_ns):
                removed.append(oldest.name)
                total -= oldest.bytes
            elif not os.path.lexists(self._path(oldest.name)):
                total -= oldest.bytes
        return tuple(removed)

    def remove(self, name: str) -> str:
        """Remove the entry `name`. Returns: "", or why it is still there."""
        if self.folder is None:
            return self.problem
        if not _NAME.fullmatch(name) or not os.path.lexists(self._path(name)):
            return NOT_THERE
        return self._remove_idle(name)

    def clear(self) -> tuple[str, ...]:
        """Remove every entry that nobody holds. Returns: their names."""
        return self.evict(-1)

    def _remove_idle(self, name: str, used: int | None = None) -> str:
        """Remove an entry that nobody holds and, where `used` (nanoseconds) is given, that was not used since. Returns: "" or why not."""
        fd, path = None, None
        try:
            path = self._lock_path(name)
            fd = locks.acquire(path, wait=False)
            if fd is None:
                return "another process is building or removing it"
        except OSError as error:
            if error.errno not in locks.UNSUPPORTED:
                return self._trouble(error)
        try:
            if used is not None and disk.last_used(self._path(name)) != used:
                return "it is in use"
            self._discard(self._path(name))
            return ""
        except FileNotFoundError:
            return NOT_THERE
        except OSError as error:
            return self._trouble(error)
        finally:
            if fd is not None and path is not None:
                locks.release(fd, path)

    def entries(self) -> list[Entry]:
        """The Entries, the most recently used first."""
        found = [self._entry(*one) for one in self._scan()]
        return sorted(filter(None, found), key=lambda entry: -entry.last_used)

    def _entry(self, name: str, size: int, used: int) -> Entry | None:
        record, problem = None, ""
        try:
            with (
                disk.closing(os.open(self._path(name), disk.OPEN | os.O_DIRECTORY)) as folder,
                disk.opened(disk.RECORD, folder) as file,
            ):
                record = disk.read_record(file)
            if record.key.name != name:
                record, problem = None, "its record is about another engine"
        except FileNotFoundError:
            if not os.path.lexists(self._path(name)):
                return None
            problem = "its record is missing"
        except disk.DamagedError as error:
            problem = str(error)
        except OSError as error:
            problem = error.strerror or str(error)
        return Entry(name=name, record=record, problem=problem, bytes=size, last_used=used / 1e9)

    def _scan(self) -> list[_Found]:
        """All files and folders whose names are those of entries."""
        if self.folder is None:
            return []
        listed = []
        try:
            names = [name for name in os.listdir(self.folder) if _NAME.fullmatch(name)]
        except FileNotFoundError:
            return []
        except OSError as error:
            self._trouble(error)
            return []
        for name in names:
            # Just removed, or another user's.
            with contextlib.suppress(OSError):
                listed.append(_Found(name, disk.size(self._path(name)), disk.last_used(self._path(name))))
        return listed

    def _path(self, *parts: str) -> pathlib.Path:
        """The path of an entry in the cache's folder; None where there is no folder."""
        assert self.folder is not None
        return self.folder.joinpath(*parts)

    def _unused(self, kind: str) -> pathlib.Path:
        return self._path(f".{kind}-{os.getpid()}-{os.urandom(6).hex()}")

    def _discard(self, path: pathlib.Path) -> None:
        """Take an entry away in one step, then delete it. Raises: OSError."""
        trash = self._unused("trash")
        os.rename(path, trash)
        disk.delete(trash)

    def _sweep(self) -> None:
        """Delete leftovers of killed processes."""
        with contextlib.suppress(OSError):
            for name in os.listdir(self.folder) if self.folder is not None else ():
                if name.startswith(".trash-") or (name.startswith(".stage-") and disk.abandoned(self._path(name))):
                    disk.delete(self._path(name))

    def _trouble(self, error: OSError) -> str:
        """Note the first problem. Returns: this one, one line."""
        text = f"the engine cache {self.folder} does not work: {errors.from_os_error(error).cause}"
        self.problem = self.problem or text
        return text
