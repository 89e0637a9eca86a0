"""Which model of a Triton is asked. Its versions are numbers written as texts; it has neither labels nor several signatures."""

from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.servers.client.model_spec import ModelSpec, text_field

# A model of Triton is one function; here it goes by the name that such a function has in a SavedModel.
SIGNATURE = "serving_default"


def asked(model: ModelSpec) -> list[Any]:
    """The fields name = 1 and version = 2 of most requests, in pieces of bytes. Raises: UsageError for what Triton has not."""
    if not model.name:
        raise errors.UsageError("the model has no name", "write client.predict('digits', …)")
    if model.label:
        raise errors.UsageError(
            f"label {model.label!r}: a Triton has no version labels", "ask for a version by its number"
        )
    if model.signature not in ("", SIGNATURE):
        raise errors.UsageError(
            f"signature {model.signature!r}: a model of Triton has one, {SIGNATURE}",
            "publish each signature as a model of its own",
        )
    return [*text_field(1, model.name), *text_field(2, "" if model.version is None else str(int(model.version)))]


def version_text(version: str) -> int | None:
    """The number of a version as Triton writes it; None where it wrote none. Raises: ValueError."""
    return int(version) if version else None
