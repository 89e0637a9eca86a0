"""Writes docs/schemas/: what --json holds, as JSON Schema, of the commands that a pipeline reads. A record says it by its annotations.

Run from the repository's root: python -m docs.tools.schemas
"""

from __future__ import annotations

import collections.abc
import dataclasses
import json
import pathlib
import types
import typing
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.fleet.beside import Ran
from tftrt_tools.studies.fleet_builds.building import FleetBuild
from tftrt_tools.studies.regression import comparison

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "schemas"
_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN = {str: {"type": "string"}, int: {"type": "integer"}, bool: {"type": "boolean"}, type(None): {"type": "null"}}
# JSON has no infinity and no NaN.
_NUMBER = {"anyOf": [{"type": "number"}, {"enum": ["inf", "-inf", "nan"]}]}
_TEXT = {"type": "string"}
_VERSION = {"type": "integer", "minimum": 1}
_EXIT_CODES = [errors.EXIT_DONE, errors.EXIT_FAILED, errors.EXIT_CHECK, errors.EXIT_UNSURE]


def texts() -> dict[str, str]:
    """{name of a file: its text}."""
    found = {
        "fleet_build": _titled("tftrt build --on … --json", of_record(FleetBuild)),
        "publication": _titled("tftrt publish … --json, of one model", _publication()),
        "publications": _titled("tftrt publish … --json, of what build --on wrote", _publications()),
        "regression": _titled("tftrt regress … --json: what a pipeline reads of it", _regression()),
        "regressions": _titled("tftrt regress … --json, of several batch sizes", _regressions()),
    }
    return {f"{name}.json": json.dumps(schema, indent=2, ensure_ascii=False) + "\n" for name, schema in found.items()}


def of_record(kind: type) -> dict[str, Any]:
    """The schema of what a record writes. Every key is written; a later version may write more."""
    hints = typing.get_type_hints(kind)
    document = getattr(kind, "document", "")
    keys: dict[str, Any] = {"kind": {"const": document}} if document else {}
    for one in dataclasses.fields(kind):
        keys[one.metadata.get("tftrt_key") or one.name] = _of(hints[one.name])
    for name in getattr(kind, "written_too", ()):
        keys[name] = _of(typing.get_type_hints(getattr(kind, name).fget)["return"])
    return _object(keys)


def _of(kind: Any) -> dict[str, Any]:
    """The schema of an annotation."""
    if kind in (Any, object):
        return {}
    if kind is float:
        return _NUMBER
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return {"enum": list(inner)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_of(one) for one in inner]}
    if origin in (tuple, list, collections.abc.Sequence):
        return {"type": "array", "items": _of(inner[0])}
    if origin in (dict, collections.abc.Mapping):
        return {"type": "object", "additionalProperties": _of(inner[1])}
    return of_record(kind)


def _publication() -> dict[str, Any]:
    names = ("model", "model_name", "base_path", "path", "digest", "command")
    texts = {name: _TEXT for name in names}
    more = {
        "version": _VERSION,
        "verified": {"type": "boolean"},
        "engines": {"type": "integer"},
        "notes": {"type": "array", "items": _TEXT},
        "seconds": _NUMBER,
    }
    return _object({"kind": {"const": "publication"}, "tool": _TEXT, "created": _TEXT, **texts, **more})


def _publications() -> dict[str, Any]:
    selector = {"type": "object", "additionalProperties": _TEXT}
    of_kind = _object({"gpu_type": _TEXT, "gpu": _TEXT, "node_selector": selector, "publication": _publication()})
    texts = {name: _TEXT for name in ("tool", "created", "model", "model_name", "base_path")}
    kinds = {"type": "array", "items": of_kind}
    return _object({"kind": {"const": "publications"}, **texts, "version": _VERSION, "kinds": kinds})


def _regression() -> dict[str, Any]:
    return _object(
        {
            "kind": {"const": "regression"},
            **_outcome(),
            "checks": {"type": "array", "items": of_record(comparison.Check)},
            "seconds": _NUMBER,
            "notes": {"type": "array", "items": _TEXT},
            "beside": _of(Ran | None),
        }
    )


def _regressions() -> dict[str, Any]:
    size = {"type": "integer", "minimum": 1}
    found = {"anyOf": [_regression(), {"type": "null"}]}
    part = _object({"batch_size": size, "regression": found, "cause": _TEXT, "mend": _TEXT})
    parts = {"type": "array", "items": part}
    return _object({"kind": {"const": "regressions"}, **_outcome(), "batch_sizes": parts, "seconds": _NUMBER})


def _outcome() -> dict[str, Any]:
    """The keys with which both begin."""
    return {
        "tool": _TEXT,
        "created": _TEXT,
        "complete": {"type": "boolean"},
        "ended": _TEXT,
        "outcome": {"enum": [comparison.PASS, comparison.FAIL, comparison.UNSURE, comparison.ENDED]},
        "headline": _TEXT,
        "exit_code": {"enum": _EXIT_CODES},
    }


def _object(keys: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": list(keys), "properties": keys}


def _titled(title: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"$schema": _DRAFT, "title": title, **schema}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in texts().items():
        (FOLDER / name).write_text(text)
