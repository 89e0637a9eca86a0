"""The records that a model carries in assets.extra/tftrt: how it was made, and whether it is right."""

import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from tftrt_tools.base import errors, records
from tftrt_tools.base.files import documents, whole_file
from tftrt_tools.base.version import __version__
from tftrt_tools.models.savedmodel import files

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
VERIFY = "verify.json"
CALIBRATION = "calibration.json"
PUBLISH = "publish.json"
# The document about the engines' layers from the log of the build: conversion.layer_table.Table.
LAYERS = "layers.json"
FLAGS = "convert.flags"
# The manifest's entry about signatures that were added to the converted model later: {"signatures": names, "default_was": the new name of
# serving_default or ""}.
WRAPPED = "wrapped"
# The reason of an engine that was not built in time contains this.
OUT_OF_TIME = "--max_build_minutes"
_AGAIN = "convert the model again"
# What the rooms take out of documents without a look at its type: documents.check's shapes.
_CALLS = [{str: [int]}]
_FLOPS = {"inside": int, "total": int, "unknown": [str], "loops": [str], "rounds": list, "share": float}
_SIGNATURE = {
    "name!": str,
    "twins": [str],
    "calls": _CALLS,
    "built": list,
    "inputs": [{"name": str, "dtype": str, "shape": list}],
    "converted": bool,
    "coverage": float,
    "engines": [{"name!": str, "precision": str, "native_segment": str, "ops": {str: int}}],
    "left_out": [dict],
    "refused_nodes": [{"node!": str, "op": str, "reason": str}],
    "native_ops": {str: int},
    "build_seconds": float,
    "findings": [dict],
    "preparation": dict,
    "quantization": dict,
    "flops": _FLOPS,
    "unbuilt": [{"name!": str, "reason!": str, "mend": str}],
    "other_mode": dict,
}
_SHAPES: dict[str, Any] = {
    MANIFEST: {
        "kind": str,
        "tool": str,
        "created": str,
        "source": str,
        "source_digest": str,
        "output": str,
        "settings": dict,
        "gpu": {"name": str, "compute_capability": str},
        "versions": {str: str},
        "seconds": float,
        "signatures": [_SIGNATURE],
        "build": dict,
        "calibration": dict,
        "op_libraries": [str],
        "build_seconds": float,
        "coverage": float,
        "engine_count": int,
        "layers": dict,
        "notes": [str],
        "strategy": str,
        "use_dynamic_shape": bool,
        "dynamic_shape_profile_strategy": str,
        "flops": _FLOPS,
        WRAPPED: {"signatures": [str], "default_was": str},
    },
    VERIFY: {
        "passed": bool,
        "verdict": str,
        "problems": [str],
        "warnings": [str],
        "original": str,
        "converted": str,
        "original_digest": str,
        "converted_digest": str,
        "evidence": str,
        "sources": {str: str},
        "samples": {str: int},
        "twins": {str: [str]},
        "created": str,
        "tool": str,
        "gpu": dict,
        "mode": str,
        "arithmetic": str,
    },
    PUBLISH: {
        "warmup": {"records": [{"shapes!": {str: [int]}, "signature!": str}], "count": int},
        "model": str,
        "command": str,
        # Of Triton: the model of each kind of GPU.
        "kinds": [{"gpu_type!": str, "compute_capability!": str}],
    },
}


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Stamped(records.Record):
    """Base of documents that say who wrote them, and when."""

    # "tftrt-tools 1.2".
    tool: str = f"tftrt-tools {__version__}"
    # UTC, as ISO 8601 writes it.
    created: str = dataclasses.field(default_factory=_now)


def stamp() -> dict[str, Any]:
    """Who wrote a document, and when (UTC): {"tool", "created"}."""
    return dataclasses.asdict(Stamped())


def folder(model: str | os.PathLike[str]) -> pathlib.Path:
    """The folder with the passport of the SavedModel `model`."""
    return pathlib.Path(model) / files.PASSPORT


def read(model: str | os.PathLike[str], name: str) -> dict[str, Any] | None:
    """The document `name` of the model's passport, or None. Raises: TftrtError where it is not readable JSON."""
    path = folder(model) / name
    if not path.is_file():
        return None
    with documents.reading(path, _AGAIN):
        document = documents.read(path)
        documents.check(document, {"schema_version": int})
    if (document.get("schema_version") or 0) > SCHEMA_VERSION:
        raise errors.TftrtError(
            f"{path} was written by a newer tftrt-tools (schema {document['schema_version']})", "upgrade tftrt-tools"
        )
    with documents.reading(path, _AGAIN):
        documents.check(document, _SHAPES.get(name, {}))
    return document


@contextlib.contextmanager
def understood(model: str | os.PathLike[str], name: str) -> Iterator[None]:
    """A context for code that reads fields of the document `name`. Raises: TftrtError if a field is missing or has another type."""
    with documents.reading(folder(model) / name, _AGAIN):
        yield


def signatures(manifest: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """The manifest's entry for each signature, including twins of one function; {} for None."""
    listed = (manifest or {}).get("signatures", ())
    return {name: one for one in listed for name in (one["name"], *one.get("twins", ()))}


def added_signatures(manifest: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Names of the signatures that `tftrt wrap` has added to the converted model."""
    return tuple(((manifest or {}).get(WRAPPED) or {}).get("signatures", ()))


def left_native(manifest: Mapping[str, Any] | None) -> dict[str, str]:
    """{engine op that the build left without an engine: why, in words}. They run in TensorFlow, which does not count as a fallback."""
    return {
        engine["name"]: "left native: " + ("not built in time" if OUT_OF_TIME in engine["reason"] else engine["reason"])
        for signature in (manifest or {}).get("signatures", ())
        for engine in signature.get("unbuilt", ())
    }


def in_tensorflow(manifest: Mapping[str, Any] | None) -> tuple[str, ...]:
    """What the build meant to be in engines and TensorFlow computes: nodes that TensorRT refused, and engine ops without an engine; a line
    each."""
    listed = (manifest or {}).get("signatures", ())
    refused = [one for signature in listed for one in signature.get("refused_nodes", ())]
    return (
        *(f"node {one['node']} ({one.get('op', '')}) stays in TensorFlow: {one.get('reason', '')}" for one in refused),
        *(
            f"{one['name']} has no engine and runs in TensorFlow: {one['reason']}"
            for signature in listed
            for one in signature.get("unbuilt", ())
        ),
    )


def write(model: str | os.PathLike[str], name: str, document: str | dict[str, Any]) -> None:
    """Put `document` (a dict, or text for a flag file) into the model's passport, whole or not at all."""
    path = folder(model) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(document, dict):
        document = json.dumps({"schema_version": SCHEMA_VERSION, **document}, indent=2) + "\n"
    whole_file.write_text(path, document)
