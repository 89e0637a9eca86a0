"""Which model is asked, and which one answered (tensorflow_serving/apis/model.proto)."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from tftrt_tools.base import errors
from tftrt_tools.base.wire import fields, varints

_NAME, _VERSION, _SIGNATURE, _LABEL = 1, 2, 3, 4
_INT64 = 1 << 63
_Value = TypeVar("_Value")


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """A model as a request names it, or as an answer does. version: int, None where a label or the server chooses; signature: "" for
    "serving_default"."""

    name: str
    version: int | None = None
    label: str = ""
    signature: str = ""

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and isinstance(self.label, str) and isinstance(self.signature, str)):
            raise errors.UsageError(
                "the model's name, its label and its signature are texts", "write client.predict('digits', …)"
            )
        if self.version is not None:
            if isinstance(self.version, bool) or not hasattr(self.version, "__index__"):
                raise errors.UsageError(
                    f"{self.version!r} is no version: a version is a whole number", "a label is given by label="
                )
            if not -_INT64 <= int(self.version) < _INT64:
                raise errors.UsageError(
                    f"{self.version} is no version: it does not fit into 64 bits", "see `tftrt versions`"
                )
            if self.label:
                raise errors.UsageError(
                    f"version {self.version} and label {self.label!r} are both given", "give one of them"
                )

    def to_bytes(self) -> bytes:
        """The message, as protobuf writes it."""
        parts = text_field(_NAME, self.name)
        if self.version is not None:
            number = int(self.version) & ((1 << 64) - 1)
            parts += varints.delimited(_VERSION, b"\x08" + varints.encode_one(number) if number else b"")
        return b"".join([*parts, *text_field(_SIGNATURE, self.signature), *text_field(_LABEL, self.label)])

    @classmethod
    def from_parts(cls, parts: Sequence[memoryview]) -> "ModelSpec":
        """Parse the pieces of a ModelSpec. Raises: ValueError."""
        texts: dict[int, str] = {}
        version: int | None = None
        for field, wire_type, value in fields.walk(fields.joined(parts)) if parts else ():
            if wire_type != fields.DELIMITED:
                continue
            if field == _VERSION:
                texts.pop(_LABEL, None)  # a oneof: the later one counts
                version = version or 0
                for inner, inner_type, number in fields.walk(value):
                    if inner == 1 and inner_type == fields.VARINT:
                        version = fields.signed(number)
            elif field in (_NAME, _SIGNATURE, _LABEL):
                texts[field] = text(value)
                version = None if field == _LABEL else version
        return cls(texts.get(_NAME, ""), version, texts.get(_LABEL, ""), texts.get(_SIGNATURE, ""))


class Answered(dict[str, _Value]):
    """A dict that knows which model answered. model: its ModelSpec, with the version that answered."""

    def __init__(self, items: Mapping[str, _Value] | Iterable[tuple[str, _Value]], model: ModelSpec) -> None:
        super().__init__(items)
        self.model = model


def text_field(number: int, value: str) -> list[Any]:
    """A text as a field, in pieces of bytes; no pieces for an empty text."""
    return varints.delimited(number, utf8(value)) if value else []


def utf8(value: str) -> bytes:
    """Bytes of a text. Raises: UsageError for a value that is not a text."""
    try:
        return value.encode()
    except (UnicodeEncodeError, AttributeError):
        raise errors.UsageError(
            f"{value!r} is no text that can be sent", "names are texts of Unicode characters"
        ) from None


def text(value: memoryview) -> str:
    """The text of bytes. Raises: ValueError."""
    return str(value, "utf-8")
