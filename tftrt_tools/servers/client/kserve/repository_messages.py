"""A Triton's model repository: its index, and loading and unloading a model, to and from bytes.

States of the index are "READY", "UNAVAILABLE", "LOADING" and "UNLOADING", or "" for a model that was never loaded.
"""

import dataclasses

from tftrt_tools.base.wire import fields
from tftrt_tools.servers.client.kserve.model import version_text
from tftrt_tools.servers.client.model_service import AVAILABLE, END, VersionStatus
from tftrt_tools.servers.client.model_spec import text, text_field

INDEX = "/inference.GRPCInferenceService/RepositoryIndex"
LOAD = "/inference.GRPCInferenceService/RepositoryModelLoad"
UNLOAD = "/inference.GRPCInferenceService/RepositoryModelUnload"
_STATES = {"READY": AVAILABLE, "UNAVAILABLE": END}
# The reason of a version that was unloaded, or has given way to a newer one, and did not fail.
_UNLOADED = ("", "unloaded")


@dataclasses.dataclass(frozen=True)
class Indexed:
    """One entry of the index. version: its number, None where the model has none that was loaded; state: Triton's word; reason: Triton's
    words where it is not ready."""

    name: str
    version: int | None
    state: str
    reason: str

    def status(self) -> VersionStatus:
        """The VersionStatus, with TensorFlow Serving's state."""
        failed = self.state == "UNAVAILABLE" and self.reason not in _UNLOADED
        return VersionStatus(
            self.version or 0,
            _STATES.get(self.state, self.state or "UNKNOWN"),
            "UNAVAILABLE" if failed else "OK",
            self.reason if failed else "",
        )


def index_request() -> bytes:
    """bytes of the RepositoryIndexRequest for all models."""
    return b""


def read_index(raw: bytes) -> list[Indexed]:
    """The models of a RepositoryIndexResponse, in its order. Raises: ValueError."""
    models = []
    for field, wire_type, value in fields.walk(memoryview(raw)):
        if field == 1 and wire_type == fields.DELIMITED:
            texts = {number: text(content) for number, kind, content in fields.walk(value) if kind == fields.DELIMITED}
            name, version, state, reason = (texts.get(number, "") for number in (1, 2, 3, 4))
            models.append(Indexed(name, version_text(version), state, reason))
    return models


def model_request(model: str) -> bytes:
    """bytes of a RepositoryModelLoadRequest or a RepositoryModelUnloadRequest."""
    return b"".join(text_field(2, model))
