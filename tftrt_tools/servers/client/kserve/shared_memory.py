"""Memory that this process and a Triton on the same machine see: inputs that lie in it are not sent.

    with TritonClient("triton://localhost:8001") as client, SharedMemory(64 << 20) as memory:
        client.register(memory)
        images = memory.array((8, 224, 224, 3), np.float32)
        images[...] = batch
        client.predict("resnet", {"image": images})

An array must not be written to while a call that has it is under way. Triton calls it system shared memory.
"""

from __future__ import annotations

import math
import mmap
import os
import pathlib
import secrets
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.base.wire import varints
from tftrt_tools.servers.client.model_spec import text_field

if TYPE_CHECKING:
    from typing_extensions import Self

REGISTER = "/inference.GRPCInferenceService/SystemSharedMemoryRegister"
UNREGISTER = "/inference.GRPCInferenceService/SystemSharedMemoryUnregister"
# Where shm_open(3) of glibc has its objects.
_FOLDER = pathlib.Path("/dev/shm")
_ALIGNED = 64
# Fields of messages: the parameters of an input, and in them a map's entries, with 64-bit numbers and texts.
_PARAMETERS, _KEY, _VALUE, _NUMBER, _TEXT = 4, 1, 2, 2, 3


class SharedMemory:
    """A region; a context manager, which takes it away at its end. Arrays in it stay as long as they are used."""

    def __init__(self, size: int) -> None:
        """Args: size: bytes. Raises: UsageError where this system has no place for it; OSError where it is full."""
        if size <= 0:
            raise errors.UsageError(f"a region of {size} bytes holds nothing", "give the bytes of the inputs")
        if not _FOLDER.is_dir():
            raise errors.UsageError(f"this system has no {_FOLDER}", "send the inputs")
        self.name, self.size = f"tftrt-{os.getpid()}-{secrets.token_hex(4)}", size
        self._path, self._used = _FOLDER / self.name, 0
        # Only this user has access: the server has to run as this user, or as root.
        handle = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            # Takes the pages now: a place that is full is an error here, and not the end of the process at the first write.
            os.posix_fallocate(handle, 0, size)
            self._bytes = np.frombuffer(mmap.mmap(handle, size), np.uint8)
        except BaseException:
            self._path.unlink(missing_ok=True)
            raise
        finally:
            os.close(handle)
        self._start = self._bytes.ctypes.data

    def array(self, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """An array in it, behind those that it has already, with the values that are there. Raises: UsageError where it is full."""
        kind = np.dtype(dtype)
        if kind.kind in "SUO":
            raise errors.UsageError("texts cannot lie in shared memory", "send them")
        begin = -(-self._used // _ALIGNED) * _ALIGNED
        count = math.prod(shape)
        end = begin + count * kind.itemsize
        if end > self.size:
            raise errors.UsageError(f"the region has {self.size} bytes, and {end} are needed", "make it larger")
        self._used = end
        return self._bytes[begin:end].view(kind).reshape(tuple(shape))

    def clear(self) -> None:
        """Begin anew: the next array is the first. Arrays that were made before may not be used any more."""
        self._used = 0

    def offset(self, array: npt.NDArray[Any]) -> int | None:
        """Bytes from its start to the array's, None for one that does not lie in it whole, in one piece."""
        begin = array.ctypes.data - self._start
        inside = array.flags.c_contiguous and array.nbytes and 0 <= begin and begin + array.nbytes <= self.size
        return begin if inside else None

    def close(self) -> None:
        """Take it away. A server that has registered it keeps it until it is told, or ends."""
        self._path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def register_request(memory: SharedMemory) -> bytes:
    """bytes of a SystemSharedMemoryRegisterRequest."""
    return b"".join(
        [*text_field(1, memory.name), *text_field(2, "/" + memory.name), b"\x20", varints.encode_one(memory.size)]
    )


def unregister_request(memory: SharedMemory) -> bytes:
    """bytes of a SystemSharedMemoryUnregisterRequest."""
    return b"".join(text_field(1, memory.name))


def place(regions: Iterable[SharedMemory], array: npt.NDArray[Any]) -> list[Any]:
    """The parameters of an input that say where it lies, in pieces of bytes; [] for one that lies in none of the regions."""
    for memory in regions:
        offset = memory.offset(array)
        if offset is not None:
            return [
                *_parameter("shared_memory_region", text_field(_TEXT, memory.name)),
                *_parameter("shared_memory_offset", _number(offset)),
                *_parameter("shared_memory_byte_size", _number(array.nbytes)),
            ]
    return []


def _number(value: int) -> list[Any]:
    return [bytes([_NUMBER << 3]), varints.encode_one(value)]


def _parameter(name: str, value: list[Any]) -> list[Any]:
    return varints.delimited(_PARAMETERS, *text_field(_KEY, name), *varints.delimited(_VALUE, *value))
