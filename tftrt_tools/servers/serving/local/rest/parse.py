"""Parses a request body with RapidJSON itself: its number rules, its error texts and offsets."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import rapidjson

from tftrt_tools.servers.serving.local import failure
from tftrt_tools.servers.serving.local.rest import value_text

# The real server recurses without a limit and crashes some 10,000 lists deep; RapidJSON would do so here, too.
MAX_DEPTH = 500

_ERROR = re.compile(r"Parse error at offset (\d+): (.*)", re.DOTALL)
_BOM = b"\xef\xbb\xbf"
_CHUNK = 1 << 24  # bytes checked at a time
_WIDEST = range(-(2**63), 2**64)  # integers that RapidJSON keeps; beyond them it reads a double
_STEPS = np.zeros(256, np.int8)
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1
_OTHERS = bytes(byte for byte in range(256) if byte not in b"[]{}")


def parse(body: bytes) -> dict[str, Any]:
    """Parse the bytes of a request body.

    Returns: dict; within it dict, list, str (bytes that are no UTF-8 as surrogate escapes), int (within 64 bits), float,
    bool, None. NaN, Infinity and Inf are numbers. If a key comes twice, the first value counts.
    Raises: Failure INVALID_ARGUMENT: no JSON, no object, or nested deeper than MAX_DEPTH.
    """
    if not body:
        raise failure.invalid("JSON Parse error: The document is empty")
    _check_depth(body)
    skipped = len(_BOM) if body.startswith(_BOM) else 0
    body = body[skipped:]
    try:
        document = _decoded(body, skipped)
    except UnicodeDecodeError:
        document = _lenient(body, skipped)
    except RecursionError:
        raise _too_deep() from None
    if not isinstance(document, dict):
        raise failure.invalid(f"JSON Value: {value_text.text(document)} Is not object")
    return document


def _decode(body: bytes) -> Any:
    # No hooks of a Decoder here: with objects other than dicts python-rapidjson 1.25 loses count of references and crashes.
    document = rapidjson.loads(body, number_mode=rapidjson.NM_NATIVE | rapidjson.NM_NAN)
    # Where a key comes twice, it has kept the last value.
    if isinstance(document, (dict, list)) and body.count(b":") > len(document) and _members(document) < _colons(body):
        with contextlib.suppress(ValueError):  # of Inf, which Python's parser has not
            return json.loads(body, object_pairs_hook=_first_ones, parse_int=_integer, strict=False)
    return document


def _members(value: object) -> int:
    """How many members all objects in a value have."""
    if isinstance(value, dict):
        return len(value) + sum(map(_members, value.values()))
    return sum(map(_members, value)) if isinstance(value, list) else 0


def _colons(body: bytes) -> int:
    return sum(part.count(b":") for part in bare(body))


def _first_ones(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        found.setdefault(key, value)
    return found


def _integer(text: str) -> float:
    """As RapidJSON reads a whole number."""
    value = int(text) if len(text) <= 20 else float(text)
    return value if value in _WIDEST or isinstance(value, float) else float(value)


def _decoded(body: bytes, skipped: int) -> Any:
    try:
        return _decode(body)
    except rapidjson.JSONDecodeError as error:
        match = _ERROR.match(str(error))
        if not match:
            raise failure.invalid(f"JSON Parse error: {error}") from None
        raise failure.invalid(
            f"JSON Parse error: {match.group(2)} at offset: {int(match.group(1)) + skipped}"
        ) from None


def _lenient(body: bytes, skipped: int) -> Any:
    """Parse and keep each byte that is not UTF-8, as a surrogate escape in the strings.

    RapidJSON passes such bytes through, but Python's binding refuses them; so private characters replace them during the parse.
    """
    text = body.decode("utf-8", "surrogateescape")
    base = next(
        base
        for base in range(0xF0000, 0x10FF00, 0x100)
        if not re.search(f"[{chr(base + 0x80)}-{chr(base + 0xFF)}]", text)
    )
    hidden = text.translate({0xDC00 + byte: base + byte for byte in range(0x80, 0x100)}).encode()
    shown = {base + byte: 0xDC00 + byte for byte in range(0x80, 0x100)}
    try:
        return _translated(_decode(hidden), shown)
    except rapidjson.JSONDecodeError as error:
        match = _ERROR.match(str(error))
        if not match:
            raise failure.invalid(f"JSON Parse error: {error}") from None
        offset, text = match.groups()
        before = hidden[: int(offset)].decode("utf-8", "ignore").translate(shown).encode("utf-8", "surrogateescape")
        raise failure.invalid(f"JSON Parse error: {text} at offset: {len(before) + skipped}") from None


def _translated(value: object, table: dict[int, int]) -> Any:
    if isinstance(value, str):
        return value.translate(table)
    if isinstance(value, list):
        return [_translated(item, table) for item in value]
    if isinstance(value, dict):
        return {key.translate(table): _translated(item, table) for key, item in value.items()}
    return value


def _check_depth(body: bytes) -> None:
    """Raise Failure where lists and objects nest deeper than MAX_DEPTH; brackets inside strings do not count."""
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return
    depth, brackets = 0, np.frombuffer(b"".join(bare(body)).translate(None, _OTHERS), np.uint8)
    for start in range(0, len(brackets), _CHUNK):
        depths = depth + np.cumsum(_STEPS[brackets[start : start + _CHUNK]], dtype=np.int64)
        if depths.max() > MAX_DEPTH:
            raise _too_deep()
        depth = int(depths[-1])


def bare(body: bytes) -> Iterator[bytes]:
    """The parts of a text outside its strings. Each byte is looked at once or twice, whatever quotes are missing."""
    at = 0
    while (start := body.find(b'"', at)) >= 0:
        yield body[at:start]
        at = _behind_string(body, start + 1)
    yield body[at:]


def _behind_string(body: bytes, at: int) -> int:
    """The place behind a string whose content begins at `at`; a string without an end lasts to the end of the text."""
    while (quote := body.find(b'"', at)) >= 0:
        content = body[at:quote]
        if (len(content) - len(content.rstrip(b"\\"))) % 2 == 0:
            return quote + 1
        at = quote + 1
    return len(body)


def _too_deep() -> failure.Failure:
    return failure.invalid(
        f"JSON Parse error: nested deeper than {MAX_DEPTH} levels, which the local server does not follow"
    )
