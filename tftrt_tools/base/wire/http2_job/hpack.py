"""HPACK (RFC 7541): reads header blocks; writes them without a table, or as the same headers again and again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tftrt_tools.base.wire.http2_job import frames, huffman

Header = tuple[bytes, bytes]
# Bytes of the dynamic table, as HTTP/2 has them at first; this side never asks for another size.
_TABLE_BYTES = frames.FIRST_TABLE_SIZE
_ENTRY_BYTES = 32
_LARGEST_INTEGER = 1 << 31
_STATIC: tuple[Header, ...] = tuple(
    (name.encode(), value.encode())
    for name, _, value in (
        line.partition("=")
        for line in """:authority
:method=GET
:method=POST
:path=/
:path=/index.html
:scheme=http
:scheme=https
:status=200
:status=204
:status=206
:status=304
:status=400
:status=404
:status=500
accept-charset
accept-encoding=gzip, deflate
accept-language
accept-ranges
accept
access-control-allow-origin
age
allow
authorization
cache-control
content-disposition
content-encoding
content-language
content-length
content-location
content-range
content-type
cookie
date
etag
expect
expires
from
host
if-match
if-modified-since
if-none-match
if-range
if-unmodified-since
last-modified
link
location
max-forwards
proxy-authenticate
proxy-authorization
range
referer
refresh
retry-after
server
set-cookie
strict-transport-security
transfer-encoding
user-agent
vary
via
www-authenticate""".split("\n")
    )
)


class Decoder:
    """Reads the header blocks of one connection, in their order."""

    def __init__(self) -> None:
        self._table: list[Header] = []  # the newest first
        self._size, self._limit = 0, _TABLE_BYTES
        self._known: dict[bytes, dict[bytes, bytes]] = {}  # what blocks say for as long as the table stays as it is

    def read(self, block: bytes) -> dict[bytes, bytes]:
        """{name: value} of a block, of a name's values the last one. Raises: ValueError."""
        headers = self._known.get(block)
        if headers is not None:
            return headers
        changed = False
        headers, at = {}, 0
        while at < len(block):
            first = block[at]
            if first & 0x80:
                index, at = _integer(block, at, 7)
                name, value = self._entry(index)
            elif first & 0xE0 == 0x20:
                limit, at = _integer(block, at, 5)
                if limit > _TABLE_BYTES or headers:
                    raise ValueError("a table size is too large, or not in front")
                self._limit, changed = limit, True
                self._shrink()
                continue
            else:
                index, at = _integer(block, at, 6 if first & 0x40 else 4)
                name, at = (self._entry(index)[0], at) if index else _string(block, at)
                value, at = _string(block, at)
                if first & 0x40:
                    self._add((name, value))
                    changed = True
            headers[name] = value
        if changed:
            self._known.clear()
        elif len(self._known) < 64:
            self._known[block] = headers
        return headers

    def _entry(self, index: int) -> Header:
        if not 0 < index <= len(_STATIC) + len(self._table):
            raise ValueError(f"there is no header {index}")
        return _STATIC[index - 1] if index <= len(_STATIC) else self._table[index - len(_STATIC) - 1]

    def _add(self, header: Header) -> None:
        self._table.insert(0, header)
        self._size += _bytes(header)
        self._shrink()

    def _shrink(self) -> None:
        while self._size > self._limit:
            self._size -= _bytes(self._table.pop())


def _bytes(header: Header) -> int:
    return len(header[0]) + len(header[1]) + _ENTRY_BYTES


def _integer(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """(value, position behind it) of an integer whose first byte has so many bits of it."""
    most = (1 << bits) - 1
    value, at = block[at] & most, at + 1
    if value < most:
        return value, at
    shift = 0
    while True:
        if at >= len(block) or value > _LARGEST_INTEGER or shift > 28:
            raise ValueError("an integer does not end")
        byte, at = block[at], at + 1
        value += (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _string(block: bytes, at: int) -> tuple[bytes, int]:
    if at >= len(block):
        raise ValueError("a string is missing")
    coded = block[at] & 0x80
    size, at = _integer(block, at, 7)
    if at + size > len(block):
        raise ValueError("a string is cut off")
    text = block[at : at + size]
    return huffman.decode(text) if coded else text, at + size


def block(headers: Iterable[Header]) -> bytes:
    """The block of these headers, which changes no table."""
    return b"".join(b"\x00" + _length(name) + name + _length(value) + value for name, value in headers)


def repeated(headers: Sequence[Header]) -> tuple[bytes, bytes]:
    """(the first block of these headers on a connection, each later one): the first puts them into an empty table, the later ones name
    them there. A connection sends no others."""
    first = b"".join(b"\x40" + _length(name) + name + _length(value) + value for name, value in headers)
    return first, bytes(0x80 | len(_STATIC) + len(headers) - place for place in range(len(headers)))


def table_bytes(headers: Sequence[Header]) -> int:
    """What these headers take in a table."""
    return sum(map(_bytes, headers))


def _length(text: bytes) -> bytes:
    size = len(text)
    if size < 127:
        return bytes([size])
    out, size = bytearray([127]), size - 127
    while size > 127:
        out.append(size & 127 | 128)
        size >>= 7
    out.append(size)
    return bytes(out)
