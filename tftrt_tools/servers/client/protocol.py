"""What differs between the protocols of servers, for those that ask any server: bench, smoke, regress, the words of errors."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from tftrt_tools.servers.client.model_spec import ModelSpec


@dataclasses.dataclass(frozen=True, kw_only=True)
class Protocol:
    """A server's protocol: its paths, and the two halves of the call that runs a model."""

    # The server's name in messages.
    server: str
    # The port where it usually is.
    port: int
    # The scheme in front of an address, "" for none.
    scheme: str
    # Full gRPC methods.
    paths: tuple[str, ...]
    # The one of them that runs a model.
    path: str
    # What an address of another server may be, in words.
    instead: str
    # Whether a server that refuses the method that runs models is surely another one.
    only_its_own: bool
    # bytes of a request: (model, {input: array}, signature, version, label, …), as predict_messages.request_bytes.
    request_bytes: Callable[..., bytes]
    # (ModelSpec that answered, {output: ndarray}) of an answer's bytes. Raises: ValueError.
    response_arrays: Callable[[bytes], tuple[ModelSpec, dict[str, npt.NDArray[Any]]]]
    # Whether the order of an answer's outermost fields says nothing: its outputs are a map, which a server writes in any order.
    unordered: bool
    # (full method, request) of a call that moves next to nothing and runs no model.
    empty_call: Callable[[ModelSpec], tuple[str, bytes]]

    @property
    def runs(self) -> str:
        """The last part of `path`, such as "Predict"."""
        return self.path.rpartition("/")[2]
