"""TensorRT's timing cache on disk, beside the engines: how fast each kernel was for each layer. A later build measures only
what is new to it.

    FOLDER/.timings/<digest of what the times depend on>    the cache as TensorRT serialized it, behind its SHA-256

TF-TRT keeps it in the process's memory only (tf_private.TimingCache). A cache that is damaged, or of another TensorRT, GPU or library,
is never used: if TensorRT refuses one, TF-TRT ends the process. A cache in whose first minute of use a process ended is dropped.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import pathlib
import threading
from collections.abc import Iterator

from tftrt_tools.base.files import whole_file
from tftrt_tools.models.engine_cache import folders

FOLDER = ".timings"
# "0" in this variable of the environment carries no times.
SWITCH = "TFTRT_TIMING_CACHE"
# A larger cache is not kept; TensorRT then measures again.
MAX_BYTES = 64 << 20
_DIGEST_BYTES = 32
# TensorRT refuses a cache when a build begins. If the process still runs after this time, TensorRT has accepted it.
TRIAL_SECONDS = 60.0


@dataclasses.dataclass(frozen=True)
class Timings:
    """The timing cache in the engine cache `folder` (None for none). conditions: everything that kernels' times depend on: GPU, driver,
    versions of the libraries."""

    folder: pathlib.Path | None
    conditions: dict[str, str]

    @property
    def path(self) -> pathlib.Path:
        """The path of the cache, if there is an engine cache."""
        name = hashlib.sha256(json.dumps(self.conditions, sort_keys=True).encode()).hexdigest()
        return pathlib.Path(self.folder or "") / FOLDER / name

    @property
    def _mark(self) -> pathlib.Path:
        return self.path.with_name(self.path.name + ".trial")

    @contextlib.contextmanager
    def trial(self) -> Iterator[None]:
        """Around the first build with the kept cache: if the process ends in its first minute, the next one drops the cache."""
        try:
            descriptor = os.open(self._mark, os.O_WRONLY | os.O_CREAT, 0o600)
        except OSError:
            yield
            return
        timer = threading.Timer(TRIAL_SECONDS, self._passed)
        timer.daemon = True
        try:
            # While the process lives, it holds the lock.
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            timer.start()
            yield
        finally:
            timer.cancel()
            self._passed()
            os.close(descriptor)

    def _passed(self) -> None:
        with contextlib.suppress(OSError):
            self._mark.unlink()

    def _drop_what_ended_a_process(self) -> None:
        try:
            descriptor = os.open(self._mark, os.O_RDONLY)
        except OSError:
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.path.unlink(missing_ok=True)
            self._mark.unlink(missing_ok=True)
        except OSError:
            pass  # another living process has it on trial
        finally:
            os.close(descriptor)

    def read(self) -> bytes:
        """The kept cache; b"" if there is none, it is damaged, or a process ended in its trial."""
        if self.folder is None:
            return b""
        self._drop_what_ended_a_process()
        try:
            raw = self.path.read_bytes()
        except OSError:
            return b""
        digest, content = raw[:_DIGEST_BYTES], raw[_DIGEST_BYTES:]
        return content if hashlib.sha256(content).digest() == digest else b""

    def write(self, content: bytes) -> bool:
        """Replace the kept cache. Returns: whether it is kept; a failure is not an error."""
        if self.folder is None or not 0 < len(content) <= MAX_BYTES:
            return False
        try:
            folders.make(self.path.parent)
            whole_file.write_bytes(self.path, hashlib.sha256(content).digest() + content)
        except OSError:
            return False
        return True


def switched_off() -> bool:
    """Whether an environment variable switches the timing cache off."""
    return os.environ.get(SWITCH, "1") == "0"


def clear(folder: pathlib.Path) -> int:
    """Remove the caches of all conditions. Returns: the freed bytes."""
    freed = 0
    for path in (folder / FOLDER).glob("*"):
        try:
            size = path.stat().st_size
            path.unlink()
        except OSError:
            continue
        freed += size
    return freed
