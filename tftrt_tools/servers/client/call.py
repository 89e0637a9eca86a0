"""A call to a server, before it is sent."""

import dataclasses
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

_Answer = TypeVar("_Answer")


class Connection(Protocol):
    """The facts about the client that a call needs. address: the gRPC target."""

    address: str


@dataclasses.dataclass(frozen=True)
class Call(Generic[_Answer]):
    """path: of the method; request: bytes; read: gives the answer from its bytes; timeout: seconds, None for the client's own."""

    path: str
    request: bytes
    read: Callable[[bytes], _Answer]
    timeout: float | None
