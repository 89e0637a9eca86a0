"""Engines on disk, by key: found, put, evicted, with several processes at once. Whatever is wrong with the disk, no build fails for it.

    FOLDER/<key name>/engine         the engine file as TF-TRT writes it
    FOLDER/<key name>/record.json    its record; the file's time is that of the last use
    FOLDER/.locks/<key name>         while someone builds or removes that engine
    FOLDER/.stage-*, .trash-*        on their way in and out

An entry appears by one rename and goes by one, so that none is seen in part. Symbolic links inside the folder are never followed.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import pathlib
import re
import shutil
import stat
import time

from tftrt_tools import errors, progress
from tftrt_tools.engine_cache import folders, locks
from tftrt_tools.engine_cache.record import Entry, Hit, Miss, Record, Stored
from tftrt_tools.savedmodel import passport

DEFAULT_MAX_BYTES = 10 << 30
NOT_THERE = "not in the cache"
_ENGINE, _RECORD = "engine", "record.json"
_NAME = re.compile(r"[0-9a-f]{64}")
_CHUNK_BYTES = 1 << 20
_RECORD_LIMIT_BYTES = 16 << 20
# Older stages whose lock is free were left by a process that died.
_STAGE_SECONDS = 3600
# O_NONBLOCK: a FIFO in place of a file must not hang the reader.
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


class _DamagedError(Exception):
    """An entry that cannot be used; the text says why."""


class Store:
    """The cache in one folder.

    folder: where it lies, None where there is no place for it. problem: the first thing that kept the cache from working, one line, or
    "": for the caller to say. No method raises OSError for the cache's own files.
    """

    def __init__(self, folder=None, max_bytes=DEFAULT_MAX_BYTES):
        """Args: folder: the default one where None; made at the first writing. max_bytes: of all entries; 0 keeps nothing."""
        self.max_bytes = max_bytes
        self.problem = ""
        try:
            self.folder = folders.check(folders.default() if folder is None else folder)
        except errors.TftrtError as error:
            self.folder = None
            self.problem = error.cause

    def get(self, key, target):
        """Copy the engine of `key` to the file `target`, which is written only on a hit. The copy's digest is checked.

        Returns: Hit or Miss. An entry that is damaged is removed and counts as a miss.
        """
        if self.folder is None:
            return Miss(self.problem)
        path = self.folder / key.name
        try:
            folder = os.open(path, _OPEN | os.O_DIRECTORY)
        except FileNotFoundError:
            return Miss(NOT_THERE)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                return self._damaged(path, "it is no folder")
            return Miss(self._trouble(error))
        try:
            with _closing(folder):
                try:
                    return self._read(folder, key, pathlib.Path(target))
                except (_DamagedError, FileNotFoundError) as error:
                    # Another process may have taken the entry away while it was read here.
                    if not _same(folder, path):
                        return Miss(NOT_THERE)
                    return self._damaged(path, str(error) if isinstance(error, _DamagedError) else "a file is missing")
        except OSError as error:
            return Miss(self._trouble(error))

    def _read(self, folder, key, target):
        with _opened(_RECORD, folder) as file:
            with contextlib.suppress(OSError):
                os.utime(file)
            record = _record(file)
        if record.key.name != key.name:
            raise _DamagedError("its record speaks of another engine")
        with _opened(_ENGINE, folder) as file:
            if os.fstat(file).st_size != record.bytes:
                raise _DamagedError(f"its engine file has {os.fstat(file).st_size} bytes, not {record.bytes}")
            try:
                with _new_file(target) as copy:
                    found = _copy(file, copy)
            except OSError as error:
                # The reader's disk; the entry is none the worse for it.
                return Miss(f"it cannot be copied: {errors.from_os_error(error).cause}")
        if found != (record.sha256, record.bytes):
            target.unlink(missing_ok=True)
            raise _DamagedError("its engine file has changed")
        return Hit(target, record)

    def _damaged(self, path, reason):
        try:
            self._discard(path)
            return Miss(f"the entry was damaged and is removed: {reason}", damaged=True)
        except OSError as error:
            return Miss(f"the entry is damaged ({reason}) and cannot be removed: {errors.from_os_error(error).cause}", damaged=True)

    def put(self, key, file, build_seconds=None, origin="", driver=""):
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
            folders.make(self.folder)
            with self._stage() as stage:
                self._write(stage, key, file, build_seconds, origin, driver)
                if _size(stage) > self.max_bytes:
                    return too_large
                self._publish(stage, self.folder / key.name)
        except OSError as error:
            return Stored(False, self._trouble(error))
        return Stored(True, evicted=self._evict(self.max_bytes, keep=key.name))

    @contextlib.contextmanager
    def _stage(self):
        """A new folder; locked, so that others can tell it from what a killed process left."""
        self._sweep()
        stage = self._unused("stage")
        stage.mkdir(mode=0o700)
        try:
            with _closing(os.open(stage, _OPEN | os.O_DIRECTORY)) as fd:
                with contextlib.suppress(OSError):
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield stage
                os.fsync(fd)
        finally:
            _delete(stage)

    def _write(self, stage, key, file, build_seconds, origin, driver):
        with open(file, "rb") as source, _new_file(stage / _ENGINE) as copy:
            digest, size = _copy(source.fileno(), copy)
            os.fsync(copy)
        record = Record(key, digest, size, build_seconds, origin, driver, **passport.stamp())
        with _new_file(stage / _RECORD) as fd:
            _write_all(fd, (json.dumps(record.to_dict(), indent=2) + "\n").encode())
            os.fsync(fd)

    def _publish(self, stage, path):
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
    def lock(self, key):
        """Hold the lock of `key`: for looking, building and putting, so that of several processes one builds and the others find.

        Waits for another holder, and says so as progress. Yields: False where locking is not possible here; the block runs all the same.
        """
        fd, path = None, None
        if self.folder is not None:
            try:
                path = self._lock_path(key.name)
                fd = locks.acquire(path, wait=True, on_wait=lambda: progress.say("waiting for another process that builds this engine"))
            except OSError:
                # Two processes may then build the same engine; what they put is whole all the same.
                fd = None
        try:
            yield fd is not None
        finally:
            if fd is not None:
                locks.release(fd, path)

    def _lock_path(self, name):
        folder = self.folder / ".locks"
        folders.make(folder)
        if folder.is_symlink():
            raise OSError(errno.ELOOP, "is a symbolic link", str(folder))
        return folder / name

    def evict(self, max_bytes=None):
        """Remove entries, the least recently used first, until the rest has at most `max_bytes` (the store's own by default).

        An entry stays where its lock is held, or where it was used since this began. Returns: names of the removed.
        """
        return self._evict(self.max_bytes if max_bytes is None else max_bytes)

    def _evict(self, limit, keep=None):
        self._sweep()
        found = sorted(self._scan(), key=lambda one: one[2])
        total = sum(size for _, size, _ in found)
        removed = []
        for name, size, used in found:
            if total <= limit:
                break
            if name == keep:
                continue
            if not self._remove_idle(name, used):
                removed.append(name)
                total -= size
            elif not os.path.lexists(self.folder / name):
                total -= size
        return tuple(removed)

    def remove(self, name):
        """Remove the entry `name`. Returns: "", or why it is still there."""
        if self.folder is None:
            return self.problem
        if not _NAME.fullmatch(name) or not os.path.lexists(self.folder / name):
            return NOT_THERE
        return self._remove_idle(name)

    def clear(self):
        """Remove every entry that nobody holds. Returns: their names."""
        return self.evict(-1)

    def _remove_idle(self, name, used=None):
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
            if used is not None and _last_used(self.folder / name) != used:
                return "it is in use"
            self._discard(self.folder / name)
            return ""
        except FileNotFoundError:
            return NOT_THERE
        except OSError as error:
            return self._trouble(error)
        finally:
            if fd is not None:
                locks.release(fd, path)

    def entries(self):
        """The Entries, the most recently used first."""
        found = [self._entry(name, size, used) for name, size, used in self._scan()]
        return sorted(filter(None, found), key=lambda entry: -entry.last_used)

    def _entry(self, name, size, used):
        record, problem = None, ""
        try:
            with _closing(os.open(self.folder / name, _OPEN | os.O_DIRECTORY)) as folder, _opened(_RECORD, folder) as file:
                record = _record(file)
            if record.key.name != name:
                record, problem = None, "its record speaks of another engine"
        except FileNotFoundError:
            if not os.path.lexists(self.folder / name):
                return None
            problem = "its record is missing"
        except _DamagedError as error:
            problem = str(error)
        except OSError as error:
            problem = error.strerror or str(error)
        return Entry(name, record, problem, size, used / 1e9)

    def _scan(self):
        """[(name, bytes on disk, last use in nanoseconds)] of everything that has an entry's name."""
        if self.folder is None:
            return []
        found = []
        try:
            names = [name for name in os.listdir(self.folder) if _NAME.fullmatch(name)]
        except FileNotFoundError:
            return []
        except OSError as error:
            self._trouble(error)
            return []
        for name in names:
            # Gone meanwhile, or another user's.
            with contextlib.suppress(OSError):
                found.append((name, _size(self.folder / name), _last_used(self.folder / name)))
        return found

    def _unused(self, kind):
        return self.folder / f".{kind}-{os.getpid()}-{os.urandom(6).hex()}"

    def _discard(self, path):
        """Take an entry away in one step, then delete it. Raises: OSError."""
        trash = self._unused("trash")
        os.rename(path, trash)
        _delete(trash)

    def _sweep(self):
        """Delete what killed processes left."""
        with contextlib.suppress(OSError):
            for name in os.listdir(self.folder) if self.folder is not None else ():
                if name.startswith(".trash-") or (name.startswith(".stage-") and _abandoned(self.folder / name)):
                    _delete(self.folder / name)

    def _trouble(self, error):
        """Note the first problem. Returns: this one, one line."""
        text = f"the engine cache {self.folder} does not work: {errors.from_os_error(error).cause}"
        self.problem = self.problem or text
        return text


@contextlib.contextmanager
def _closing(fd):
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _opened(name, folder):
    """A descriptor of the regular file `name` in the folder of descriptor `folder`. Raises: _DamagedError, FileNotFoundError, OSError."""
    try:
        fd = os.open(name, _OPEN, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _DamagedError(f"its {name} is a symbolic link") from None
        raise
    with _closing(fd):
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise _DamagedError(f"its {name} is no file")
        yield fd


@contextlib.contextmanager
def _new_file(path):
    """A descriptor of a file that is removed again where the block fails."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with _closing(fd):
            yield fd
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise


def _copy(source, target):
    """Copy between descriptors. Returns: (hex SHA-256, bytes)."""
    digest, size = hashlib.sha256(), 0
    while chunk := os.read(source, _CHUNK_BYTES):
        digest.update(chunk)
        size += len(chunk)
        _write_all(target, chunk)
    return digest.hexdigest(), size


def _write_all(fd, data):
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]


def _record(fd):
    """The Record in an open file. Raises: _DamagedError."""
    if os.fstat(fd).st_size > _RECORD_LIMIT_BYTES:
        raise _DamagedError("its record is too large")
    with os.fdopen(os.dup(fd), "rb") as file:
        try:
            return Record.from_dict(json.loads(file.read()))
        except (ValueError, RecursionError) as error:
            raise _DamagedError(f"its record cannot be read: {error}") from None


def _same(fd, path):
    """Whether `path` is still the folder of descriptor `fd`."""
    try:
        there, here = os.stat(path, follow_symlinks=False), os.fstat(fd)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def _last_used(path):
    """Time of the last use, nanoseconds since 1970. Raises: FileNotFoundError."""
    try:
        return os.stat(path / _RECORD, follow_symlinks=False).st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        return os.stat(path, follow_symlinks=False).st_mtime_ns


def _size(path):
    """Bytes of the files directly in a folder; 0 where `path` is something else."""
    if path.is_symlink() or not path.is_dir():
        return 0
    return sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(path))


def _abandoned(stage):
    """Whether a stage is old and its writer is gone."""
    try:
        if time.time() - os.stat(stage, follow_symlinks=False).st_mtime < _STAGE_SECONDS:
            return False
        with _closing(os.open(stage, _OPEN | os.O_DIRECTORY)) as fd:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except OSError:
        return False


def _delete(path):
    if path.is_symlink() or path.is_file():
        with contextlib.suppress(OSError):
            path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)
