"""TensorRT's timing cache on disk, beside the engines: how fast each kernel was for each layer. A later build measures only
what is new to it.

    FOLDER/.timings/<digest of what the times depend on>    the cache as TensorRT serialized it, behind its SHA-256

TF-TRT keeps it in the process's memory only (tf_private.TimingCache). A cache that is damaged, or of another TensorRT, GPU or library,
is never used: if TensorRT refuses one, TF-TRT ends the process.
"""

import dataclasses
import hashlib
import json
import pathlib

from tftrt_tools import whole_file
from tftrt_tools.engine_cache import folders

FOLDER = ".timings"
# A larger cache is not kept; TensorRT then measures again.
MAX_BYTES = 64 << 20
_DIGEST_BYTES = 32


@dataclasses.dataclass(frozen=True)
class Timings:
    """The timing cache in the engine cache `folder` (None for none). conditions: everything that kernels' times depend on: GPU, driver,
    versions of the libraries."""

    folder: pathlib.Path | None
    conditions: dict[str, str]

    @property
    def path(self) -> pathlib.Path:
        """Where it lies, where there is an engine cache."""
        name = hashlib.sha256(json.dumps(self.conditions, sort_keys=True).encode()).hexdigest()
        return pathlib.Path(self.folder or "") / FOLDER / name

    def read(self) -> bytes:
        """The kept cache; b"" if there is none or it is damaged."""
        if self.folder is None:
            return b""
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
