"""The evidence that a model carries with it, in assets.extra/tftrt: what was done to it, and whether it is right."""

import datetime
import json
import pathlib

from tftrt_tools import __version__, errors, whole_file
from tftrt_tools.savedmodel import files

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
VERIFY = "verify.json"
CALIBRATION = "calibration.json"
PUBLISH = "publish.json"
FLAGS = "convert.flags"


def stamp():
    """Who wrote a document, and when (UTC): {"tool", "created"}."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return {"tool": f"tftrt-tools {__version__}", "created": now.isoformat(timespec="seconds")}


def folder(model):
    """Where the passport of the SavedModel `model` lies."""
    return pathlib.Path(model) / files.PASSPORT


def read(model, name):
    """The document `name` of the model's passport, or None. Raises: TftrtError where it is not readable JSON."""
    path = folder(model) / name
    if not path.is_file():
        return None
    try:
        document = json.loads(path.read_text())
    except (ValueError, UnicodeDecodeError) as error:
        raise errors.TftrtError(f"{path} is damaged: {error}", "convert the model again") from None
    if not isinstance(document, dict):
        raise errors.TftrtError(f"{path} is damaged: it holds no object", "convert the model again")
    if document.get("schema_version", 0) > SCHEMA_VERSION:
        raise errors.TftrtError(f"{path} was written by a newer tftrt-tools (schema {document['schema_version']})", "upgrade tftrt-tools")
    return document


def signatures(manifest: dict | None) -> dict[str, dict]:
    """What a manifest says of each signature, twins of one function included; {} for None."""
    listed = (manifest or {}).get("signatures", ())
    return {name: one for one in listed for name in (one["name"], *one.get("twins", ()))}


def write(model, name, document):
    """Put `document` (a dict, or text for a flag file) into the model's passport, whole or not at all."""
    path = folder(model) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(document, dict):
        document = json.dumps({"schema_version": SCHEMA_VERSION, **document}, indent=2) + "\n"
    whole_file.write_text(path, document)
