"""Parses a request body with RapidJSON itself: its number rules, its error texts and offsets."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import rapidjson

from tftrt_tools.serving.local import failure
from tftrt_tools.serving.local.rest import value_text

# The real server recurses without a limit and crashes some 10,000 lists deep; RapidJSON would do so here, too.
MAX_DEPTH = 500

_ERROR = re.compile(r"Parse error at offset (\d+): (.*)", re.DOTALL)
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BOM = b"\xef\xbb\xbf"
_CHUNK = 1 << 24  # bytes checked at a time
_STEPS = np.zeros(256, np.int8)
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1


def parse(body: bytes) -> dict[str, Any]:
    """Parse the bytes of a request body.

    Returns: dict; within it dict, list, str (bytes that are no UTF-8 as surrogate escapes), int (within 64 bits), float,
    bool, None. NaN, Infinity and Inf are numbers. If a key comes twice, the last value counts; in the real server, the first.
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
    return rapidjson.loads(body, number_mode=rapidjson.NM_NATIVE | rapidjson.NM_NAN)


def _decoded(body: bytes, skipped: int) -> Any:
    try:
        return _decode(body)
    except rapidjson.JSONDecodeError as error:
        match = _ERROR.match(str(error))
        if not match:
            raise failure.invalid(f"JSON Parse error: {error}") from None
        raise failure.invalid(f"JSON Parse error: {match.group(2)} at offset: {int(match.group(1)) + skipped}") from None


def _lenient(body: bytes, skipped: int) -> Any:
    """Parse and keep each byte that is not UTF-8, as a surrogate escape in the strings.

    RapidJSON passes such bytes through, but Python's binding refuses them; so private characters replace them during the parse.
    """
    text = body.decode("utf-8", "surrogateescape")
    base = next(base for base in range(0xF0000, 0x10FF00, 0x100) if not re.search(f"[{chr(base + 0x80)}-{chr(base + 0xFF)}]", text))
    hidden = text.translate({0xDC00 + byte: base + byte for byte in range(0x80, 0x100)}).encode()
    shown = {base + byte: 0xDC00 + byte for byte in range(0x80, 0x100)}
    try:
        return _translated(_decode(hidden), shown)
    except rapidjson.JSONDecodeError as error:
        match = _ERROR.match(str(error))
        if not match:
            raise failure.invalid(f"JSON Parse error: {error}") from None
        offset, text = match.groups()
        before = hidden[:int(offset)].decode("utf-8", "ignore").translate(shown).encode("utf-8", "surrogateescape")
        raise failure.invalid(f"JSON Parse error: {text} at offset: {len(before) + skipped}") from None


def _translated(value: Any, table: dict[int, int]) -> Any:
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
    bare = np.frombuffer(_STRING.sub(b"", body), np.uint8)
    depth = 0
    for start in itertools.takewhile(lambda at: at < len(bare), itertools.count(0, _CHUNK)):
        steps = _STEPS[bare[start:start + _CHUNK]]
        depths = depth + np.cumsum(steps[steps != 0], dtype=np.int64)
        if depths.size:
            if depths.max() > MAX_DEPTH:
                raise _too_deep()
            depth = int(depths[-1])


def _too_deep() -> failure.Failure:
    return failure.invalid(f"JSON Parse error: nested deeper than {MAX_DEPTH} levels, which the local server does not follow")
