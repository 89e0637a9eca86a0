"""ModelConfig: the configuration of a model as a Triton completed it, to and from bytes. Only what is asked for here is read.

Field numbers are those of model_config.proto in triton-inference-server/common.
"""

import dataclasses
from typing import TypeVar

from tftrt_tools.base.wire import fields
from tftrt_tools.servers.client.kserve.model import asked
from tftrt_tools.servers.client.model_spec import ModelSpec, text

CONFIG = "/inference.GRPCInferenceService/ModelConfig"
CPU = "KIND_CPU"
_KINDS = ("KIND_AUTO", "KIND_GPU", CPU, "KIND_MODEL")
_Value = TypeVar("_Value")
_BACKEND, _INSTANCE_GROUP, _TRANSACTIONS = 17, 7, 19
_KIND, _DECOUPLED = 4, 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """backend: what runs it, such as "python"; kinds: where each of its groups of instances runs, such as "KIND_CPU", () where it does not
    say; decoupled: whether it answers a request with a stream."""

    backend: str = ""
    kinds: tuple[str, ...] = ()
    decoupled: bool = False

    @property
    def on_cpu(self) -> bool:
        """Whether all instances of the model are on the CPU."""
        return set(self.kinds) == {CPU}


def request(model: ModelSpec) -> bytes:
    """bytes of the ModelConfigRequest. Raises: UsageError."""
    return b"".join(asked(model))


def read(raw: bytes) -> ModelConfig:
    """The ModelConfig in a ModelConfigResponse. Raises: ValueError."""
    config = _last(memoryview(raw), 1, fields.DELIMITED, memoryview(b""))
    kinds, backend, transactions = [], "", memoryview(b"")
    for field, wire_type, value in fields.walk(config):
        if wire_type != fields.DELIMITED:
            continue
        if field == _INSTANCE_GROUP:
            number = _last(value, _KIND, fields.VARINT, 0)
            kinds.append(_KINDS[number] if number < len(_KINDS) else str(number))
        elif field == _BACKEND:
            backend = text(value)
        elif field == _TRANSACTIONS:
            transactions = value
    return ModelConfig(
        backend=backend, kinds=tuple(kinds), decoupled=bool(_last(transactions, _DECOUPLED, fields.VARINT, 0))
    )


def _last(raw: memoryview, number: int, kind: int, missing: _Value) -> _Value:
    """The last value of a field, as protobuf takes it."""
    content = missing
    for field, wire_type, value in fields.walk(raw):
        if (field, wire_type) == (number, kind):
            content = value
    return content
