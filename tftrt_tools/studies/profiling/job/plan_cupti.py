"""Kernels, their launches and NVTX ranges while functions run, from CUPTI's activity records, through ctypes and without TensorFlow.

TensorRT opens an NVTX range around each layer that it launches. With NVTX_INJECTION64_PATH naming libcupti, these ranges come as marker
records, so each kernel's launch tells its layer. TensorRT reads the variable when it opens its first range: `record_ranges` sets it.

Layout of the records: cupti_activity.h of CUDA 11.8 (CUpti_ActivityKernel8, Memcpy5, Memset4, API, Marker2), offsets by the compiler.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Iterator
from typing import Any

from tftrt_tools.models.execution.job import cuda_libraries

_MEMCPY, _MEMSET, _DRIVER, _RUNTIME, _KERNEL, _MARKER = 1, 2, 4, 5, 10, 12
# Single kernels may report kind 3 as well.
_SERIAL_KERNEL = 3
_KINDS = (_MEMCPY, _MEMSET, _DRIVER, _RUNTIME, _KERNEL, _MARKER)
_NO_MORE = 12  # CUPTI_ERROR_MAX_LIMIT_REACHED
_FORCED = 1
_MARKER_START, _MARKER_END = 2, 4
_BUFFER_BYTES = 8 << 20
_ALIGNMENT = 8
_REQUESTED = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
_COMPLETED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


def record_ranges() -> None:
    """Call it before this process makes its first TensorRT runtime. (Its import opens no range: tried with a library of our own.)"""
    os.environ["NVTX_INJECTION64_PATH"] = cuda_libraries.cupti()


class Cupti:
    """The tracer of this process. One trace at a time."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(cuda_libraries.cupti())
        self._buffers: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self._full: list[tuple[int, int]] = []
        # ctypes keeps no reference of its own.
        self._callbacks = (_REQUESTED(self._give), _COMPLETED(self._take))
        self._call("cuptiActivityRegisterCallbacks", *self._callbacks)

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._library.cuptiGetResultString(code, ctypes.byref(text))
            raise RuntimeError(f"{name}: {(text.value or b'').decode()} ({code})")

    def _give(
        self,
        buffer: ctypes._Pointer[ctypes.c_void_p],
        size: ctypes._Pointer[ctypes.c_size_t],
        most: ctypes._Pointer[ctypes.c_size_t],
    ) -> None:
        allocated = ctypes.create_string_buffer(_BUFFER_BYTES + _ALIGNMENT)
        address = -(-ctypes.addressof(allocated) // _ALIGNMENT) * _ALIGNMENT
        self._buffers[address] = allocated
        buffer[0], size[0], most[0] = address, _BUFFER_BYTES, 0

    def _take(self, _context: object, _stream: int, buffer: int, _size: int, valid: int) -> None:
        self._full.append((buffer, valid))

    def now(self) -> int:
        """The time by the clock of the records, in nanoseconds."""
        moment = ctypes.c_uint64()
        self._call("cuptiGetTimestamp", ctypes.byref(moment))
        return moment.value

    @contextlib.contextmanager
    def tracing(self) -> Iterator[dict[str, Any]]:
        """Watch what runs inside the context; wait for the GPU before it ends. Yields: what `_parsed` returns, filled at its end."""
        recorded: dict[str, Any] = {}
        for kind in _KINDS:
            self._call("cuptiActivityEnable", kind)
        try:
            yield recorded
        finally:
            for kind in _KINDS:
                self._call("cuptiActivityDisable", kind)
            self._call("cuptiActivityFlushAll", _FORCED)
        recorded |= _parsed(self._records())

    def _records(self) -> Iterator[tuple[int, int]]:
        """(kind, address) of each record of the buffers that came back."""
        for buffer, valid in self._full:
            record = ctypes.c_void_p()
            while valid:
                code = self._library.cuptiActivityGetNextRecord(
                    ctypes.c_void_p(buffer), ctypes.c_size_t(valid), ctypes.byref(record)
                )
                if code:
                    if code != _NO_MORE:
                        raise RuntimeError(f"cuptiActivityGetNextRecord: {code}")
                    break
                address = record.value or 0
                yield _u32(address, 0), address
        self._full.clear()
        self._buffers.clear()


@functools.cache
def cupti() -> Cupti:
    """The Cupti of this process."""
    return Cupti()


def _parsed(records: Iterator[tuple[int, int]]) -> dict[str, Any]:
    """Plain values; times in nanoseconds of the GPU's clock.

    Returns: {"names": [text], "kernels": [[name, start, end, stream, correlation, grid, block, registers, shared bytes, graph node]],
    "copies": [[kind, start, end, stream, correlation, bytes]], "launches": [[correlation, start, end, thread]] of those that have a kernel
    or copy, "ranges": [[name, start, end, thread, domain]]}; names are indices of "names".
    """
    names: dict[str, int] = {}
    kernels, copies, launches, marks = [], [], [], []
    for kind, at in records:
        if kind in (_KERNEL, _SERIAL_KERNEL):
            kernels.append(
                [
                    _number(names, _demangled(_text(at + 104))),
                    _u64(at, 16),
                    _u64(at, 24),
                    _u32(at, 48),
                    _u32(at, 92),
                    [_u32(at, 52 + 4 * axis) for axis in range(3)],
                    [_u32(at, 64 + 4 * axis) for axis in range(3)],
                    ctypes.c_uint16.from_address(at + 6).value,
                    _u32(at, 76) + _u32(at, 80),
                    _u64(at, 144),
                ]
            )
        elif kind == _MEMCPY:
            copies.append(
                [
                    f"memcpy {ctypes.c_uint8.from_address(at + 4).value}",
                    _u64(at, 16),
                    _u64(at, 24),
                    _u32(at, 40),
                    _u32(at, 44),
                    _u64(at, 8),
                ]
            )
        elif kind == _MEMSET:
            copies.append(["memset", _u64(at, 16), _u64(at, 24), _u32(at, 40), _u32(at, 44), _u64(at, 8)])
        elif kind in (_DRIVER, _RUNTIME):
            launches.append([_u32(at, 32), _u64(at, 8), _u64(at, 16), _u32(at, 28)])
        elif kind == _MARKER:
            marks.append((_u64(at, 8), _u32(at, 4), _u32(at, 16), _u32(at, 28), _text(at + 40), _text(at + 48)))
    caused = {record[4] for record in (*kernels, *copies)}
    ranges = _ranges(names, marks)
    return {
        "names": list(names),
        "kernels": kernels,
        "copies": copies,
        "launches": [launch for launch in launches if launch[0] in caused],
        "ranges": ranges,
    }


def _ranges(names: dict[str, int], marks: list[tuple[int, int, int, int, str, str]]) -> list[list[int]]:
    """Pairs of marks. marks: (moment, flags, the range's number, thread, name, domain); only a start has a name."""
    ranges, opened = [], {}
    for moment, flags, number, thread, name, domain in sorted(marks):
        if flags & _MARKER_START:
            opened[number] = (moment, thread, name, domain)
        elif flags & _MARKER_END and number in opened:
            start, thread, name, domain = opened.pop(number)
            ranges.append([_number(names, name), start, moment, thread, _number(names, domain)])
    return ranges


def _number(names: dict[str, int], name: str) -> int:
    return names.setdefault(name, len(names))


def _u32(address: int, offset: int) -> int:
    return ctypes.c_uint32.from_address(address + offset).value


def _u64(address: int, offset: int) -> int:
    return ctypes.c_uint64.from_address(address + offset).value


def _text(address: int) -> str:
    """The C string to which the pointer at `address` points."""
    pointer = ctypes.c_void_p.from_address(address).value
    return ctypes.string_at(pointer).decode(errors="replace") if pointer else ""


@functools.cache
def _demangled(name: str) -> str:
    """The readable form of a mangled C++ name."""
    library = ctypes.CDLL("libstdc++.so.6")
    demangle = library.__cxa_demangle
    demangle.restype, demangle.argtypes = (
        ctypes.c_void_p,
        [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)],
    )
    status = ctypes.c_int()
    demangled = demangle(name.encode(), None, None, ctypes.byref(status))
    if status.value or not demangled:
        return name
    text = ctypes.string_at(demangled).decode(errors="replace")
    ctypes.CDLL(None).free(ctypes.c_void_p(demangled))
    return text
